"""Why threads had nothing to do: the causes of idle threads at each instant.

Each worker's free threads are explained by its own affairs first, in the order of its causes. What
remains of all workers is the cluster's pool of idle threads, see `idle_pool`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.workers import CLOSING, OPEN, PAUSED, STARTING
from dasfprof.database.columns import Array

#: When intervals began, and when they ended.
Spans = tuple[Array, Array]

#: Causes of idle threads: of one worker, in the order in which they explain its free threads.
(IDLE_STARTING, IDLE_CLOSING, IDLE_PAUSED, UNRECORDED, WORKER_LATENCY, TRANSFER, ON_ITS_WAY) = (
    range(7)
)
#: Causes of the cluster's pool.
SCHEDULER, ELSEWHERE, DEPENDENCIES, ACTORS, CLIENT = range(7, 12)
CAUSES = 12

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
        used: Array = np.interp(times, self.used_times, passed)
        return used


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
    """
    threads, begin, end = life
    edges = [np.array([begin, end]), statuses[0], *slots, *unrecorded]
    times = np.clip(np.concatenate(edges), begin, end)
    order = np.argsort(times, kind="stable")
    times = times[order]
    ends = np.cumsum([len(edge) for edge in edges])
    on_way, waiting, ready, running, lost = (
        _count(order, ends, *pair)[:-1] for pair in ((2, 3), (3, 4), (4, 5), (5, 6), (7, 8))
    )
    status = statuses[1][np.maximum(np.searchsorted(statuses[0], times[:-1], side="right") - 1, 0)]
    free = threads - np.minimum(running, threads)
    open_ = status == OPEN
    causes = {cause: np.where(status == code, free, 0) for code, cause in _BY_STATUS.items()}
    own = free = np.where(open_, free, 0)
    demands = {UNRECORDED: lost, WORKER_LATENCY: ready, TRANSFER: waiting, ON_ITS_WAY: on_way}
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
    counts: Array = np.maximum(np.cumsum(step[order]), 0)
    return counts
