"""Calls that the samples of a function are in: of pandas for rows of tables, of other functions."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import all_stacks
from dasfprof.analysis.stack_samples.spent import samples_of
from dasfprof.analysis.under_way.state import Stack

#: Minimum number of samples that tell.
_FEWEST_SAMPLES = 20
#: Functions of pandas, by the ends of their files: those that pass rows to Python code one at a
#: time, those that get items of a column or row, and those that the latter call for a single value.
_BY_ROW = {
    ("pandas/core/apply.py", "apply_series_generator"),
    ("pandas/core/apply.py", "series_generator"),
    ("pandas/core/frame.py", "iterrows"),
}
_ITEM, _VALUE = ("pandas/core/series.py", "__getitem__"), ("pandas/core/series.py", "_get_value")
#: Of these, what hands rows to a loop of the user's, which takes values of them by this.
_LOOP, _ATTRIBUTE = ("pandas/core/frame.py", "iterrows"), ("pandas/core/generic.py", "__getattr__")
#: Threshold (fraction): samples in which pandas makes rows, or takes values of them, from which
#: rows are the cause.
_BY_VALUE = 0.2


def time_by_row(run: Run, function: str) -> tuple[float, float]:
    """Return the fractions of a function's time by row of a table, and in pandas for rows.

    The latter is what pandas takes to make rows, and to take values of them. Both are 0 where
    samples are few or do not show it.
    """
    samples, stacks = samples_of(run, function)[0], all_stacks(run)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0, 0.0
    rows, values, total = 0.0, 0.0, float(samples.interval.sum())
    seconds = np.bincount(samples.stack[samples.stack >= 0], samples.interval[samples.stack >= 0])
    seen = np.flatnonzero(seconds).tolist()
    calls = {number: _pandas_calls(stacks[number]) for number in seen}
    loops = any(_LOOP in each for each in calls.values())
    for number in seen:
        by_row, of_row = _row_calls(calls[number], loops)
        rows += float(seconds[number]) * (by_row or of_row)
        values += float(seconds[number]) * of_row
    return (rows / total, values / total) if values >= _BY_VALUE * total else (0.0, 0.0)


def _pandas_calls(stack: Stack) -> list[tuple[str, str]]:
    """Return the file and function of each frame, of pandas' files the end."""
    calls = []
    for frame in stack:
        file, function = frame.file.replace("\\", "/"), frame.function.rpartition(".")[2]
        calls.append((file[file.rfind("pandas/core/") :], function))
    return calls


def _row_calls(calls: list[tuple[str, str]], loops: bool) -> tuple[bool, bool]:
    """Return whether pandas hands out rows one by one in a stack, and whether it is busy with one.

    Masks and slices of a column are items of it as well, and not what takes long in rows. In a
    function that loops over rows, attributes are values of these.
    """
    by_row = not _BY_ROW.isdisjoint(calls)
    inner = [*calls[1:], _VALUE]
    taken = any(
        call == _ITEM and (by_row or called == _VALUE)
        for call, called in zip(calls, inner, strict=True)
    )
    looped = loops and (_LOOP in calls or _ATTRIBUTE in calls)
    return by_row, taken or looped


#: Functions of Dask that read or make the chunks of arrays.
_MAKES_CHUNKS = {"getter", "getter_inline", "_apply_random_func", "_apply_random"}


def time_inside(run: Run, function: str, calls: Collection[str]) -> float:
    """Return the fraction of a function's time inside calls of some functions.

    What reads or makes the chunks of arrays is taken to be among these. 0 where samples are few.
    """
    samples, stacks = samples_of(run, function)[0], all_stacks(run)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0
    names = _MAKES_CHUNKS.union(calls)
    inside = [
        any(frame.function.rpartition(".")[2].strip("<>") in names for frame in stack)
        for stack in stacks
    ]
    seconds = np.where(np.append(np.array(inside, dtype=bool), False)[samples.stack], 1.0, 0.0)
    return float(seconds @ samples.interval / samples.interval.sum())
