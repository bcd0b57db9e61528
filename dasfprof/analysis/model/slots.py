"""Which thread-seconds task runs held, and what was on its way to a thread when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.times import (
    TaskTimes,
    fit_between,
    ordered_times,
    recorded_times,
    task_times,
    to_ticks,
)
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class TaskSlots:
    """The slots of task runs: a thread of a worker, from executing to done or to seceding.

    A row each of `Trace.tasks`, and after them those of `Trace.scheduler_only` that are known to
    have run. Seconds from the trace's begin.
    """

    times: TaskTimes
    #: Row of `Trace.workers`.
    worker: Array
    #: Place in `functions`.
    function: Array
    functions: list[str]
    #: When the run was sent to this worker: after it was stolen, if it was.
    sent: Array
    #: When it was done, or had seceded.
    released: Array
    #: When it gave its thread back.
    end: Array
    #: Whether no file tells when its worker took it in: `received` is when it began then.
    reception_unknown: Array

    @property
    def received(self) -> Array:
        """When the worker knew of the run."""
        return self.times.received

    @property
    def on_its_way(self) -> Array:
        """Seconds from being sent until the worker took it in; 0 where that is unknown."""
        seconds: Array = np.where(self.reception_unknown, 0.0, self.received - self.sent)
        return seconds


@once_per_trace
def task_slots(trace: Trace) -> TaskSlots:
    """Find the slots of a trace's task runs."""
    tasks, unseen = trace.tasks, unseen_runs(trace)
    recorded = recorded_times(trace)
    stolen, seceded = _own(trace, "stolen"), _own(trace, "seceded")
    offset = tasks["start"].to_numpy() - trace.begin - recorded["start"]
    seceded = to_ticks(seceded - offset)
    if len(unseen):
        more = _recorded_by_scheduler(trace, unseen)
        recorded = {name: np.concatenate([recorded[name], more[name]]) for name in recorded}
        nothing = np.full(len(unseen), np.nan)
        stolen, seceded = np.append(stolen, nothing), np.append(seceded, nothing)
    times = task_times(recorded) if len(unseen) else ordered_times(trace)
    worker = _joined(tasks["worker_id"], unseen["worker_id"])
    released = np.fmin(times.done, seceded)
    codes, names = _functions(tasks["function"].cat, unseen["function"].cat)
    return TaskSlots(
        times=times,
        worker=worker,
        function=codes,
        functions=names,
        sent=np.clip(np.fmax(times.sent, to_ticks(stolen)), None, times.received),
        released=released,
        end=slot_ends(times, released, taken_next(times, worker, *_threads(trace, len(times)))),
        reception_unknown=np.isnan(recorded["received"]),
    )


@once_per_trace
def most_slots(trace: Trace) -> Array:
    """Count the most slots that each worker had at a time."""
    slots = task_slots(trace)
    begin, end = slots.times.executing, slots.end
    time = np.concatenate([begin, end])
    step = np.repeat([1, -1], len(begin))
    of_worker = np.tile(slots.worker, 2)
    order = np.lexsort((step, time, of_worker))  # ends before begins of the same time
    running = np.cumsum(step[order])
    most = np.zeros(len(trace.workers), dtype=np.int64)
    np.maximum.at(most, of_worker[order], running)
    return most


def slot_ends(times: TaskTimes, released: Array, taken: Array) -> Array:
    """Return when each run gave its thread back.

    A worker notes that a run took a thread a moment before it notes that the one before it there
    was done, which had given the thread back by then.

    Parameters
    ----------
    times, released
        As `TaskSlots` has them.
    taken
        See `taken_next`.
    """
    with np.errstate(invalid="ignore"):
        again = np.where(taken >= times.stop, taken, np.nan)
    ends: Array = np.maximum(np.fmin(released, again), times.executing)
    return ends


def taken_next(times: TaskTimes, worker: Array, thread: Array, run_id: Array) -> Array:
    """Return when the thread of each run was next taken; NaN where it was not, or is not known.

    Parameters
    ----------
    times, worker
        As `TaskSlots` has them.
    thread
        A number for each of a worker's threads, -1 where nobody recorded it.
    run_id
        Tells runs apart that took a thread at the same time and used it no longer than another.
    """
    taken = np.full(len(times), np.nan)
    rows = np.flatnonzero(thread >= 0)
    executing = times.executing[rows]
    of_thread = worker[rows] * (thread.max(initial=0) + 1) + thread[rows]
    order = np.argsort(executing, kind="stable")
    order = order[np.argsort(of_thread[order], kind="stable")]
    in_order, begins = of_thread[order], executing[order]
    same = in_order[:-1] == in_order[1:]
    tied = same & (begins[:-1] == begins[1:])
    if tied.any():
        places = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
        few = order[places]
        own = run_id[rows[few]], times.stop[rows[few]], begins[places], in_order[places]
        order[places] = few[np.lexsort(own)]
    taken[rows[order[:-1][same]]] = begins[1:][same]
    return taken


def recorded_threads(trace: Trace) -> tuple[Array, list[str]]:
    """Return for each of `Trace.tasks` the number of its thread, -1: unknown, and their names."""
    if "thread" not in trace.tasks:
        return np.full(len(trace.tasks), -1, dtype=np.int64), []
    thread = trace.tasks["thread"].cat
    return thread.codes.to_numpy(dtype=np.int64), list(thread.categories)


def _threads(trace: Trace, count: int) -> tuple[Array, Array]:
    """Return the thread and the run_id of each slot; those that no worker's file has have none."""
    more = np.full(count - len(trace.tasks), -1, dtype=np.int64)
    run_id = trace.tasks["run_id"].to_numpy(dtype=np.int64)
    return np.append(recorded_threads(trace)[0], more), np.append(run_id, more)


@dataclass(frozen=True)
class UnfinishedRuns:
    """Runs that no worker finished, as far as files tell. Seconds from the trace's begin."""

    #: Row of `Trace.workers`.
    worker: Array
    #: When the scheduler knew of each, could send it, sent it, and gave it up.
    arrival: Array
    runnable: Array
    sent: Array
    known: Array
    #: Whether its worker took it with it: its file ends before, or is not there.
    taken: Array


@once_per_trace
def unfinished_runs(trace: Trace) -> UnfinishedRuns:
    """Find the runs of which only the scheduler knows, and not that they ran."""
    only = trace.scheduler_only
    if "sent" not in only:
        none = np.empty(0)
        return UnfinishedRuns(none, none, none, none, none, none.astype(bool))
    runs = only[~only["lost"] & only["sent"].notna()]
    recorded = _recorded_by_scheduler(trace, runs)
    sent = recorded["sent"]
    runnable = np.minimum(recorded["runnable"], sent)
    # What the scheduler wrote as it stopped recording goes on to the end.
    goes_on = (runs["scheduler_state"] == "processing").to_numpy(dtype=bool)
    known = np.where(goes_on, to_ticks(np.array(trace.end - trace.begin)), recorded["known"])
    return UnfinishedRuns(
        worker=runs["worker_id"].to_numpy(),
        arrival=np.fmin(recorded["arrival"], runnable),
        runnable=runnable,
        sent=sent,
        known=np.fmax(known, sent),
        taken=(runs["reason"] != "not in its file").to_numpy(),
    )


@once_per_trace
def unseen_runs(trace: Trace) -> pd.DataFrame:
    """Return the runs that are known to have run and that no worker's file holds."""
    only = trace.scheduler_only
    if "lost" not in only or "sent" not in only:
        return only.iloc[:0]
    return only[only["lost"] & (only["worker_id"] >= 0)]


def _recorded_by_scheduler(trace: Trace, runs: pd.DataFrame) -> dict[str, Array]:
    def since(column: str) -> Array:
        return to_ticks(runs[column].to_numpy(dtype=float) - trace.begin)

    unknown = np.full(len(runs), np.nan)
    length = np.maximum(since("scheduler_stop") - since("scheduler_start"), 0.0)
    start = fit_between(since("scheduler_start"), length, since("sent"), since("known"))
    return {
        "arrival": since("scheduler_waiting"),
        "runnable": np.where(np.isnan(since("queued")), since("sent"), since("queued")),
        "sent": since("sent"),
        "received": unknown,
        "ready": unknown,
        "executing": unknown,
        "start": start,
        "stop": start + length,
        "done": unknown,
        "known": since("known"),
    }


def _functions(first: Any, second: Any) -> tuple[Array, list[str]]:
    """Number the functions of two categorical columns, one after the other, alike."""
    numbers = {name: code for code, name in enumerate(first.categories)}
    again = [numbers.setdefault(name, len(numbers)) for name in second.categories]
    codes = np.array([*again, -1], dtype=np.int64)[second.codes.to_numpy()]
    return np.concatenate([first.codes.to_numpy(), codes]), list(numbers)


def _own(trace: Trace, column: str) -> Array:
    if column not in trace.tasks:
        return np.full(len(trace.tasks), np.nan)
    times: Array = trace.tasks[column].to_numpy(dtype=float) - trace.begin
    return times


def _joined(first: pd.Series, second: pd.Series) -> Array:
    return np.concatenate([first.to_numpy(dtype=np.int64), second.to_numpy(dtype=np.int64)])
