"""The longest task runs of each worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import GpuSamples, gpu_samples
from dasfprof.analysis.model.thread_time import running_seconds
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio, taken
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.analysis.tables.columns import (
    LISTED,
    first_rows,
    folded,
    origin_columns,
    running_columns,
    text,
)
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.analysis.trace.key_texts import KeyTexts
from dasfprof.database.columns import Array, repeated

_SHARE = "Percentage of total time (%)"
#: Threshold (rows): if a table has more rows, repeated texts are stored as categories, and texts of
#: keys are created when they are needed.
_LARGE = 1_000_000


#: The first task runs of a time window, their total number, and the seconds of each worker.
Partial = tuple[pd.DataFrame, int, GroupSums]


def _part(run: Run) -> Partial:
    """Return the longest task runs of a time window.

    The result also contains the number of all task runs, and their seconds by worker.
    """
    workers, tasks = run.named, run.task_runs
    order = _order(workers, tasks)[:LISTED]
    groups = Groups(workers.numbers(tasks), len(workers))
    seconds = {"duration": tasks["duration"].to_numpy()}
    sums = GroupSums.by_name(list(workers.places), groups, seconds)
    return _table(run, order, np.ones(len(workers))), len(tasks), sums


def _folded(*parts: Partial) -> Partial:
    listed = folded([(rows, count) for rows, count, _ in parts], _in_order)
    return *listed, GroupSums.merged([sums for _, _, sums in parts])


def _combined(_: Run, parts: Sequence[Partial], **__: Any) -> pd.DataFrame:
    table = first_rows([(rows, count) for rows, count, _ in parts], _in_order)
    sums = GroupSums.merged([part for _, _, part in parts])
    of_worker = dict(zip(sums.names, sums.sum("duration").tolist(), strict=True))
    names = zip(table["Host"], table["Worker"], strict=True)
    totals = np.array([of_worker[name] for name in names], dtype=float)
    table[_SHARE] = ratio(table["Duration (s)"].to_numpy(), totals) * 100
    return table


def _in_order(table: pd.DataFrame) -> Array:
    names = list(zip(table["Host"], table["Worker"], strict=True))
    ranks = {name: rank for rank, name in enumerate(sorted(set(names)))}
    worker = np.array([ranks[name] for name in names], dtype=np.int64)
    return np.lexsort((worker, table["Start (s)"], -table["Duration (s)"]))


@question(
    "Tasks that took the most time",
    "time",
    short="task",
    overview=6,
    in_parts=InParts(_part, _combined, _folded),
    expendable=("Waiting for storage (s)", "Run ID", "Function", "State", "Start (s)"),
)
def per_task_bottleneck(run: Run) -> pd.DataFrame:
    """List the task runs, sorted by duration in descending order.

    Returns
    -------
    DataFrame
        One row per task run, so each attempt at a key has its own row:

        - ``Host``, ``GPU``, ``Task Key``, ``Duration (s)``
        - ``Percentage of total time (%)``: of the duration of all task runs of that worker
        - ``Memory usage (Mb)``: size of the result
        - ``Worker``, ``Function``
        - ``Run ID``: Dask's run ID. If it was not recorded, the task runs of a key are numbered
          from 0
        - ``State``: its final state. An unfinished task run is ``running``, ``waiting`` or
          ``released by the client``, and its times end at the last recorded event
        - ``Start (s)``, since the start of the run
        - ``GPU Samples``: number of samples of the worker's device during the task run. NA without
          a device
        - ``Mean GPU Utilization (%)``, ``Mean GPU Memory Used (GB)``: time-weighted means. NA
          without samples
        - ``CPU (s)``, ``Waiting for CPU (s)``, ``Waiting for storage (s)``, ``Blocked (s)``: see
          `per_function_bottleneck`. NA if not recorded, as for coroutines

        If there are more than a million rows, repeated texts are categories, texts of keys are
        created when they are read, and columns that contain only NA are read-only.
    """
    workers, tasks = run.named, run.task_runs
    groups = Groups(workers.numbers(tasks), len(workers))
    of_worker = groups.sum(tasks["duration"].to_numpy())
    return _table(run, _order(workers, tasks), of_worker)


def _order(workers: NamedWorkers, tasks: pd.DataFrame) -> Array:
    """Return the rows of `tasks`, sorted by duration in descending order."""
    duration, start = tasks["duration"].to_numpy(), tasks["start"].to_numpy()
    ranks = workers.ranks().astype(np.int32)[workers.numbers(tasks)]
    order = np.argsort(-duration)
    same = np.diff(duration[order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = np.sort(order[tied])
    for column in (ranks, start, -duration):  # This is faster than lexsort if columns are sorted.
        values = column[rows]
        if not (values[:-1] <= values[1:]).all():
            rows = rows[np.argsort(values, kind="stable")]
    order[tied] = rows
    return order


def _table(run: Run, order: Array, of_worker: Array) -> pd.DataFrame:
    """Return the table of task runs in a given order.

    `of_worker` has the seconds of each worker.
    """
    workers, tasks = run.named, run.task_runs
    running = running_columns(running_seconds(tasks), lambda seconds: taken(seconds, order))
    of_task = workers.numbers(tasks)[order]
    duration = tasks["duration"].to_numpy()[order]
    keys, key_ids = run.keys, tasks["key_id"].to_numpy()[order]
    gpus = gpu_samples(run)
    indices = gpus.indices()
    large = len(order) > _LARGE

    def texts(codes: Array, values: Array) -> pd.Series | pd.Categorical:
        if not large:
            return pd.Series(values[codes], dtype=object, copy=False)
        indices, distinct = pd.factorize(values)
        return make_categorical(indices.astype(np.int32)[codes], list(distinct))

    return pd.DataFrame(
        {
            "Host": texts(of_task, workers.hosts),
            "GPU": _no_integers(len(order)) if indices.isna().all() else indices[of_task],
            "Task Key": KeyTexts(keys.texts, key_ids) if large else text(keys.texts(key_ids)),
            "Duration (s)": duration,
            _SHARE: ratio(duration, of_worker[of_task]) * 100,
            "Memory usage (Mb)": tasks["size"].to_numpy(dtype=float)[order] / 1e6,
            "Worker": texts(of_task, workers.labels),
            "Function": texts(*_coded(tasks["function"], order)),
            "Run ID": tasks["run_id"].to_numpy()[order],
            "State": texts(*_coded(tasks["state"], order)),
            "Start (s)": run.since_begin(tasks["start"].to_numpy()[order]),
            **_gpu_columns(gpus, tasks, order),
            **running,
            **origin_columns(run, order, tasks),
        },
        copy=not large,
    )


def _no_integers(count: int) -> pd.arrays.IntegerArray:
    """Return a read-only column of integers that are all NA."""
    return pd.arrays.IntegerArray(repeated(np.int64(0), count), repeated(np.bool_(True), count))


def _gpu_columns(gpus: GpuSamples, tasks: pd.DataFrame, order: Array) -> dict[str, Any]:
    """Return GPU columns for each task run, from the samples that were taken during it."""
    samples = gpus.counts(tasks)
    if np.isnan(samples).all():
        return {
            "GPU Samples": _no_integers(len(order)),
            "Mean GPU Utilization (%)": taken(samples, order),
            "Mean GPU Memory Used (GB)": taken(samples, order),
        }
    means = {
        reading: np.where(samples > 0, ratio(integral, covered), np.nan)
        for reading, (integral, covered) in gpus.integrals(tasks).items()
    }
    return {
        "GPU Samples": pd.array(samples[order], dtype="Int64"),
        "Mean GPU Utilization (%)": means["gpu_utilization"][order],
        "Mean GPU Memory Used (GB)": means["gpu_memory_used"][order] / 1e9,
    }


def _coded(column: pd.Series, order: Array) -> tuple[Array, Array]:
    """Return the codes of a categorical column in a given order, and the value of each code.

    The last value is NaN, for the code -1.
    """
    values = np.append(column.cat.categories.to_numpy(dtype=object), np.nan)
    return column.cat.codes.to_numpy()[order], values
