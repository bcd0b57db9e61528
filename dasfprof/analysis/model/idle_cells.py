"""Why the free threads of each worker were idle, over time: `idle_cells`.

What `accounting` sums up, in cells: parts of a worker's life within which its causes are told as
shares of its free threads. Which of these threads a cause concerns nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model import idle_time
from dasfprof.analysis.run.workers import WorkerLives
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class IdleCells:
    """The idle threads of one life of a worker."""

    #: Row of `Trace.workers`.
    worker: int
    threads: int
    #: Times from the trace's begin, from the life's begin to its end.
    edges: Array
    #: Thread-seconds between each edge and the next, by cause (see `idle_time`).
    seconds: Array

    def between(self, begin: float, end: float) -> Array:
        """Sum the thread-seconds within a window, by cause; of a cell cut in two a share."""
        begins, ends = self.edges[:-1], self.edges[1:]
        inside = np.minimum(ends, end) - np.maximum(begins, begin)
        whole = ends - begins
        share = np.divide(np.maximum(inside, 0.0), whole, out=np.zeros(len(whole)), where=whole > 0)
        summed: Array = (self.seconds * share[:, None]).sum(axis=0)
        return summed


@dataclass(frozen=True)
class OwnCells:
    """A worker's own causes, summed up at few times."""

    threads: idle_time.IdleThreads
    edges: Array
    #: Thread-seconds by cause until each edge.
    spent: dict[int, Array]


def own_cells(own: idle_time.OwnCauses, bounds: Array, span: float, count: int) -> OwnCells:
    """Sum up the causes of one worker.

    Parameters
    ----------
    own
        Its causes.
    bounds
        Times at which a cell is to end, as far as they are in the worker's life.
    span, count
        About how many cells a run of so many seconds may have. If there are more, those that are
        shorter than a small part of it are put together; the sums stay the same.
    """
    steps = np.diff(own.times)
    kept = own.times[_few(own.times, np.append(steps > 0, True), span, count)]
    inside = bounds[(bounds > kept[0]) & (bounds < kept[-1])]
    edges = np.unique(np.concatenate([kept, inside]))
    spent = {
        cause: np.interp(edges, own.times, np.append(0.0, np.cumsum(held * steps)))
        for cause, held in own.causes.items()
        if held.any()
    }
    return OwnCells(idle_time.idle_threads(own), edges, spent)


def idle_cells(
    lives: WorkerLives, owns: list[OwnCells], pool: idle_time.Pool, span: float, count: int
) -> Iterator[IdleCells]:
    """Yield the cells of each life of a worker.

    Parameters
    ----------
    lives, owns
        The lives, and the own causes of each.
    pool
        What is left of all.
    span, count
        See `own_cells`.
    """
    changes = pool.grid[_few(pool.grid, _changes(pool), span, count)]
    for place, own in enumerate(owns):
        inside = (changes > own.edges[0]) & (changes < own.edges[-1])
        edges = np.unique(np.concatenate([own.edges, changes[inside]]))
        seconds = np.zeros((len(edges) - 1, idle_time.CAUSES))
        for cause, spent in own.spent.items():
            seconds[:, cause] = np.diff(np.interp(edges, own.edges, spent))
        # While a worker's threads are in the pool, the pool's grid has all times of the worker.
        on_grid = np.searchsorted(pool.grid, own.threads.times)
        for cause, spent in pool.spent.items():
            at_edges = np.interp(edges, pool.grid, spent)
            until = _pool_until(edges, own.threads, at_edges, np.append(spent, spent[-1])[on_grid])
            seconds[:, cause] = np.diff(until)
        number = int(lives.ids[place])
        yield IdleCells(number, int(lives.threads[place]), edges, np.maximum(seconds, 0.0))


def _pool_until(
    times: Array, threads: idle_time.IdleThreads, until_times: Array, of_one: Array
) -> Array:
    """Return the time that a worker's threads in the pool had a cause until some times.

    Parameters
    ----------
    times
        The times.
    threads
        The worker's.
    until_times, of_one
        Time that one thread of the pool had the cause until the times, and those of `threads`.
    """
    whole = np.append(0.0, np.cumsum(threads.idle[:-1] * np.diff(of_one)))
    place = np.maximum(np.searchsorted(threads.times, times, side="right") - 1, 0)
    until: Array = whole[place] + threads.idle[place] * (until_times - of_one[place])
    return until


def _changes(pool: idle_time.Pool) -> Array:
    """Return at which times of the pool's grid the share of a cause changes."""
    changed = np.zeros(len(pool.grid), dtype=bool)
    steps = np.diff(pool.grid)
    # What is spent until a time is rounded, which matters in short steps.
    rounding = 1e-9 / np.maximum(np.minimum(steps[1:], steps[:-1]), 1e-9)
    for spent in pool.spent.values():
        share = np.divide(np.diff(spent), steps, out=np.zeros(len(steps)), where=steps > 0)
        changed[1:-1] |= np.abs(np.diff(share)) > 1e-6 + rounding
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
