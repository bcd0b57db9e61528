"""Events of user code: what else than dasfprof's own kinds of events the files hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import to_numbers
from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import Array
from dasfprof.schema.events import EventPhases

#: Seconds from the epoch beyond which a number is no time of any clock.
_LATEST = 1e12
#: What an event is, by its phase.
_KINDS = {
    EventPhases.COMPLETE: "span",
    EventPhases.INSTANT: "instant",
    EventPhases.DURATION_BEGIN: "begin",
    EventPhases.DURATION_END: "end",
}
#: Seconds from a run's other facts from which on an event does not belong to it.
_FAR = 86_400.0
#: What is said of such events.
FAR_AWAY = (
    "more than a day from the run, maybe of another clock: they are listed in tables, and in no "
    "picture."
)
_COLUMNS = ("name", "kind", "time", "duration", "process", "thread", "args")


class OwnEvents:
    """Collects events of user code, file by file."""

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []

    def add(self, batch: Batch) -> None:
        """Take the events of a batch."""
        times = to_numbers(batch.fields["timestamp"]).astype(float)
        durations = np.zeros(batch.rows)
        if "duration" in batch.fields:
            durations = to_numbers(batch.fields["duration"]).astype(float)
        names = list(batch.args)
        rows = zip(*(column.to_list() for column in batch.args.values()), strict=True)
        args = [dict(zip(names, row, strict=True)) for row in rows] if names else []
        part = {
            "name": batch.names,
            "kind": _KINDS[batch.phase],
            "time": np.where(np.abs(times) < _LATEST, times, np.nan),
            "duration": np.where((durations >= 0) & (durations < _LATEST), durations, np.nan),
            "process": _texts(batch, "process_id"),
            "thread": _texts(batch, "thread_id"),
            "args": pd.Series(args or [{}] * batch.rows, dtype=object),
            "sequence": batch.sequence,
        }
        self._parts.append(pd.DataFrame(part))

    def end_of_file(self) -> None:
        """Put the events of a file into the order in which they were recorded."""
        parts = [part for part in self._parts if "sequence" in part]
        if not parts:
            return
        rest = self._parts[: len(self._parts) - len(parts)]
        ordered = pd.concat(parts, ignore_index=True).sort_values("sequence", kind="stable")
        self._parts = [*rest, ordered.drop(columns="sequence")]

    def table(self) -> pd.DataFrame:
        """Return all events, those that begin and end something joined; see `Trace.events`."""
        if not self._parts:
            empty = pd.DataFrame({name: [] for name in _COLUMNS}, dtype=object)
            return empty.astype({"time": float, "duration": float})
        return _joined(pd.concat(self._parts, ignore_index=True))


def widened(begin: float, end: float, events: pd.DataFrame) -> tuple[float, float, int]:
    """Widen a run's span by its events of user code, but for those that are far from it.

    Parameters
    ----------
    begin, end
        Of all other facts, NaN where there are none: all events count then.
    events
        As `OwnEvents.table` gives them.

    Returns
    -------
    begin, end, left_out
        The span, and the number of events that are too far away.
    """
    starts = events["time"].to_numpy(dtype=float)
    stops = starts + np.nan_to_num(events["duration"].to_numpy(dtype=float))
    timed = np.isfinite(starts)
    near = timed.copy()
    if np.isfinite(begin):
        near &= (starts >= begin - _FAR) & (stops <= end + _FAR)
    if not near.any():
        return begin, end, int(timed.sum())
    first, last = float(starts[near].min()), float(stops[near].max())
    if np.isfinite(begin):
        first, last = min(first, begin), max(last, end)
    return first, last, int((timed & ~near).sum())


def _texts(batch: Batch, field: str) -> pd.Series[Any]:
    column = batch.fields.get(field)
    values = [""] * batch.rows if column is None else column.to_list()
    return pd.Series(["" if value is None else str(value) for value in values], dtype=object)


def _joined(events: pd.DataFrame) -> pd.DataFrame:
    """Make one span of each begin and the end of the same name, process and thread."""
    kinds = events["kind"].to_numpy(dtype=object)
    bounds = np.flatnonzero((kinds == "begin") | (kinds == "end"))
    if not len(bounds):
        return events
    times = events["time"].to_numpy()
    open_rows: dict[tuple[Any, ...], list[int]] = {}
    ends = np.full(len(events), -1, dtype=np.int64)
    where = zip(*(events[name].iloc[bounds] for name in ("name", "process", "thread")), strict=True)
    for row, place in zip(bounds.tolist(), where, strict=True):
        if kinds[row] == "begin":
            open_rows.setdefault(place, []).append(row)
        elif open_rows.get(place) and times[row] >= times[open_rows[place][-1]]:
            ends[open_rows[place].pop()] = row
    begun: Array = np.flatnonzero(ends >= 0)
    events = events.copy()
    events["duration"] = events["duration"].where(~np.isin(kinds, ["begin", "end"]))
    events.loc[begun, "duration"] = times[ends[begun]] - times[begun]
    events.loc[begun, "kind"] = "span"
    args = events["args"].to_numpy(dtype=object).copy()
    for row in begun.tolist():
        args[row] = {**args[row], **args[ends[row]]}
    events["args"] = pd.Series(args, index=events.index, dtype=object)
    kept = np.ones(len(events), dtype=bool)
    kept[ends[begun]] = False
    return events[kept].reset_index(drop=True)
