"""The wall time of a run after a change, and how many seconds a change is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.inputs import Costs, ReplayCluster
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
    trace: Run,
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
    trace
        The trace.
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
    replay = replay_of(trace)
    cluster = changed_cluster(replay, workers, threads)
    costs = _changed_costs(replay, bandwidth)
    factors = replay.factors(speedup or {})
    if replay.obstacle:
        return float("nan")
    held = replay.held(factor=factors, unspill=spill)
    return replay.outcome(held=held, cluster=cluster, costs=costs).wall


def walls_without_waits(trace: Run) -> dict[str, float]:
    """Replay a run without each of the things that tasks wait for.

    Returns
    -------
    dict
        Wall seconds of the replays, NaN where there is nothing to replay: ``no network``,
        ``no unspilling``, ``no blocking in functions`` (left out where CPU seconds are unknown)
        and ``no scheduler latency``.
    """
    replay = replay_of(trace)
    costs = {"no network": replay.without_network()}
    held = {"no unspilling": replay.held(unspill=False)}
    computing = _computing_alone(trace, replay)
    if computing is not None:
        held["no blocking in functions"] = computing
    costs["no scheduler latency"] = replace(
        replay.costs, to_worker=0.0, to_scheduler=0.0, scheduler=0.0
    )
    names = ["no network", *held, "no scheduler latency"]
    if replay.obstacle:
        return dict.fromkeys(names, float("nan"))
    return {name: replay.outcome(costs=costs.get(name), held=held.get(name)).wall for name in names}


def changed_cluster(replay: Replay, workers: int | None, threads: int | None) -> ReplayCluster:
    """Return the recorded cluster with other numbers of workers and of threads of each."""
    for name, count in (("workers", workers), ("threads", threads)):
        if count is not None:
            check_count(name, count)
    cluster = replay.cluster if workers is None else replay.cluster.with_workers(workers)
    return cluster if threads is None else cluster.with_threads(threads)


def worker_counts(
    workers: Sequence[int] | None, recorded: int, shares: Sequence[float]
) -> list[int]:
    """Return the numbers of workers that are asked about: usually shares of the recorded ones."""
    if workers is None:
        return sorted({max(round(recorded * share), 1) for share in shares})
    if not isinstance(workers, Sequence) or not all(map(is_count, workers)):
        raise InvalidArgumentError(
            f"workers={workers!r}: give a list of whole numbers, each 1 or more, or None for "
            f"{100 * shares[0]:g} % to {100 * shares[-1]:g} % of the recorded ones."
        )
    return [int(count) for count in workers]


def _changed_costs(replay: Replay, bandwidth: float | None) -> Costs:
    if bandwidth is None:
        return replay.costs
    if not is_positive(bandwidth):
        raise InvalidArgumentError(
            f"bandwidth={bandwidth!r}: give bytes a second, more than 0 (1e9 is 1 GB/s), or None "
            f"for the measured {replay.costs.bandwidth:.3g}."
        )
    return replace(replay.costs, bandwidth=bandwidth)


def _computing_alone(trace: Run, replay: Replay) -> Array | None:
    """Return for how long runs hold their threads if functions only compute; None: unknown."""
    cpu = trace.tasks["cpu"].to_numpy(dtype=float)
    if not np.isfinite(cpu).any():
        return None
    running = replay.inputs.running.copy()
    own = running[: len(cpu)]
    queued = np.zeros(len(cpu))
    if "run_queue" in trace.tasks:
        queued = np.nan_to_num(trace.tasks["run_queue"].to_numpy(dtype=float))
    own[:] = np.where(np.isfinite(cpu), np.minimum(cpu + queued, own), own)
    return replay.held(running=running)


def gain(
    trace: Run,
    *,
    running: Array | None = None,
    speedup: Mapping[str, float] | None = None,
    caps: Mapping[str, float] | None = None,
    network: bool = True,
    spill: bool = True,
    threads: int | None = None,
) -> float:
    """Predict the seconds of wall time that a change saves; all changes count together.

    What is taken from a trace is kept as long as the trace lives, so that a call takes one replay.

    Parameters
    ----------
    trace
        The trace.
    running
        For each row of `Trace.tasks` the seconds of its function; NaN for the recorded ones.
    speedup
        By function, by how much it is faster.
    caps
        By function, the seconds that a run of it takes at most.
    network
        Whether inputs take time to fetch.
    spill
        Whether inputs are read back from disk.
    threads
        Of each worker; None: as recorded.

    Returns
    -------
    float
        Seconds; less than 0 where the run would take longer, as schedules can (Graham's
        anomalies). NaN where nothing can be predicted: `Replay.refusal` says why.

    Raises
    ------
    InvalidArgumentError
        If there is no such function, or seconds or factors are out of range.
    """
    replay = replay_of(trace)
    factor = replay.factors(speedup or {})
    seconds = _capped(replay, _given(replay, trace, running), caps or {})
    if replay.refusal:
        return float("nan")
    held = replay.held(running=seconds, factor=factor, unspill=spill)
    costs = replay.costs if network else replay.without_network()
    cluster = changed_cluster(replay, None, threads)
    outcome = replay.outcome(held=held, cluster=cluster, costs=costs)
    return replay.inputs.wall - replay.predicted(outcome.wall)


def _given(replay: Replay, trace: Run, running: Array | None) -> Array:
    seconds = replay.inputs.running.copy()
    if running is None:
        return seconds
    given = np.asarray(running, dtype=float)
    if given.shape != (len(trace.tasks),) or (given < 0).any():
        raise InvalidArgumentError(
            f"running: give seconds, none below 0, for each of the {len(trace.tasks)} rows of "
            f"Trace.tasks; this has the shape {given.shape}."
        )
    seconds[: len(given)] = np.where(np.isfinite(given), given, seconds[: len(given)])
    return seconds


def _capped(replay: Replay, seconds: Array, caps: Mapping[str, float]) -> Array:
    inputs = replay.inputs
    for name, cap in caps.items():
        own = inputs.function == replay.function_number(name, f"caps={{{name!r}: ...}}")
        if not cap >= 0:
            raise InvalidArgumentError(f"caps={{{name!r}: {cap!r}}}: give seconds, 0 or more.")
        seconds[own] = np.minimum(seconds[own], cap)
    return seconds
