"""Which thread-seconds task runs held, and what was on its way to a thread when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.run.open_runs import with_open_runs
from dasfprof.analysis.run.times import (
    TaskTimes,
    fit_between,
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
        return np.where(self.reception_unknown, 0.0, self.received - self.sent)


@once_per_trace
def task_slots(trace: Trace) -> TaskSlots:
    """Find the slots of a trace's task runs."""
    tasks, unseen = trace.tasks, unseen_runs(trace)
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
def most_slots(trace: Trace) -> Array:
    """Count the most slots that each worker had at a time."""
    slots = task_slots(trace)
    return _most_at_once(slots.times.executing, slots.end, slots.worker, len(trace.workers))


def _most_at_once(begin: Array, end: Array, worker: Array, workers: int) -> Array:
    """Count for each worker the most spans at a time."""
    time = np.concatenate([begin, end])
    step = np.repeat([1, -1], len(begin))
    of_worker = np.tile(worker, 2)
    order = np.lexsort((step, time, of_worker))  # ends before begins of the same time
    running = np.cumsum(step[order])
    most = np.zeros(workers, dtype=np.int64)
    np.maximum.at(most, of_worker[order], running)
    return most


def slot_ends(times: TaskTimes, released: Array, worker: Array, threads: Array) -> Array:
    """Return when each run gave its slot back.

    A worker notes that a run was given a slot a moment before it notes that the one before it there
    was done, which had given it back by then. Which one that was follows from their order: no
    worker has more slots than threads, whichever of its threads, or none, then runs the function.

    Parameters
    ----------
    times, worker
        As `TaskSlots` has them.
    released
        When each run was done, or had seceded.
    threads
        Of each worker; NaN: unknown, and taken to be the most functions that ran at a time.
    """
    count, place = len(worker), np.arange(len(worker))
    most = _most_at_once(times.executing, times.stop, worker, len(threads))
    slots = np.where(np.isnan(threads), most, threads).astype(np.int64)
    by_end, by_begin = np.lexsort((released, worker)), np.lexsort((times.executing, worker))
    of_worker = worker[by_end]
    following = place + slots[of_worker]
    same = following < count
    same[same] = of_worker[following[same]] == of_worker[same]
    taken = np.full(count, np.inf)
    taken[by_end[same]] = times.executing[by_begin[following[same]]]
    early = (taken < released) & (taken >= times.stop)
    return np.maximum(np.where(early, taken, released), times.executing)


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
    #: Whether its task ended with it, in an error: nobody tried it again.
    ended: Array


@once_per_trace
def unfinished_runs(trace: Trace) -> UnfinishedRuns:
    """Find the runs of which only the scheduler knows, and not that they ran."""
    only = trace.scheduler_only
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
        ended=(runs["scheduler_state"] == "erred").to_numpy(dtype=bool),
    )


@once_per_trace
def first_arrival(trace: Trace) -> float:
    """Return when the first task came, in seconds from the trace's begin; infinite without any.

    One that was lost with its worker, or never ended, came when it was wanted first.
    """
    arrivals = task_slots(with_open_runs(trace)).times.arrival
    lost = unfinished_runs(trace).arrival
    return float(min(arrivals.min(initial=np.inf), lost.min(initial=np.inf)))


@once_per_trace
def unseen_runs(trace: Trace) -> pd.DataFrame:
    """Return the runs that are known to have run and that no worker's file holds."""
    only = trace.scheduler_only
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


# What each task run waited for and did, from its arrival until the scheduler knew its outcome.

#: For each status the stages of `TaskTimes` between which a task run has it.
STATUSES = {
    "Not started": (("arrival", "runnable"),),
    "Inqueue": (("runnable", "sent"), ("sent", "received"), ("ready", "executing")),
    "Preparing": (("received", "ready"), ("executing", "start")),
    "Running": (("start", "stop"),),
    "Finalizing": (("stop", "done"), ("done", "known")),
}


@once_per_trace
def status_seconds(trace: Trace) -> dict[str, Array]:
    """Return the seconds that each task run had each status, which sum to ``known - arrival``.

    A status of which nothing is known has NaN: its seconds are in the status before it.
    """
    recorded, times = recorded_times(trace), ordered_times(trace)
    seconds = {}
    for name, spans in STATUSES.items():
        length = np.zeros(len(times))
        known = np.isfinite(recorded[spans[0][0]]) & np.isfinite(recorded[spans[-1][1]])
        for begin, end in spans:
            length += getattr(times, end) - getattr(times, begin)
            known |= np.isfinite(recorded[begin]) & np.isfinite(recorded[end])
        seconds[name] = np.where(known | (length > 0), length, np.nan)
    return seconds
