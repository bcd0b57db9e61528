"""Why the free threads of each worker were idle, over time: `idle_cells`.

What `accounting` sums up, in cells: parts of a worker's life within which its causes are told as
shares of its free threads. Which of these threads a cause concerns nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model import idle_time
from dasfprof.analysis.model.accounting import ThreadTime, idle_classes, own_causes_of
from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.slots import task_slots, unfinished_runs
from dasfprof.analysis.model.workers import worker_lives
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class IdleCells:
    """The idle threads of one life of a worker."""

    #: Row of `Trace.workers`.
    worker: int
    threads: int
    #: Times from the trace's begin, from the life's begin to its end.
    edges: Array
    #: Thread-seconds between each edge and the next, by class, in the order of `ThreadTime`.
    seconds: Array


@dataclass(frozen=True)
class _Own:
    """A worker's own causes, summed up at few times."""

    threads: idle_time.IdleThreads
    edges: Array
    #: Thread-seconds by cause until each edge.
    spent: dict[int, Array]


def idle_cells(trace: Trace, most: int) -> Iterator[IdleCells]:
    """Yield the cells of each life of a worker that was there.

    Parameters
    ----------
    trace
        The trace.
    most
        About how many cells there may be of all workers. If there are more, those that are shorter
        than a small part of the run are put together; the sums stay those of `make_accounts`.
    """
    trace = with_open_runs(trace)
    slots = task_slots(trace)
    lives = worker_lives(trace, slots)
    if not len(lives.ids):
        return
    count = max(most // len(lives.ids), 8)
    span = float(lives.end.max() - lives.begin.min())
    owns = [_sum_up(own, span, count) for _, own in own_causes_of(trace, slots, lives)]
    demand = idle_time.PoolDemand.of(trace, slots, unfinished_runs(trace))
    pool = idle_time.pool_of([own.threads for own in owns], demand)
    changes = pool.grid[_few(pool.grid, _changes(pool), span, count)]
    classes = idle_classes(trace)
    for place, own in enumerate(owns):
        inside = (changes > own.edges[0]) & (changes < own.edges[-1])
        edges = np.unique(np.concatenate([own.edges, changes[inside]]))
        seconds = np.zeros((len(edges) - 1, len(ThreadTime)))
        for cause, spent in own.spent.items():
            seconds[:, classes[cause]] += np.diff(np.interp(edges, own.edges, spent))
        # The pool's grid has all times of the workers.
        on_grid = np.searchsorted(pool.grid, own.threads.times)
        for cause, spent in pool.spent.items():
            at_edges = np.interp(edges, pool.grid, spent)
            until = _pool_until(edges, own.threads, at_edges, spent[on_grid])
            seconds[:, classes[cause]] += np.diff(until)
        number = int(lives.ids[place])
        yield IdleCells(number, int(lives.threads[place]), edges, np.maximum(seconds, 0.0))


def _sum_up(own: idle_time.OwnCauses, span: float, count: int) -> _Own:
    steps = np.diff(own.times)
    kept = _few(own.times, np.append(steps > 0, True), span, count)
    spent = {
        cause: np.append(0.0, np.cumsum(held * steps))[kept]
        for cause, held in own.causes.items()
        if held.any()
    }
    return _Own(idle_time.idle_threads(own), own.times[kept], spent)


def _pool_until(
    times: Array, threads: idle_time.IdleThreads, until_times: Array, of_one: Array
) -> Array:
    """Return the seconds that a worker's threads in the pool had a cause until some times.

    Parameters
    ----------
    times
        The times.
    threads
        The worker's.
    until_times, of_one
        Seconds that one thread of the pool had the cause until the times, and those of `threads`.
    """
    whole = np.append(0.0, np.cumsum(threads.idle[:-1] * np.diff(of_one)))
    place = np.maximum(np.searchsorted(threads.times, times, side="right") - 1, 0)
    until: Array = whole[place] + threads.idle[place] * (until_times - of_one[place])
    return until


def _changes(pool: idle_time.Pool) -> Array:
    """Return at which times of the pool's grid the share of a cause changes."""
    changed = np.zeros(len(pool.grid), dtype=bool)
    steps = np.diff(pool.grid)
    for spent in pool.spent.values():
        share = np.divide(np.diff(spent), steps, out=np.zeros(len(steps)), where=steps > 0)
        changed[1:-1] |= np.abs(np.diff(share)) > 1e-6
    return changed


def _few(times: Array, wanted: Array, span: float, count: int) -> Array:
    """Return the places of so many of sorted times, the first and the last always.

    Where more are wanted, those of steps too short for that are put together.
    """
    wanted = wanted.copy()
    wanted[:1] = wanted[-1:] = True
    places = np.flatnonzero(wanted)
    if len(places) <= count:
        return places
    width = 3 * span / count
    own = times[places]
    long = np.diff(own) >= width
    part = np.floor(own / width)
    kept = np.append(True, long | (part[1:] != part[:-1])) | np.append(long, True)
    few: Array = places[kept]
    return few
