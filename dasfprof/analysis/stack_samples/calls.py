"""Fractions of a function's samples inside some calls: pandas' per-row calls, and others."""

from __future__ import annotations

from collections.abc import Collection

from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import seconds_by
from dasfprof.analysis.stack_samples.spent import samples_of
from dasfprof.analysis.under_way.state import Stack

#: Minimum number of samples for a result.
_FEWEST_SAMPLES = 20
#: Functions of pandas, with the end of their file: those that pass single rows to Python code,
#: those that get items of a column or row, and those that the latter call for a single value.
_BY_ROW = {
    ("pandas/core/apply.py", "apply_series_generator"),
    ("pandas/core/apply.py", "series_generator"),
    ("pandas/core/frame.py", "iterrows"),
}
_ITEM, _VALUE = ("pandas/core/series.py", "__getitem__"), ("pandas/core/series.py", "_get_value")
#: The function that passes rows to a loop of the user, and the one that gets their attributes.
_LOOP, _ATTRIBUTE = ("pandas/core/frame.py", "iterrows"), ("pandas/core/generic.py", "__getattr__")
#: The function that passes the values of a column to Python code one by one.
_BY_VALUE_OF_COLUMN = ("pandas/core/algorithms.py", "map_array")
#: Threshold (fraction of time): if pandas creates rows or gets their values for at least this long,
#: processing by row is the cause.
_BY_VALUE = 0.2


def time_by_row(run: Run, function: str) -> tuple[float, float]:
    """Return the fractions of a function's time in code that processes rows, and in pandas for it.

    The second is the time in which pandas creates rows and gets their values. Both are 0 if there
    are few samples, or if they do not show such code.
    """
    samples, _ = samples_of(run, function)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0, 0.0
    rows, values, total = 0.0, 0.0, float(samples.interval.sum())
    seconds = seconds_by(run, samples, _pandas_calls)
    loops = any(_LOOP in calls for calls in seconds)
    for calls, each in seconds.items():
        by_row, of_row = _row_calls(calls, loops)
        rows += each * (by_row or of_row)
        values += each * of_row
    return (rows / total, values / total) if values >= _BY_VALUE * total else (0.0, 0.0)


def time_by_value(run: Run, function: str) -> float:
    """Return the fraction of a function's time in Python code called for each value of a column.

    0 if there are few samples.
    """
    samples, _ = samples_of(run, function)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0
    by_value = 0.0
    for calls, seconds in seconds_by(run, samples, _pandas_calls).items():
        if _BY_VALUE_OF_COLUMN in calls:
            (file, _) = calls[-1]
            by_value += 0.0 if file.startswith("pandas/core/") else seconds
    return by_value / float(samples.interval.sum())


def _pandas_calls(stack: Stack) -> tuple[tuple[str, str], ...]:
    """Return the file and function of each frame, with only the end of pandas' files."""
    files = (frame.file.replace("\\", "/") for frame in stack)
    return tuple(
        (file[file.rfind("pandas/core/") :], frame.function.rpartition(".")[2])
        for file, frame in zip(files, stack, strict=True)
    )


def _row_calls(calls: tuple[tuple[str, str], ...], loops: bool) -> tuple[bool, bool]:
    """Return whether pandas passes single rows in a stack, and whether it is busy with a row.

    Masks and slices of a column are items as well, but they are not slow. In a function that loops
    over rows, attributes are values of rows.
    """
    by_row = not _BY_ROW.isdisjoint(calls)
    inner = [*calls[1:], _VALUE]
    taken = any(
        call == _ITEM and (by_row or called == _VALUE)
        for call, called in zip(calls, inner, strict=False)
    )
    looped = loops and (_LOOP in calls or _ATTRIBUTE in calls)
    return by_row, taken or looped


#: Functions of Dask that read or make the chunks of arrays.
MAKES_CHUNKS = {"getter", "getter_inline", "_apply_random_func", "_apply_random"}


def time_inside(run: Run, function: str, calls: Collection[str]) -> float:
    """Return the fraction of a function's time inside calls of some functions, 0 if unknown."""
    samples, _ = samples_of(run, function)
    if len(samples) < _FEWEST_SAMPLES:
        return 0.0

    def is_inside(stack: Stack) -> bool:
        return any(frame.function.rpartition(".")[2].strip("<>") in calls for frame in stack)

    return float(seconds_by(run, samples, is_inside)[True] / samples.interval.sum())
