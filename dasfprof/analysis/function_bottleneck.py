"""Which functions take the time of which workers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.busy_lanes import running_seconds
from dasfprof.analysis.gpu_samples import GpuSamples
from dasfprof.analysis.named_workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


def per_function_bottleneck(trace: Trace, *, progress: bool = False) -> pd.DataFrame:
    """Sum up the task runs of each function on each worker; see `TraceAnalyser`."""
    workers, tasks = NamedWorkers(trace), trace.tasks
    gpus = GpuSamples(trace, workers)
    of_task, function = workers.numbers(tasks), tasks["function"].cat
    groups, pairs = pd.factorize(
        of_task.astype(np.int64) * max(len(function.categories), 1) + function.codes
    )
    worker, named = np.divmod(pairs, max(len(function.categories), 1))
    runs = np.bincount(groups, minlength=len(pairs))

    def total(column: Array) -> Array:
        return np.bincount(groups, weights=column, minlength=len(pairs)).astype(float)

    def told(column: Array) -> Array:
        """Sum up what is known; NaN where nothing is."""
        known = ~np.isnan(column)
        return np.where(total(known) > 0, total(np.where(known, column, 0.0)), np.nan)

    duration, size = tasks["duration"].to_numpy(), tasks["input_size"].to_numpy()
    seconds, known = total(duration), ~np.isnan(size)
    size = np.where(known, size, 0.0)
    of_worker = np.bincount(of_task, weights=duration, minlength=len(workers))
    gpu_means = {
        reading: _ratio(total(integral), total(covered))
        for reading, (integral, covered) in gpus.integrals(tasks, progress=progress).items()
    }
    state = tasks["state"]
    with np.errstate(invalid="ignore", divide="ignore"):
        table = pd.DataFrame(
            {
                "Host": _text(workers.hosts[worker]),
                "GPU": gpus.indices()[worker],
                "Function": _text(function.categories.to_numpy(object)[named]),
                "Duration (s)": seconds,
                "Percentage of total time (%)": seconds / of_worker[worker] * 100,
                "Mean GPU Utilization (%)": gpu_means["gpu_utilization"],
                "Mean GPU Memory Used (GB)": gpu_means["gpu_memory_used"] / 1e9,
                "Mean Data Size (MB)": total(size) / total(known) / 1e6,
                "Mean Throughput (MB/s)": _ratio(total(size), total(duration * known)) / 1e6,
                "Num Tasks (chunks)": runs,
                "Mean Task time (s)": seconds / runs,
                "Worker": _text(workers.labels[worker]),
                "Failed Tasks": total((state == "erred").to_numpy()).astype(np.int64),
                **{label: told(column) for label, column in running_seconds(tasks).items()},
            }
        )
    # Sorted by pandas, text with lone surrogates fails where its strings are Arrow's.
    names = np.argsort(np.argsort(function.categories.to_numpy(object)))
    order = np.lexsort((names[named], workers.ranks()[worker], -seconds))
    return table.take(order).reset_index(drop=True)


def _ratio(part: Array, whole: Array) -> Array:
    """Divide; what has no whole is NaN."""
    ratio: Array = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return ratio


def _text(items: Array) -> pd.Series:
    return pd.Series(items, dtype=object)
