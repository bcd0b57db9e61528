"""The wall time of a run after a change: another cluster, another network, faster functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.simulation.arguments import check_count, is_positive
from dasfprof.analysis.simulation.cluster import ReplayCluster
from dasfprof.analysis.simulation.costs import Costs
from dasfprof.analysis.simulation.replay import Replay, replay_of
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError


def changed_wall(
    run: Run,
    *,
    workers: int | None = None,
    threads: int | None = None,
    bandwidth: float | None = None,
    spill: bool = True,
    speedup: Mapping[str, float] | None = None,
) -> float:
    """Replay a run after a change; several changes count together.

    Parameters
    ----------
    run
        The run.
    workers
        How many there are at most; they come and go as the recorded ones did.
    threads
        Of each worker.
    bandwidth
        Between two workers, bytes a second.
    spill
        False: no input is read back from disk.
    speedup
        By function, by how much it is faster.

    Returns
    -------
    float
        Wall seconds of the replay; NaN where there is nothing to replay.

    Raises
    ------
    InvalidArgumentError
        If a number is out of range, or there is no such function.
    """
    replay = replay_of(run)
    cluster = _changed_cluster(replay, workers, threads)
    costs = _changed_costs(replay, bandwidth)
    factors = replay.factors(speedup or {})
    if replay.obstacle:
        return float("nan")
    held = replay.held(factor=factors, unspill=spill)
    return replay.outcome(held=held, cluster=cluster, costs=costs).wall


def walls_without_waits(run: Run) -> dict[str, float]:
    """Replay a run without each of the things that tasks wait for.

    Returns
    -------
    dict
        Wall seconds of the replays, NaN where there is nothing to replay: ``no network``,
        ``no unspilling``, ``no blocking in functions`` (left out where CPU seconds are unknown)
        and ``no scheduler latency``.
    """
    replay = replay_of(run)
    costs = {"no network": replay.without_network()}
    held = {"no unspilling": replay.held(unspill=False)}
    computing = _computing_alone(run, replay)
    if computing is not None:
        held["no blocking in functions"] = computing
    costs["no scheduler latency"] = replace(
        replay.costs, to_worker=0.0, to_scheduler=0.0, scheduler=0.0
    )
    names = ["no network", *held, "no scheduler latency"]
    if replay.obstacle:
        return dict.fromkeys(names, float("nan"))
    return {name: replay.outcome(costs=costs.get(name), held=held.get(name)).wall for name in names}


def _changed_cluster(replay: Replay, workers: int | None, threads: int | None) -> ReplayCluster:
    for name, count in (("workers", workers), ("threads", threads)):
        if count is not None:
            check_count(name, count)
    cluster = replay.cluster if workers is None else replay.cluster.with_workers(workers)
    return cluster if threads is None else cluster.with_threads(threads)


def _changed_costs(replay: Replay, bandwidth: float | None) -> Costs:
    if bandwidth is None:
        return replay.costs
    if not is_positive(bandwidth):
        raise InvalidArgumentError(
            f"bandwidth={bandwidth!r}: give bytes a second, more than 0 (1e9 is 1 GB/s), or None "
            f"for the measured {replay.costs.bandwidth:.3g}."
        )
    return replace(replay.costs, bandwidth=bandwidth)


def _computing_alone(run: Run, replay: Replay) -> Array | None:
    """Return for how long runs hold their threads if functions only compute; None: unknown."""
    cpu = run.ended.tasks["cpu"].to_numpy(dtype=float)
    if not np.isfinite(cpu).any():
        return None
    running = replay.inputs.running.copy()
    own = running[: len(cpu)]
    queued = np.zeros(len(cpu))
    if "run_queue" in run.ended.tasks:
        queued = np.nan_to_num(run.ended.tasks["run_queue"].to_numpy(dtype=float))
    own[:] = np.where(np.isfinite(cpu), np.minimum(cpu + queued, own), own)
    return replay.held(running=running)
