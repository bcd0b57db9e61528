"""Which functions take the time of which workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.busy_time import running_seconds
from dasfprof.analysis.model.gpu_samples import gpu_samples
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.group_sums import GroupSums
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.in_parts import InParts
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text

_RUNNING = {"cpu": "CPU (s)", "core_wait": "Waiting for a core (s)", "blocked": "Blocked (s)"}


def _sums(run: Run, *, progress: bool = False) -> GroupSums:
    """Sum up the task runs by host, worker and function."""
    workers, tasks = run.workers, run.ended.tasks
    gpus = gpu_samples(run)
    of_task, function = workers.numbers(tasks), tasks["function"].cat
    codes, pairs = pd.factorize(
        of_task.astype(np.int64) * max(len(function.categories), 1) + function.codes
    )
    worker, named = np.divmod(pairs, max(len(function.categories), 1))
    duration, size = tasks["duration"].to_numpy(), tasks["input_size"].to_numpy(dtype=float)
    running = running_seconds(tasks)
    summed = {
        "duration": duration,
        "size": size,
        "sized": np.where(np.isnan(size), np.nan, duration),
        "failed": (tasks["state"] == "erred").to_numpy().astype(float),
        **{name: getattr(running, name) for name in _RUNNING},
    }
    for reading, both in gpus.integrals(tasks, progress=progress).items():
        summed |= {reading: both[0], f"{reading} covered": both[1]}
    names = zip(
        workers.hosts[worker].tolist(),
        workers.labels[worker].tolist(),
        function.categories.to_numpy(dtype=object)[named].tolist(),
        strict=True,
    )
    return GroupSums.of(list(names), Groups(codes, len(pairs)), summed)


def _table(run: Run, parts: Sequence[GroupSums], **_: Any) -> pd.DataFrame:
    """Make the table of the sums of all parts."""
    sums = GroupSums.merged(parts)
    groups: list[Any] = sums.names
    names = np.array(groups, dtype=object).reshape(-1, 3)
    of_workers = sums.by([name[:2] for name in groups])
    of_worker = dict(zip(of_workers.names, of_workers.sum("duration").tolist(), strict=True))
    workers = run.workers
    devices = gpu_samples(run).indices()
    places = {name: at for at, name in enumerate(zip(workers.hosts, workers.labels, strict=True))}
    at = np.array([places.get(name[:2], -1) for name in groups], dtype=np.int64)
    seconds, size = sums.sum("duration"), sums.sum("size")

    def gpu_mean(reading: str) -> Any:
        return ratio(sums.sum(reading), sums.sum(f"{reading} covered"))

    with np.errstate(invalid="ignore", divide="ignore"):
        table = pd.DataFrame(
            {
                "Host": text(names[:, 0]),
                "GPU": devices.take(at, allow_fill=True),
                "Function": text(names[:, 2]),
                "Duration (s)": seconds,
                "Percentage of total time (%)": seconds
                / np.array([of_worker[name[:2]] for name in groups], dtype=float)
                * 100,
                "Mean GPU Utilization (%)": gpu_mean("gpu_utilization"),
                "Mean GPU Memory Used (GB)": gpu_mean("gpu_memory_used") / 1e9,
                "Mean Data Size (MB)": size / sums.known["size"] / 1e6,
                "Mean Throughput (MB/s)": ratio(size, sums.sum("sized")) / 1e6,
                "Num Tasks (chunks)": sums.rows,
                "Mean Task time (s)": seconds / sums.rows,
                "Worker": text(names[:, 1]),
                "Failed Tasks": sums.sum("failed").astype(np.int64),
                **{label: sums.told(name) for name, label in _RUNNING.items()},
            }
        )
    # Sorted by pandas, text with lone surrogates fails where its strings are Arrow's.
    order = sorted(range(len(sums)), key=lambda row: (-seconds[row], groups[row]))
    return table.take(order).reset_index(drop=True)


@question(
    "Functions that took the most time, by worker",
    "time",
    short="function",
    overview=4,
    page="functions",
    in_parts=InParts(_sums, _table),
    expendable=("Failed Tasks", "Mean Throughput (MB/s)", "Mean Data Size (MB)"),
)
def per_function_bottleneck(run: Run, *, progress: bool = False) -> pd.DataFrame:
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
    return _table(run, [_sums(run, progress=progress)])
