"""Sizes of clusters that fit on a host, and predictions for these by replays of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import psutil
from dask.system import cpu_count
from dask.utils import parse_bytes

from dasfprof.analysis.comparison.trial import Point
from dasfprof.analysis.diagnosis.registry import Value
from dasfprof.analysis.run.memory_thresholds import MemoryThresholds, memory_thresholds
from dasfprof.analysis.simulation.changes import HostReplay, changed_cluster
from dasfprof.analysis.simulation.memory import memory_forecast_of
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.handles.trial.process import Done
from dasfprof.recording.probes.process import memory_group
from dasfprof.text import format_size

#: Minimum and maximum total number of threads, as multiples of the host's cores. Fewer threads
#: leave cores idle. Additional threads help tasks that wait.
_THREADS = 0.5, 4.0
#: Rules whose findings say that tasks of one process take turns. A replay does not simulate this.
_TAKE_TURNS = ("per-process-lock", "gil-contention")


@dataclass(frozen=True)
class Host:
    """Cores and memory of this host that all workers of a cluster together may use."""

    cores: int
    #: Bytes.
    memory: float

    @classmethod
    def here(cls) -> Host:
        """Return the cores and memory that this process may use."""
        # Control groups and CPU affinity limit them, as in Dask.
        group = memory_group()
        there = psutil.virtual_memory().total
        return cls(cpu_count(), float(min(there, group[1]) if group else there))


def cluster_sizes(host: Host, parameters: Mapping[str, Sequence[Value]]) -> list[tuple[int, int]]:
    """Return the number of workers and the threads per worker of each cluster to consider.

    `parameters` may have the numbers of workers, the numbers of threads, or both. Missing numbers
    are replaced by powers of two, and for workers also by the number of cores.
    """
    least, most = (host.cores * times for times in _THREADS)
    given = [[int(x) for x in parameters.get(n, ())] for n in ("n_workers", "threads_per_worker")]
    workers = given[0] or sorted({*_powers(host.cores), host.cores})
    threads = given[1] or _powers(int(most))
    return [
        (count, each)
        for count, each in product(workers, threads)
        # If numbers are missing, leave out clusters with too few or too many threads for the cores.
        if all(given) or least <= count * each <= most
    ]


def _powers(most: int) -> list[int]:
    return [2**power for power in range(max(most, 1).bit_length())]


class Predictions:
    """Predictions for other clusters on a host, based on a recorded run of a program."""

    def __init__(self, done: Done, host: Host) -> None:
        self.host = host
        #: Whether the run's workers are processes.
        self.processes = all(cluster.get("processes", True) for cluster in done.clusters)
        alone = done.runs[0] if len(done.runs) == 1 else None
        #: The run, or None if the program created several clusters.
        self.run = None if alone is None else alone.trace
        rules = [] if alone is None else [finding.rule for finding in alone.findings]
        #: Rule of a finding which says that tasks take turns, or empty.
        self.taking_turns = next((rule for rule in _TAKE_TURNS if rule in rules), "")

    @property
    def limits(self) -> list[str]:
        """Sentences about what the replay does not include."""
        if self._replay is None:
            return ["The program creates several clusters, so nothing can be predicted."]
        if self._replay.obstacle:
            return [f"Nothing can be predicted: {self._replay.obstacle}."]
        if self.taking_turns:
            return [
                f"Tasks of a process take turns ({self.taking_turns}), so each worker was "
                "replayed with one thread. Only runs show how long they take with more threads."
            ]
        return [
            "Replays do not include the GIL, caches, and disks that threads share, so runs decide."
        ]

    @cached_property
    def _replay(self) -> HostReplay | None:
        if self.run is None:
            return None
        return HostReplay(self.run, self.host.cores, bool(self.taking_turns))

    @cached_property
    def _thresholds(self) -> MemoryThresholds:
        return MemoryThresholds() if self.run is None else memory_thresholds(self.run)

    def lacks_memory(self, limit: Value) -> bool:
        """Return whether the recorded cluster had too little memory and the new limit is higher."""
        if self.run is None or not self.processes:
            return False
        recorded = self.run.workers["memory_limit"].dropna().to_numpy(dtype=float)
        if not len(recorded) or parse_bytes(limit) <= recorded.min():
            return False
        unspilled = float(replay_of(self.run).inputs.unspill.sum())
        return unspilled > 0 or self._need(None, None) > self._thresholds.spills * float(
            recorded.min()
        )

    def _need(self, workers: int | None, threads: int | None) -> float:
        """Return the predicted peak bytes of the fullest worker's process, or NaN if unknown."""
        if self.run is None or not self.processes:
            return math.nan
        forecast = memory_forecast_of(self.run)
        if forecast.obstacle:
            return math.nan
        cluster = changed_cluster(replay_of(self.run), workers, threads)
        return forecast.peaks(cluster).process.likely

    def point(self, change: Mapping[str, Value], workers: int, threads: int, limit: Value) -> Point:
        """Return the settings of a cluster, with the predicted time and memory.

        The cluster has `workers` workers, each with `threads` threads and the memory limit `limit`.
        If that is too little memory, the result has the reason to leave it out.
        """
        need, most = self._need(workers, threads), float(parse_bytes(limit))
        if need > self._thresholds.kills * most:
            return Point(
                change,
                memory=need,
                left_out=f"Its fullest worker would need {format_size(need)}, but has a limit of "
                f"{format_size(most)}.",
            )
        if self._replay is None:
            return Point(change, memory=need)
        fits = need <= self._thresholds.spills * most
        return Point(change, self._replay.wall(workers, threads, unspill=not fits), need)
