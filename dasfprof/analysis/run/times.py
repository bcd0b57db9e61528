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

#: Prefix of the stimulus id with which a worker reports an error. The time of its clock follows.
_ERRED = "task-erred-"
#: Resolution in seconds: times are not compared to their last digit.
_ROUNDED = 1e-4


@once_per_trace
def clock_offsets(trace: Trace) -> Array:
    """Return the seconds to subtract from each worker's times to get the scheduler's clock.

    A worker cannot receive a task before it was sent, nor finish it after the scheduler knew. So
    the offset is in ``[max(done - known), min(received - sent)]``, and its midpoint is used.
    Workers of one boot share a clock, and those of the scheduler's boot have its clock. If the
    trace has one bound or none, the offset is the smallest that satisfies the bound. A clock that
    drifts by more than messages take violates the bounds, and the caller must clamp what remains.

    Returns
    -------
    array
        Seconds, for each row of `Trace.workers`.
    """
    clocks, scheduler = _clocks(trace.workers)
    lower, upper = message_bounds(trace)
    with np.errstate(invalid="ignore"):  # The midpoint of two infinite bounds.
        middle = (lower + upper) / 2
    offsets = np.where(np.isfinite(middle), middle, np.maximum(np.minimum(0.0, upper), lower))
    offsets[scheduler] = 0.0
    return offsets[clocks]


@once_per_trace
def clock_errors(trace: Trace) -> Array:
    """Return the maximum error of each of `clock_offsets` in seconds: half of its interval.

    It is 0 for clocks that are the scheduler's own, and infinite if the trace lacks a bound. If the
    bounds contradict each other, no constant offset fits, and the result is half of the
    contradiction.

    Returns
    -------
    array
        Seconds, for each row of `Trace.workers`.
    """
    clocks, scheduler = _clocks(trace.workers)
    lower, upper = message_bounds(trace)
    errors = np.abs(upper - lower) / 2
    errors[scheduler] = 0.0
    return errors[clocks]


@once_per_trace
def message_bounds(trace: Trace) -> tuple[Array, Array]:
    """Return the minimum and maximum offset of each clock that messages allow."""
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
    """Return a mask of `Trace.tasks` whose end the scheduler learned from their worker.

    Otherwise, ``known`` is the time at which the scheduler took a run back, which may continue on
    its worker.
    """
    tasks = trace.tasks
    reported: Array = tasks["scheduler_state"].isin(["memory", "erred"]).to_numpy().copy()
    # A failed attempt that is retried is reported as well, and becomes "released".
    rows = np.flatnonzero((tasks["state"] == "erred") & (tasks["scheduler_state"] == "released"))
    # A task whose result is no longer needed after another one failed ends with the message about
    # that error.
    runs = tasks.iloc[rows]
    # Time of the stimulus of an error, or NaN for other stimuli.
    texts = pd.Series(stimulus_texts(trace, runs["end_cause"]), dtype=object)
    times = texts.str.removeprefix(_ERRED).where(texts.str.startswith(_ERRED))
    error_times = pd.to_numeric(times, errors="coerce").to_numpy(dtype=float)
    stop = (runs["start"] + runs["duration"]).to_numpy()
    reported[rows] = (error_times > stop - _ROUNDED) & (
        error_times < runs["done"].to_numpy() + _ROUNDED
    )
    return reported


def _clocks(workers: pd.DataFrame) -> tuple[Array, Array]:
    """Return a code for the clock of each worker, and a mask of codes of the scheduler's clock."""
    rows = pd.Series(np.arange(len(workers)), dtype=np.int64)
    boots = workers["boot_id"].reset_index(drop=True)
    clocks = rows.groupby(boots).transform("min").fillna(rows).to_numpy(dtype=np.int64)
    return clocks, np.unique(clocks[(workers["kind"] == "scheduler").to_numpy()])


def _bound(ufunc: np.ufunc, bounds: Array, clocks: Array, distances: Array) -> None:
    known = np.isfinite(distances)
    ufunc.at(bounds, clocks[known], distances[known])


# --- Times at which each task run reached each stage, on one clock and in order ------------------

#: Times are integer multiples of this (0.93 ns) from the trace's start, so that they add up
#: exactly.
TICKS_PER_SECOND = float(1 << 30)


@dataclass(frozen=True)
class TaskTimes:
    """Times of task runs in seconds from the trace's start, none earlier than the one above it.

    A time that was not recorded is that of the next recorded stage.
    """

    #: The scheduler received the task.
    arrival: Array
    #: Its dependencies were done.
    runnable: Array
    #: It was assigned to a worker.
    sent: Array
    #: The worker received it.
    received: Array
    #: Its dependencies were on the worker.
    ready: Array
    #: It was given a thread.
    executing: Array
    #: The user's function started, and ended.
    start: Array
    stop: Array
    #: The worker's event loop knew the outcome.
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
    """Return the times of `Trace.tasks` on the scheduler's clock, or NaN if not recorded."""
    tasks = trace.tasks
    times = {name: since_begin(trace, tasks, column) for name, column in _SCHEDULER.items()}
    queued = since_begin(trace, tasks, "queued")
    times["runnable"] = np.where(np.isnan(queued), times["sent"], queued)
    known = since_begin(trace, tasks, "known")
    times["known"] = np.where(ended_there(trace), known, np.nan) if "sent" in tasks else known
    # The scheduler's own record of start and stop is approximately on its clock already.
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
    """Return the recorded times of `Trace.tasks` in order."""
    return task_times(recorded_times(trace))


def task_times(recorded: dict[str, Array]) -> TaskTimes:
    """Return recorded times in order.

    Remaining contradictions between clocks are clamped: the worker's times to the range in which
    the scheduler had the task assigned, then each time to the one before it.
    """
    # If one value is NaN, fmin and fmax return the other.
    known = recorded["known"]
    low, high = recorded["sent"], np.where(np.isnan(known), np.inf, known)
    clamped = dict(recorded)
    for name in ("received", "ready", "executing", "start", "stop", "done"):
        present = np.fmax(np.fmin(recorded[name], high), low)
        clamped[name] = np.where(np.isnan(recorded[name]), np.nan, present)
    # Without a message from its worker, a run was done when its function was.
    clamped["done"] = np.where(np.isnan(clamped["done"]), clamped["stop"], clamped["done"])
    table = np.stack([clamped[name] for name in STAGES])
    missing = np.isnan(table)
    np.fmax.accumulate(table, out=table)
    # A time that was not recorded is that of the next stage, or at the end that of the stage
    # before.
    later = ~missing[-1]
    for stage in range(len(STAGES) - 2, -1, -1):
        filled = missing[stage] & later
        table[stage, filled] = table[stage + 1, filled]
        later |= ~missing[stage]
    table.setflags(write=False)
    return TaskTimes(*table)


def fit_between(start: Array, length: Array, sent: Array, known: Array) -> Array:
    """Shift the starts of runs so that the runs lie between two times, if they are short enough.

    The scheduler knows when functions ran from Dask's estimate of each clock. On a busy host, this
    is off by a tenth of a second or more, equally for a run's start and stop.
    """
    return np.where(np.isnan(start), np.nan, np.fmax(np.fmin(start, known - length), sent))


def to_ticks(times: Array) -> Array:
    """Round times to integer ticks, so that their differences add up exactly."""
    return np.round(times * TICKS_PER_SECOND) / TICKS_PER_SECOND


def since_begin(trace: Trace, table: pd.DataFrame, column: str) -> Array:
    """Return the times in a column as seconds from the trace's start, or NaN if it is missing."""
    if column not in table:
        return np.full(len(table), np.nan)
    return table[column].to_numpy(dtype=float) - trace.begin
