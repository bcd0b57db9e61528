"""Predictions for other numbers of workers, and for changed threads, bandwidth or durations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run_memory import free_disk
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.memory_thresholds import MemoryThresholds, memory_thresholds
from dasfprof.analysis.simulation.changes import (
    changed_cluster,
    changed_wall,
    longest_chain,
    worker_counts,
)
from dasfprof.analysis.simulation.memory import PeakEstimate, memory_forecast_of
from dasfprof.analysis.simulation.replay import is_positive, replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.progress import track
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_size

#: Default numbers of workers, as multiples of the recorded number.
_USUAL = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
#: The same for predictions of memory. Each number of workers takes about 20 replays.
_USUAL_FOR_MEMORY = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Threshold (fraction of thread time in tasks): if it is lower, more workers do not pay off.
_EFFICIENT = 0.8


@question("Predicted time by number of workers", "predictions")
def scaling(
    run: Run, workers: Sequence[int] | None = None, *, progress: bool = False
) -> pd.DataFrame:
    """Predict wall time, efficiency and cost with fewer and with more workers.

    Parameters
    ----------
    workers
        Numbers of workers, each of which takes one replay. None uses 10 % to 1000 % of the recorded
        number.

    Returns
    -------
    DataFrame
        One row per number of workers:

        - ``Workers``, ``Threads``, ``Share of Recorded (%)``
        - ``Wall Time (s)``: predicted, or NA if no prediction is possible
        - ``Efficiency (%)``: percentage of thread time in which tasks occupy threads
        - ``Cost (worker-s)``: number of workers times wall time
        - ``Least (s)``: lower bound of the wall time for every schedule, ``max(longest chain, work
          / threads)``. The chain includes the client's pauses
        - ``Most without Overhead (s)``: upper bound of the wall time, ``work / threads + (1 - 1 /
          threads) * longest chain``. It holds for every schedule in which no ready task waits while
          a thread is free, if only tasks take time (Graham 1969, Brent 1974)
        - ``Calibration Error (%)``: of the replay on the recorded cluster
        - ``Verdict``, or why no prediction is possible
    """
    replay = replay_of(run)
    recorded, held = max(replay.cluster.most_workers, 1), replay.held()
    counts = np.array(worker_counts(workers, recorded, _USUAL), dtype=np.int64)
    clusters = [replay.cluster.with_workers(count) for count in counts.tolist()]
    threads = np.array([max(cluster.most_threads, 1) for cluster in clusters])
    walls = np.full(len(clusters), np.nan)
    if not replay.obstacle:
        bar = track(clusters, "Replaying", shown=progress, total=len(clusters), unit="cluster")
        walls[:] = [replay.predicted(replay.outcome(cluster=cluster).wall) for cluster in bar]
    refusals = [replay.refusal_on(cluster) for cluster in clusters]
    walls[[bool(refusal) for refusal in refusals]] = np.nan
    # Count the client's pauses between graphs as part of the chain.
    work, chain = float(held.sum()), longest_chain(replay.inputs, held)
    efficiency = work / (threads * walls)
    # The recorded run proves that its number of workers, or more, does not need more time.
    least = np.maximum(chain, work / threads)
    least = np.where(counts < recorded, least, np.minimum(least, replay.inputs.wall))
    return pd.DataFrame(
        {
            "Workers": counts,
            "Threads": threads,
            "Share of Recorded (%)": counts / recorded * 100,
            "Wall Time (s)": walls,
            "Efficiency (%)": efficiency * 100,
            "Cost (worker-s)": counts * walls,
            "Least (s)": least,
            "Most without Overhead (s)": work / threads + (1 - 1 / threads) * chain,
            "Calibration Error (%)": np.full(
                len(clusters), np.nan if replay.obstacle else replay.error * 100
            ),
            "Verdict": text(_verdicts(efficiency, refusals)),
        }
    )


def _verdicts(efficiency: Array, refusals: list[str]) -> list[str]:
    verdicts = []
    for share, refusal in zip(efficiency.tolist(), refusals, strict=True):
        if refusal:
            verdicts.append(refusal)
        elif share >= _EFFICIENT:
            verdicts.append("Threads are busy, so more workers would make the run faster.")
        elif share >= _EFFICIENT / 2:
            verdicts.append("Threads are partly idle, so each further worker saves less.")
        else:
            verdicts.append("Threads are mostly idle, so fewer workers would take little longer.")
    return verdicts


@question("Predicted effect of a change", "predictions")
def what_if(
    run: Run,
    *,
    workers: int | None = None,
    threads: int | None = None,
    bandwidth: float | None = None,
    spill: bool = True,
    speedup: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Predict the wall time after one change, or after several changes together.

    Parameters
    ----------
    workers
        Maximum number of workers at a time. They join and leave as the recorded workers did.
    threads
        Threads per worker.
    bandwidth
        Bandwidth between two workers in bytes per second.
    spill
        False predicts the run without reading inputs back from disk.
    speedup
        For each function, the factor by which it is faster. 2 halves its time, and 0.5 doubles it.

    Returns
    -------
    DataFrame
        One row:

        - ``Change``
        - ``Recorded (s)``: from the first task's arrival to the last known finish
        - ``Replayed (s)``: the same time in a replay on the recorded cluster
        - ``Predicted (s)``: the recorded time, scaled by the relative change of the replay. NA if
          no prediction is possible
        - ``Saved (s)``, ``Saved (%)``
        - ``Calibration Error (%)``: of the replay on the recorded cluster
        - ``Verdict``, or why no prediction is possible

    Raises
    ------
    InvalidArgumentError
        If a number is out of range, or a function does not exist.
    """
    wall = changed_wall(
        run, workers=workers, threads=threads, bandwidth=bandwidth, spill=spill, speedup=speedup
    )
    named = {"workers": workers, "threads": threads, "bandwidth": bandwidth}
    changes = [f"{name}={value:.12g}" for name, value in named.items() if value is not None]
    changes += ["spill=False"] * (not spill)
    changes += [f"{name}: {factor:g} times as fast" for name, factor in (speedup or {}).items()]
    replay = replay_of(run)
    refusal = replay.refusal_on(changed_cluster(replay, workers, threads)) or replay.refusal
    recorded, known = replay.inputs.wall, not replay.obstacle
    predicted = np.nan if refusal else replay.predicted(wall)
    saved = recorded - predicted
    return pd.DataFrame(
        {
            "Change": text([", ".join(changes) or "none"]),
            "Recorded (s)": [recorded],
            "Replayed (s)": [replay.base if known else np.nan],
            "Predicted (s)": [predicted],
            "Saved (s)": [saved],
            "Saved (%)": [saved / recorded * 100 if recorded > 0 else np.nan],
            "Calibration Error (%)": [replay.error * 100 if known else np.nan],
            "Verdict": text([refusal or _verdict(recorded, predicted)]),
        }
    )


def _verdict(recorded: float, predicted: float) -> str:
    if predicted == 0:
        return "No time is left." if recorded > 0 else "The difference is less than 1 %."
    if predicted < recorded * 0.99:
        return f"{recorded / predicted:.3g} times as fast."
    if predicted > recorded * 1.01:
        return f"{predicted / recorded:.3g} times as long."
    return "The difference is less than 1 %."


@question("Predicted memory by number of workers", "predictions")
def memory_forecast(
    run: Run,
    workers: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    memory_limit: float | None = None,
) -> pd.DataFrame:
    """Predict the peak memory of the fullest worker on other numbers of workers.

    Parameters
    ----------
    workers
        Numbers of workers, each of which takes some replays. None uses a quarter to four times the
        recorded number.
    threads
        Threads per worker. None uses the recorded number.
    memory_limit
        Memory limit of a worker in bytes. None uses the recorded limit.

    Returns
    -------
    DataFrame
        One row per number of workers:

        - ``Workers``, ``Threads per Worker``
        - ``Results (MB)``, ``Results at Least (MB)``, ``Results at Most (MB)``: peak of the results
          on the fullest worker, in memory or spilled, with its interval
        - ``Process (MB)``, ``Process at Least (MB)``, ``Process at Most (MB)``: peak of the fullest
          worker process if nothing is spilled, with its interval
        - ``Limit (MB)`` of a worker, or NA if it is unknown or there is none
        - ``Spilled at Most (MB)``: maximum that the fullest worker would write to disk with that
          limit
        - ``Free Disk (MB)``: minimum free space where the recorded workers spill, or NA if unknown
        - ``Verdict``, or why no prediction is possible

    Notes
    -----
    About 20 replays show when and where results exist. Their durations vary as the recorded
    durations of each function did. A process also needs its initial memory, and what running tasks
    use beyond results. The interval contains 80 % of the replayed peaks, plus 7 % on both sides, or
    12 % for processes. If replays on the recorded cluster miss the recorded peak by some factor,
    the interval is extended on that side by the square root of this factor, since half of the error
    may be chance. Results that exist together for less than 0.05 s do not count, since samples miss
    them as well. The prediction assumes that tasks need the same memory on another cluster. In 20
    small runs on other clusters than the recorded one, the interval contained the peak of results
    in 18, and of processes in all 20.

    Raises
    ------
    InvalidArgumentError
        If a number is out of range.
    """
    replay, forecast = replay_of(run), memory_forecast_of(run)
    counts = worker_counts(workers, max(replay.cluster.most_workers, 1), _USUAL_FOR_MEMORY)
    limit = recorded_or_given_limit(run, memory_limit)
    clusters = [changed_cluster(replay, count, threads) for count in counts]
    obstacle = forecast.obstacle
    peaks = [None if obstacle else forecast.peaks(cluster) for cluster in clusters]

    def figures(kind: str, bound: str) -> np.ndarray:
        values = [np.nan if peak is None else getattr(getattr(peak, kind), bound) for peak in peaks]
        return np.array(values, dtype=float) / 1e6

    most = figures("process", "most")
    threads_per_worker = [int(np.median(c.threads)) if len(c.threads) else 1 for c in clusters]
    refusal = f"Not predicted: {obstacle}."
    acts = memory_thresholds(run)
    verdicts = [
        refusal if peak is None else _memory_verdict(peak.process, limit, acts) for peak in peaks
    ]
    spilled = np.maximum(most - acts.spills * limit / 1e6, 0.0)
    return pd.DataFrame(
        {
            "Workers": np.array(counts, dtype=np.int64),
            "Threads per Worker": np.array(threads_per_worker, dtype=np.int64),
            "Results (MB)": figures("results", "likely"),
            "Results at Least (MB)": figures("results", "least"),
            "Results at Most (MB)": figures("results", "most"),
            "Process (MB)": figures("process", "likely"),
            "Process at Least (MB)": figures("process", "least"),
            "Process at Most (MB)": most,
            "Limit (MB)": np.full(len(counts), limit / 1e6),
            "Spilled at Most (MB)": spilled,
            "Free Disk (MB)": np.full(len(counts), free_disk(run) / 1e6),
            "Verdict": text(verdicts),
        }
    )


def recorded_or_given_limit(run: Run, memory_limit: float | None) -> float:
    """Return `memory_limit` in bytes, or the recorded limit of a worker if `memory_limit` is None.

    The recorded limit is the median over workers, or NaN if it is unknown or there is none.
    """
    if memory_limit is None:
        limits = run.workers["memory_limit"].dropna().to_numpy(dtype=float)
        return float(np.median(limits)) if len(limits) else float("nan")
    if not is_positive(memory_limit):
        raise InvalidArgumentError(
            f"memory_limit={memory_limit!r}: expected a number of bytes above 0 (8e9 is 8 GB). "
            "Pass None to use the recorded limit."
        )
    return float(memory_limit)


def _memory_verdict(process: PeakEstimate, limit: float, acts: MemoryThresholds) -> str:
    if not limit > 0:
        return "No limit is known. Pass memory_limit."
    if process.least > acts.kills * limit:
        lacking = format_size(process.least - acts.kills * limit)
        if not math.isfinite(acts.spills):
            return f"Would not fit: a worker lacks at least {lacking}, and cannot spill."
        return f"Would not fit: a worker must spill at least {lacking}, or it is killed."
    if process.most > acts.kills * limit:
        return "May not fit: at most, a worker needs more memory than the limit allows."
    if process.most > acts.pause * limit:
        unless = " without spilling" if math.isfinite(acts.spills) else ""
        return f"May not fit{unless}: at most, a worker would pause."
    if process.most > acts.spills * limit:
        return "Fits, but may spill."
    return "Fits."
