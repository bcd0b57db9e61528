"""What would have been: other clusters, networks and durations."""

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
from dasfprof.analysis.simulation.memory import Peak, memory_forecast_of
from dasfprof.analysis.simulation.replay import is_positive, replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.progress import track
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_size

#: Shares of the recorded workers that are asked about if none are given.
_USUAL = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
#: The same for memory, which takes some 20 replays each.
_USUAL_FOR_MEMORY = (0.25, 0.5, 1.0, 2.0, 4.0)
#: A thread works for so large a share of its time where more workers are worth it.
_EFFICIENT = 0.8


@question("The run on other numbers of workers", "predictions")
def scaling(
    run: Run, workers: Sequence[int] | None = None, *, progress: bool = False
) -> pd.DataFrame:
    """Predict wall time, efficiency and cost on fewer and on more workers.

    Parameters
    ----------
    workers
        Numbers of workers; None asks about 10 % to 1000 % of the recorded ones. Each takes a
        replay.

    Returns
    -------
    DataFrame
        A row a number of workers:

        - ``Workers``, ``Threads``, ``Share of Recorded (%)``
        - ``Wall Time (s)``: predicted; NA where nothing can be
        - ``Efficiency (%)``: the share of the threads' time that tasks hold them
        - ``Cost (worker-s)``: workers by wall time
        - ``Least (s)``: ``max(longest chain, work / threads)``, which no schedule beats; the
          client's pauses are part of the chain
        - ``Most without Overhead (s)``: ``work / threads + (1 - 1 / threads) * longest
          chain``, which no schedule exceeds that keeps no ready task waiting for a thread, if
          nothing but tasks takes time (Graham 1969, Brent 1974)
        - ``Calibration Error (%)``, ``Verdict``
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
    # The client's pauses between graphs are part of the chain.
    work, chain = float(held.sum()), longest_chain(replay.inputs, held)
    efficiency = work / (threads * walls)
    # The run itself shows that its workers, and so more of them, need no longer.
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
            verdicts.append("Threads are busy; more workers make it faster.")
        elif share >= _EFFICIENT / 2:
            verdicts.append("Threads idle in part: each further worker gains less.")
        else:
            verdicts.append("Threads mostly idle: fewer workers take little longer.")
    return verdicts


@question("The run after a change", "predictions")
def what_if(
    run: Run,
    *,
    workers: int | None = None,
    threads: int | None = None,
    bandwidth: float | None = None,
    spill: bool = True,
    speedup: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Predict the wall time of the run after a change; several changes count together.

    Parameters
    ----------
    workers
        How many there are at most; they come and go as the recorded ones did.
    threads
        Of each worker.
    bandwidth
        Between two workers, bytes a second.
    spill
        False: no input is read back from disk.
    speedup
        By function, by how much it is faster: 2 is twice as fast, 0.5 half as fast.

    Returns
    -------
    DataFrame
        One row:

        - ``Change``
        - ``Recorded (s)``: from the first task's arrival to the last known finish
        - ``Replayed (s)``: the same of the replay on the recorded cluster
        - ``Predicted (s)``: the recorded time, changed in the proportion in which the
          replay's changes; NA where nothing can be predicted
        - ``Saved (s)``, ``Saved (%)``
        - ``Calibration Error (%)``: of the replay at the recorded cluster; ``Error with
          Recorded Placement (%)``: the same, with each task on the worker where it ran (NA
          for more than 200,000 task runs)
        - ``Verdict``, or why nothing can be predicted

    Raises
    ------
    InvalidArgumentError
        If a number is out of range, or there is no such function.
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
            "Error with Recorded Placement (%)": [
                replay.recorded_placement_error * 100 if known else np.nan
            ],
            "Verdict": text([refusal or _verdict(recorded, predicted)]),
        }
    )


def _verdict(recorded: float, predicted: float) -> str:
    if predicted == 0:
        return "No time is left." if recorded > 0 else "No difference to speak of."
    if predicted < recorded * 0.99:
        return f"{recorded / predicted:.3g} times as fast."
    if predicted > recorded * 1.01:
        return f"{predicted / recorded:.3g} times as long."
    return "No difference to speak of."


@question("Memory on other numbers of workers", "predictions")
def memory_forecast(
    run: Run,
    workers: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    memory_limit: float | None = None,
) -> pd.DataFrame:
    """Predict what the fullest worker would hold at most on other numbers of workers.

    Parameters
    ----------
    workers
        Numbers of workers. None: a quarter to four times the recorded number. Each takes some
        replays.
    threads
        Of each worker; None: as recorded.
    memory_limit
        Bytes that a worker may take; None: as recorded.

    Returns
    -------
    DataFrame
        One row per number of workers:

        - ``Workers``, ``Threads per Worker``
        - ``Results (MB)``: that the fullest worker would hold at once, in memory or spilled;
          ``Results at Least (MB)``, ``Results at Most (MB)``
        - ``Process (MB)``: of the fullest worker, if nothing were spilled; ``Process at Least
          (MB)``, ``Process at Most (MB)``
        - ``Limit (MB)`` of a worker; NA: none, or unknown. ``Spilled at Most (MB)``: what the
          fullest worker would write to disk with that limit. ``Free Disk (MB)``: the least that was
          free where a worker of the run spills, or NA if unknown
        - ``Verdict``, or why nothing can be predicted

    Notes
    -----
    Some 20 replays, with durations that vary as those of their function did, show where results
    would be and when they would be released. A process has beside them what it had at first, and
    what running tasks took beyond results. The interval is that of eight in ten of these peaks,
    wider to both sides by 7 %, for processes by 12 %. Where replays of the recorded cluster miss
    the recorded peak, it is wider to that side by the square root of that factor: half of it may be
    chance. Results that are together for less than 0.05 s do not count, as samples do not see them
    either. Tasks are taken to need as much memory elsewhere. Of 20 small runs on other clusters
    than the recorded one 18 had results, and all processes, in the interval.

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
        values = [np.nan if one is None else getattr(getattr(one, kind), bound) for one in peaks]
        return np.array(values, dtype=float) / 1e6

    most = figures("process", "most")
    each = [int(np.median(one.threads)) if len(one.threads) else 1 for one in clusters]
    refusal = f"Not to be foretold: {obstacle}."
    acts = memory_thresholds(run)
    verdicts = [
        refusal if one is None else _memory_verdict(one.process, limit, acts) for one in peaks
    ]
    spilled = np.maximum(most - acts.spills * limit / 1e6, 0.0)
    return pd.DataFrame(
        {
            "Workers": np.array(counts, dtype=np.int64),
            "Threads per Worker": np.array(each, dtype=np.int64),
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
    """Return the bytes that a worker may take; NaN: unknown, or as many as there are."""
    if memory_limit is None:
        limits = run.workers["memory_limit"].dropna().to_numpy(dtype=float)
        return float(np.median(limits)) if len(limits) else float("nan")
    if not is_positive(memory_limit):
        raise InvalidArgumentError(
            f"memory_limit={memory_limit!r}: give the bytes that a worker may take, more than 0 "
            "(8e9 is 8 GB), or None for the recorded limit."
        )
    return float(memory_limit)


def _memory_verdict(process: Peak, limit: float, acts: MemoryThresholds) -> str:
    if not limit > 0:
        return "No limit is known: give memory_limit."
    if process.least > acts.kills * limit:
        lacking = format_size(process.least - acts.kills * limit)
        if not math.isfinite(acts.spills):
            return f"Would not fit: a worker lacks {lacking} at least, and spills nothing."
        return f"Would not fit: without {lacking} at least on disk the worker is killed."
    if process.most > acts.kills * limit:
        return "May not fit: at most it needs more than a worker may take before it is killed."
    if process.most > acts.pause * limit:
        unless = " without spilling" if math.isfinite(acts.spills) else ""
        return f"May not fit{unless}: at most a worker would pause."
    if process.most > acts.spills * limit:
        return "Fits, but may spill."
    return "Fits."
