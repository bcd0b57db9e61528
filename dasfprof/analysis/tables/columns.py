"""Helpers for tables: texts, workers, UTC times, nullable numbers, and the first rows of tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import groups_by, has_clients, has_steps
from dasfprof.analysis.model.thread_time import RunningSeconds
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array
from dasfprof.text import count_of

#: Label of the column that contains the start of an interval.
INTERVAL = "Time Interval (seconds from begin)"

#: Labels of the columns that divide running time, by attribute of `RunningSeconds`.
RUNNING = {
    "cpu": "CPU (s)",
    "core_wait": "Waiting for CPU (s)",
    "storage": "Waiting for storage (s)",
    "blocked": "Blocked (s)",
}
#: Maximum Unix time in seconds that fits into 64 bits as nanoseconds.
_LATEST = 9.2e9
#: Limit up to which every integer is exact as a float.
_EXACT = float(1 << 53)


def text(items: Iterable[Any]) -> pd.Series:
    """Return texts as an object column, which can contain lone surrogates."""
    return pd.Series(items, dtype=object, copy=False)


def of_workers(run: Run, lives: Any, name: str = "worker") -> pd.Series:
    """Return the labels of worker instances, or another text column of `Trace.workers`."""
    return text(run.workers[name].to_numpy(dtype=object)[np.asarray(lives, dtype=np.int64)])


def places_of(run: Run, lives: Any) -> dict[str, pd.Series]:
    """Return the columns ``Host`` and ``Worker`` for rows of `Trace.workers`."""
    return {"Host": of_workers(run, lives, "host"), "Worker": of_workers(run, lives)}


def known_texts(column: pd.Series) -> pd.Series:
    """Return the texts of a column, with an empty text for every other value."""
    return text([each if isinstance(each, str) else "" for each in column])


def utc(seconds: Array) -> pd.Series:
    """Return Unix seconds as UTC times without a time zone, which spreadsheets can read.

    The times are rounded to microseconds. Unknown times, and times that do not fit into 64 bits as
    nanoseconds, are NaT.
    """
    known = np.abs(seconds) < _LATEST
    microseconds = np.round(np.where(known, seconds, 0.0) * 1e6).astype(np.int64)
    times = microseconds.astype("datetime64[us]").astype("datetime64[ns]")
    times[~known] = np.datetime64("NaT", "ns")
    return pd.Series(times)


def integers(numbers: Array) -> pd.Series:
    """Return numbers as nullable integers. A number that is not finite or not exact becomes NA."""
    rounded = np.round(numbers.astype(float))
    known = np.abs(rounded) <= _EXACT
    values = np.where(known, rounded, 0.0).astype(np.int64)
    return pd.Series(pd.arrays.IntegerArray(values, ~known))


def codes_of(items: Iterable[Hashable], names: Sequence[Hashable]) -> Array:
    """Return the index of each item in `names`, or -1 if it is not in them."""
    indices = {name: index for index, name in enumerate(names)}
    return np.array([indices.get(item, -1) for item in items], dtype=np.int64)


def flags(values: Array, known: Array) -> pd.Series:
    """Return nullable booleans, with NA where `known` is false."""
    return pd.Series(pd.arrays.BooleanArray(values, ~known))


def of_function(
    run: Run, events: pd.DataFrame, function: str | None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the events of a function, sorted by time, and columns about their task runs.

    If `function` is None, these are the events of all functions.
    """
    codes, names = run.keys.functions()
    table = events.sort_values("time", kind="stable")
    functions = np.array(names, dtype=object)[codes[table["key_id"].to_numpy()]]
    if function is not None:
        selected = functions == function
        table, functions = table[selected], functions[selected]
    return table, {
        "Time (s)": run.since_begin(table["time"]),
        "Worker": of_workers(run, table["worker_id"]),
        "Function": text(functions),
        "Task Key": text(run.keys.texts(table["key_id"].to_numpy())),
    }


def run_of_rows(tasks: pd.DataFrame, table: pd.DataFrame) -> Array:
    """Return, for each row of a table of task runs, its row in `tasks`, or -1 if unknown."""
    rows = np.flatnonzero(np.isin(tasks["key_id"], table["key_id"]))
    runs = tasks[RUN].iloc[rows].assign(row=rows).drop_duplicates(RUN)
    matches = table[RUN].merge(runs, how="left", on=RUN)["row"]
    return matches.fillna(-1).to_numpy(dtype=np.int64)


def running_columns(running: RunningSeconds, summed: Callable[[Array], Array]) -> dict[str, Array]:
    """Return the columns for parts of running time, such as ``CPU (s)`` and ``Blocked (s)``.

    `summed` turns the seconds of task runs into the seconds of the table's rows.
    """
    return {label: summed(getattr(running, name)) for name, label in RUNNING.items()}


def origin_columns(run: Run, rows: Array, *tables: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the column ``Step`` if steps are known, and ``Client`` if there are several clients.

    Parameters
    ----------
    run
        The run.
    rows
        Row numbers in one table that consists of `tables`.
    *tables
        Tables of task runs.
    """
    columns = {}
    for label, is_shown in (("Step", has_steps(run)), ("Client", has_clients(run))):
        if is_shown:
            codes, names = groups_by(label.lower(), *tables)
            texts = np.array([*names[:-1], np.nan], dtype=object)
            columns[label] = text(texts[codes[rows]])
    return columns


#: Maximum number of rows of a table with one row per task run, if it is computed in time windows.
LISTED = 10_000

#: The first rows of the table of a time window, and the total number of its rows.
Listed = tuple[pd.DataFrame, int]


def folded(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> Listed:
    """Return the first rows of all time windows, sorted by `order`, and the number of all rows."""
    # Leave out tables without rows, because their columns may have other types.
    tables = [table for table, count in parts if count] or [parts[0][0]]
    table = pd.concat(tables, ignore_index=True)
    table = table.take(order(table)[:LISTED]).reset_index(drop=True)
    return table, sum(count for _, count in parts)


def first_rows(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> pd.DataFrame:
    """Return the first rows of all time windows, sorted by `order`.

    Warns
    -----
    UserWarning
        If there are too many rows to return all of them.
    """
    table, rows = folded(parts, order)
    if rows > LISTED:
        warnings.warn(
            f"this table has the first {LISTED} rows of {count_of(rows, 'row')}, because the full "
            "table would not fit into memory.",
            stacklevel=2,
        )
    return table
