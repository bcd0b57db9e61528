"""A run on other numbers of workers, in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.simulation.bounds import find_bounds
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.trace.progress import track
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class Scaling:
    """Predictions by number of workers."""

    workers: Array
    threads: Array
    #: Wall seconds; NaN where nothing can be predicted.
    walls: Array
    #: The share of the threads' time that tasks hold them.
    efficiency: Array
    #: Wall seconds between which any schedule is, if nothing but tasks takes time.
    least: Array
    most: Array


def predict_scaling(run: Run, workers: Sequence[int], *, progress: bool = False) -> Scaling:
    """Replay a run on each number of workers."""
    replay = replay_of(run)
    bounds = find_bounds(replay.inputs, replay.held())
    clusters = [replay.cluster.with_workers(count) for count in workers]
    threads = np.array([max(cluster.most_threads, 1) for cluster in clusters])
    walls = np.full(len(workers), np.nan)
    if not replay.obstacle:
        bar = track(clusters, "Replaying", shown=progress, total=len(clusters), unit="cluster")
        walls[:] = [replay.predicted(replay.outcome(cluster=cluster).wall) for cluster in bar]
    return Scaling(
        workers=np.array(workers, dtype=np.int64),
        threads=threads,
        walls=walls,
        efficiency=bounds.work / (threads * walls),
        least=np.array([bounds.lower(count) for count in threads.tolist()]),
        most=np.array([bounds.upper(count) for count in threads.tolist()]),
    )
