"""Replays on growing numbers of machines, until a cluster meets a deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.memory_thresholds import memory_thresholds
from dasfprof.analysis.simulation.inputs import ReplayCluster
from dasfprof.analysis.simulation.memory import PeakEstimate, memory_forecast_of
from dasfprof.analysis.simulation.replay import Replay, replay_of

#: Maximum number of workers of a replayed cluster. Then numbers of machines to replay.
_MAXIMUM_WORKERS = 200
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200)
#: Maximum error of nine in ten predictions, as a fraction of the prediction: the first value, or
#: the calibration error times the second value if that is larger.
_LEAST_MARGIN, _OF_ERROR = 0.06, 0.5


@dataclass(frozen=True)
class MachineType:
    """A type of machine, of which any number is available."""

    name: str
    #: Number of workers per machine, and threads per worker.
    workers: int
    threads: int
    #: Memory limit of each worker in bytes, or NaN if unknown.
    memory: float = math.nan
    #: Price of a machine per hour, or NaN if unknown.
    price: float = math.nan
    #: Speed of a thread, relative to the speed of the recorded threads.
    speed: float = 1.0


@dataclass(frozen=True)
class SizedCluster:
    """A number of machines of one type, and the prediction for a run on these machines."""

    machine: MachineType
    machines: int
    #: Seconds from requesting the machines to the end of the run: the expected value, and the
    #: maximum for nine in ten runs.
    likely: float = math.nan
    most: float = math.nan
    #: Fraction of the thread time in which threads have no task.
    idle: float = math.nan
    #: Peak memory of the fullest worker's process, or None if unknown or not needed.
    process: PeakEstimate | None = None
    #: Whether nine in ten runs meet the deadline, and memory is sufficient as far as known.
    meets_deadline: bool = False
    #: Reason why nothing is predicted, or empty.
    refusal: str = ""

    @property
    def cost(self) -> float:
        """Price of the machines for the expected time, or NaN if unknown."""
        return self.machines * self.machine.price * self.likely / 3600

    @property
    def effort(self) -> float:
        """The cost, or the thread time in seconds if the price is unknown.

        Clusters that meet the deadline are ranked by it.
        """
        threads = self.machines * self.machine.workers * self.machine.threads
        return self.cost if math.isfinite(self.cost) else threads * self.likely


def sized_clusters(
    run: Run, types: Sequence[MachineType], deadline: float, start_up: float
) -> list[SizedCluster]:
    """Return the replayed clusters. The clusters that meet the deadline come first.

    Clusters that meet the deadline are sorted by cost, and the other clusters by time.

    Parameters
    ----------
    types
        The types of machines to choose from.
    deadline
        Maximum seconds from requesting the machines to the end of the run.
    start_up
        Seconds from requesting the machines to the first task. The deadline includes them.
    """
    if not len(replay_of(run).inputs):
        return []

    def rank(cluster: SizedCluster) -> tuple[bool, float]:
        late = np.nan_to_num(cluster.likely, nan=math.inf)
        return not cluster.meets_deadline, cluster.effort if cluster.meets_deadline else late

    return sorted((c for kind in types for c in _climb(run, kind, deadline, start_up)), key=rank)


def _climb(
    run: Run, machine: MachineType, deadline: float, start_up: float
) -> Sequence[SizedCluster]:
    """Replay the run on machines of one type, and return the replayed clusters."""
    maximum = max(_MAXIMUM_WORKERS // machine.workers, 1)
    sized: dict[int, SizedCluster] = {}

    def in_time(machines: int) -> bool:
        if machines not in sized:
            sized[machines] = _replayed(run, machine, machines, deadline, start_up)
        return sized[machines].meets_deadline

    steps = [*(step for step in _LADDER if step < maximum), maximum]
    # The number of machines grows until the deadline is met. Then smaller numbers are replayed, to
    # find the smallest one that meets the deadline.
    fewest = next((step for step in steps if in_time(step) or sized[step].refusal), 0)
    if fewest and not sized[fewest].refusal:
        late = max((step for step in steps if step < fewest), default=0)
        while fewest - late > 1:  # Bisect between the two numbers of machines.
            middle = (late + fewest) // 2
            late, fewest = (late, middle) if in_time(middle) else (middle, fewest)
        # A few more machines may be cheaper, if they save a round of tasks.
        for more in {fewest + 1, math.ceil(fewest * 1.25)}:
            if more <= maximum:
                in_time(more)
    return list(sized.values())


def most_of_runs(replay: Replay, wall: float) -> float:
    """Return the seconds in which nine of ten runs should finish, given the predicted wall time."""
    return wall * (1 + max(_LEAST_MARGIN, abs(replay.error) * _OF_ERROR))


def _replayed(
    run: Run, machine: MachineType, machines: int, deadline: float, start_up: float
) -> SizedCluster:
    replay, workers = replay_of(run), machines * machine.workers
    cluster = ReplayCluster(
        np.full(workers, machine.threads), np.zeros(workers), np.full(workers, np.inf)
    )
    if refusal := replay.refusal_on(cluster):
        return SizedCluster(machine, machines, refusal=refusal)
    held = replay.held(factor=np.full(len(replay.inputs), machine.speed))
    wall = replay.predicted(replay.outcome(held=held, cluster=cluster).wall)
    likely, most = start_up + wall, start_up + most_of_runs(replay, wall)
    idle = 1 - min(float(held.sum()) / (workers * machine.threads * likely), 1.0)
    sized = SizedCluster(machine, machines, likely, most, idle, meets_deadline=most <= deadline)
    forecast = memory_forecast_of(run)
    if not sized.meets_deadline or forecast.obstacle:
        return sized
    process, acts = forecast.peaks(cluster).process, memory_thresholds(run)
    lacks = process.likely > acts.spills * machine.memory
    lacks |= process.most > acts.kills * machine.memory
    return replace(sized, process=process, meets_deadline=not (machine.memory > 0 and lacks))
