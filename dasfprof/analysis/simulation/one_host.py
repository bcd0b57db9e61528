"""`HostReplay`: a run on other workers of the host that it ran on, which share that host's cores.

`Replay` takes tasks to last as long wherever they run, and refuses where they waited for cores.
Here the host and its cores are known: what a task computed takes longer where more threads compute
than there are cores, and what it waited for a core is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.changes import changed_cluster
from dasfprof.analysis.simulation.inputs import ReplayCluster
from dasfprof.analysis.simulation.replay import MOST_ERROR, replay_of
from dasfprof.database.columns import Array

#: Tasks are made slower until no more cores are busy than there are, but for this share, in so many
#: replays at most.
_FULL, _MOST_ROUNDS = 1.03, 5


@dataclass(frozen=True)
class HostReplay:
    """Replays of a run on other workers of its host."""

    run: Run
    #: Cores that its workers have together.
    cores: float
    #: Whether tasks of a worker take turns, as findings say: at Python's lock, or one of their own.
    #: Then each worker is replayed as if it had one thread.
    one_at_a_time: bool = False

    @cached_property
    def obstacle(self) -> str:
        """Why it foretells nothing, in words; empty where it does."""
        replay = replay_of(self.run)
        if replay.missing:
            return replay.missing
        if not np.isfinite(self.run.tasks["cpu"].to_numpy(dtype=float)).any():
            return "no CPU seconds of tasks were recorded"
        if not abs(self.error) <= MOST_ERROR:
            wall = replay.inputs.wall
            return (
                f"replayed as it was, the run takes {wall * (1 + self.error):.3g} s, and it took "
                f"{wall:.3g} s"
            )
        return ""

    @cached_property
    def error(self) -> float:
        """By what share of it the replay misses the recorded wall time."""
        return self._base / replay_of(self.run).inputs.wall - 1

    def refusal(self, workers: int, threads: int) -> str:
        """Return why it foretells nothing of so many workers; empty where it does."""
        if self.obstacle:
            return self.obstacle
        replay = replay_of(self.run)
        cluster = changed_cluster(replay, workers, threads)
        if np.array_equal(cluster.threads, replay.cluster.threads):
            return ""
        binding = [one.told for one in replay.shared if one.binds(cluster.most_threads)]
        return (
            f"{' and '.join(binding)}; what they take turns at is not replayed" if binding else ""
        )

    def wall(self, workers: int, threads: int, *, unspill: bool = True) -> float:
        """Return the wall seconds that so many workers lead to expect; NaN: see `refusal`.

        Parameters
        ----------
        workers, threads
            How many, and of each.
        unspill
            Whether inputs are read back from disk as they were.
        """
        if self.refusal(workers, threads):
            return float("nan")
        cluster = changed_cluster(replay_of(self.run), workers, threads)
        wall = replay_of(self.run).inputs.wall
        return wall * self._wall_on(cluster, unspill=unspill) / self._base

    @cached_property
    def _base(self) -> float:
        return self._wall_on(replay_of(self.run).cluster)

    def _wall_on(self, cluster: ReplayCluster, *, unspill: bool = True) -> float:
        replay = replay_of(self.run)
        computing, waiting = self._seconds
        if self.one_at_a_time:
            cluster = replace(cluster, threads=np.ones(len(cluster.threads), dtype=np.int64))
        work, times, wall = float(computing.sum()), 1.0, 0.0
        for _ in range(_MOST_ROUNDS):
            held = replay.held(running=computing * times + waiting, unspill=unspill)
            wall = replay.outcome(held=held, cluster=cluster).wall
            # The cores that are busy then in the mean, as what computes takes its CPU seconds.
            wanted = work / wall / self.cores if wall > 0 else 0.0
            if wanted <= _FULL:
                break
            times *= wanted
        return wall

    @cached_property
    def _seconds(self) -> tuple[Array, Array]:
        """For which each run computed, and for which it waited for anything but a core."""
        tasks, running = self.run.tasks, replay_of(self.run).inputs.running
        count = len(tasks)
        cpu = np.nan_to_num(tasks["cpu"].to_numpy(dtype=float))
        queued = np.zeros(count)
        if "run_queue" in tasks:
            queued = np.nan_to_num(tasks["run_queue"].to_numpy(dtype=float))
        own = running.copy()
        own[:count] = np.maximum(own[:count] - queued, np.minimum(cpu, own[:count]))
        if self.one_at_a_time:
            own /= max(float(np.median(replay_of(self.run).cluster.threads)), 1.0)
        computing = np.zeros(len(own))
        computing[:count] = np.minimum(cpu, own[:count])
        return computing, own - computing
