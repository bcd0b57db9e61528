"""Causes of idle threads at each instant.

The status and the tasks of a worker explain its free threads first. The causes have a fixed order.
The free threads of all workers that remain unexplained form the pool of the cluster. The work of
the whole cluster explains the threads in the pool (see `Pool`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.attempts import Steps, unlisted_tasks
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.task_runs import to_ticks
from dasfprof.analysis.run.workers import CLOSING, OPEN, PAUSED, STARTING
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Starts and ends of time ranges.
Spans = tuple[Array, Array]

#: Cause of idle threads by the status of their worker.
_BY_STATUS = {
    STARTING: ThreadTime.STARTING,
    PAUSED: ThreadTime.PAUSED_FOR_MEMORY,
    CLOSING: ThreadTime.CLOSING,
}


@dataclass(frozen=True)
class IdleThreads:
    """Idle threads of one worker over time, and its idle thread-seconds by cause."""

    #: Idle thread-seconds by cause. Threads in the pool are not included.
    causes: dict[ThreadTime, float]
    #: Times at which `idle` or `surplus` changes. Their values are valid from each time to the
    #: next.
    times: Array
    #: Number of threads that the worker does not explain, which are in the pool.
    idle: Array
    #: Number of ready tasks that exceed the free threads of the worker.
    surplus: Array
    #: Start and end of the worker instance, or of the part of its life inside a time window.
    begin: float
    end: float
    #: Fraction of a thread that each slot has, from each of `used_times` to the next. None if the
    #: worker never has more occupied slots than threads. Then, each second of a slot is one
    #: thread-second.
    share: Array | None
    used_times: Array

    def used(self, times: Array) -> Array:
        """Return the thread-seconds that an always occupied slot has used until each of `times`.

        Only the difference between two values has a meaning.
        """
        times = np.clip(times, self.begin, self.end)
        if self.share is None:
            return times
        # While more slots are occupied than the worker has threads, a slot uses only a fraction of
        # a thread.
        passed = np.append(0.0, np.cumsum(self.share * np.diff(self.used_times)))
        return np.interp(times, self.used_times, passed)


@dataclass(frozen=True)
class WorkerCauses:
    """Free threads of one worker over time, by cause, as far as the worker itself is the cause."""

    #: Number of threads of the worker.
    threads: int
    times: Array
    #: Number of occupied slots.
    running: Array
    #: Free threads by cause.
    causes: dict[ThreadTime, Array]
    #: Number of free threads that have no cause in the worker, which go to the pool. Then number of
    #: ready tasks that exceed the free threads of the worker.
    idle: Array
    surplus: Array


def worker_causes(
    life: tuple[int, float, float],
    statuses: tuple[Array, Array],
    slots: list[Array],
    unrecorded: Spans,
    others: Spans,
) -> WorkerCauses:
    """Explain the idle threads of one worker by the status and the tasks of this worker.

    Parameters
    ----------
    life
        Number of threads of the worker instance, its start, and its end.
    statuses
        Times at which the worker's status changes, beginning with its start, and the status from
        each time onwards.
    slots
        Five arrays of sorted times of the worker's task runs: assignment, reception, ready, start,
        and end of the slot.
    unrecorded
        Times of task runs that the worker's file does not contain: their assignment, and their
        start or abandonment.
    others
        Time ranges in which the worker's threads ran tasks of clients that the trace excludes.
    """
    threads, begin, end = life
    edges = [np.array([begin, end]), statuses[0], *slots, *unrecorded, *others]
    times = np.clip(np.concatenate(edges), begin, end)
    order = np.argsort(times, kind="stable")
    times = times[order]
    ends = np.cumsum([len(edge) for edge in edges])
    on_way, waiting, ready, running, lost, foreign = (
        _count(order, ends, *pair)[:-1]
        for pair in ((2, 3), (3, 4), (4, 5), (5, 6), (7, 8), (9, 10))
    )
    status = statuses[1][np.maximum(np.searchsorted(statuses[0], times[:-1], side="right") - 1, 0)]
    free = threads - np.minimum(running, threads)
    open_ = status == OPEN
    causes = {cause: np.where(status == code, free, 0) for code, cause in _BY_STATUS.items()}
    available = free = np.where(open_, free, 0)
    # A cause that comes earlier in this order explains free threads first.
    for cause, demand in (
        (ThreadTime.OTHER_CLIENTS, foreign),
        (ThreadTime.UNRECORDED, lost),
        (ThreadTime.WORKER_LATENCY, ready),
        (ThreadTime.TRANSFER_WAIT, waiting),
        (ThreadTime.ON_ITS_WAY, on_way),
    ):
        causes[cause] = np.minimum(free, demand)
        free = free - causes[cause]
    surplus = np.where(status == CLOSING, 0, np.maximum(ready - available, 0))
    return WorkerCauses(threads, times, running, causes, free, surplus)


def idle_threads(explained: WorkerCauses) -> IdleThreads:
    """Return the seconds of each cause in `explained`, and the idle threads without a cause."""
    times, running, threads = explained.times, explained.running, explained.threads
    steps = np.diff(times)
    causes = {
        cause: float((held * steps).sum()) for cause, held in explained.causes.items() if held.any()
    }
    free, surplus = explained.idle, explained.surplus
    changes = np.flatnonzero((np.diff(free, prepend=-1) != 0) | (np.diff(surplus, prepend=-1) != 0))
    share, used_times = None, times[:0]
    if (running > threads).any():
        share = np.minimum(running, threads) / np.maximum(running, 1)
        other = np.flatnonzero(np.diff(share, prepend=-1) != 0)
        share, used_times = share[other], np.append(times[other], times[-1])
    return IdleThreads(
        causes,
        np.append(times[changes], times[-1]),
        np.append(free[changes], 0),
        np.append(surplus[changes], 0),
        float(times[0]),
        float(times[-1]),
        share,
        used_times,
    )


def _count(order: Array, ends: Array, first: int, second: int) -> Array:
    """Return how many time ranges are in progress after each edge, with edges sorted by time.

    The unsorted edges consist of groups, and `order` contains the indices that sort them. Group
    ``i`` has the indices ``ends[i - 1]`` to ``ends[i]``. The groups `first` and `second` are the
    starts and the ends of the time ranges.
    """
    step = np.zeros(int(ends[-1]), dtype=np.int32)
    step[ends[first - 1] : ends[first]] = 1
    step[ends[second - 1] : ends[second]] = -1
    return np.maximum(np.cumsum(step[order]), 0)


# Causes of idle threads that workers do not explain: the pool of the cluster. At each instant,
# every thread of the pool has the same fraction of each cause.

#: Type for numbers of threads and tasks. Arrays of them have millions of values, and memory
#: bandwidth limits the speed.
_INT = np.int32


@dataclass(frozen=True)
class Pool:
    """Causes of the idle threads in the pool of the cluster, over time.

    At any time, each cause explains the same fraction of every thread in the pool. So `spent`
    describes a single thread that is always in the pool.
    """

    #: Sorted times. Causes are constant from each time to the next.
    grid: Array
    #: Cumulative seconds by cause at these times. Causes that explain nothing are left out.
    spent: dict[ThreadTime, Array]

    def of_worker(self, threads: IdleThreads) -> dict[ThreadTime, float]:
        """Return the thread-seconds, by cause, of the threads that a worker has in the pool."""
        held = np.flatnonzero(threads.idle[:-1])
        begins = np.searchsorted(self.grid, threads.times[held])
        ends = np.searchsorted(self.grid, threads.times[held + 1])
        return {
            cause: float((threads.idle[held] * (spent[ends] - spent[begins])).sum())
            for cause, spent in self.spent.items()
        }


def pool_of(workers: list[IdleThreads], demand: PoolDemand) -> Pool:
    """Return the causes of the idle threads that their own workers do not explain."""
    times = np.concatenate([np.empty(0), *(worker.times for worker in workers)])
    if not len(times):
        return Pool(times, {})
    order = np.argsort(times, kind="stable")
    changes = [
        (np.diff(worker.idle, prepend=0), np.diff(worker.surplus, prepend=0)) for worker in workers
    ]
    idle, surplus = (
        np.cumsum(np.concatenate(of_workers)[order], dtype=_INT)
        for of_workers in zip(*changes, strict=True)
    )
    # Only times with idle threads need an explanation. A busy run has few of them.
    held = idle > 0
    changing = np.flatnonzero(held | np.append(True, held[:-1]))
    times, idle, surplus = times[order[changing]], idle[changing], surplus[changing]
    grid = demand.grid(times, idle)
    indices = np.searchsorted(times, grid[:-1], side="right") - 1
    shares = np.diff(grid) / np.maximum(idle[indices], 1)
    threads = demand.split(grid[:-1], idle[indices], surplus[indices])
    spent = {
        cause: np.append(0.0, np.cumsum(held * shares))
        for cause, held in threads.items()
        if held.any()
    }
    return Pool(grid, spent)


@dataclass(frozen=True)
class PoolDemand:
    """The work of the cluster: for each stage, the sorted times at which task runs reached it."""

    #: When the scheduler received task runs.
    arrival: Array
    #: When task runs became runnable. They are not assigned to a worker yet.
    runnable: Array
    #: When task runs were assigned to a worker.
    sent: Array
    #: When task runs were done on their worker. They are not reported to the scheduler yet.
    done: Array
    #: When the scheduler learned that task runs had finished.
    known: Array
    #: When calls of actors arrived, and when the calls were answered.
    calls: Spans
    #: When functions outside of tasks were requested, and when the requests were answered.
    functions: Spans
    #: Number of additional unfinished tasks without task runs: times, and the number from each
    #: time onwards.
    unlisted: Steps

    @classmethod
    def from_run(cls, run: Run) -> PoolDemand:
        """Return the work of a run."""
        times, more = run.all_slots.times, run.unlisted
        calls, functions = spans_outside_tasks(run)
        return cls(
            # A task run that did not finish ends when it was cancelled or abandoned.
            arrival=_ascending([times.arrival, more.arrival]),
            runnable=_ascending([times.runnable, more.runnable]),
            sent=_ascending([times.sent, more.sent]),
            done=_ascending([times.done, more.known]),
            known=_ascending([times.known, more.known]),
            calls=calls,
            functions=functions,
            unlisted=unlisted_tasks(run),
        )

    def grid(self, times: Array, idle: Array) -> Array:
        """Return the times at which a cause can change while threads are in the pool."""
        parts = [times]
        edges_of = [self.arrival, self.runnable, self.sent, self.done, self.known]
        edges_of += [*self.calls, *self.functions, self.unlisted[0]]
        turns = np.flatnonzero(np.diff(idle > 0, prepend=False, append=False))
        bounds = times[np.minimum(turns, len(times) - 1)]
        parts += [edges[_within(edges, bounds)] for edges in edges_of]
        merged = _ascending(parts)
        return merged[np.append(True, merged[1:] != merged[:-1])]

    def split(self, times: Array, idle: Array, surplus: Array) -> dict[ThreadTime, Array]:
        """Return the number of pool threads that each cause explains, after each time.

        At each of `times`, `idle` is the number of threads in the pool, and `surplus` is the number
        of ready tasks that exceed the free threads of their workers.
        """
        runnable, sent, done, known = (
            _passed(edges, times) for edges in (self.runnable, self.sent, self.done, self.known)
        )
        unsent, out, unreported = runnable - sent, sent - done, done - known
        unlisted = np.append(0, self.unlisted[1])[_passed(self.unlisted[0], times)]
        live = _passed(self.arrival, times) - known + unlisted
        scheduler = np.minimum(unsent, idle)
        elsewhere = np.minimum(surplus, idle - scheduler)
        left = idle - scheduler - elsewhere
        late = (out == 0) & (unreported > 0)
        scheduler = scheduler + np.where(late, left, 0)
        waiting = np.where(~late & (live > 0), left, 0)
        nothing = np.where(~late & (live <= 0), left, 0)
        called, answered = (_passed(edges, times) for edges in self.calls)
        calls = np.where(called > answered, nothing, 0)
        asked, ran = (_passed(edges, times) for edges in self.functions)
        functions = np.where(asked > ran, nothing - calls, 0)
        return {
            ThreadTime.SCHEDULER_LATENCY: scheduler,
            ThreadTime.RUNNABLE_ELSEWHERE: elsewhere,
            ThreadTime.NO_RUNNABLE_TASK: waiting,
            ThreadTime.CALLS_OF_ACTORS: calls,
            ThreadTime.FUNCTIONS_OUTSIDE_TASKS: functions,
            ThreadTime.NOTHING_SUBMITTED: nothing - calls - functions,
        }


def _within(edges: Array, bounds: Array) -> Array:
    """Return a mask of the edges that lie in any of several ranges.

    `edges` is sorted. `bounds` contains the start and the end of each range in turn. An edge at a
    start is in the range, and an edge at an end is not.
    """
    indices = np.searchsorted(edges, bounds)
    begun, ended = (np.bincount(indices[side::2], minlength=len(edges) + 1) for side in (0, 1))
    return np.cumsum(begun - ended)[:-1] > 0


def _ascending(parts: Sequence[Array]) -> Array:
    """Return all times of several arrays, sorted."""
    # The arrays consist of long sorted pieces, so a stable sort is fast.
    return np.sort(np.concatenate(parts), kind="stable")


def _passed(edges: Array, times: Array) -> Array:
    """Return the number of the sorted edges at or before each of `times`."""
    return np.searchsorted(edges, times, side="right").astype(_INT)


@once_per_trace
def spans_outside_tasks(run: Run) -> list[Spans]:
    """Return when workers received calls of actors and answered them, then the same for functions.

    Times are sorted, in seconds since the start of the run, by the scheduler's clock. Calls with
    unknown times are left out.
    """
    spans = []
    for calls in (run.actor_calls, run.worker_functions):
        start = run.on_one_clock(calls["start"], calls["worker_id"])
        stop = start + calls["duration"].to_numpy(dtype=float)
        known = np.isfinite(start) & np.isfinite(stop)
        spans.append((np.sort(to_ticks(start[known])), np.sort(to_ticks(stop[known]))))
    return spans
