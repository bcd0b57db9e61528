"""What several tables share: columns, rows of a function, texts, times and whole numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from dasfprof.analysis.model.busy_time import RunningSeconds
from dasfprof.analysis.model.run import Run, TaskRuns
from dasfprof.database.columns import Array

#: The label of the begin of an interval.
INTERVAL = "Time Interval (seconds from begin)"

#: Unix seconds that nanoseconds in 64 bits can hold.
_LATEST = 9.2e9
#: Numbers up to here are exact in a float.
_EXACT = float(1 << 53)


def text(items: Array) -> pd.Series:
    """Return texts as plain objects, whatever pandas makes of texts by itself."""
    return pd.Series(items, dtype=object, copy=False)


def known_texts(column: pd.Series) -> pd.Series:
    """Return the texts of a column; empty for what is none."""
    return text(np.array([each if isinstance(each, str) else "" for each in column], dtype=object))


def utc(seconds: Array) -> pd.Series:
    """Return Unix seconds as times without a zone, which spreadsheets can read; to microseconds."""
    known = np.abs(seconds) < _LATEST
    microseconds = np.round(np.where(known, seconds, 0.0) * 1e6).astype(np.int64)
    times = microseconds.astype("datetime64[us]").astype("datetime64[ns]")
    times[~known] = np.datetime64("NaT", "ns")
    return pd.Series(times)


def whole(numbers: Array) -> pd.Series:
    """Return whole numbers; what is none, or has no end, is NA."""
    rounded = np.round(numbers.astype(float))
    known = np.abs(rounded) <= _EXACT
    values = np.where(known, rounded, 0.0).astype(np.int64)
    return pd.Series(pd.arrays.IntegerArray(values, ~known))


def flags(found: Array, known: Array) -> pd.Series:
    """Truths, NA where nothing is known."""
    return pd.Series(pd.arrays.BooleanArray(found, ~known))


def of_function(run: Run, events: pd.DataFrame, function: str | None) -> tuple[pd.DataFrame, Array]:
    """Return the events of the tasks of a function (None: of all) by time, and their functions."""
    codes, names = run.trace.keys.functions()
    table = events.sort_values("time", kind="stable")
    functions = np.array(names, dtype=object)[codes[table["key_id"].to_numpy()]]
    if function is None:
        return table, functions
    kept = functions == function
    return table[kept], functions[kept]


def running_columns(running: RunningSeconds, summed: Callable[[Array], Array]) -> dict[str, Array]:
    """The columns that split the seconds of functions, each as `summed` makes it of the runs'."""
    return {
        "CPU (s)": summed(running.cpu),
        "Waiting for a core (s)": summed(running.core_wait),
        "Blocked (s)": summed(running.blocked),
    }


def step_column(runs: TaskRuns, rows: Array) -> dict[str, pd.Series]:
    """The column in which tables of task runs end, where steps are known; else nothing.

    Parameters
    ----------
    runs
        Task runs.
    rows
        Those that the table has.
    """
    steps = runs.steps
    if not runs.has_steps:
        return {}
    texts = np.array([*steps.names[:-1], np.nan], dtype=object)
    return {"Step": pd.Series(texts[steps.codes[rows]], dtype=object)}
