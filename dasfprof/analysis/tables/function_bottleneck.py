"""Which functions take the time of which workers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.busy_time import running_seconds
from dasfprof.analysis.model.gpu_samples import GpuSamples
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.trace import Trace


def per_function_bottleneck(trace: Trace, *, progress: bool = False) -> pd.DataFrame:
    """Sum up the task runs of each function on each worker; see `TraceAnalyser`."""
    workers, tasks = NamedWorkers(trace), trace.tasks
    gpus = GpuSamples(trace, workers)
    of_task, function = workers.numbers(tasks), tasks["function"].cat
    codes, pairs = pd.factorize(
        of_task.astype(np.int64) * max(len(function.categories), 1) + function.codes
    )
    worker, named = np.divmod(pairs, max(len(function.categories), 1))
    groups = Groups(codes, len(pairs))
    total, runs = groups.sum, groups.sizes
    duration, size = tasks["duration"].to_numpy(), tasks["input_size"].to_numpy()
    seconds, known = total(duration), ~np.isnan(size)
    size = np.where(known, size, 0.0)
    of_worker = np.bincount(of_task, weights=duration, minlength=len(workers))
    gpu_means = {
        reading: ratio(total(integral), total(covered))
        for reading, (integral, covered) in gpus.integrals(tasks, progress=progress).items()
    }
    state = tasks["state"]
    with np.errstate(invalid="ignore", divide="ignore"):
        table = pd.DataFrame(
            {
                "Host": text(workers.hosts[worker]),
                "GPU": gpus.indices()[worker],
                "Function": text(function.categories.to_numpy(object)[named]),
                "Duration (s)": seconds,
                "Percentage of total time (%)": seconds / of_worker[worker] * 100,
                "Mean GPU Utilization (%)": gpu_means["gpu_utilization"],
                "Mean GPU Memory Used (GB)": gpu_means["gpu_memory_used"] / 1e9,
                "Mean Data Size (MB)": total(size) / total(known) / 1e6,
                "Mean Throughput (MB/s)": ratio(total(size), total(duration * known)) / 1e6,
                "Num Tasks (chunks)": runs,
                "Mean Task time (s)": seconds / runs,
                "Worker": text(workers.labels[worker]),
                "Failed Tasks": total((state == "erred").to_numpy()).astype(np.int64),
                **{label: groups.told(column) for label, column in running_seconds(tasks).items()},
            }
        )
    # Sorted by pandas, text with lone surrogates fails where its strings are Arrow's.
    names = np.argsort(np.argsort(function.categories.to_numpy(object)))
    order = np.lexsort((names[named], workers.ranks()[worker], -seconds))
    return table.take(order).reset_index(drop=True)
