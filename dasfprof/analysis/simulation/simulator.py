"""Replay of a run in simulated time: a loop over events of the scheduler and of the workers.

The clock moves from event to event. So the cost of a replay depends on the number of task runs, and
not on their durations. Times are in seconds from the arrival of the first task. Task runs, workers
and graphs are indices in lists. No objects are created for tasks, because almost all time of a
replay with a million task runs is spent in this loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from dasfprof.analysis.simulation.inputs import Costs, ReplayCluster, ReplayInputs, takers_of
from dasfprof.analysis.simulation.placement import Placement, take_moves
from dasfprof.analysis.simulation.submission import SimulatedClient
from dasfprof.database.columns import Array

#: Maximum bytes that a worker requests from another worker in one message. This is Dask's default.
_MESSAGE = 50e6


class Receiving:
    """Inputs that each worker has requested, or still has to request, from other workers."""

    def __init__(
        self, inputs: ReplayInputs, placement: Placement, costs: Costs, workers: int
    ) -> None:
        self._placement, self._workers = placement, workers
        self._latency, self._bandwidth = costs.transfer, costs.bandwidth
        self._size: list[float] = inputs.size.tolist()
        self._offsets: list[int] = inputs.input_offsets.tolist()
        self._inputs: list[int] = inputs.inputs.tolist()
        #: Number of missing inputs of each task run on its worker.
        self._missing: dict[int, int] = {}
        #: Task runs that wait for an input on a worker. The key is ``input * workers + worker``.
        self._waiting: dict[int, list[int]] = {}
        #: Inputs that are still to be requested, and inputs of the message in transit. The key is
        #: ``source * workers + worker``.
        self._pending: dict[int, list[int]] = {}
        self._under_way: dict[int, list[int]] = {}
        #: Pairs of workers between which new inputs are to be requested.
        self._touched: list[int] = []

    def ask(self, row: int, worker: int) -> bool:
        """Return whether a task run's inputs are on its worker, and request them if not."""
        home, copies, missing = self._placement.home, self._placement.copies, 0
        for used in self._inputs[self._offsets[row] : self._offsets[row + 1]]:
            source = home[used]
            if source == worker or not self._size[used]:
                continue
            if used in copies and worker in copies[used]:
                continue
            missing += 1
            waiting = self._waiting.setdefault(used * self._workers + worker, [])
            waiting.append(row)
            if len(waiting) == 1:
                pair = source * self._workers + worker
                self._pending.setdefault(pair, []).append(used)
                self._touched.append(pair)
        if missing:
            self._missing[row] = missing
        return not missing

    def launch(self) -> Iterator[tuple[float, int]]:
        """Start messages between pairs of workers, and yield the duration and the pair of each."""
        touched, self._touched = self._touched, []
        for pair in touched:
            if pair not in self._pending or pair in self._under_way:
                continue
            pending, size, number = self._pending.pop(pair), 0.0, 0
            for used in pending:
                if number and size + self._size[used] > _MESSAGE:
                    self._pending[pair] = pending[number:]
                    break
                size += self._size[used]
                number += 1
            self._under_way[pair] = pending[:number]
            yield self._latency + size / self._bandwidth, pair

    def arrive(self, pair: int) -> Iterator[int]:
        """Record that a message arrived, and yield the task runs whose inputs are complete now."""
        worker, placement = pair % self._workers, self._placement
        self._touched.append(pair)
        for used in self._under_way.pop(pair):
            placement.copies.setdefault(used, set()).add(worker)
            placement.nbytes[worker] += self._size[used]
            for row in self._waiting.pop(used * self._workers + worker):
                self._missing[row] -= 1
                if not self._missing[row]:
                    del self._missing[row]
                    yield row


#: Kinds of events. Events at the same time are handled in this order, so that a thread takes the
#: first of all ready task runs.
(_ENDED, _DONE, _KNOWN, _GRAPH, _JOINED, _LEFT, _BALANCE, _RECEIVED, _FETCHED, _START) = range(10)

#: Seconds between two searches for tasks to steal. This is Dask's interval.
_BALANCE_EVERY = 0.1


@dataclass(frozen=True)
class Outcome:
    """The result of a replay, in arrays with one value per task run."""

    #: Time at which a thread took the task run. Then time at which the scheduler knew its end.
    executing: Array
    known: Array
    #: Worker on which the task run was executed.
    worker: Array

    @property
    def wall(self) -> float:
        """Seconds from the first arrival to the last known finish."""
        return float(self.known.max(initial=0.0))


class Simulation:
    """One replay, whose method `run` returns its outcome.

    Parameters
    ----------
    inputs
        The task runs to replay.
    held
        Seconds for which each task run occupies its thread.
    cluster
        The workers of the replay.
    costs
        Latencies and other costs of handling tasks.
    """

    def __init__(
        self, inputs: ReplayInputs, held: Array, cluster: ReplayCluster, costs: Costs
    ) -> None:
        count = len(inputs)
        self._cluster = cluster
        self._to_worker, self._to_scheduler = costs.to_worker, costs.to_scheduler
        self._to_start, self._scheduling = costs.start, costs.scheduler
        #: Heap of events: time, kind, and index of the task run, worker, graph or pair of workers.
        self._events: list[tuple[float, int, int]] = []
        self._held: list[float] = held.tolist()
        self._later: list[float] = inputs.seceded.tolist()
        priority = inputs.priority
        self._rank: list[int] = priority.tolist()
        self._by_rank: list[int] = np.argsort(priority, kind="stable").tolist()
        self._waits: list[int] = (np.diff(inputs.input_offsets) + 1).tolist()
        self._offsets, self._takers = takers_of(inputs, priority)
        self._free: list[int] = cluster.threads.tolist()
        #: For each worker, a heap of the ranks of task runs that wait for a thread.
        self._ready: list[list[int]] = [[] for _ in self._free]
        self._starting = [False] * len(self._free)
        #: Start of each task run. It is -1 until a thread takes the task run.
        self._executing = [-1.0] * count
        self._known = [0.0] * count
        self._scheduler_free = 0.0
        submissions = inputs.submissions
        self._graph_span: list[float] = submissions.span.tolist()
        order = np.lexsort((priority, inputs.graph))
        self._graph_rows: list[int] = order.tolist()
        bounds = np.searchsorted(inputs.graph[order], np.arange(len(submissions.delay) + 1))
        self._graph_bounds: list[int] = bounds.tolist()
        self._reported: list[bool] = submissions.reported.tolist()
        self._unfinished = count
        #: Number of task runs that wait for a thread. Then whether a search for task runs to steal
        #: is scheduled.
        self._waiting = 0
        self._balancing = False
        self._client = SimulatedClient(submissions)
        self._placement = Placement(inputs, cluster, costs)
        self._receiving = Receiving(inputs, self._placement, costs, len(self._free))

    def run(self) -> Outcome:
        """Handle events in order, until the end of all task runs is known."""
        events, pop = self._events, heappop
        handlers: tuple[Callable[[float, int], None], ...] = (
            *(self._end, self._report, self._finish, self._graph, self._join, self._leave),
            *(self._balance, self._receive, self._fetch, self._start),
        )
        if self._unfinished:
            self._push(0.0, _GRAPH, 0)
        for worker, joined in enumerate(self._cluster.joined.tolist()):
            if joined > 0:
                self._push(joined, _JOINED, worker)
        for worker, left in enumerate(self._cluster.left.tolist()):
            if left < np.inf:
                self._push(left, _LEFT, worker)
        while self._unfinished:
            if not events:  # Times contradict each other, so the client stops waiting.
                self._push(self._scheduler_free, _GRAPH, self._client.held_back)
            now, kind, place = pop(events)
            handlers[kind](now, place)
        placed = np.array(self._placement.worker, dtype=np.int64)
        return Outcome(np.array(self._executing), np.array(self._known), placed)

    def _push(self, time: float, kind: int, place: int) -> None:
        heappush(self._events, (time, kind, place))

    def _graph(self, now: float, graph: int) -> None:
        """Handle the arrival of a graph: place its task runs without unfinished dependencies."""
        at = self._scheduler_free = max(now, self._scheduler_free) + self._graph_span[graph]
        waits = self._waits
        for row in self._graph_rows[self._graph_bounds[graph] : self._graph_bounds[graph + 1]]:
            waits[row] -= 1
            if not waits[row]:
                self._place(row, at)
        self._submit(self._client.submitted(graph, now))

    def _submit(self, graph: tuple[float, int] | None) -> None:
        if graph is not None:
            self._push(graph[0], _GRAPH, graph[1])

    def _finish(self, now: float, row: int) -> None:
        """Handle the report of a task run's end: place task runs that waited for it."""
        begin = max(now, self._scheduler_free)
        at = self._scheduler_free = begin + self._scheduling
        self._known[row] = begin
        self._unfinished -= 1
        if self._reported[row]:
            self._submit(self._client.finished(begin))
        placement, waits = self._placement, self._waits
        placement.finish(row)
        for taker in self._takers[self._offsets[row] : self._offsets[row + 1]]:
            waits[taker] -= 1
            if not waits[taker]:
                self._place(taker, at)
        self._fill(placement.worker[row], at)
        if self._waiting:
            self._balance_soon(at)

    def _place(self, row: int, now: float) -> None:
        worker = self._placement.place(row)
        if worker >= 0:
            self._send(row, now)

    def _fill(self, worker: int, now: float) -> None:
        """Send queued task runs to a worker as long as it has free slots."""
        row = self._placement.next_queued(worker)
        while row >= 0:
            self._send(row, now)
            row = self._placement.next_queued(worker)

    def _send(self, row: int, now: float) -> None:
        heappush(self._events, (now + self._to_worker, _RECEIVED, row))

    def _join(self, now: float, worker: int) -> None:
        self._placement.join(worker)
        self._fill(worker, now)

    def _leave(self, now: float, worker: int) -> None:
        """Handle the exit of a worker: place again all its task runs that no thread had taken."""
        if self._placement.leave(worker):
            ranks, self._ready[worker] = self._ready[worker], []
            self._waiting -= len(ranks)
            for rank in sorted(ranks):
                row = self._by_rank[rank]
                self._placement.withdraw(row)
                self._place(row, now)

    def _balance(self, now: float, _: int) -> None:
        """Let idle workers steal task runs that wait for a thread on other workers."""
        self._balancing = False
        for row, thief in take_moves(self._placement, self._ready, self._by_rank):
            self._waiting -= 1
            self._placement.withdraw(row)
            self._placement.assign(row, thief)
            self._send(row, now)

    def _balance_soon(self, now: float) -> None:
        """Schedule a search for task runs to steal, at the next time at which Dask would search."""
        if self._placement.steals and not self._balancing:
            self._balancing = True
            self._push(max((now // _BALANCE_EVERY + 1) * _BALANCE_EVERY, now), _BALANCE, 0)

    def _receive(self, now: float, row: int) -> None:
        """Handle the arrival of a task run on its worker, which then requests missing inputs."""
        worker = self._placement.worker[row]
        if self._receiving.ask(row, worker):
            self._make_ready(row, worker, now)
        else:
            self._launch(now)

    def _launch(self, now: float) -> None:
        for seconds, pair in self._receiving.launch():
            self._push(now + seconds, _FETCHED, pair)

    def _fetch(self, now: float, pair: int) -> None:
        for row in sorted(self._receiving.arrive(pair), key=self._rank.__getitem__):
            self._make_ready(row, self._placement.worker[row], now)
        self._launch(now)

    def _make_ready(self, row: int, worker: int, now: float) -> None:
        heappush(self._ready[worker], self._rank[row])
        self._waiting += 1
        if self._free[worker] and not self._starting[worker]:
            self._start_at(now + self._to_start, worker)
        elif not self._free[worker]:
            self._balance_soon(now)

    def _start_at(self, time: float, worker: int) -> None:
        """Let the threads of a worker take tasks at `time`, after all events up to that time."""
        if self._events and self._events[0][0] <= time:
            self._starting[worker] = True
            heappush(self._events, (time, _START, worker))
        else:
            self._start(time, worker)

    def _start(self, now: float, worker: int) -> None:
        """Let the free threads of a worker take the first ready task runs."""
        self._starting[worker] = False
        ready = self._ready[worker]
        while ready and self._free[worker]:
            row = self._by_rank[heappop(ready)]
            self._waiting -= 1
            self._free[worker] -= 1
            self._executing[row] = now
            heappush(self._events, (now + self._held[row], _ENDED, row))
        if ready:
            self._balance_soon(now)

    def _end(self, now: float, row: int) -> None:
        """Handle the time at which a task run releases its thread."""
        worker = self._placement.worker[row]
        self._free[worker] += 1
        if self._later[row]:
            self._push(now + self._later[row], _DONE, row)
        else:
            self._report(now, row)
        if self._ready[worker] and not self._starting[worker]:
            self._start_at(now, worker)

    def _report(self, now: float, row: int) -> None:
        """Send the report of a task run's end from its worker to the scheduler."""
        self._placement.home[row] = self._placement.worker[row]
        heappush(self._events, (now + self._to_scheduler, _KNOWN, row))
