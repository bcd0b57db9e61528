"""All task runs, finished and unfinished, with the times of their stages on one clock."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run.run_end import (
    RESTARTED,
    find_run_end,
    left_for,
    left_unasked,
    stimulus_texts,
)
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.columns import joined_categoricals, make_categorical
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array
from dasfprof.database.ends import End

#: States of unfinished task runs. If a worker left, its task runs ended when it left.
RUNNING, WAITING, RELEASED, LOST = "running", "waiting", "released by the client", "lost"
OPEN_STATES = (RUNNING, WAITING, RELEASED, LOST)


class OpenRuns(NamedTuple):
    """The unfinished task runs of a trace."""

    #: Those columns of `Trace.tasks` that are known, and columns of `Trace.under_way`.
    rows: pd.DataFrame
    #: The rows of `Trace.scheduler_only` about all other task runs.
    others: pd.DataFrame


@once_per_trace
def open_runs(trace: Trace) -> OpenRuns:
    """Return the unfinished task runs, each with one of `OPEN_STATES`."""
    table, only = trace.under_way, trace.scheduler_only
    if not len(table):
        return OpenRuns(table, only)
    worker = table["worker_id"].to_numpy()
    codes, names = trace.keys.functions()
    # Time at which each task run was first recorded without a slot, or NaN if it still has its
    # slot.
    history = trace.under_way_history
    without_slot = history[history["state"] == "long-running"].drop_duplicates(RUN)
    identities = pd.MultiIndex.from_frame(table[RUN])
    rows = table.assign(
        host=_names(trace.workers["host"].iloc[worker]),
        worker=_names(trace.workers["worker"].iloc[worker]),
        function=make_categorical(codes[table["key_id"].to_numpy()], names),
        fetching=(table["state"] == "fetching").to_numpy(),
        state=_names(_states(trace, table)),
        received=table["since"].fillna(table["time"]),
        seceded=without_slot.set_index(RUN)["time"].reindex(identities).to_numpy(dtype=float),
        source=_names(np.full(len(table), "worker", dtype=object)),
    )
    if not len(only):
        return OpenRuns(rows, only)
    index = pd.MultiIndex.from_frame(only[RUN])
    more = only[~index.duplicated(keep="last")].set_index(RUN)
    columns = [name for name in more.columns if name not in rows and name in trace.tasks]
    known = more[columns].reindex(identities).reset_index(drop=True)
    return OpenRuns(pd.concat([rows, known], axis=1), only[~index.isin(identities)])


@once_per_trace
def all_task_runs(trace: Trace) -> pd.DataFrame:
    """Return a table with the rows of `Trace.tasks`, followed by the unfinished task runs.

    Unfinished task runs last until the last event of their worker, or until the worker left.
    ``cpu`` is the CPU time until then. Facts that are only recorded when a task run ends are
    unknown.
    """
    rows = open_runs(trace).rows
    if not len(rows):
        return trace.tasks
    worker, time = rows["worker_id"].to_numpy(), rows["time"].to_numpy(dtype=float)
    last = np.fmax(trace.workers["last_seen"].to_numpy(dtype=float)[worker], time)
    left = (trace.workers["left"].to_numpy(dtype=float) + clock_offsets(trace))[worker]
    since = rows["received"].to_numpy(dtype=float)
    until = np.fmax(np.fmin(last, left), since)
    start = np.where(rows["fetching"], until, since)
    # If a task run was using the CPU when it was last recorded, it is assumed to continue to use
    # it.
    cpu, looked = rows["cpu"].to_numpy(dtype=float), (rows["time"] - rows["since"]).to_numpy()
    running = (rows["thread_state"] == "running").to_numpy(dtype=bool) & (looked > 0)
    grown = np.where(running, cpu * np.fmax(ratio(until - start, looked), 1.0), cpu)
    length, cpu = until - start, np.minimum(grown, until - start)
    times = {"start": start, "ready": start, "executing": start, "duration": length, "cpu": cpu}
    return appended(trace.tasks, rows.assign(**times))


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


#: Prefix of the stimulus id with which a worker reports an error. The rest of the id is the time by
#: the worker's clock.
_ERRED = "task-erred-"
#: Tolerance in seconds for comparing times that were rounded.
_ROUNDED = 1e-4


@once_per_trace
def clock_offsets(trace: Trace) -> Array:
    """Return the seconds by which each worker's clock is ahead of the scheduler's clock.

    There is one value for each row of `Trace.workers`. Clocks may drift, so callers must clamp
    times that are still out of order.
    """
    clocks, scheduler = _clocks(trace.workers)
    # A worker cannot receive a task before the task was sent, and cannot finish it after the
    # scheduler learned of its end. So the offset is at least the maximum of done - known, and at
    # most the minimum of received - sent.
    lower, upper = message_bounds(trace)
    with np.errstate(invalid="ignore"):  # The midpoint of two infinite bounds.
        middle = (lower + upper) / 2
    # If a bound is missing, use the offset closest to 0 that satisfies the other bound.
    offsets = np.where(np.isfinite(middle), middle, np.maximum(np.minimum(0.0, upper), lower))
    # Workers with the scheduler's boot ID have its clock.
    offsets[scheduler] = 0.0
    return offsets[clocks]


@once_per_trace
def message_bounds(trace: Trace) -> tuple[Array, Array]:
    """Return the minimum and the maximum offset of each clock, inferred from times of messages."""
    clocks, _ = _clocks(trace.workers)
    lower, upper = np.full(len(trace.workers), -np.inf), np.full(len(trace.workers), np.inf)
    tasks = trace.tasks
    if "sent" in tasks:
        ended = tasks[_ended_there(trace, tasks)]
        _bound(np.maximum, lower, clocks, ended["worker_id"], ended["done"] - ended["known"])
    for runs in (tasks, open_runs(trace).rows):
        if "sent" in runs:
            delays = runs["received"] - runs["stolen"].fillna(runs["sent"])
            _bound(np.minimum, upper, clocks, runs["worker_id"], delays)
    return lower, upper


def _ended_there(trace: Trace, tasks: pd.DataFrame) -> Array:
    """Return a mask of the task runs whose end was reported to the scheduler by their worker."""
    # For other rows, `known` is the time at which the scheduler took the task run back. The task
    # run may have continued on its worker.
    reported: Array = tasks["scheduler_state"].isin(["memory", "erred"]).to_numpy().copy()
    # A failed attempt that is retried is reported too. Its scheduler state becomes "released".
    rows = np.flatnonzero((tasks["state"] == "erred") & (tasks["scheduler_state"] == "released"))
    # A task may be no longer needed because another task failed. Its end then has the stimulus of
    # the error of that task.
    runs = tasks.iloc[rows]
    # The time in the stimulus id of an error, or NaN for other stimulus ids.
    texts = pd.Series(stimulus_texts(trace, runs["end_cause"]), dtype=object)
    times = texts.str.removeprefix(_ERRED).where(texts.str.startswith(_ERRED))
    error_times = pd.to_numeric(times, errors="coerce").to_numpy(dtype=float)
    stop = (runs["start"] + runs["duration"]).to_numpy()
    reported[rows] = (error_times > stop - _ROUNDED) & (
        error_times < runs["done"].to_numpy() + _ROUNDED
    )
    return reported


def _clocks(workers: pd.DataFrame) -> tuple[Array, Array]:
    """Return the number of each process's clock, and the numbers of the schedulers' clocks.

    Processes with the same boot id have the same clock.
    """
    rows = pd.Series(np.arange(len(workers)), dtype=np.int64)
    boots = workers["boot_id"].reset_index(drop=True)
    # Processes with the same boot ID have the same clock.
    clocks = rows.groupby(boots).transform("min").fillna(rows).to_numpy(dtype=np.int64)
    return clocks, np.unique(clocks[(workers["kind"] == "scheduler").to_numpy()])


def _bound(
    ufunc: np.ufunc, bounds: Array, clocks: Array, workers: pd.Series, distances: pd.Series
) -> None:
    known = np.isfinite(distances.to_numpy())
    ufunc.at(bounds, clocks[workers.to_numpy()[known]], distances.to_numpy()[known])


#: Times are rounded to integer multiples of this fraction (0.93 ns) of a second, so that their
#: differences add up exactly.
TICKS_PER_SECOND = float(1 << 30)


@dataclass(frozen=True)
class TaskTimes:
    """Times of task runs in seconds from the trace's start.

    The fields are in the order of time: no time is before that of the previous field. If a time was
    not recorded, it is replaced by the time of the next recorded stage.
    """

    #: The scheduler received the task.
    arrival: Array
    #: All dependencies were done.
    runnable: Array
    #: The task run was assigned to a worker.
    sent: Array
    #: The worker received the task.
    received: Array
    #: All inputs were on the worker.
    ready: Array
    #: The task run got a thread.
    executing: Array
    #: The user's function started, and it ended.
    start: Array
    stop: Array
    #: The event loop of the worker knew the outcome.
    done: Array
    #: The scheduler knew the outcome.
    known: Array

    def __len__(self) -> int:
        return len(self.arrival)


STAGES = tuple(field.name for field in fields(TaskTimes))
_SCHEDULER = {"arrival": "scheduler_waiting", "sent": "sent"}
_WORKER = ("received", "ready", "executing", "done")


@once_per_trace
def recorded_times(trace: Trace) -> dict[str, Array]:
    """Return the times of `all_task_runs` by the scheduler's clock, or NaN where missing."""
    tasks = all_task_runs(trace)
    times = {name: since_begin(trace, tasks, column) for name, column in _SCHEDULER.items()}
    queued = since_begin(trace, tasks, "queued")
    times["runnable"] = np.where(np.isnan(queued), times["sent"], queued)
    known = since_begin(trace, tasks, "known")
    times["known"] = known
    if "sent" in tasks:
        times["known"] = np.where(_ended_there(trace, tasks), known, np.nan)
    # Start and stop that the scheduler recorded are already approximately by its own clock.
    seen = (tasks["source"] == "worker").to_numpy()
    offsets = np.where(seen, clock_offsets(trace)[tasks["worker_id"].to_numpy()], 0.0)
    for name in _WORKER:
        times[name] = since_begin(trace, tasks, name) - offsets
    length = tasks["duration"].to_numpy()
    start = since_begin(trace, tasks, "start") - offsets
    fitted = fit_between(start, length, times["sent"], times["known"])
    times["start"] = np.where(seen, start, fitted)
    times["stop"] = times["start"] + length
    recorded = {name: to_ticks(times[name]) for name in STAGES}
    for stage in recorded.values():
        stage.setflags(write=False)
    return recorded


@once_per_trace
def ordered_times(trace: Trace) -> TaskTimes:
    """Return the times of `all_task_runs`, ordered and with missing times replaced."""
    return task_times(recorded_times(trace))


def task_times(recorded: dict[str, Array]) -> TaskTimes:
    """Order recorded times, and replace missing times.

    Clock offsets are already subtracted from `recorded`.
    """
    # If one value is NaN, `fmin` and `fmax` return the other one.
    known = recorded["known"]
    low, high = recorded["sent"], np.where(np.isnan(known), np.inf, known)
    # Times that contradict each other are clamped. The worker's times are limited to the period in
    # which the task run was assigned to it, and no time may be before that of the previous stage.
    clamped = dict(recorded)
    for name in ("received", "ready", "executing", "start", "stop", "done"):
        present = np.fmax(np.fmin(recorded[name], high), low)
        clamped[name] = np.where(np.isnan(recorded[name]), np.nan, present)
    # If the worker's message was not recorded, assume that the task run was done when its function
    # ended.
    clamped["done"] = np.where(np.isnan(clamped["done"]), clamped["stop"], clamped["done"])
    table = np.stack([clamped[name] for name in STAGES])
    missing = np.isnan(table)
    np.fmax.accumulate(table, out=table)
    # A time that was not recorded is that of the next stage. If no later stage was recorded, it is
    # that of the stage before.
    later = ~missing[-1]
    for stage in range(len(STAGES) - 2, -1, -1):
        filled = missing[stage] & later
        table[stage, filled] = table[stage + 1, filled]
        later |= ~missing[stage]
    table.setflags(write=False)
    return TaskTimes(*table)


def fit_between(start: Array, length: Array, sent: Array, known: Array) -> Array:
    """Return the starts of functions, shifted so that they run between assignment and report.

    A function that is too long for this starts at the assignment.
    """
    # The scheduler computes the times of functions from Dask's estimate of each clock. On a busy
    # host, this estimate is off by a tenth of a second or more. Start and stop of a function are
    # off by the same amount.
    return np.where(np.isnan(start), np.nan, np.fmax(np.fmin(start, known - length), sent))


def to_ticks(times: Array) -> Array:
    """Round times to multiples of ``1 / TICKS_PER_SECOND``, so that differences add up exactly."""
    return np.round(times * TICKS_PER_SECOND) / TICKS_PER_SECOND


def since_begin(trace: Trace, table: pd.DataFrame, column: str) -> Array:
    """Return a column's times as seconds from the trace's start, or NaN without the column."""
    if column not in table:
        return np.full(len(table), np.nan)
    return table[column].to_numpy(dtype=float) - trace.begin


#: Ranges between two stages of `TaskTimes`, by the status that a task run has in them.
STATUSES = {
    "Not started": (("arrival", "runnable"),),
    "Inqueue": (("runnable", "sent"), ("sent", "received"), ("ready", "executing")),
    "Preparing": (("received", "ready"), ("executing", "start")),
    "Running": (("start", "stop"),),
    "Finalizing": (("stop", "done"), ("done", "known")),
}


@once_per_trace
def status_seconds(trace: Trace) -> dict[str, Array]:
    """Return the seconds for which each of `all_task_runs` had each status, or NaN if unknown."""
    recorded, times = recorded_times(trace), ordered_times(trace)
    seconds = {}
    for name, spans in STATUSES.items():
        length = np.zeros(len(times))
        known = np.isfinite(recorded[spans[0][0]]) & np.isfinite(recorded[spans[-1][1]])
        for begin, end in spans:
            length += getattr(times, end) - getattr(times, begin)
            known |= np.isfinite(recorded[begin]) & np.isfinite(recorded[end])
        # Unknown time counts for the status before, so that the sum of all statuses is the time
        # from `arrival` to `known`.
        seconds[name] = np.where(known | (length > 0), length, np.nan)
    return seconds
