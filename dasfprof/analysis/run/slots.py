"""When task runs occupied slots (threads of workers), and which task runs have no known end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from dasfprof.analysis.run.task_runs import (
    STAGES,
    TaskTimes,
    all_task_runs,
    fit_between,
    open_runs,
    ordered_times,
    recorded_times,
    since_begin,
    task_times,
    to_ticks,
)
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.columns import joined_categoricals
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class TaskSlots:
    """The slots of task runs.

    A slot is a thread of a worker, occupied from the start of execution until the task run was done
    or seceded. There is one row for each row of `all_task_runs`, and then one for each of
    `unseen_runs`. Times are in seconds from the trace's start.
    """

    times: TaskTimes
    #: Row of `Trace.workers`.
    worker: Array
    #: Index in `functions`.
    function: Array
    functions: list[str]
    #: When the task run was assigned to this worker. If it was stolen, when it was stolen.
    sent: Array
    #: When the task run released its thread.
    end: Array
    #: Whether the time of reception was not recorded. If so, `received` is the time at which the
    #: task run started.
    reception_unknown: Array

    @property
    def on_its_way(self) -> Array:
        """Seconds from the assignment of each task run to its reception, or 0 if unknown."""
        return np.where(self.reception_unknown, 0.0, self.times.received - self.sent)

    def take(self, rows: Array) -> TaskSlots:
        """Return the slots at the given indices."""
        names = ("worker", "function", "sent", "end", "reception_unknown")
        times = TaskTimes(*(getattr(self.times, name)[rows] for name in STAGES))
        return replace(self, times=times, **{name: getattr(self, name)[rows] for name in names})


@once_per_trace
def task_slots(trace: Trace) -> TaskSlots:
    """Return the slots of all task runs, finished and unfinished."""
    tasks, unseen = all_task_runs(trace), unseen_runs(trace)
    recorded = recorded_times(trace)
    stolen, seceded = (since_begin(trace, tasks, name) for name in ("stolen", "seceded"))
    seceded = to_ticks(seceded - (tasks["start"].to_numpy() - trace.begin - recorded["start"]))
    if len(unseen):
        more = _recorded_by_scheduler(trace, unseen)
        recorded = {name: np.concatenate([recorded[name], more[name]]) for name in recorded}
        nothing = np.full(len(unseen), np.nan)
        stolen, seceded = np.append(stolen, nothing), np.append(seceded, nothing)
    times = task_times(recorded) if len(unseen) else ordered_times(trace)
    worker = np.append(tasks["worker_id"], unseen["worker_id"]).astype(np.int64)
    released = np.fmin(times.done, seceded)
    functions = joined_categoricals(tasks["function"].array, unseen["function"].array)
    return TaskSlots(
        times=times,
        worker=worker,
        function=functions.codes,
        functions=list(functions.categories),
        sent=np.clip(np.fmax(times.sent, to_ticks(stolen)), None, times.received),
        end=slot_ends(times, released, worker, trace.workers["nthreads"].to_numpy(dtype=float)),
        reception_unknown=np.isnan(recorded["received"]),
    )


@once_per_trace
def finished_slots(trace: Trace) -> TaskSlots:
    """Return the slots of `Trace.tasks`, and then of `unseen_runs`."""
    slots, finished = task_slots(trace), len(trace.tasks)
    unfinished = len(all_task_runs(trace)) - finished
    rows = np.arange(len(slots.times) - unfinished)
    return slots.take(np.where(rows < finished, rows, rows + unfinished)) if unfinished else slots


@once_per_trace
def most_slots(trace: Trace) -> Array:
    """Return the maximum number of occupied slots of each worker."""
    slots = task_slots(trace)
    return _most_at_once(slots.times.executing, slots.end, slots.worker, len(trace.workers))


def _most_at_once(begin: Array, end: Array, worker: Array, workers: int) -> Array:
    """Return, for each worker, the maximum number of time ranges that overlap at any time."""
    time = np.concatenate([begin, end])
    step = np.repeat([1, -1], len(begin))
    of_worker = np.tile(worker, 2)
    order = np.lexsort((step, time, of_worker))  # At the same time, ends come before starts.
    running = np.cumsum(step[order])
    most = np.zeros(workers, dtype=np.int64)
    np.maximum.at(most, of_worker[order], running)
    return most


def slot_ends(times: TaskTimes, released: Array, worker: Array, threads: Array) -> Array:
    """Return when each task run released its slot.

    `released` is when each task run was done or had seceded. The result is earlier if the next task
    run in the slot started earlier. If the number of `threads` of a worker
    is NaN, the maximum number of functions that it ran at the same time is used instead.
    """
    count, place = len(worker), np.arange(len(worker))
    most = _most_at_once(times.executing, times.stop, worker, len(threads))
    slots = np.where(np.isnan(threads), most, threads).astype(np.int64)
    by_end, by_begin = np.lexsort((released, worker)), np.lexsort((times.executing, worker))
    of_worker = worker[by_end]
    # A worker never has more slots than threads, so the order of task runs shows which of them used
    # a slot next. It does not matter which thread runs the function.
    following = place + slots[of_worker]
    same = following < count
    same[same] = of_worker[following[same]] == of_worker[same]
    taken = np.full(count, np.inf)
    taken[by_end[same]] = times.executing[by_begin[following[same]]]
    # When a task run ends, the worker records the start of the next task run in the slot, and
    # shortly afterwards the end of the previous one. So the previous task run had released its slot
    # when the next one started.
    early = (taken < released) & (taken >= times.stop)
    return np.maximum(np.where(early, taken, released), times.executing)


@dataclass(frozen=True)
class UnfinishedRuns:
    """Task runs without a known end on a worker, with times in seconds from the trace's start."""

    #: Row of `Trace.workers`.
    worker: Array
    #: Times at which the scheduler received the task run, could assign it, assigned it, and took it
    #: back.
    arrival: Array
    runnable: Array
    sent: Array
    known: Array
    #: Whether the record of the task run was lost with its worker: the worker's file ends too early
    #: or is missing.
    taken: Array
    #: Whether the task failed because its worker was lost, and was not tried again.
    ended: Array


@once_per_trace
def unfinished_runs(trace: Trace) -> UnfinishedRuns:
    """Return the task runs of `Trace.scheduler_only` that may not have started."""
    return _unfinished(trace, trace.scheduler_only)


@once_per_trace
def unlisted_runs(trace: Trace) -> UnfinishedRuns:
    """Return those of `unfinished_runs` that are not in `all_task_runs`."""
    return _unfinished(trace, open_runs(trace).others)


def _unfinished(trace: Trace, only: pd.DataFrame) -> UnfinishedRuns:
    runs = only[~only["lost"] & only["sent"].notna()]
    recorded = _recorded_by_scheduler(trace, runs)
    sent = recorded["sent"]
    runnable = np.minimum(recorded["runnable"], sent)
    # If the scheduler recorded a task run as in progress when recording ended, it lasts until the
    # end.
    goes_on = (runs["scheduler_state"] == "processing").to_numpy(dtype=bool)
    known = np.where(goes_on, to_ticks(np.array(trace.end - trace.begin)), recorded["known"])
    return UnfinishedRuns(
        worker=runs["worker_id"].to_numpy(),
        arrival=np.fmin(recorded["arrival"], runnable),
        runnable=runnable,
        sent=sent,
        known=np.fmax(known, sent),
        taken=(runs["reason"] != "not in its file").to_numpy(),
        ended=(runs["scheduler_state"] == "erred").to_numpy(dtype=bool),
    )


@once_per_trace
def find_first_arrival(trace: Trace) -> float:
    """Return when the scheduler received the first task, or infinity if there are no tasks.

    The time is in seconds from the trace's start.
    """
    # Tasks that never ended, or that were lost with their worker, count as well.
    arrivals = task_slots(trace).times.arrival
    lost = unfinished_runs(trace).arrival
    return float(min(arrivals.min(initial=np.inf), lost.min(initial=np.inf)))


@once_per_trace
def unseen_runs(trace: Trace) -> pd.DataFrame:
    """Return the task runs that certainly ran but are in no worker's file."""
    only = open_runs(trace).others
    return only[only["lost"] & (only["worker_id"] >= 0)]


def _recorded_by_scheduler(trace: Trace, runs: pd.DataFrame) -> dict[str, Array]:
    def since(column: str) -> Array:
        return to_ticks(runs[column].to_numpy(dtype=float) - trace.begin)

    length = np.maximum(since("scheduler_stop") - since("scheduler_start"), 0.0)
    start = fit_between(since("scheduler_start"), length, since("sent"), since("known"))
    return {
        "arrival": since("scheduler_waiting"),
        "runnable": np.where(np.isnan(since("queued")), since("sent"), since("queued")),
        "sent": since("sent"),
        "start": start,
        "stop": start + length,
        "known": since("known"),
        **dict.fromkeys(("received", "ready", "executing", "done"), np.full(len(runs), np.nan)),
    }
