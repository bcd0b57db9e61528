"""What the client did and when, as the columns of a page: its calls, and in which lines it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.client_time import RECORDING
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import UNKNOWN, places
from dasfprof.analysis.under_way.state import Frame
from dasfprof.database.columns import Array
from dasfprof.report.page.document import PackedColumn, seconds, whole_numbers

#: A page has the longest of more calls, and of more stays in one stack.
MOST_CALLS, MOST_STAYS = 20_000, 100_000
#: Seconds between two samples of one stack that are one stay all the same.
_APART = 0.002


def client_columns(run: Run, flame_calls: Array) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the client's calls and its stays in stacks, each by begin.

    Parameters
    ----------
    run
        The trace.
    flame_calls
        The call of the client's flame graph that each row of `Trace.client_samples` was in.

    Returns
    -------
    columns, facts
        Of rows of calls from when to when they went on, ``call_seconds`` of them all, how many they
        were, of which of ``kinds`` and of which of ``places``, and whether by the main thread; of
        stays, spans in which samples found the main thread in one stack, apart from each other:
        when they ended, for how long, the place of the line and the call of the flame graph (plus
        1; 0: none). ``called`` and ``sampled``: from when to when it was recorded; None: not at
        all. ``left``: how many calls and stays the page has not.
    """
    known: dict[tuple[str, int, str], int] = {}
    calls, kinds, called, fewer_calls = _calls(run, known)
    stays, sampled, fewer_stays = _stays(run, flame_calls, known)
    facts = {
        "kinds": kinds,
        "places": [list(place) for place in known],
        "called": called,
        "sampled": sampled,
        "left": [fewer_calls, fewer_stays],
    }
    return {**calls, **stays}, facts


def _calls(
    run: Run, known: dict[tuple[str, int, str], int]
) -> tuple[dict[str, PackedColumn], list[str], list[float] | None, int]:
    table = run.client_calls
    if not len(table):
        return {}, [], None, 0
    begin, stop, spent = (table[name].to_numpy(dtype=float) for name in ("time", "stop", "seconds"))
    begin, stop = run.since_begin(begin), run.since_begin(stop)
    # Of one call the seconds tell when it ended.
    stop = np.where(table["calls"].to_numpy() <= 1, begin + spent, stop)
    placed = np.isfinite(begin) & np.isfinite(stop) & (stop > 0)
    recording = (table["call"].astype(object) == RECORDING).to_numpy()
    told = placed & recording if (placed & recording).any() else placed
    called = [float(begin[told].min()), float(stop[told].max())] if told.any() else None
    found = np.flatnonzero(placed & ~recording)
    rows = found[np.argsort(-spent[found], kind="stable")[:MOST_CALLS]]
    rows = rows[np.argsort(begin[rows], kind="stable")]
    codes, kinds = pd.factorize(table["call"].astype(object).to_numpy()[rows])
    names = table[["file", "line", "code"]].astype(object).iloc[rows]
    numbers = [
        _number(known, file, line, code) for file, line, code in names.itertuples(index=False)
    ]
    columns = {
        "call_begins": seconds(np.maximum(begin[rows], 0.0), delta=True),
        "call_lengths": seconds(stop[rows] - np.maximum(begin[rows], 0.0)),
        "call_seconds": seconds(spent[rows]),
        "call_counts": whole_numbers(np.maximum(table["calls"].to_numpy(dtype=np.int64)[rows], 1)),
        "call_kinds": whole_numbers(codes),
        "call_places": whole_numbers(np.array(numbers, dtype=np.int64)),
        "call_main": whole_numbers(table["main"].to_numpy(dtype=np.int64)[rows] == 1),
    }
    return columns, list(map(str, kinds)), called, len(found) - len(rows)


def _stays(
    run: Run, flame_calls: Array, known: dict[tuple[str, int, str], int]
) -> tuple[dict[str, PackedColumn], list[float] | None, int]:
    table = run.client_samples
    if not len(table):
        return {}, None, 0
    time = run.since_begin(table["time"])
    interval = np.maximum(np.nan_to_num(table["interval"].to_numpy(dtype=float)), 0.0)
    order = np.flatnonzero(np.isfinite(time) & (time >= 0))
    order = order[np.argsort(time[order], kind="stable")]
    if not len(order):
        return {}, None, 0
    # Rare looks stand for more than the time since the one before: of that, none is another's.
    time = time[order]
    interval = np.minimum(interval[order], np.diff(time, prepend=0.0))
    stack = table["stack"].to_numpy(dtype=np.int64)[order]
    call = flame_calls[order]
    goes_on = (stack[1:] == stack[:-1]) & (call[1:] == call[:-1])
    goes_on &= time[1:] - interval[1:] - time[:-1] < _APART
    first = np.flatnonzero(np.append(True, ~goes_on))
    ends = time[np.append(first[1:], len(time)) - 1]
    lengths = np.add.reduceat(interval, first)
    named = places(run, "line")
    lines = named.of(stack[first])
    kept = np.sort(np.argsort(-lengths, kind="stable")[:MOST_STAYS])
    frames = [named.names[line] if line >= 0 else None for line in lines[kept].tolist()]
    numbers = [
        _number(known, *_parts(frame if isinstance(frame, Frame) else None)) for frame in frames
    ]
    columns = {
        "stay_ends": seconds(ends[kept], delta=True),
        "stay_lengths": seconds(lengths[kept]),
        "stay_places": whole_numbers(np.array(numbers, dtype=np.int64)),
        "stay_calls": whole_numbers(call[first[kept]] + 1),
    }
    sampled = [max(float(time[0] - interval[0]), 0.0), float(time[-1])]
    return columns, sampled, len(first) - len(kept)


def _parts(frame: Frame | None) -> tuple[str, int, str]:
    return (frame.file, frame.line, frame.function) if frame else (UNKNOWN, 0, "")


def _number(known: dict[tuple[str, int, str], int], file: Any, line: Any, code: Any) -> int:
    """Return the number of a place; one that nobody knows has no file."""
    texts = [each if isinstance(each, str) else "" for each in (file, code)]
    place = texts[0], max(int(line), 0) if pd.notna(line) else 0, texts[1]
    return known.setdefault(place, len(known))
