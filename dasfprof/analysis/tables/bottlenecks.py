"""Which functions and steps take the time, and how much of the run steps account for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.model.thread_time import running_seconds
from dasfprof.analysis.numeric.groups import Groups, GroupSums, distinct, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import RUNNING, text, whole
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.database.columns import Array

#: What identifies a task run on a worker.
_RUN = ["key_id", "run_id", "worker_id"]


def _sums(run: Run, *, progress: bool = False) -> GroupSums:
    """Sum up the task runs by host, worker and function."""
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
    # Dask's public hook tells neither it nor the CPU.
    is_metered = np.isfinite(running.cpu) | (deserialising > 0)
    summed = {
        "duration": duration,
        "deserialising": np.where(is_metered, deserialising, np.nan),
        "unpickling": _by_task_run(run, run.unpickled),
        "serialising": _by_task_run(run, run.serialised),
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
    return GroupSums.of(list(names), Groups(codes, len(pairs)), summed)


def _by_task_run(run: Run, told: pd.DataFrame) -> Array:
    """Sum up the seconds that rows tell of each task run; NaN where that was not recorded."""
    tasks = run.tasks
    sums = np.full(len(tasks), 0.0 if run.knows_serialising else np.nan)
    if not len(told):
        return sums
    rows = np.flatnonzero(np.isin(tasks["key_id"].to_numpy(), told["key_id"].to_numpy()))
    runs = tasks[_RUN].iloc[rows].assign(row=rows).drop_duplicates(_RUN)
    found = runs.merge(told[[*_RUN, "seconds"]], on=_RUN)
    at = found["row"].to_numpy(dtype=np.int64)
    sums[at] = np.nan_to_num(sums[at])
    np.add.at(sums, at, found["seconds"].to_numpy(dtype=float))
    return sums


def _table(run: Run, parts: Sequence[GroupSums], **_: Any) -> pd.DataFrame:
    """Make the table of the sums of all parts."""
    sums = GroupSums.merged(parts)
    groups: list[Any] = sums.names
    names = np.array(groups, dtype=object).reshape(-1, 3)
    of_workers = sums.by([name[:2] for name in groups])
    of_worker = dict(zip(of_workers.names, of_workers.sum("duration").tolist(), strict=True))
    workers = run.named
    devices = gpu_samples(run).indices()
    at = np.array([workers.places.get(name[:2], -1) for name in groups], dtype=np.int64)
    seconds, size = sums.sum("duration"), sums.sum("size")

    def gpu_mean(reading: str) -> Any:
        return ratio(sums.sum(reading), sums.sum(f"{reading} covered"))

    table = pd.DataFrame(
        {
            "Host": text(names[:, 0]),
            "GPU": devices.take(at, allow_fill=True),
            "Function": text(names[:, 2]),
            "Duration (s)": seconds,
            "Percentage of total time (%)": ratio(
                seconds, np.array([of_worker[name[:2]] for name in groups], dtype=float)
            )
            * 100,
            "Mean GPU Utilization (%)": gpu_mean("gpu_utilization"),
            "Mean GPU Memory Used (GB)": gpu_mean("gpu_memory_used") / 1e9,
            "Mean Data Size (MB)": sums.mean("size") / 1e6,
            "Mean Throughput (MB/s)": ratio(size, sums.sum("sized")) / 1e6,
            "Num Tasks (chunks)": sums.rows,
            "Mean Task time (s)": seconds / sums.rows,
            "Worker": text(names[:, 1]),
            "Failed Tasks": sums.sum("failed").astype(np.int64),
            **{label: sums.told(name) for name, label in RUNNING.items()},
            "Deserialising (s)": sums.told("deserialising"),
            "Unpickling (s)": sums.told("unpickling"),
            "Serialising (s)": sums.told("serialising"),
            "Garbage Collection (s)": sums.told("collecting"),
        }
    )
    # Sorted by pandas, text with lone surrogates fails where its strings are Arrow's.
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
        "Unpickling (s)",
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
        - ``CPU (s)``, ``Waiting for CPU (s)``, ``Waiting for storage (s)``, ``Blocked (s)``: of
          the duration, what its threads and those of Zarr that worked for it computed, could have
          computed had the host given them a core, waited for requests of fsspec and Zarr (see
          `storage`), and did else (other I/O, locks, sleep);
          of the task runs of which it is recorded, NA if of none
        - ``Deserialising (s)``: unspilled inputs, before the duration; that of inputs from other
          workers is in `transfers`. NA if it is recorded of none
        - ``Unpickling (s)``: functions and arguments, as the worker read the scheduler's messages,
          mostly on its event loop; ``Serialising (s)``: results, for other workers and the client.
          Of task runs of which it took a millisecond of CPU or 20 ms, with waits for the
          interpreter's lock. `sent_values` has the bytes, `client_calls` the client's side. NA
          if it is not recorded, as of processes with several workers
        - ``Garbage Collection (s)``: of the CPU seconds, what Python's garbage collector took in
          the task's thread; its collections of the youngest generation are left out. NA if it is
          recorded of none
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
        A row a step, the longest duration first; ``(no step)`` for task runs of none:

        - ``Step``: its path, ``outer/inner``; the runs of inner steps count there alone
        - ``Duration (s)``: the sum over its task runs, failed ones too
        - ``Percentage of all task time (%)``: of the duration of all task runs
        - ``Num Tasks (chunks)``, ``Mean Task time (s)``, ``Functions`` and ``Workers`` (how
          many), ``Mean Data Size (MB)`` (input bytes of a task run), ``Mean Throughput
          (MB/s)`` (all input bytes by all seconds), ``Failed Tasks``
        - ``First Start (s)``, ``Last End (s)``: of its task runs, from the trace's begin
        - ``Entered``, ``Time in Client (s)``: how often the client entered it and for how
          long in all; NA where no file of a client tells
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
            "Percentage of all task time (%)": ratio(seconds, np.full(len(names), seconds.sum()))
            * 100,
            "Num Tasks (chunks)": groups.sizes,
            "Mean Task time (s)": groups.mean(duration),
            "Functions": _distinct(codes, tasks["function"].cat.codes.to_numpy(), len(names)),
            "Workers": _distinct(codes, tasks["worker_id"].to_numpy(), len(names)),
            "Mean Data Size (MB)": groups.mean(size) / 1e6,
            "Mean Throughput (MB/s)": ratio(groups.sum(size), groups.sum(duration * known)) / 1e6,
            "Failed Tasks": groups.sum(failed).astype(np.int64),
            "First Start (s)": run.since_begin(groups.min(start)),
            "Last End (s)": run.since_begin(groups.max(start + duration)),
            "Entered": whole(entered),
            "Time in Client (s)": open_for,
        }
    )
    order = np.argsort(-seconds, kind="stable")
    order = order[(groups.sizes[order] > 0) | (np.nan_to_num(entered)[order] > 0)]
    return table.take(order).reset_index(drop=True)


def _entered(run: Run, names: list[str]) -> tuple[Array, Array]:
    """Count how often the client entered each step, and the seconds that it was in it.

    Both are NaN for a step that no client's file tells of.
    """
    steps = run.steps
    places = {name: place for place, name in enumerate(names)}
    codes = np.array([places.get(step, -1) for step in steps["step"]], dtype=np.int64)
    groups = Groups(codes, len(names))
    duration = steps["duration"].to_numpy(dtype=float)
    told = groups.sizes > 0
    seconds = np.where(groups.known(duration) > 0, groups.sum(duration), np.nan)
    return np.where(told, groups.sizes, np.nan), seconds


def _distinct(codes: Array, values: Array, count: int) -> Array:
    """Count the distinct values of each group."""
    span = int(values.max(initial=0)) + 2
    pairs = distinct(codes * span + values + 1)
    return np.bincount(pairs // span, minlength=count)
