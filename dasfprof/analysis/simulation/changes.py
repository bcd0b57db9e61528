"""Predictions for a changed run: its wall time, the saved time, and its time on a shared host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dasfprof.analysis.model.thread_time import recorded_column
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.inputs import ReplayCluster, ReplayInputs
from dasfprof.analysis.simulation.replay import (
    MOST_ERROR,
    Replay,
    check_count,
    is_count,
    is_positive,
    replay_of,
)
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError


def changed_wall(
    run: Run,
    *,
    workers: int | None = None,
    threads: int | None = None,
    bandwidth: float | None = None,
    network: bool = True,
    spill: bool = True,
    speedup: Mapping[str, float] | None = None,
    running: Array | None = None,
    together: bool = False,
) -> float:
    """Replay a run after one change, or after several changes at once.

    Parameters
    ----------
    workers
        Maximum number of workers at a time. Workers join and leave as the recorded workers did.
    threads
        Threads per worker.
    bandwidth
        Bandwidth between two workers in bytes per second.
    network
        False replays transfers as if they took no time.
    spill
        False replays the run as if no inputs were read back from disk.
    speedup
        For each function, the factor by which it is faster.
    running
        Seconds of the function in each row of `Trace.tasks`. NaN keeps the recorded seconds.
    together
        Whether clients submit each graph without waiting for results of earlier graphs. Other
        pauses of the clients stay.

    Returns
    -------
    float
        Wall time of the replay in seconds, or NaN if nothing can be replayed.

    Raises
    ------
    InvalidArgumentError
        If a number is out of range, or a function does not exist.
    """
    replay = replay_of(run)
    cluster = changed_cluster(replay, workers, threads)
    costs, factors = replay.costs, replay.factors(speedup or {})
    if not network:
        costs = replace(costs, transfer=0.0, bandwidth=float("inf"))
    elif bandwidth is not None:
        if not is_positive(bandwidth):
            raise InvalidArgumentError(
                f"bandwidth={bandwidth!r}: expected a positive number of bytes per second (1e9 "
                f"is 1 GB/s). Pass None for the measured bandwidth, {costs.bandwidth:.3g}."
            )
        costs = replace(costs, bandwidth=bandwidth)
    if replay.obstacle:
        return float("nan")
    seconds = replay.inputs.running.copy()
    if running is not None:
        rows = np.flatnonzero(np.isfinite(running))
        seconds[rows] = running[rows]
    held = replay.held(running=seconds, factor=factors, unspill=spill)
    if together:
        graphs = replay.inputs.submissions
        graphs = replace(graphs, finishes=np.zeros_like(graphs.finishes))
        replay = replace(replay, inputs=replace(replay.inputs, submissions=graphs))
    return replay.outcome(held=held, cluster=cluster, costs=costs).wall


def gain(run: Run, **changes: Any) -> float:
    """Predict the seconds of wall time that one or several changes save.

    Parameters
    ----------
    changes
        Arguments of `changed_wall`.

    Returns
    -------
    float
        Seconds, which are negative if the run would take longer. NaN if no prediction is possible
        (`Replay.refusal` contains the reason).

    Raises
    ------
    InvalidArgumentError
        If a function does not exist, or seconds or factors are out of range.
    """
    replay = replay_of(run)
    if replay.refusal:
        return float("nan")
    # A run may take longer even after an improvement (Graham's anomalies).
    return replay.inputs.wall - replay.predicted(changed_wall(run, **changes))


def changed_cluster(replay: Replay, workers: int | None, threads: int | None) -> ReplayCluster:
    """Return the recorded cluster with another number of workers, or of threads per worker."""
    for name, count in (("workers", workers), ("threads", threads)):
        if count is not None:
            check_count(name, count)
    cluster = replay.cluster if workers is None else replay.cluster.with_workers(workers)
    return cluster if threads is None else cluster.with_threads(threads)


def worker_counts(
    workers: Sequence[int] | None, recorded: int, shares: Sequence[float]
) -> list[int]:
    """Return `workers`, or if it is None, `recorded` workers multiplied by each of `shares`."""
    if workers is None:
        return sorted({max(round(recorded * share), 1) for share in shares})
    if not isinstance(workers, Sequence) or not all(map(is_count, workers)):
        raise InvalidArgumentError(
            f"workers={workers!r}: expected a list of positive integers. Pass None for "
            f"{100 * shares[0]:g} % to {100 * shares[-1]:g} % of the recorded number."
        )
    return [int(count) for count in workers]


def longest_chain(inputs: ReplayInputs, held: Array) -> float:
    """Return when the last task run would end if no task run had to wait for a thread."""
    submissions = inputs.submissions
    order = np.lexsort((inputs.start_order, inputs.graph))
    offsets, used = inputs.input_offsets.tolist(), inputs.inputs.tolist()
    seconds = (held + inputs.seceded).tolist()
    reported = submissions.reported.tolist()
    sizes = np.bincount(inputs.graph[submissions.reported], minlength=len(submissions.delay))
    before = (np.cumsum(sizes) - sizes).tolist()
    finishes, delay = submissions.finishes.tolist(), submissions.delay.tolist()
    ends = [0.0] * len(inputs)
    came, latest_reported, latest, current = 0.0, 0.0, 0.0, 0
    for row, graph in zip(order.tolist(), inputs.graph[order].tolist(), strict=True):
        while current < graph:
            current += 1
            if not finishes[current]:
                came += delay[current]
            elif finishes[current] == before[current]:
                # If a graph arrived after several task runs had finished, it is assumed to wait for
                # the last of these, because it is unknown which of them would finish first.
                came = max(came, latest_reported + delay[current])
        end = came
        for source in used[offsets[row] : offsets[row + 1]]:
            end = max(end, ends[source])
        end += seconds[row]
        ends[row] = end
        latest = max(latest, end)
        if reported[row]:
            latest_reported = max(latest_reported, end)
    return latest


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
