"""Predictions for other numbers of workers that share the cores of a recorded run's host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dasfprof.analysis.model.thread_time import recorded_column
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.changes import changed_cluster
from dasfprof.analysis.simulation.inputs import ReplayCluster
from dasfprof.analysis.simulation.replay import MOST_ERROR, replay_of
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class HostReplay:
    """Replays of a run with other numbers of workers on the same host.

    Unlike in `Replay`, the CPU wait of task runs is left out. Instead, a replay is never shorter
    than the CPU time of all task runs divided by the number of cores.
    """

    run: Run
    #: Number of cores that the workers share.
    cores: float
    #: Whether the tasks of each worker take turns. If so, each worker is replayed with one thread.
    one_at_a_time: bool = False

    @cached_property
    def obstacle(self) -> str:
        """Reason why nothing is predicted, or empty."""
        replay = replay_of(self.run)
        if replay.missing:
            return replay.missing
        if not np.isfinite(self.run.tasks["cpu"].to_numpy(dtype=float)).any():
            return "no CPU seconds of tasks were recorded"
        wall = replay.inputs.wall
        if not abs(self._base / wall - 1) <= MOST_ERROR:
            return (
                f"a replay of the recorded run takes {self._base:.3g} s, but the run took "
                f"{wall:.3g} s"
            )
        return ""

    def wall(self, workers: int, threads: int, *, unspill: bool = True) -> float:
        """Return the predicted wall time in seconds, or NaN if nothing can be predicted.

        `unspill` is whether inputs are read back from disk, as in the recorded run.
        """
        replay = replay_of(self.run)
        cluster = changed_cluster(replay, workers, threads)
        if self.obstacle or replay.binding(cluster):
            return float("nan")
        return replay.inputs.wall * self._wall_on(cluster, unspill=unspill) / self._base

    @cached_property
    def _base(self) -> float:
        return self._wall_on(replay_of(self.run).cluster)

    def _wall_on(self, cluster: ReplayCluster, *, unspill: bool = True) -> float:
        replay, (running, cpu) = replay_of(self.run), self._seconds
        if self.one_at_a_time:
            cluster = cluster.with_threads(1)
        held = replay.held(running=running, unspill=unspill)
        return max(replay.outcome(held=held, cluster=cluster).wall, cpu / self.cores)

    @cached_property
    def _seconds(self) -> tuple[Array, float]:
        """The seconds of each task run without CPU wait, and the CPU seconds of all task runs."""
        replay, count = replay_of(self.run), len(self.run.tasks)
        running = replay.inputs.running.copy()
        recorded = running[:count]
        cpu = np.minimum(np.nan_to_num(self.run.tasks["cpu"].to_numpy(dtype=float)), recorded)
        recorded[:] = np.maximum(
            recorded - recorded_column(self.run.tasks, "run_queue", count), cpu
        )
        if self.one_at_a_time:
            running /= max(float(np.median(replay.cluster.threads)), 1.0)
        return running, float(np.minimum(cpu, recorded).sum())
