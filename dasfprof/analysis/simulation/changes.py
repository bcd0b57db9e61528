"""Predictions for a changed run: its wall time, the time that is saved, and the longest chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.inputs import ReplayCluster, ReplayInputs
from dasfprof.analysis.simulation.replay import (
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
