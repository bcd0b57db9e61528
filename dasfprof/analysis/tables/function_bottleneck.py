"""Which functions take the time of which workers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.busy_time import running_seconds
from dasfprof.analysis.model.gpu_samples import GpuSamples
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import running_columns, text
from dasfprof.analysis.trace import Trace


@question(
    "Functions that took the most time, by worker",
    "time",
    short="function",
    overview=4,
    page="functions",
    expendable=("Failed Tasks", "Mean Throughput (MB/s)", "Mean Data Size (MB)"),
)
def per_function_bottleneck(trace: Trace, *, progress: bool = False) -> pd.DataFrame:
    """Sum up the task runs of each function on each worker.

    Returns
    -------
    DataFrame
        A row a worker and function, the longest duration first:

        - ``Host``, ``GPU`` (index of the worker's device by NVML, NA if it has none),
          ``Function`` (as `dask.utils.key_split` names the key)
        - ``Duration (s)``: the sum over its task runs, failed ones too
        - ``Percentage of total time (%)``: of the duration of all task runs of that worker,
          not of the run
        - ``Mean GPU Utilization (%)``, ``Mean GPU Memory Used (GB)``: of the worker's
          device while the function ran there, weighted by time
        - ``Mean Data Size (MB)``: input bytes of a task run
        - ``Mean Throughput (MB/s)``: all input bytes by all seconds
        - ``Num Tasks (chunks)``, ``Mean Task time (s)``, ``Worker``, ``Failed Tasks``
        - ``CPU (s)``, ``Waiting for a core (s)``, ``Blocked (s)``: of the duration, what its
          threads computed, could have computed had the host given them a core, and did
          neither (I/O, locks, sleep); of the task runs of which it is recorded, NA if of none
    """
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
                **running_columns(running_seconds(tasks), groups.told),
            }
        )
    # Sorted by pandas, text with lone surrogates fails where its strings are Arrow's.
    names = np.argsort(np.argsort(function.categories.to_numpy(object)))
    order = np.lexsort((names[named], workers.ranks()[worker], -seconds))
    return table.take(order).reset_index(drop=True)
