"""How inputs come to the workers of a replay: one message at a time between two of them."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.simulation.costs import Costs
from dasfprof.analysis.simulation.inputs import ReplayInputs
from dasfprof.analysis.simulation.placement import Placement

#: Bytes that a worker asks another one for in one message at most, as Dask's default.
_MESSAGE = 50e6


class Receiving:
    """Inputs on their way: what each worker still has to fetch from which other one.

    Parameters
    ----------
    inputs, placement, costs
        See `Simulation`.
    workers
        How many there are.
    """

    def __init__(
        self, inputs: ReplayInputs, placement: Placement, costs: Costs, workers: int
    ) -> None:
        self._placement, self._workers = placement, workers
        self._latency, self._bandwidth = costs.transfer, costs.bandwidth
        self._size: list[float] = inputs.size.tolist()
        self._offsets: list[int] = inputs.input_offsets.tolist()
        self._inputs: list[int] = inputs.inputs.tolist()
        #: How many inputs each run lacks where it was sent.
        self._missing: dict[int, int] = {}
        #: Runs that wait for an input at a worker: by input * workers + worker.
        self._waiting: dict[int, list[int]] = {}
        #: What is yet to be asked for, and what the message under way brings: by source * workers
        #: + worker.
        self._pending: dict[int, list[int]] = {}
        self._under_way: dict[int, list[int]] = {}
        #: Pairs that were given something to bring.
        self._touched: list[int] = []

    def ask(self, row: int, worker: int) -> bool:
        """Return whether a run's inputs are on its worker; if not, they are asked for."""
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
        """Begin the messages that can be; gives the seconds that each takes, and its pair."""
        touched, self._touched = self._touched, []
        for pair in touched:
            if pair in self._pending and pair not in self._under_way:
                yield self._begin(pair)

    def _begin(self, pair: int) -> tuple[float, int]:
        pending, size, number = self._pending.pop(pair), 0.0, 0
        for used in pending:
            if number and size + self._size[used] > _MESSAGE:
                self._pending[pair] = pending[number:]
                break
            size += self._size[used]
            number += 1
        self._under_way[pair] = pending[:number]
        return self._latency + size / self._bandwidth, pair

    def arrive(self, pair: int) -> Iterator[int]:
        """Note what a message brought; gives the runs that then have all inputs."""
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
