"""Which task runs take the time of which workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.busy_time import running_seconds
from dasfprof.analysis.model.gpu_samples import GpuSamples
from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import running_columns, step_column
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.progress import track
from dasfprof.database.columns import Array

#: Key texts made between two moves of the progress bar.
_CHUNK = 100_000


@question(
    "Tasks that took the most time",
    "time",
    short="task",
    overview=5,
    expendable=("Run ID", "Function", "State", "Start (s)"),
)
def per_task_bottleneck(trace: Trace, *, progress: bool = False) -> pd.DataFrame:
    """List the task runs, the longest first.

    Returns
    -------
    DataFrame
        A row a task run, each attempt of a key its own: ``Host``, ``GPU``, ``Task Key``, ``Duration
        (s)``, ``Percentage of total time (%)`` (of the duration of all task runs of that worker),
        ``Memory usage (Mb)`` (of the result), ``Worker``, ``Function``, ``Run ID`` (Dask's; where
        none was recorded the runs of each key count from 0), ``State`` (that it ended in; of one
        that had not ``running``, ``waiting`` or ``released by the client``: its times are those
        until evidence ends), ``Start (s)`` (from the trace's begin), ``GPU Samples`` (of the
        worker's device within the run; NA without a device), and ``Mean GPU Utilization (%)``,
        ``Mean GPU Memory Used (GB)``, weighted by time, where there was one at least; ``CPU (s)``,
        ``Waiting for a core (s)``, ``Blocked (s)``: see `per_function_bottleneck`; NA where it was
        not recorded, as of coroutines.
    """
    trace = with_open_runs(trace)
    workers, tasks = NamedWorkers(trace), trace.tasks
    of_task, duration = workers.numbers(tasks), tasks["duration"].to_numpy()
    of_worker = np.bincount(of_task, weights=duration, minlength=len(workers))
    order = _sorted_rows(-duration, tasks["start"].to_numpy(), workers.ranks()[of_task])
    of_task, duration = of_task[order], duration[order]
    gpus = GpuSamples(trace, workers)
    with np.errstate(invalid="ignore"):
        percentage = duration / of_worker[of_task] * 100
    return pd.DataFrame(
        {
            "Host": pd.Series(workers.hosts[of_task], dtype=object, copy=False),
            "GPU": gpus.indices()[of_task],
            "Task Key": _key_texts(trace, tasks["key_id"].to_numpy()[order], progress),
            "Duration (s)": duration,
            "Percentage of total time (%)": percentage,
            "Memory usage (Mb)": tasks["size"].to_numpy(dtype=float)[order] / 1e6,
            "Worker": pd.Series(workers.labels[of_task], dtype=object, copy=False),
            "Function": _values(tasks["function"], order),
            "Run ID": tasks["run_id"].to_numpy()[order],
            "State": _values(tasks["state"], order),
            "Start (s)": tasks["start"].to_numpy()[order] - trace.begin,
            **_gpu_columns(gpus, tasks, order),
            **running_columns(running_seconds(tasks), lambda seconds: seconds[order]),
            **step_column(trace, order),
        },
        copy=False,
    )


def _gpu_columns(gpus: GpuSamples, tasks: pd.DataFrame, order: Array) -> dict[str, Any]:
    """Return what the samples that fell into each run tell of its GPU: nothing, if none did."""
    samples = gpus.counts(tasks)
    if np.isnan(samples).all():
        return {
            "GPU Samples": pd.arrays.IntegerArray(
                np.zeros(len(order), dtype=np.int64), np.ones(len(order), dtype=bool)
            ),
            "Mean GPU Utilization (%)": samples,
            "Mean GPU Memory Used (GB)": samples.copy(),
        }
    means = {}
    for reading, (integral, covered) in gpus.integrals(tasks).items():
        seen = (samples > 0) & (covered > 0)
        means[reading] = np.divide(integral, covered, out=np.full(len(order), np.nan), where=seen)
    return {
        "GPU Samples": pd.array(samples[order], dtype="Int64"),
        "Mean GPU Utilization (%)": means["gpu_utilization"][order],
        "Mean GPU Memory Used (GB)": means["gpu_memory_used"][order] / 1e9,
    }


def _sorted_rows(first: Array, second: Array, third: Array) -> Array:
    """Sort rows by three columns, the later ones only where the first ones are equal."""
    order = np.argsort(first)
    same = np.diff(first[order]) == 0  # as the next one
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = np.sort(order[tied])
    order[tied] = rows[np.lexsort((third[rows], second[rows], first[rows]))]
    return order


def _key_texts(trace: Trace, key_ids: Array, progress: bool) -> pd.Series:
    texts = np.empty(len(key_ids), dtype=object)
    starts = range(0, len(key_ids), _CHUNK)
    bar = track(
        starts,
        "[task_bottleneck] Creating dataframe",
        shown=progress,
        total=len(starts),
        unit="chunk",
    )
    for start in bar:
        texts[start : start + _CHUNK] = trace.keys.texts(key_ids[start : start + _CHUNK])
    return pd.Series(texts, dtype=object, copy=False)


def _values(column: pd.Series, order: Array) -> pd.Series:
    """Return the values of a Categorical column in another order, as plain objects."""
    values = np.append(column.cat.categories.to_numpy(dtype=object), np.nan)
    return pd.Series(values[column.cat.codes.to_numpy()[order]], dtype=object, copy=False)
