"""Placement of task runs by a simulated scheduler, and work stealing, by Dask's rules."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import compress

import numpy as np

from dasfprof.analysis.simulation.inputs import SATURATION, Costs, ReplayCluster, ReplayInputs

#: Assumed seconds of a task if the duration of its function is unknown. This is Dask's default.
UNKNOWN_DURATION = 0.5


class Placement:
    """The scheduler's view of workers: results and tasks on each, and where to place new tasks.

    Parameters
    ----------
    inputs, cluster, costs
        See `Simulation`.
    """

    def __init__(self, inputs: ReplayInputs, cluster: ReplayCluster, costs: Costs) -> None:
        count, workers = len(inputs), len(cluster.threads)
        #: Worker to which each task run was sent, and worker that made its result. -1 if there is
        #: none yet.
        self.worker = [-1] * count
        self.home = [-1] * count
        #: Other workers that fetched the result of a task run.
        self.copies: dict[int, set[int]] = {}
        #: For each worker: number of task runs that were sent to it and not reported as ended,
        #: their expected seconds, and the bytes of results on the worker.
        self.processing = [0] * workers
        self.occupancy = [0.0] * workers
        self.nbytes = [0.0] * workers
        self.threads: list[int] = cluster.threads.tolist()
        self.there = [joined <= 0 for joined in cluster.joined.tolist()]
        #: Whether tasks are moved to idle workers (work stealing).
        self.steals = workers > 1
        slots = np.ceil(SATURATION * cluster.threads)
        self._slots: list[float] = slots.tolist()
        self._total_threads = sum(compress(self.threads, self.there))
        self._bandwidth = costs.bandwidth
        self._size: list[float] = inputs.size.tolist()
        self._offsets: list[int] = inputs.input_offsets.tolist()
        self._inputs: list[int] = inputs.inputs.tolist()
        self._users: list[int] = np.bincount(inputs.inputs, minlength=count).tolist()
        self._root_size: list[int] = inputs.root_group_size.tolist()
        self._function: list[int] = inputs.function.tolist()
        self._average = [-1.0] * len(inputs.functions)
        #: For each function of unknown duration: task runs that were sent before the duration was
        #: known.
        self._unknown: dict[int, set[int]] = {}
        self._charge = [0.0] * count
        self._running: list[float] = inputs.running.tolist()
        self._rank: list[int] = inputs.priority.tolist()
        self._by_rank: list[int] = np.argsort(inputs.priority, kind="stable").tolist()
        #: Ranks of the task runs in the queue.
        self._queue: list[int] = []
        self._turn = 0

    def place(self, row: int) -> int:
        """Return the worker for a runnable task run, or -1 if it must wait in the queue."""
        # As in Dask, a task run that is not of a large group with few inputs is sent to a worker
        # that holds one of its inputs. Among these workers, the one is chosen that can start the
        # task run first, given its occupancy and the inputs that it would have to fetch.
        if self._root_size[row] <= 2 * self._total_threads:
            worker = self._soonest(row)
        else:  # The worker with the fewest tasks per thread.
            # If task runs wait in the queue, no worker has a free slot.
            worker = -1 if self._queue else self._least_busy()
        if worker >= 0:
            self.assign(row, worker)
        else:
            heappush(self._queue, self._rank[row])
        return worker

    def assign(self, row: int, worker: int) -> None:
        """Record that a task run is sent to a worker."""
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
        """Return a task run from the queue for a worker, or -1 if there is none or no free slot."""
        queue = self._queue
        if not queue or self.processing[worker] >= self._slots[worker] or not self.there[worker]:
            return -1
        row = self._by_rank[heappop(queue)]
        self.assign(row, worker)
        return row

    def withdraw(self, row: int) -> None:
        """Record that a task run is taken away from its worker."""
        worker = self.worker[row]
        self.processing[worker] -= 1
        self.occupancy[worker] = max(self.occupancy[worker] - self._charge[row], 0.0)
        unknown = self._unknown.get(self._function[row])
        if unknown is not None:
            unknown.discard(row)

    def finish(self, row: int) -> None:
        """Record that the end of a task run was reported, and update its function's duration."""
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
        """Record that a worker joins."""
        self.there[worker] = True
        self._total_threads += self.threads[worker]

    def leave(self, worker: int) -> bool:
        """Record that a worker leaves, unless it is the last one, and return whether it did."""
        if sum(self.there) <= 1 or not self.there[worker]:
            return False
        # Results of a worker that left can still be fetched.
        self.there[worker] = False
        self._total_threads -= self.threads[worker]
        return True

    def expected_seconds(self, row: int) -> float:
        """Return the expected seconds of a task run, from earlier runs of its function."""
        average = self._average[self._function[row]]
        return UNKNOWN_DURATION if average < 0 else average

    def input_seconds(self, row: int) -> float:
        """Return the seconds to fetch a task run's inputs, or minus infinity if it has none."""
        used = self._inputs[self._offsets[row] : self._offsets[row + 1]]
        return sum(self._size[source] for source in used) / self._bandwidth if used else -np.inf

    def fetch_seconds(self, row: int, worker: int) -> float:
        """Return Dask's estimate of the seconds until a worker has a task run's inputs."""
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

    def _soonest(self, row: int) -> int:
        """Return the worker that should start a task run first, among those that have an input.

        If no worker has an input, return the worker that `_idle` returns.
        """
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
        """Return the worker with the lowest occupancy. Idle workers are chosen in turn."""
        best, least, count = -1, np.inf, len(self.there)
        self._turn += 1
        for step in range(count):
            worker = (self._turn + step) % count
            if self.there[worker] and self.occupancy[worker] < least:
                best, least = worker, self.occupancy[worker]
                if least <= 0:
                    break
        return best


#: Dask moves a task only if fetching its inputs takes less than this multiple of its duration. The
#: second value is the duration of the move itself in seconds.
_TOO_DEAR = 2**8.5
_LATENCY = 0.1
#: Threshold (seconds of work on a worker): tasks can be stolen from this worker.
_BUSY = 0.2
#: Maximum number of the busiest workers from which tasks are stolen. Then maximum number of task
#: runs that are examined on each of them.
_VICTIMS, _LOOKED_AT = 10, 100


def take_moves(
    placement: Placement, ready: list[list[int]], by_rank: list[int]
) -> list[tuple[int, int]]:
    """Choose task runs to steal and their new workers, as Dask's `WorkStealing.balance` does.

    `ready` contains a heap for each worker: the ranks of task runs that wait for a thread. Stolen
    task runs are removed from the heaps. `by_rank` contains the task run of each rank.
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
    """Occupancy of all workers, which is updated while task runs to steal are chosen."""

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
        """Return the workers from which to steal, busiest first, or none if no worker is idle."""
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
        """Return the worker to which a task run moves, or -1 if it stays.

        If it moves, the occupancy of both workers is updated.
        """
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
