"""Why threads had nothing to do: the causes of idle threads at each instant.

Each worker's free threads are explained by its own affairs first, in the order of its causes. What
remains of all workers is the pool of idle threads of the cluster, see `Pool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.attempts import Steps, untold_tasks
from dasfprof.analysis.model.call_spans import call_spans, function_spans
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import CLOSING, OPEN, PAUSED, STARTING
from dasfprof.database.columns import Array

#: When intervals began, and when they ended.
Spans = tuple[Array, Array]

#: Causes of idle threads: of one worker, in the order in which they explain its free threads.
(IDLE_STARTING, IDLE_CLOSING, IDLE_PAUSED, UNRECORDED, WORKER_LATENCY, TRANSFER, ON_ITS_WAY) = (
    range(7)
)
#: Causes of the cluster's pool.
SCHEDULER, ELSEWHERE, DEPENDENCIES, ACTORS, FUNCTIONS, CLIENT = range(7, 13)
#: The cause that comes before all others: tasks of clients that the trace leaves out.
OTHERS = 13
CAUSES = 14

_BY_STATUS = {STARTING: IDLE_STARTING, PAUSED: IDLE_PAUSED, CLOSING: IDLE_CLOSING}


@dataclass(frozen=True)
class IdleThreads:
    """The threads of one worker over its life."""

    #: Thread-seconds by cause; the pool's are not in it.
    causes: dict[int, float]
    #: Times at which one of the following changes, and the values from each on.
    times: Array
    #: Threads left for the pool.
    idle: Array
    #: Ready tasks beyond the worker's own free threads.
    surplus: Array
    #: When the worker's life, or the window of it, begins and ends.
    begin: float
    end: float
    #: The share of a thread that a slot has, from each of `used_times` to the next. None where no
    #: more slots were held than there are threads: each second of a slot is a thread-second.
    share: Array | None
    used_times: Array

    def used(self, times: Array) -> Array:
        """Return the thread-seconds that a slot has had by some times, since any time."""
        times = np.clip(times, self.begin, self.end)
        if self.share is None:
            return times
        passed = np.append(0.0, np.cumsum(self.share * np.diff(self.used_times)))
        return np.interp(times, self.used_times, passed)


@dataclass(frozen=True)
class OwnCauses:
    """What a worker's own affairs make of its free threads, from each of `times` to the next."""

    #: How many threads the worker has.
    threads: int
    times: Array
    #: Slots that are held.
    running: Array
    #: Free threads by cause.
    causes: dict[int, Array]
    #: Those left for the pool, and ready tasks beyond the worker's own free threads.
    idle: Array
    surplus: Array


def own_causes(
    life: tuple[int, float, float],
    statuses: tuple[Array, Array],
    slots: list[Array],
    unrecorded: Spans,
    others: Spans,
) -> OwnCauses:
    """Explain the free threads of one worker as far as its own affairs do.

    Parameters
    ----------
    life
        Threads, begin and end.
    statuses
        Times at which the worker's status changes, from the begin on, and what it is then.
    slots
        Of its task runs: sent, received, ready, executing and end of the slot, each in order.
    unrecorded
        When runs were sent to it that its file does not hold, and when they began or were given up.
    others
        When tasks of clients that the trace leaves out held its threads.
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
    own = free = np.where(open_, free, 0)
    demands = {OTHERS: foreign, UNRECORDED: lost, WORKER_LATENCY: ready}
    demands |= {TRANSFER: waiting, ON_ITS_WAY: on_way}
    for cause, demand in demands.items():
        causes[cause] = np.minimum(free, demand)
        free = free - causes[cause]
    surplus = np.where(status == CLOSING, 0, np.maximum(ready - own, 0))
    return OwnCauses(threads, times, running, causes, free, surplus)


def idle_threads(own: OwnCauses) -> IdleThreads:
    """Sum what a worker's own affairs explain, and keep what they leave."""
    times, running, threads = own.times, own.running, own.threads
    steps = np.diff(times)
    causes = {
        cause: float((held * steps).sum()) for cause, held in own.causes.items() if held.any()
    }
    free, surplus = own.idle, own.surplus
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
    """Count, after each of the sorted edges, how many spans are open that the two groups bound."""
    step = np.zeros(int(ends[-1]), dtype=np.int32)
    step[ends[first - 1] : ends[first]] = 1
    step[ends[second - 1] : ends[second]] = -1
    return np.maximum(np.cumsum(step[order]), 0)


# Why the threads that workers' own affairs leave idle had nothing to do: the cluster's pool.
#
# Its causes at an instant are shared by all threads of the pool alike.

#: Counts of threads and tasks; there are millions of them, and memory is what limits their speed.
_INT = np.int32


@dataclass(frozen=True)
class Pool:
    """What one thread of the cluster's pool was spent on."""

    #: Times between which no cause changes.
    grid: Array
    #: Seconds by cause until each of them; causes that none was spent on are left out.
    spent: dict[int, Array]

    def of_worker(self, threads: IdleThreads) -> dict[int, float]:
        """Sum the thread-seconds of a worker's threads in the pool by cause."""
        held = np.flatnonzero(threads.idle[:-1])
        begins = np.searchsorted(self.grid, threads.times[held])
        ends = np.searchsorted(self.grid, threads.times[held + 1])
        return {
            cause: float((threads.idle[held] * (spent[ends] - spent[begins])).sum())
            for cause, spent in self.spent.items()
        }


def pool_of(workers: list[IdleThreads], demand: PoolDemand) -> Pool:
    """Explain the threads that are left of all workers, one second of any like another."""
    times = np.concatenate([np.empty(0), *(worker.times for worker in workers)])
    if not len(times):
        return Pool(times, {})
    order = np.argsort(times, kind="stable")
    changes = [(np.diff(own.idle, prepend=0), np.diff(own.surplus, prepend=0)) for own in workers]
    idle, surplus = (
        np.cumsum(np.concatenate(of_workers)[order], dtype=_INT)
        for of_workers in zip(*changes, strict=True)
    )
    # While no thread is idle nothing is spent: of a busy run that leaves little to look at.
    held = idle > 0
    changing = np.flatnonzero(held | np.append(True, held[:-1]))
    times, idle, surplus = times[order[changing]], idle[changing], surplus[changing]
    grid = demand.grid(times, idle)
    places = np.searchsorted(times, grid[:-1], side="right") - 1
    shares = np.diff(grid) / np.maximum(idle[places], 1)
    threads = demand.split(grid[:-1], idle[places], surplus[places])
    spent = {
        cause: np.append(0.0, np.cumsum(held * shares))
        for cause, held in threads.items()
        if held.any()
    }
    return Pool(grid, spent)


@dataclass(frozen=True)
class PoolDemand:
    """What the whole cluster had to do: when runs came to each stage, as sorted times.

    A run that nobody finished was done when it was given up.
    """

    #: Known to the scheduler.
    arrival: Array
    #: Runnable, and not sent to any worker.
    runnable: Array
    #: On a worker, or on its way to it.
    sent: Array
    #: Done, and not known to be.
    done: Array
    #: Finished.
    known: Array
    #: When calls of actors arrived, and when they were answered.
    calls: Spans
    #: When functions outside of tasks were asked for, and when they were answered.
    functions: Spans
    #: How many more tasks had not ended: times, and the number from each on.
    untold: Steps

    @classmethod
    def of(cls, run: Run) -> PoolDemand:
        """Find what there was to do."""
        times, more = run.slots.times, run.unfinished
        calls, functions = call_spans(run), function_spans(run)
        return cls(
            arrival=_ascending([times.arrival, more.arrival]),
            runnable=_ascending([times.runnable, more.runnable]),
            sent=_ascending([times.sent, more.sent]),
            done=_ascending([times.done, more.known]),
            known=_ascending([times.known, more.known]),
            calls=(np.sort(calls[0]), np.sort(calls[1])),
            functions=(np.sort(functions[0]), np.sort(functions[1])),
            untold=untold_tasks(run),
        )

    def grid(self, times: Array, idle: Array) -> Array:
        """Return the times at which a cause can change, as far as threads are in the pool."""
        parts = [times]
        edges_of = [self.arrival, self.runnable, self.sent, self.done, self.known]
        edges_of += [*self.calls, *self.functions, self.untold[0]]
        turns = np.flatnonzero(np.diff(idle > 0, prepend=False, append=False))
        bounds = times[np.minimum(turns, len(times) - 1)]
        parts += [edges[_within(edges, bounds)] for edges in edges_of]
        merged = _ascending(parts)
        return merged[np.append(True, merged[1:] != merged[:-1])]

    def split(self, times: Array, idle: Array, surplus: Array) -> dict[int, Array]:
        """Return the threads of the pool by cause from each time on: all of them together."""
        runnable, sent, done, known = (
            _passed(edges, times) for edges in (self.runnable, self.sent, self.done, self.known)
        )
        unsent, out, unreported = runnable - sent, sent - done, done - known
        untold = np.append(0, self.untold[1])[_passed(self.untold[0], times)]
        live = _passed(self.arrival, times) - known + untold
        scheduler = np.minimum(unsent, idle)
        elsewhere = np.minimum(surplus, idle - scheduler)
        rest = idle - scheduler - elsewhere
        late = (out == 0) & (unreported > 0)
        scheduler = scheduler + np.where(late, rest, 0)
        waiting = np.where(~late & (live > 0), rest, 0)
        nothing = np.where(~late & (live <= 0), rest, 0)
        called, answered = (_passed(edges, times) for edges in self.calls)
        calls = np.where(called > answered, nothing, 0)
        asked, ran = (_passed(edges, times) for edges in self.functions)
        functions = np.where(asked > ran, nothing - calls, 0)
        return {
            SCHEDULER: scheduler,
            ELSEWHERE: elsewhere,
            DEPENDENCIES: waiting,
            ACTORS: calls,
            FUNCTIONS: functions,
            CLIENT: nothing - calls - functions,
        }


def _within(edges: Array, bounds: Array) -> Array:
    """Return which sorted edges lie within spans; `bounds` are their begins and ends in turn."""
    places = np.searchsorted(edges, bounds)
    begun, ended = (np.bincount(places[side::2], minlength=len(edges) + 1) for side in (0, 1))
    return np.cumsum(begun - ended)[:-1] > 0


def _ascending(parts: Sequence[Array]) -> Array:
    """Sort times; they come in long sorted stretches, which a stable sort merges."""
    return np.sort(np.concatenate(parts), kind="stable")


def _passed(edges: Array, times: Array) -> Array:
    """Count the edges that have passed by each of some sorted times."""
    return np.searchsorted(edges, times, side="right").astype(_INT)
