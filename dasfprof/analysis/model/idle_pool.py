"""Why the threads that workers' own affairs leave idle had nothing to do: the cluster's pool.

Its causes at an instant are shared by all threads of the pool alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.actor_calls import call_spans
from dasfprof.analysis.model.idle_time import (
    ACTORS,
    CLIENT,
    DEPENDENCIES,
    ELSEWHERE,
    SCHEDULER,
    IdleThreads,
    Spans,
)
from dasfprof.analysis.model.slots import task_slots, unfinished_runs
from dasfprof.analysis.model.untold_tasks import Steps, untold_tasks
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

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
    idle, surplus = (
        np.cumsum(
            np.concatenate([np.diff(one, prepend=0) for one in of_workers])[order], dtype=_INT
        )
        for of_workers in (
            [worker.idle for worker in workers],
            [worker.surplus for worker in workers],
        )
    )
    # While no thread is idle nothing is spent: of a busy run that leaves little to look at.
    held = idle > 0
    kept = np.flatnonzero(held | np.append(True, held[:-1]))
    times, idle, surplus = times[order[kept]], idle[kept], surplus[kept]
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
    #: How many more tasks had not ended: times, and the number from each on.
    untold: Steps

    @classmethod
    def of(cls, trace: Trace) -> PoolDemand:
        """Find what there was to do."""
        times, more, calls = task_slots(trace).times, unfinished_runs(trace), call_spans(trace)
        return cls(
            arrival=_ascending([times.arrival, more.arrival]),
            runnable=_ascending([times.runnable, more.runnable]),
            sent=_ascending([times.sent, more.sent]),
            done=_ascending([times.done, more.known]),
            known=_ascending([times.known, more.known]),
            calls=(np.sort(calls[0]), np.sort(calls[1])),
            untold=untold_tasks(trace),
        )

    def grid(self, times: Array, idle: Array) -> Array:
        """Return the times at which a cause can change, as far as threads are in the pool."""
        kept = [times]
        edges_of = [self.arrival, self.runnable, self.sent, self.done, self.known]
        edges_of += [*self.calls, self.untold[0]]
        turns = np.flatnonzero(np.diff(idle > 0, prepend=False, append=False))
        bounds = times[np.minimum(turns, len(times) - 1)]
        kept += [edges[_within(edges, bounds)] for edges in edges_of]
        merged = _ascending(kept)
        distinct: Array = merged[np.append(True, merged[1:] != merged[:-1])]
        return distinct

    def split(self, times: Array, idle: Array, surplus: Array) -> dict[int, Array]:
        """Return the threads of the pool by cause from each time on: all of them together."""
        runnable, sent, done, known = (
            _passed(edges, times) for edges in (self.runnable, self.sent, self.done, self.known)
        )
        unsent, out, unreported = runnable - sent, sent - done, done - known
        live = _passed(self.arrival, times) - known + _value_at(self.untold, times)
        scheduler = np.minimum(unsent, idle)
        elsewhere = np.minimum(surplus, idle - scheduler)
        rest = idle - scheduler - elsewhere
        late = (out == 0) & (unreported > 0)
        scheduler = scheduler + np.where(late, rest, 0)
        waiting = np.where(~late & (live > 0), rest, 0)
        nothing = np.where(~late & (live <= 0), rest, 0)
        called, answered = (_passed(edges, times) for edges in self.calls)
        calls = np.where(called > answered, nothing, 0)
        return {
            SCHEDULER: scheduler,
            ELSEWHERE: elsewhere,
            DEPENDENCIES: waiting,
            ACTORS: calls,
            CLIENT: nothing - calls,
        }


def _within(edges: Array, bounds: Array) -> Array:
    """Return which sorted edges lie within spans; `bounds` are their begins and ends in turn."""
    places = np.searchsorted(edges, bounds)
    begun, ended = (np.bincount(places[side::2], minlength=len(edges) + 1) for side in (0, 1))
    inside: Array = np.cumsum(begun - ended)[:-1] > 0
    return inside


def _ascending(parts: Sequence[Array]) -> Array:
    """Sort times; they come in long sorted stretches, which a stable sort merges."""
    return np.sort(np.concatenate(parts), kind="stable")


def _value_at(steps: Steps, times: Array) -> Array:
    """Return the value of a step function at some times; 0 before its first."""
    values: Array = np.append(0, steps[1])[np.searchsorted(steps[0], times, side="right")]
    return values


def _passed(edges: Array, times: Array) -> Array:
    """Count the edges that have passed by each of some sorted times."""
    return np.searchsorted(edges, times, side="right").astype(_INT)
