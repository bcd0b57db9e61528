"""The tasks that a trace shows to have been under way at some time, and what their threads did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.analysis.under_way.state import Activity, Frame, Stack, TaskUnderWay
from dasfprof.database.columns import Array

#: What stays the same while a task makes no progress that can be seen.
_DOING = ["state", "stack", "waits_in", "waits_for"]


class Stacks:
    """The stacks of a trace by their rows.

    Parameters
    ----------
    trace
        The trace.
    """

    def __init__(self, trace: Trace) -> None:
        self._frames = trace.stacks["frames"].tolist() if len(trace.stacks) else []

    def __getitem__(self, row: int) -> Stack:
        """Return a stack; an empty one for -1, and where its frames are damaged."""
        if not 0 <= row < len(self._frames) or not isinstance(self._frames[row], tuple | list):
            return ()
        return tuple(
            Frame(str(frame[0]), str(frame[1]), int(frame[2]))
            for frame in self._frames[row]
            if len(frame) == len(Frame._fields)
        )


def activity_of(row: pd.Series, trace: Trace, stacks: Stacks) -> Activity:
    """Return what a thread did, by a row of a table of what was under way."""
    names = row["waits_for"]
    if names is None or (isinstance(names, float) and np.isnan(names)):
        names = ()
    keys = list(row["waits_keys"] or ())
    return Activity(
        thread_state=_text(row["thread_state"]),
        stack=stacks[int(row["stack"])],
        waits_in=_text(row["waits_in"]),
        waits_for=tuple(map(str, names)) if isinstance(names, tuple | list) else (str(names),),
        waits_keys=tuple(trace.keys.texts(np.array(keys, dtype=np.int64)).tolist()),
    )


def tasks_at(trace: Trace, time: float, stacks: Stacks) -> tuple[TaskUnderWay, ...]:
    """Return the tasks that workers had under way at a time, the longest first."""
    history = trace.under_way_history
    history = history[history["time"] <= time] if len(history) else history
    if not len(history):
        return ()
    last = history.drop_duplicates(RUN, keep="last")
    kept = ~last["state"].isin(["cancelled", "released"]).to_numpy()
    kept &= ~(trace.workers["left"].to_numpy(dtype=float)[last["worker_id"]] < time)
    last = last[kept]
    last = last[~_ended(trace, last, time)].sort_values("since", kind="stable")
    looks = dict(iter(history.groupby(RUN, sort=False)))
    codes, functions = trace.keys.functions()
    labels = trace.workers["worker"].to_numpy(dtype=object)
    keys = trace.keys.texts(last["key_id"].to_numpy()).tolist()
    return tuple(
        TaskUnderWay(
            key=key,
            function=functions[codes[row["key_id"]]],
            worker=str(labels[row["worker_id"]]),
            state=str(row["state"]),
            seconds=_span(row["since"], time),
            thread=_text(row["thread"]),
            cpu=None if np.isnan(row["cpu"]) else float(row["cpu"]),
            unchanged=_span(_same_since(looks[tuple(row[RUN])]), time),
            activity=activity_of(row, trace, stacks),
            holds=tuple((str(kind), str(name)) for kind, name in row["holds"] or ()),
        )
        for key, (_, row) in zip(keys, last.iterrows(), strict=True)
    )


def _ended(trace: Trace, runs: pd.DataFrame, time: float) -> Array:
    """Return which runs had ended by a time, by what their workers recorded of the end."""
    tasks = trace.tasks
    near = tasks[np.isin(tasks["key_id"].to_numpy(), runs["key_id"].to_numpy())]
    near = near[(near["start"] + near["duration"] <= time).to_numpy()]
    ended: Array = pd.MultiIndex.from_frame(runs[RUN]).isin(pd.MultiIndex.from_frame(near[RUN]))
    return ended


def _same_since(looks: pd.DataFrame) -> float:
    """Return since when a task was seen to do the same."""
    doing = [tuple(map(str, values)) for values in looks[_DOING].to_numpy(dtype=object).tolist()]
    first = len(doing) - 1
    while first > 0 and doing[first - 1] == doing[-1]:
        first -= 1
    return float(looks["time"].iloc[first])


def _span(since: Any, time: float) -> float | None:
    return max(time - float(since), 0.0) if np.isfinite(since) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
