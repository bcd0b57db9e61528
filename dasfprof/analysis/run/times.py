"""Times at which each task run reached each stage, on one clock and in order."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from dasfprof.analysis.run.run_end import stimulus_texts
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

# --- Offsets of workers' clocks from the scheduler's clock ----------------------------------------

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
        of_task = clocks[tasks["worker_id"].to_numpy()]
        sent = tasks["stolen"].fillna(tasks["sent"]).to_numpy()
        ended = ended_there(trace)
        _bound(np.minimum, upper, of_task, tasks["received"].to_numpy() - sent)
        known = tasks["known"].to_numpy()[ended]
        _bound(np.maximum, lower, of_task[ended], tasks["done"].to_numpy()[ended] - known)
    return lower, upper


@once_per_trace
def ended_there(trace: Trace) -> Array:
    """Return a mask of `Trace.tasks` whose end was reported to the scheduler by their worker."""
    # For other rows, `known` is the time at which the scheduler took the task run back. The task
    # run may have continued on its worker.
    tasks = trace.tasks
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


def _bound(ufunc: np.ufunc, bounds: Array, clocks: Array, distances: Array) -> None:
    known = np.isfinite(distances)
    ufunc.at(bounds, clocks[known], distances[known])


# --- Times at which each task run reached each stage, on one clock and in order ------------------

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
    """Return the recorded times of `Trace.tasks` by the scheduler's clock, or NaN where missing."""
    tasks = trace.tasks
    times = {name: since_begin(trace, tasks, column) for name, column in _SCHEDULER.items()}
    queued = since_begin(trace, tasks, "queued")
    times["runnable"] = np.where(np.isnan(queued), times["sent"], queued)
    known = since_begin(trace, tasks, "known")
    times["known"] = np.where(ended_there(trace), known, np.nan) if "sent" in tasks else known
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
    """Return the times of `Trace.tasks`, ordered and with missing times replaced."""
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
