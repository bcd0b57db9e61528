"""The memory of two sides: of workers' processes, and of the results that they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace


def compare_memory(before: Sequence[Trace], after: Sequence[Trace]) -> pd.DataFrame:
    """List what was held in memory; see `RunComparison.memory`."""
    rows = []
    for what, of in _FIGURES.items():
        means = [float(np.mean([of(trace) for trace in side])) / 1e6 for side in (before, after)]
        if np.isfinite(means).all() and max(means) > 0:
            change = (means[1] / means[0] - 1) * 100 if means[0] > 0 else np.nan
            rows.append((what, *means, change))
    columns = ["What", "Before (MB)", "After (MB)", "Change (%)"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(columns[1:], float))


def _highest_process(trace: Trace) -> float:
    """Return the most that a worker's process had at a sample, in bytes; NaN: not sampled."""
    return float(_of_workers(trace, trace.samples, "memory").max())


def _usual_process(trace: Trace) -> float:
    """Return what a worker's process had in the mean of its samples, and of the workers."""
    known = _of_workers(trace, trace.samples, "memory")
    return float(known.groupby(level=0).mean().mean())


def _most_held(trace: Trace) -> float:
    """Return the most that results of tasks took on one worker."""
    return float(_of_workers(trace, trace.managed_memory, "size").max())


def _of_workers(trace: Trace, samples: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return a column of samples of workers' processes, by worker."""
    if column not in samples or not len(samples):
        return pd.Series(dtype=float)
    of = samples["worker_id"].to_numpy()
    kept = (trace.workers["kind"] == "worker").to_numpy()[of]
    known: pd.Series[float] = samples[column].astype(float).set_axis(of)[kept]
    return known


_FIGURES: dict[str, Callable[[Trace], float]] = {
    "Process of a worker, at most": _highest_process,
    "Process of a worker, mean": _usual_process,
    "Results held by a worker, at most": _most_held,
}
