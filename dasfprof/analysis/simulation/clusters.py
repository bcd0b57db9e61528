"""Ladders of replays: the run on more and more machines, until one cluster meets a deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.memory_thresholds import MemoryThresholds, memory_thresholds
from dasfprof.analysis.simulation.inputs import ReplayCluster
from dasfprof.analysis.simulation.memory import MemoryPeaks, memory_forecast_of
from dasfprof.analysis.simulation.replay import replay_of

#: Maximum number of workers of a replayed cluster, and numbers of machines to replay.
_MAXIMUM_WORKERS = 200
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200)
#: Nine of ten runs take at most this fraction longer than predicted, or this fraction of the
#: calibration error, if that is more.
_LEAST_MARGIN, _OF_ERROR = 0.06, 0.5


@dataclass(frozen=True)
class MachineType:
    """A type of machine that is available in any number."""

    name: str
    #: Workers on each machine, and threads of each worker.
    workers: int
    threads: int
    #: Memory limit of each worker in bytes; NaN: unknown.
    memory: float = math.nan
    #: Price of a machine for an hour; NaN: unknown.
    price: float = math.nan
    #: How many times as fast as the recorded threads its threads are.
    speed: float = 1.0


@dataclass(frozen=True)
class SizedCluster:
    """A number of machines of one type, and the predicted run on them."""

    machine: MachineType
    machines: int
    #: Seconds from requesting the machines to the end: expected, and for nine of ten runs at most.
    likely: float = math.nan
    most: float = math.nan
    #: Fraction of the threads' time without a task.
    idle: float = math.nan
    #: Memory of the fullest worker; None: unknown.
    memory: MemoryPeaks | None = None
    #: Why nothing is predicted; empty: it is.
    refusal: str = ""

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.machines * self.machine.workers

    @property
    def cost(self) -> float:
        """The price of the machines for the expected time; NaN: unknown."""
        return self.machines * self.machine.price * self.likely / 3600

    @property
    def effort(self) -> float:
        """The cost, or without a price the thread time."""
        threads = self.workers * self.machine.threads
        return self.cost if math.isfinite(self.cost) else threads * self.likely

    def fits(self, thresholds: MemoryThresholds) -> bool:
        """Return whether the fullest worker has enough memory, as far as is known."""
        if self.memory is None or not self.machine.memory > 0:
            return True
        process, limit = self.memory.process, self.machine.memory
        return (
            process.likely <= thresholds.spills * limit and process.most <= thresholds.kills * limit
        )


@dataclass
class ClusterLadder:
    """Replays of a run on more and more machines.

    Parameters
    ----------
    run
        The run.
    deadline
        Seconds from requesting the machines to the end.
    start_up
        The part of these seconds before the first task.
    """

    run: Run
    deadline: float
    start_up: float

    def sized(self, types: Sequence[MachineType]) -> list[SizedCluster]:
        """Return the replayed clusters: those that meet the deadline by cost, others by time."""
        found = [cluster for machine in types for cluster in self._climb(machine)]

        def rank(cluster: SizedCluster) -> tuple[bool, float]:
            if self.meets(cluster):
                return False, cluster.effort
            return True, np.nan_to_num(cluster.likely, nan=math.inf)

        return sorted(found, key=rank)

    def meets(self, cluster: SizedCluster) -> bool:
        """Return whether nine of ten runs meet the deadline, with enough memory."""
        return cluster.most <= self.deadline and cluster.fits(self.thresholds)

    @cached_property
    def thresholds(self) -> MemoryThresholds:
        """The fractions of their limits at which the recorded workers act."""
        return memory_thresholds(self.run)

    def _climb(self, machine: MachineType) -> list[SizedCluster]:
        """Replay the ladder up to the first cluster in time, and the numbers around it."""
        maximum = max(_MAXIMUM_WORKERS // machine.workers, 1)
        seen: dict[int, SizedCluster] = {}

        def in_time(machines: int) -> bool:
            if machines not in seen:
                seen[machines] = self._on(machine, machines)
            return self.meets(seen[machines])

        steps = [*(step for step in _LADDER if step < maximum), maximum]
        fewest = next((step for step in steps if in_time(step) or seen[step].refusal), 0)
        if not fewest or seen[fewest].refusal:
            return list(seen.values())
        late = max((step for step in steps if step < fewest), default=0)
        while fewest - late > 1:  # between them by halves
            middle = (late + fewest) // 2
            late, fewest = (late, middle) if in_time(middle) else (middle, fewest)
        # More machines may be cheaper, where they save a whole round of tasks.
        for more in {fewest + 1, math.ceil(fewest * 1.25)}:
            if more <= maximum:
                in_time(more)
        return list(seen.values())

    def _on(self, machine: MachineType, machines: int) -> SizedCluster:
        replay, workers = replay_of(self.run), machines * machine.workers
        cluster = ReplayCluster(
            np.full(workers, machine.threads), np.zeros(workers), np.full(workers, np.inf)
        )
        if refusal := replay.refusal_on(cluster):
            return SizedCluster(machine, machines, refusal=refusal)
        held = replay.held(factor=np.full(len(replay.inputs), machine.speed))
        wall = replay.predicted(replay.outcome(held=held, cluster=cluster).wall)
        likely = self.start_up + wall
        sized = SizedCluster(
            machine,
            machines,
            likely,
            self.start_up + wall * (1 + max(_LEAST_MARGIN, abs(replay.error) * _OF_ERROR)),
            1 - min(float(held.sum()) / (workers * machine.threads * likely), 1.0),
        )
        forecast = memory_forecast_of(self.run)
        if sized.most > self.deadline or forecast.obstacle:
            return sized
        return replace(sized, memory=forecast.peaks(cluster))
