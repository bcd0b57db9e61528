"""Unfinished task runs at the end of a trace, as rows that follow the finished task runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run.run_end import (
    CANCELLED,
    DROPPED,
    NOT_NEEDED,
    RESTARTED,
    cancelled_runs,
    find_run_end,
)
from dasfprof.analysis.run.times import clock_offsets
from dasfprof.analysis.run.worker_exits import last_client_left
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.columns import joined_categoricals, make_categorical
from dasfprof.analysis.trace.trace import Form, once_per_trace, set_result
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array
from dasfprof.database.ends import End

#: States of unfinished task runs. If a worker left, its task runs ended when it left.
RUNNING, WAITING, RELEASED, LOST = "running", "waiting", "released by the client", "lost"
OPEN_STATES = (RUNNING, WAITING, RELEASED, LOST)

#: Prefixes of Dask's reasons for removing workers that were asked to leave.
_ASKED = ("retire-workers", "nanny-close", "client-restart", "scheduler-close", "worker-close")
#: Maximum seconds between two events about a worker that leaves: the scheduler takes back its last
#: task, and the scheduler records that it left. All tasks are taken back first.
_TAKEN_BACK = 2.0


@once_per_trace
def with_open_runs(trace: Form) -> Form:
    """Return a trace whose finished task runs are followed by its unfinished task runs.

    Unfinished task runs have one of `OPEN_STATES`, and last until the last event of their worker,
    or until the worker left. ``cpu`` is the CPU time until then. Facts that are only recorded when
    a task run ends are unknown.
    """
    table = trace.under_way
    if not len(table):
        return trace
    rows = _rows(trace, table)
    joined, other_runs = _with_scheduler(trace, rows)
    tasks = appended(trace.tasks, joined)
    lengths, ids = trace.task_dependencies
    lengths = np.append(lengths, np.full(len(rows), -1, dtype=lengths.dtype))
    extended = dataclasses.replace(
        trace, tasks=tasks, scheduler_only=other_runs, task_dependencies=(lengths, ids)
    )
    # Analyses call this for any run. Unfinished task runs must not be added twice.
    set_result(extended, with_open_runs, extended)
    set_result(extended, find_run_end, find_run_end(trace))
    return extended


def left_unasked(trace: Trace) -> Array:
    """Return a mask of the worker instances that left unexpectedly during the run."""
    left, end = trace.workers["left"].to_numpy(dtype=float), find_run_end(trace)
    asked = left_for(trace, _ASKED)
    # Workers that leave after the last client of the program has left are shut down, which is
    # expected. If one value is NaN, `fmin` returns the other one.
    limit = float(np.fmin(last_client_left(trace), np.inf))
    if end is not None and end.how in (End.LEFT, End.BROKEN_UP):
        limit = min(limit, end.time)
    return np.isfinite(left) & ~asked & (left < limit)


def taken_back(trace: Trace, runs: pd.DataFrame) -> Array:
    """Return a mask of task runs that the scheduler took back because their worker left.

    `runs` are rows of `Trace.scheduler_only`. Task runs that a client cancelled or that were no
    longer needed are not included.
    """
    left = trace.workers["left"].to_numpy(dtype=float)[runs["worker_id"].to_numpy()]
    as_it_left = np.abs(runs["known"].to_numpy(dtype=float) - left) <= _TAKEN_BACK
    causes = (*DROPPED, CANCELLED, *NOT_NEEDED)
    return as_it_left & ~runs["lost"].to_numpy(dtype=bool) & ~cancelled_runs(trace, runs, causes)


def left_for(trace: Trace, reasons: tuple[str, ...]) -> Array:
    """Return a mask of worker instances whose reason for leaving begins with one of `reasons`."""
    texts = trace.workers["left_reason"].fillna("")
    return np.array([str(reason).startswith(reasons) for reason in texts], dtype=bool)


def _rows(trace: Trace, table: pd.DataFrame) -> pd.DataFrame:
    """Return unfinished task runs as a table with those columns of `Trace.tasks` that are known."""
    worker, seen = table["worker_id"].to_numpy(), table["time"].to_numpy(dtype=float)
    last = np.fmax(trace.workers["last_seen"].to_numpy(dtype=float)[worker], seen)
    left = (trace.workers["left"].to_numpy(dtype=float) + clock_offsets(trace))[worker]
    since = table["since"].fillna(table["time"]).to_numpy(dtype=float)
    until = np.fmax(np.fmin(last, left), since)
    fetching = (table["state"] == "fetching").to_numpy()
    start = np.where(fetching, until, since)
    codes, names = trace.keys.functions()
    who = trace.workers.iloc[table["worker_id"].to_numpy()]
    # If a task run was using the CPU when it was last recorded, it is assumed to continue to use
    # it.
    cpu, looked = table["cpu"].to_numpy(dtype=float), (table["time"] - table["since"]).to_numpy()
    running = (table["thread_state"] == "running").to_numpy(dtype=bool) & (looked > 0)
    grown = np.where(running, cpu * np.fmax(ratio(until - start, looked), 1.0), cpu)
    # Time at which each task run was first recorded without a slot, or NaN if it still has its
    # slot.
    history = trace.under_way_history
    without_slot = history[history["state"] == "long-running"].drop_duplicates(RUN)
    seceded = without_slot.set_index(RUN)["time"]
    return pd.DataFrame(
        {
            **{name: table[name].to_numpy() for name in RUN},
            "host": _names(who["host"]),
            "worker": _names(who["worker"]),
            "function": make_categorical(codes[table["key_id"].to_numpy()], names),
            "state": _names(_states(trace, table)),
            "thread": _names(table["thread"].astype(object)),
            "start": start,
            "duration": until - start,
            "received": since,
            "ready": start,
            "executing": start,
            "seceded": seceded.reindex(pd.MultiIndex.from_frame(table[RUN])).to_numpy(dtype=float),
            "cpu": np.minimum(grown, until - start),
            "source": _names(np.full(len(table), "worker", dtype=object)),
        }
    )


def _states(trace: Trace, table: pd.DataFrame) -> Array:
    end = find_run_end(trace)
    by_client = end is not None and end.how is End.LEFT
    state = table["state"].astype(object).to_numpy()
    states = np.where(state == "fetching", WAITING, RUNNING).astype(object)
    cancelled = state == "cancelled"
    states[cancelled | by_client] = RELEASED
    worker = table["worker_id"].to_numpy()
    # If a client had cancelled a task before, the task was not lost with the worker.
    states[left_unasked(trace)[worker] & ~cancelled] = LOST
    states[left_for(trace, RESTARTED)[worker]] = RELEASED
    return states


def _with_scheduler(trace: Trace, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add the scheduler's columns to the rows of unfinished task runs.

    The second table contains the rows of `Trace.scheduler_only` about all other task runs.
    """
    only = trace.scheduler_only
    if not len(only):
        return rows, only
    index = pd.MultiIndex.from_frame(only[RUN])
    identities = pd.MultiIndex.from_frame(rows[RUN])
    more = only[~index.duplicated(keep="last")].set_index(RUN)
    names = [name for name in more.columns if name not in rows and name in trace.tasks]
    known = more[names].reindex(identities).reset_index(drop=True)
    return pd.concat([rows, known], axis=1), only[~index.isin(identities)]


def appended(tasks: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Append rows to a table of task runs, with NA in columns that the rows lack."""
    count = len(rows)
    columns: dict[str, Any] = {}
    for name in tasks.columns:
        old = tasks[name]
        new = rows[name] if name in rows else pd.Series(np.full(count, np.nan), dtype=object)
        if isinstance(old.dtype, pd.CategoricalDtype):
            if not isinstance(new.dtype, pd.CategoricalDtype):
                new = pd.Series(pd.Categorical(new.astype(object)))
            columns[name] = joined_categoricals(old.array, new.array)
        elif old.dtype == object:
            new = new.astype(object).where(new.notna(), None)
            columns[name] = np.concatenate([old.to_numpy(), new.to_numpy(dtype=object)])
        else:
            values = pd.to_numeric(new).to_numpy(dtype=float)
            is_integer = old.dtype.kind in "iub"
            values = np.nan_to_num(values, nan=-1).astype(old.dtype) if is_integer else values
            columns[name] = np.concatenate([old.to_numpy(), values])
    return pd.DataFrame(columns, copy=False)


def _names(values: Any) -> pd.Categorical:
    codes, names = pd.factorize(np.asarray(values, dtype=object))
    return make_categorical(codes, list(names))
