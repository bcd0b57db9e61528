"""What would have been: other clusters, networks and durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.changes import (
    changed_cluster,
    changed_wall,
    longest_chain,
    worker_counts,
)
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.progress import track
from dasfprof.database.columns import Array

#: Shares of the recorded workers that are asked about if none are given.
_USUAL = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
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
