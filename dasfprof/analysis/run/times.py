"""When each task run came to each stage, on one clock and in order."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from dasfprof.analysis.run.run_end import stimulus_texts
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

# --- How far each worker's clock is ahead of the scheduler's --------------------------------------

#: How the stimulus id begins by which a worker tells of an error; the time of its clock follows.
_ERRED = "task-erred-"
#: Seconds: times are not told apart to the last of their digits.
_ROUNDED = 1e-4


@once_per_trace
def clock_offsets(trace: Trace) -> Array:
    """Find the seconds to take from each worker's times to put them on the scheduler's clock.

    A worker cannot receive a task before it was sent, nor finish it after the scheduler knew: the
    offset lies in ``[max(done - known), min(received - sent)]``, and its midpoint is taken.
    Workers of one boot share a clock; those of the scheduler's boot have its own. Where the trace
    tells one bound or none, the offset is the least that keeps the bound. A clock that drifts by
    more than messages take crosses the bounds; what remains is for the caller to clamp.

    Returns
    -------
    array
        Seconds, for each row of `Trace.workers`.
    """
    clocks, scheduler = _clocks(trace.workers)
    lower, upper = message_bounds(trace)
    with np.errstate(invalid="ignore"):  # of two infinite bounds
        middle = (lower + upper) / 2
    offsets = np.where(np.isfinite(middle), middle, np.maximum(np.minimum(0.0, upper), lower))
    offsets[scheduler] = 0.0
    return offsets[clocks]


@once_per_trace
def clock_errors(trace: Trace) -> Array:
    """Find by how many seconds each of `clock_offsets` may be wrong: half of its interval.

    0 for clocks that are the scheduler's own, infinite where the trace lacks a bound. Where the
    bounds cross, no constant offset fits, and half of what they cross by is told.

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
    """Return the least and the largest offset of each clock that messages allow."""
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
    """Return which of `Trace.tasks` ended as the scheduler heard of it from their worker.

    Otherwise ``known`` says when the scheduler gave a run up, which its worker may outlive.
    """
    tasks = trace.tasks
    reported: Array = tasks["scheduler_state"].isin(["memory", "erred"]).to_numpy().copy()
    # A failed attempt that is tried again is reported as well, and becomes "released".
    rows = np.flatnonzero((tasks["state"] == "erred") & (tasks["scheduler_state"] == "released"))
    # A task whose result nobody wants since another one failed ends by word of that one's error.
    runs = tasks.iloc[rows]
    # The time of the stimulus of an error; NaN if it is another one.
    texts = pd.Series(stimulus_texts(trace, runs["end_cause"]), dtype=object)
    times = texts.str.removeprefix(_ERRED).where(texts.str.startswith(_ERRED))
    said = pd.to_numeric(times, errors="coerce").to_numpy(dtype=float)
    stop = (runs["start"] + runs["duration"]).to_numpy()
    reported[rows] = (said > stop - _ROUNDED) & (said < runs["done"].to_numpy() + _ROUNDED)
    return reported


def _clocks(workers: pd.DataFrame) -> tuple[Array, Array]:
    """Number the clock of each worker, and tell which of the numbers are the scheduler's."""
    rows = pd.Series(np.arange(len(workers)), dtype=np.int64)
    boots = workers["boot_id"].reset_index(drop=True)
    clocks = rows.groupby(boots).transform("min").fillna(rows).to_numpy(dtype=np.int64)
    return clocks, np.unique(clocks[(workers["kind"] == "scheduler").to_numpy()])


def _bound(ufunc: np.ufunc, bounds: Array, clocks: Array, distances: Array) -> None:
    known = np.isfinite(distances)
    ufunc.at(bounds, clocks[known], distances[known])


# --- When each task run came to each stage, on one clock and in order -----------------------------

#: Times are whole numbers of these (0.93 ns) from the trace's begin: so they add up exactly.
TICKS_PER_SECOND = float(1 << 30)


@dataclass(frozen=True)
class TaskTimes:
    """Times of task runs in seconds from the trace's begin, none before the one above it.

    A time that nobody recorded is that of the next stage that somebody did.
    """

    #: The scheduler knew of the task.
    arrival: Array
    #: Its dependencies were done.
    runnable: Array
    #: It was sent to a worker.
    sent: Array
    #: The worker knew of it.
    received: Array
    #: Its dependencies were on the worker.
    ready: Array
    #: It was given a thread.
    executing: Array
    #: The user's function began, and ended.
    start: Array
    stop: Array
    #: The worker's loop knew the outcome.
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
    """Return the times of `Trace.tasks` on the scheduler's clock; what nobody recorded is NaN."""
    tasks = trace.tasks
    times = {name: since_begin(trace, tasks, column) for name, column in _SCHEDULER.items()}
    queued = since_begin(trace, tasks, "queued")
    times["runnable"] = np.where(np.isnan(queued), times["sent"], queued)
    known = since_begin(trace, tasks, "known")
    times["known"] = np.where(ended_there(trace), known, np.nan) if "sent" in tasks else known
    # The scheduler's own record of start and stop is on its clock already, more or less.
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
    """Return the recorded times of `Trace.tasks`, put in order."""
    return task_times(recorded_times(trace))


def task_times(recorded: dict[str, Array]) -> TaskTimes:
    """Put recorded times in order.

    What clocks still disagree about is clamped: the worker's times to those between which the
    scheduler had the task out, then each to the one before it.
    """
    # fmin and fmax take the other of a number and NaN.
    known = recorded["known"]
    low, high = recorded["sent"], np.where(np.isnan(known), np.inf, known)
    clamped = dict(recorded)
    for name in ("received", "ready", "executing", "start", "stop", "done"):
        present = np.fmax(np.fmin(recorded[name], high), low)
        clamped[name] = np.where(np.isnan(recorded[name]), np.nan, present)
    # Without word from its worker a run was done when its function was.
    clamped["done"] = np.where(np.isnan(clamped["done"]), clamped["stop"], clamped["done"])
    table = np.stack([clamped[name] for name in STAGES])
    missing = np.isnan(table)
    np.fmax.accumulate(table, out=table)
    # What nobody recorded is that of the next stage, at the end that of the one before.
    later = ~missing[-1]
    for stage in range(len(STAGES) - 2, -1, -1):
        filled = missing[stage] & later
        table[stage, filled] = table[stage + 1, filled]
        later |= ~missing[stage]
    table.setflags(write=False)
    return TaskTimes(*table)


def fit_between(start: Array, length: Array, sent: Array, known: Array) -> Array:
    """Move the starts of runs so that they lie between two times, if they are not too long.

    The scheduler knows when functions ran by Dask's estimate of each clock. On a busy host that
    is off by a tenth of a second and more, for a run's start and stop alike.
    """
    return np.where(np.isnan(start), np.nan, np.fmax(np.fmin(start, known - length), sent))


def to_ticks(times: Array) -> Array:
    """Round times to whole ticks, so that their differences add up exactly."""
    return np.round(times * TICKS_PER_SECOND) / TICKS_PER_SECOND


def since_begin(trace: Trace, table: pd.DataFrame, column: str) -> Array:
    """Return the times in a column, NaN where there is none, as seconds from the trace's begin."""
    if column not in table:
        return np.full(len(table), np.nan)
    return table[column].to_numpy(dtype=float) - trace.begin
