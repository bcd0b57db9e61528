"""Which waiting runs a simulated scheduler moves to workers that have nothing to do."""

from __future__ import annotations

from heapq import nsmallest

from dasfprof.analysis.replay.placement import Placement

#: Dask moves no task whose inputs take so many times as long to fetch as it runs, with a tenth of
#: a second for the move itself.
_TOO_DEAR = 2**8.5
_LATENCY = 0.1
#: Seconds of work beyond which a worker may be stolen from.
_BUSY = 0.2
#: So many of the busiest workers are looked at, and so many runs on each.
_VICTIMS, _LOOKED_AT = 10, 100


def find_moves(
    placement: Placement, ready: list[list[int]], by_rank: list[int], begun: list[float]
) -> list[tuple[int, int]]:
    """Find the runs to move, as Dask's `WorkStealing.balance` does.

    Parameters
    ----------
    placement
        What the scheduler knows.
    ready, by_rank, begun
        For each worker the ranks of runs that wait for a thread; the run of each rank; when each
        run was begun, negative if it was not.

    Returns
    -------
    list
        Runs, and the worker that each is to move to.
    """
    occupancy, threads = list(placement.occupancy), placement.threads
    processing = list(placement.processing)
    everyone = [worker for worker, there in enumerate(placement.there) if there]
    mean = sum(occupancy[worker] for worker in everyone)
    mean /= max(sum(threads[worker] for worker in everyone), 1)

    def is_idle(worker: int) -> bool:
        few = processing[worker] < threads[worker]
        return few or occupancy[worker] < threads[worker] * mean / 2

    thieves = [worker for worker in everyone if is_idle(worker)]
    if not thieves or len(thieves) == len(everyone):
        return []
    victims = [
        worker
        for worker in everyone
        if processing[worker] > threads[worker] and occupancy[worker] > _BUSY
    ]
    victims = sorted(set(victims) - set(thieves), key=lambda worker: -occupancy[worker])
    moves = []
    for victim in victims[:_VICTIMS]:
        for rank in nsmallest(_LOOKED_AT, ready[victim]):
            row = by_rank[rank]
            seconds = placement.expected_seconds(row)
            if placement.worker[row] != victim or begun[row] >= 0:
                continue
            if placement.input_seconds(row) > seconds * _TOO_DEAR - _LATENCY:
                continue
            thief = min(
                thieves,
                key=lambda w: occupancy[w] / threads[w] + placement.fetch_seconds(row, w),
            )
            fetching = placement.fetch_seconds(row, thief)
            own = placement.fetch_seconds(row, victim)
            if occupancy[thief] + fetching + seconds > occupancy[victim] - (own + seconds) / 2:
                continue
            moves.append((row, thief))
            occupancy[victim] -= seconds + own
            occupancy[thief] += seconds + fetching
            processing[victim] -= 1
            processing[thief] += 1
            if not is_idle(thief):
                thieves.remove(thief)
                if not thieves:
                    return moves
    return moves
