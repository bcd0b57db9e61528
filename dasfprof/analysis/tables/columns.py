"""What several tables share: columns, texts of keys, rows of a function, times, whole numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import client_groups, has_clients, has_steps, step_groups
from dasfprof.analysis.model.thread_time import RunningSeconds
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array
from dasfprof.text import count_of

#: The label of the begin of an interval.
INTERVAL = "Time Interval (seconds from begin)"

#: The parts of the seconds of functions, see `RunningSeconds`, by the labels of their columns.
RUNNING = {
    "cpu": "CPU (s)",
    "core_wait": "Waiting for CPU (s)",
    "storage": "Waiting for storage (s)",
    "blocked": "Blocked (s)",
}
#: Unix seconds that nanoseconds in 64 bits can hold.
_LATEST = 9.2e9
#: Numbers up to here are exact in a float.
_EXACT = float(1 << 53)


def text(items: Iterable[Any]) -> pd.Series:
    """Return texts as plain objects, whatever pandas makes of texts by itself."""
    return pd.Series(items, dtype=object, copy=False)


def of_workers(run: Run, lives: Any, name: str = "worker") -> pd.Series:
    """Return the labels, or another text, of rows of `Trace.workers`."""
    return text(run.workers[name].to_numpy(dtype=object)[np.asarray(lives, dtype=np.int64)])


def places_of(run: Run, lives: Any) -> dict[str, pd.Series]:
    """Return the hosts and the labels of rows of `Trace.workers`."""
    return {"Host": of_workers(run, lives, "host"), "Worker": of_workers(run, lives)}


def known_texts(column: pd.Series) -> pd.Series:
    """Return the texts of a column; empty for what is none."""
    return text([each if isinstance(each, str) else "" for each in column])


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
    codes, names = run.keys.functions()
    table = events.sort_values("time", kind="stable")
    functions = np.array(names, dtype=object)[codes[table["key_id"].to_numpy()]]
    if function is None:
        return table, functions
    kept = functions == function
    return table[kept], functions[kept]


def running_columns(running: RunningSeconds, summed: Callable[[Array], Array]) -> dict[str, Array]:
    """The columns that split the seconds of functions, each as `summed` makes it of the runs'."""
    return {label: summed(getattr(running, name)) for name, label in RUNNING.items()}


def origin_columns(run: Run, rows: Array, *more: pd.DataFrame) -> dict[str, pd.Series]:
    """The columns in which tables of task runs end: steps, if known, and clients, if several.

    Parameters
    ----------
    run
        The run.
    rows
        Rows of `Trace.tasks` and, after those, of the other tables.
    *more
        Further tables of task runs.
    """
    columns = {}
    for label, is_shown, grouped in (
        ("Step", has_steps(run), step_groups),
        ("Client", has_clients(run), client_groups),
    ):
        if is_shown:
            codes, names = grouped(run.tasks, *more)
            texts = np.array([*names[:-1], np.nan], dtype=object)
            columns[label] = text(texts[codes[rows]])
    return columns


# The first rows of tables with a row a task run, of runs whose tables do not fit into memory.

#: So many rows are listed.
LISTED = 10_000


#: The first rows of a part, and how many it has.
Listed = tuple[pd.DataFrame, int]


def folded(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> Listed:
    """Put the first rows of parts together, and keep the first of all; `order` sorts them."""
    # Those without rows may have columns of other types.
    tables = [table for table, count in parts if count] or [parts[0][0]]
    table = pd.concat(tables, ignore_index=True)
    table = table.take(order(table)[:LISTED]).reset_index(drop=True)
    return table, sum(count for _, count in parts)


def first_rows(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> pd.DataFrame:
    """Put the first rows of parts together, and keep the first of all; `order` sorts them.

    Warns
    -----
    UserWarning
        If there are more rows.
    """
    table, rows = folded(parts, order)
    if rows > LISTED:
        warnings.warn(
            f"this table has the first {LISTED} rows of {count_of(rows, 'row')}: the whole would "
            "not fit into memory.",
            stacklevel=2,
        )
    return table
