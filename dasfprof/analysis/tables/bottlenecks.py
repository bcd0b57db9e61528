"""Bottlenecks by function and by step: where the thread time of task runs went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.model.thread_time import running_seconds
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import RUNNING, codes_of, integers, run_of_rows, text
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.database.columns import Array, repeated


def _sums(run: Run, *, progress: bool = False) -> GroupSums:
    """Return the sums of the task runs of a time window by host, worker and function."""
    workers, tasks = run.named, run.tasks
    gpus = gpu_samples(run)
    of_task, function = workers.numbers(tasks), tasks["function"].cat
    codes, pairs = pd.factorize(
        of_task.astype(np.int64) * max(len(function.categories), 1) + function.codes
    )
    worker, named = np.divmod(pairs, max(len(function.categories), 1))
    duration, size = tasks["duration"].to_numpy(), tasks["input_size"].to_numpy(dtype=float)
    running = running_seconds(tasks)
    deserialising = tasks["deserialize"].to_numpy(dtype=float)
    # If there are no hooks into Dask's internals, neither this time nor CPU time is recorded.
    is_metered = np.isfinite(running.cpu) | (deserialising > 0)
    summed = {
        "duration": duration,
        "deserialising": np.where(is_metered, deserialising, np.nan),
        "serialising": _serialising(run),
        "collecting": tasks["collecting"].to_numpy(dtype=float),
        "size": size,
        "sized": np.where(np.isnan(size), np.nan, duration),
        "failed": (tasks["state"] == "erred").to_numpy().astype(float),
        **{name: getattr(running, name) for name in RUNNING},
    }
    for reading, both in gpus.integrals(tasks, progress=progress).items():
        summed |= {reading: both[0], f"{reading} covered": both[1]}
    names = zip(
        workers.hosts[worker].tolist(),
        workers.labels[worker].tolist(),
        function.categories.to_numpy(dtype=object)[named].tolist(),
        strict=True,
    )
    return GroupSums.by_name(list(names), Groups(codes, len(pairs)), summed)


def _serialising(run: Run) -> Array:
    """Return the seconds for serializing each task run's result, or NaN if not recorded."""
    if not len(run.serialised):
        return repeated(0.0 if run.knows_serialising else np.nan, len(run.tasks))
    groups = Groups(run_of_rows(run.tasks, run.serialised), len(run.tasks))
    sums = groups.sum(run.serialised["seconds"].to_numpy(dtype=float))
    return sums if run.knows_serialising else np.where(groups.sizes > 0, sums, np.nan)


def _table(run: Run, parts: Sequence[GroupSums], **_: Any) -> pd.DataFrame:
    """Return the table of `per_function_bottleneck`, from the sums of all time windows."""
    sums = GroupSums.merged(parts)
    groups: list[Any] = sums.names
    names = np.array(groups, dtype=object).reshape(-1, 3)
    workers = [name[:2] for name in groups]
    of_workers = sums.by(workers)
    totals = of_workers.sum("duration")[codes_of(workers, of_workers.names)]
    places = codes_of(workers, list(run.named.places))
    devices = gpu_samples(run).indices().take(places, allow_fill=True)
    seconds, size = sums.sum("duration"), sums.sum("size")

    def gpu_mean(reading: str) -> Any:
        return ratio(sums.sum(reading), sums.sum(f"{reading} covered"))

    table = pd.DataFrame(
        {
            "Host": text(names[:, 0]),
            "GPU": devices,
            "Function": text(names[:, 2]),
            "Duration (s)": seconds,
            "Percentage of total time (%)": ratio(seconds, totals) * 100,
            "Mean GPU Utilization (%)": gpu_mean("gpu_utilization"),
            "Mean GPU Memory Used (GB)": gpu_mean("gpu_memory_used") / 1e9,
            "Mean Data Size (MB)": sums.mean("size") / 1e6,
            "Mean Throughput (MB/s)": ratio(size, sums.sum("sized")) / 1e6,
            "Num Tasks (chunks)": sums.rows,
            "Mean Task time (s)": seconds / sums.rows,
            "Worker": text(names[:, 1]),
            "Failed Tasks": sums.sum("failed").astype(np.int64),
            **{label: sums.known_sum(name) for name, label in RUNNING.items()},
            "Deserialising (s)": sums.known_sum("deserialising"),
            "Serialising (s)": sums.known_sum("serialising"),
            "Garbage Collection (s)": sums.known_sum("collecting"),
        }
    )
    # pandas cannot sort lone surrogates if it stores strings as Arrow's.
    order = sorted(range(len(sums)), key=lambda row: (-seconds[row], groups[row]))
    return table.take(order).reset_index(drop=True)


@question(
    "Functions that took the most time, by worker",
    "time",
    short="function",
    overview=5,
    page="functions",
    in_parts=InParts(_sums, _table),
    expendable=(
        "Waiting for storage (s)",
        "Serialising (s)",
        "Failed Tasks",
        "Mean Throughput (MB/s)",
        "Mean Data Size (MB)",
    ),
)
def per_function_bottleneck(run: Run, *, progress: bool = False) -> pd.DataFrame:
    """Sum up the task runs of each function on each worker.

    Returns
    -------
    DataFrame
        One row per worker and function, sorted by duration in descending order:

        - ``Host``
        - ``GPU``: the NVML index of the worker's device, or NA if it has none
        - ``Function``: the task prefix, as `dask.utils.key_split` derives it from the key
        - ``Duration (s)``: total of its task runs, including failed ones
        - ``Percentage of total time (%)``: the duration as a percentage of the duration of all task
          runs on that worker, not of the wall time
        - ``Mean GPU Utilization (%)``, ``Mean GPU Memory Used (GB)``: time-weighted means of the
          worker's device while the function ran there
        - ``Mean Data Size (MB)``: input bytes per task run
        - ``Mean Throughput (MB/s)``: total input bytes divided by total seconds
        - ``Num Tasks (chunks)``: number of task runs
        - ``Mean Task time (s)``, ``Worker``, ``Failed Tasks``
        - ``CPU (s)``, ``Waiting for CPU (s)``, ``Waiting for storage (s)``, ``Blocked (s)``: parts
          of the duration. The task's thread (or a thread of Zarr that worked for the task)
          computed, was runnable without a core, waited for requests of fsspec and Zarr (see
          `storage`), or did anything else, such as other I/O, locks and sleep. Task runs without
          these records are not included. NA if no task run has them
        - ``Deserialising (s)``: time to deserialize unspilled inputs, which precedes the duration.
          For inputs from other workers, see `transfers`. NA if not recorded
        - ``Serialising (s)``: time to serialize results for other workers and the client, including
          waits for the GIL. Only task runs are included for which this took at least 1 ms of CPU
          time, or at least 20 ms in all. NA if not recorded
        - ``Garbage Collection (s)``: CPU time of Python's garbage collector in the task's thread,
          without collections of the youngest generation. NA if not recorded
    """
    return _table(run, [_sums(run, progress=progress)])


@question(
    "Steps of the pipeline",
    "steps",
    short="step",
    overview=3,
    page="steps",
    expendable=(
        "Functions",
        "Workers",
        "Failed Tasks",
        "Mean Throughput (MB/s)",
        "Mean Data Size (MB)",
    ),
    needs=has_steps,
)
def per_step_bottleneck(run: Run) -> pd.DataFrame:
    """Sum up the task runs of each step of the pipeline.

    Returns
    -------
    DataFrame
        One row per step, sorted by duration in descending order. ``(no step)`` collects the task
        runs without a step:

        - ``Step``: its path, such as ``outer/inner``. Task runs of an inner step do not count for
          the outer one
        - ``Duration (s)``: total of its task runs, including failed ones
        - ``Percentage of all task time (%)``: percentage of the duration of all task runs
        - ``Num Tasks (chunks)``: number of task runs
        - ``Mean Task time (s)``
        - ``Functions``, ``Workers``: how many functions and workers it used
        - ``Mean Data Size (MB)``: input bytes per task run
        - ``Mean Throughput (MB/s)``: total input bytes divided by total seconds
        - ``Failed Tasks``
        - ``First Start (s)``, ``Last End (s)``: of its task runs, since the start of the run
        - ``Entered``, ``Time in Client (s)``: how often the client entered the step, and for how
          long in total. NA if no file of a client records it
    """
    tasks = run.tasks
    codes, names = step_groups(tasks)
    groups = Groups(codes, len(names))
    duration, start = tasks["duration"].to_numpy(), tasks["start"].to_numpy()
    size = tasks["input_size"].to_numpy(dtype=float)
    seconds, known = groups.sum(duration), np.isfinite(size)
    failed = (tasks["state"] == "erred").to_numpy(dtype=float)
    entered, open_for = _entered(run, names)
    table = pd.DataFrame(
        {
            "Step": text(names),
            "Duration (s)": seconds,
            "Percentage of all task time (%)": ratio(seconds, seconds.sum()) * 100,
            "Num Tasks (chunks)": groups.sizes,
            "Mean Task time (s)": groups.mean(duration),
            "Functions": _distinct(codes, tasks["function"].cat.codes.to_numpy(), len(names)),
            "Workers": _distinct(codes, tasks["worker_id"].to_numpy(), len(names)),
            "Mean Data Size (MB)": groups.mean(size) / 1e6,
            "Mean Throughput (MB/s)": ratio(groups.sum(size), groups.sum(duration * known)) / 1e6,
            "Failed Tasks": groups.sum(failed).astype(np.int64),
            "First Start (s)": run.since_begin(groups.min(start)),
            "Last End (s)": run.since_begin(groups.max(start + duration)),
            "Entered": integers(entered),
            "Time in Client (s)": open_for,
        }
    )
    order = np.argsort(-seconds, kind="stable")
    order = order[(groups.sizes[order] > 0) | (np.nan_to_num(entered)[order] > 0)]
    return table.take(order).reset_index(drop=True)


def _entered(run: Run, names: list[str]) -> tuple[Array, Array]:
    """Return how often the client entered each step, and the total seconds in the step.

    Both are NaN for a step that is not recorded in any client's file.
    """
    groups = Groups(codes_of(run.steps["step"], names), len(names))
    duration = run.steps["duration"].to_numpy(dtype=float)
    seconds = np.where(groups.known(duration) > 0, groups.sum(duration), np.nan)
    return np.where(groups.sizes > 0, groups.sizes, np.nan), seconds


def _distinct(codes: Array, values: Array, count: int) -> Array:
    """Return the number of distinct values in each group."""
    return pd.Series(values).groupby(codes).nunique().reindex(range(count), fill_value=0).to_numpy()
