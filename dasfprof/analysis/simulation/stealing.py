"""Which waiting runs a simulated scheduler moves to workers that have nothing to do."""

from __future__ import annotations

from heapq import heappop, heappush

from dasfprof.analysis.simulation.placement import Placement

#: Dask moves no task whose inputs take so many times as long to fetch as it runs, with a tenth of
#: a second for the move itself.
_TOO_DEAR = 2**8.5
_LATENCY = 0.1
#: Seconds of work beyond which a worker may be stolen from.
_BUSY = 0.2
#: So many of the busiest workers are looked at, and so many runs on each.
_VICTIMS, _LOOKED_AT = 10, 100


def take_moves(
    placement: Placement, ready: list[list[int]], by_rank: list[int]
) -> list[tuple[int, int]]:
    """Take the runs to move from where they wait, as Dask's `WorkStealing.balance` does.

    Parameters
    ----------
    placement
        What the scheduler knows.
    ready, by_rank
        For each worker a heap of the ranks of runs that wait for a thread, which loses those to
        move; and the run of each rank.

    Returns
    -------
    list
        Runs, and the worker that each is to move to.
    """
    view = _View(placement)
    moves: list[tuple[int, int]] = []
    for victim in view.victims():
        waiting = ready[victim]
        for rank in [heappop(waiting) for _ in range(min(_LOOKED_AT, len(waiting)))]:
            thief = view.thief_for(by_rank[rank], victim)
            if thief < 0:
                heappush(waiting, rank)
            else:
                moves.append((by_rank[rank], thief))
    return moves


class _View:
    """What workers have to do, as a look for runs to move counts it while it finds some.

    Parameters
    ----------
    placement
        What the scheduler knows.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement, self._threads = placement, placement.threads
        self._occupancy = list(placement.occupancy)
        self._processing = list(placement.processing)
        self._everyone = [worker for worker, there in enumerate(placement.there) if there]
        seconds = sum(self._occupancy[worker] for worker in self._everyone)
        threads = sum(self._threads[worker] for worker in self._everyone)
        self._mean = seconds / max(threads, 1)
        self._thieves = [worker for worker in self._everyone if self._is_idle(worker)]

    def _is_idle(self, worker: int) -> bool:
        threads = self._threads[worker]
        few = self._processing[worker] < threads
        return few or self._occupancy[worker] < threads * self._mean / 2

    def victims(self) -> list[int]:
        """Return the workers to take runs from, the busiest first; none if no others idle."""
        thieves = set(self._thieves)
        if not thieves:
            return []
        busy = [
            worker
            for worker in self._everyone
            if worker not in thieves
            and self._processing[worker] > self._threads[worker]
            and self._occupancy[worker] > _BUSY
        ]
        return sorted(busy, key=lambda worker: -self._occupancy[worker])[:_VICTIMS]

    def thief_for(self, row: int, victim: int) -> int:
        """Choose the worker that a run is to move to, and count it there; -1: it stays."""
        placement, occupancy, thieves = self._placement, self._occupancy, self._thieves
        seconds = placement.expected_seconds(row)
        if not thieves or placement.input_seconds(row) > seconds * _TOO_DEAR - _LATENCY:
            return -1
        thief = min(
            thieves,
            key=lambda w: occupancy[w] / self._threads[w] + placement.fetch_seconds(row, w),
        )
        fetching = placement.fetch_seconds(row, thief)
        own = placement.fetch_seconds(row, victim)
        if occupancy[thief] + fetching + seconds > occupancy[victim] - (own + seconds) / 2:
            return -1
        occupancy[victim] -= seconds + own
        occupancy[thief] += seconds + fetching
        self._processing[victim] -= 1
        self._processing[thief] += 1
        if not self._is_idle(thief):
            thieves.remove(thief)
        return thief
