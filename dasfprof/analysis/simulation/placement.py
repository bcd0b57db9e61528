"""Placement of task runs by a simulated scheduler, and later moves, by Dask's rules."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import compress

import numpy as np

from dasfprof.analysis.simulation.inputs import SATURATION, Costs, ReplayCluster, ReplayInputs

#: Assumed seconds of a task of an unknown function, by Dask's default.
UNKNOWN_DURATION = 0.5


class Placement:
    """The scheduler's view of workers: their results, their tasks, and the placement of new tasks.

    As in Dask, a run of a large group with few inputs is sent to the worker with the fewest tasks.
    If no worker has room, the run waits in a queue. If the scheduler has no queue, the run is sent
    to the worker of the previous run of its group. Any other run is sent to a worker that holds one
    of its inputs. Among these workers, it is the one that can start the run first, given its
    occupancy and the inputs that it would have to fetch.

    Parameters
    ----------
    inputs, cluster, costs
        See `Simulation`.
    """

    def __init__(self, inputs: ReplayInputs, cluster: ReplayCluster, costs: Costs) -> None:
        count, workers = len(inputs), len(cluster.threads)
        #: Worker to which each run was sent and that has its result, or -1.
        self.worker = [-1] * count
        self.home = [-1] * count
        #: Other workers that fetched a run's result.
        self.copies: dict[int, set[int]] = {}
        #: For each worker: runs that were sent and not known to have ended, their expected seconds,
        #: and bytes.
        self.processing = [0] * workers
        self.occupancy = [0.0] * workers
        self.nbytes = [0.0] * workers
        self.threads: list[int] = cluster.threads.tolist()
        self.there = [joined <= 0 for joined in cluster.joined.tolist()]
        #: Whether tasks are moved to idle workers.
        self.steals = workers > 1
        slots = np.ceil(SATURATION * cluster.threads if inputs.queues else np.full(workers, np.inf))
        self._slots: list[float] = slots.tolist()
        self._total_threads = sum(compress(self.threads, self.there))
        self._bandwidth = costs.bandwidth
        self._size: list[float] = inputs.size.tolist()
        self._offsets: list[int] = inputs.input_offsets.tolist()
        self._inputs: list[int] = inputs.inputs.tolist()
        self._users: list[int] = np.bincount(inputs.inputs, minlength=count).tolist()
        self._root_size: list[int] = inputs.root_group_size.tolist()
        self._queueing = inputs.queues
        #: Without a queue: the worker of the last run of each group, and the number of runs that
        #: follow.
        self._last_of_group: dict[int, tuple[int, int]] = {}
        self._group: list[int] = inputs.group.tolist()
        self._function: list[int] = inputs.function.tolist()
        self._average = [-1.0] * len(inputs.functions)
        #: Runs that were sent before the duration of their function was known.
        self._unknown: dict[int, set[int]] = {}
        self._charge = [0.0] * count
        self._running: list[float] = inputs.running.tolist()
        self._rank: list[int] = inputs.priority.tolist()
        self._by_rank: list[int] = np.argsort(inputs.priority, kind="stable").tolist()
        #: Ranks of runs that wait for room.
        self._queue: list[int] = []
        self._turn = 0

    def place(self, row: int) -> int:
        """Return the worker for a run that can be sent, or -1 if it must wait in the queue."""
        worker = self._choose(row)
        if worker >= 0:
            self.assign(row, worker)
        else:
            heappush(self._queue, self._rank[row])
        return worker

    def _choose(self, row: int) -> int:
        if self._root_size[row] <= 2 * self._total_threads:
            return self._soonest(row)
        if not self._queueing:
            return self._beside(row)
        # While runs wait in the queue, no worker has room.
        return -1 if self._queue else self._least_busy()

    def assign(self, row: int, worker: int) -> None:
        """Record that a run is sent to a worker."""
        self.worker[row] = worker
        self.processing[worker] += 1
        function = self._function[row]
        seconds = self._average[function]
        if seconds < 0:
            seconds = UNKNOWN_DURATION
            self._unknown.setdefault(function, set()).add(row)
        charge = seconds + self.fetch_seconds(row, worker)
        self._charge[row] = charge
        self.occupancy[worker] += charge

    def next_queued(self, worker: int) -> int:
        """Return a run from the queue for a worker with room, or -1."""
        queue = self._queue
        if not queue or self.processing[worker] >= self._slots[worker] or not self.there[worker]:
            return -1
        row = self._by_rank[heappop(queue)]
        self.assign(row, worker)
        return row

    def withdraw(self, row: int) -> None:
        """Record that a run is taken away from its worker."""
        worker = self.worker[row]
        self.processing[worker] -= 1
        self.occupancy[worker] = max(self.occupancy[worker] - self._charge[row], 0.0)
        unknown = self._unknown.get(self._function[row])
        if unknown is not None:
            unknown.discard(row)

    def finish(self, row: int) -> None:
        """Record that a run is known to have ended, and learn the duration of its function."""
        worker, function, seconds = self.worker[row], self._function[row], self._running[row]
        self.withdraw(row)
        average = self._average[function]
        self._average[function] = seconds if average < 0 else 0.5 * (seconds + average)
        if average < 0:
            for other in self._unknown.pop(function, ()):
                self._charge[other] += seconds - UNKNOWN_DURATION
                self.occupancy[self.worker[other]] += seconds - UNKNOWN_DURATION
        self.nbytes[worker] += self._size[row]
        for used in self._inputs[self._offsets[row] : self._offsets[row + 1]]:
            self._users[used] -= 1
            if not self._users[used]:
                self.nbytes[self.home[used]] -= self._size[used]
                for copy in self.copies.pop(used, ()):
                    self.nbytes[copy] -= self._size[used]

    def join(self, worker: int) -> None:
        """Record that a worker joined."""
        self.there[worker] = True
        self._total_threads += self.threads[worker]

    def leave(self, worker: int) -> bool:
        """Record that a worker left, unless it is the last one. Its results stay reachable."""
        if sum(self.there) <= 1 or not self.there[worker]:
            return False
        self.there[worker] = False
        self._total_threads -= self.threads[worker]
        return True

    def expected_seconds(self, row: int) -> float:
        """Return the expected seconds of a run, from others of its function."""
        average = self._average[self._function[row]]
        return UNKNOWN_DURATION if average < 0 else average

    def input_seconds(self, row: int) -> float:
        """Return the seconds to fetch all inputs of a run, or a negative value without inputs."""
        used = self._inputs[self._offsets[row] : self._offsets[row + 1]]
        return sum(self._size[source] for source in used) / self._bandwidth if used else -np.inf

    def fetch_seconds(self, row: int, worker: int) -> float:
        """Return Dask's estimate of the seconds until a worker has a run's inputs."""
        size = 0.0
        for used in self._inputs[self._offsets[row] : self._offsets[row + 1]]:
            if self.home[used] != worker and worker not in self.copies.get(used, ()):
                size += self._size[used]
        return size / self._bandwidth

    def _least_busy(self) -> int:
        best, least = -1, np.inf
        processing, threads = self.processing, self.threads
        for worker, slots in enumerate(self._slots):
            busy = processing[worker]
            if busy < slots and self.there[worker] and busy / threads[worker] < least:
                best, least = worker, busy / threads[worker]
        return best

    def _beside(self, row: int) -> int:
        """Return the worker of the group's previous run, until it has its share of the group."""
        group, size = self._group[row], self._root_size[row]
        worker, left = self._last_of_group.get(group, (-1, 0))
        if left <= 0 or not self.there[worker]:
            worker = self._idle()
            left = size * self.threads[worker] // self._total_threads
        self._last_of_group[group] = worker, left - 1
        return worker

    def _soonest(self, row: int) -> int:
        """Return the worker that is expected to start a run first, among those with an input."""
        first, last = self._offsets[row], self._offsets[row + 1]
        if first == last:
            return self._idle()
        home, copies, there = self.home, self.copies, self.there
        if last - first == 1 and self._inputs[first] not in copies:
            worker = home[self._inputs[first]]
            return worker if there[worker] else self._idle()
        held: dict[int, float] = {}
        total = 0.0
        for used in self._inputs[first:last]:
            size = self._size[used]
            total += size
            worker = home[used]
            held[worker] = held.get(worker, 0.0) + size
            for copy in copies.get(used, ()):
                held[copy] = held.get(copy, 0.0) + size
        best, least = -1, (np.inf, np.inf)
        for worker, size in held.items():
            if there[worker]:
                if len(held) == 1:
                    return worker
                wait = self.occupancy[worker] / self.threads[worker]
                cost = (wait + (total - size) / self._bandwidth, self.nbytes[worker])
                if cost < least:
                    best, least = worker, cost
        return best if best >= 0 else self._idle()

    def _idle(self) -> int:
        """Return the worker with the least to do. Idle workers are chosen in turn."""
        best, least, count = -1, np.inf, len(self.there)
        self._turn += 1
        for step in range(count):
            worker = (self._turn + step) % count
            if self.there[worker] and self.occupancy[worker] < least:
                best, least = worker, self.occupancy[worker]
                if least <= 0:
                    break
        return best


#: Maximum time to fetch a task's inputs, as a multiple of its duration, for Dask to move it, and
#: seconds of the move itself.
_TOO_DEAR = 2**8.5
_LATENCY = 0.1
#: Threshold (seconds of work): tasks can be stolen from a worker.
_BUSY = 0.2
#: Maximum number of the busiest workers to steal from, and of task runs to examine on each.
_VICTIMS, _LOOKED_AT = 10, 100


def take_moves(
    placement: Placement, ready: list[list[int]], by_rank: list[int]
) -> list[tuple[int, int]]:
    """Remove the runs to steal from their queues, as Dask's `WorkStealing.balance` does.

    Parameters
    ----------
    placement
        The scheduler's state.
    ready, by_rank
        For each worker, a heap of the ranks of runs that wait for a thread, from which stolen runs
        are removed; and the run of each rank.

    Returns
    -------
    list
        Stolen runs, and the worker to which each moves.
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
    """The occupancy of workers, updated while task runs to steal are chosen.

    Parameters
    ----------
    placement
        The scheduler's state.
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
        """Return the workers to steal from, busiest first, or none if no others are idle."""
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
        """Return the worker to which a run moves, and count it there. Return -1 if it stays."""
        placement, occupancy, thieves = self._placement, self._occupancy, self._thieves
        seconds = placement.expected_seconds(row)
        if not thieves or placement.input_seconds(row) > seconds * _TOO_DEAR - _LATENCY:
            return -1
        thief = min(
            thieves, key=lambda w: occupancy[w] / self._threads[w] + placement.fetch_seconds(row, w)
        )
        fetching = placement.fetch_seconds(row, thief)
        at_victim = placement.fetch_seconds(row, victim)
        if occupancy[thief] + fetching + seconds > occupancy[victim] - (at_victim + seconds) / 2:
            return -1
        occupancy[victim] -= seconds + at_victim
        occupancy[thief] += seconds + fetching
        self._processing[victim] -= 1
        self._processing[thief] += 1
        if not self._is_idle(thief):
            thieves.remove(thief)
        return thief
