"""Memory of functions, memory of GPUs, and workers that ran out of memory."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.model.memory_kills import MemoryKill, Reason, UnderWay, memory_kills
from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.columns import integers, of_workers, text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.columns import row_of
from dasfprof.database.columns import Array
from dasfprof.text import format_duration, format_size


@question("Memory by function", "balance", short="memory", expendable=("Median (MB)", "Worker"))
def function_memory(run: Run) -> pd.DataFrame:
    """Sum up the sampled memory of worker processes while each function ran.

    Returns
    -------
    DataFrame
        One row per function, sorted by peak in descending order. Figures without a sample are NA:

        - ``Function``, ``Task Runs``
        - ``Sampled``: number of its task runs during which a sample was taken (by default, ten
          samples per second)
        - ``Highest (MB)``: peak resident memory of a process in these samples, including memory for
          other purposes
        - ``Median (MB)``: median of the peaks of its task runs
        - ``Alone``: number of task runs that were alone in their process and had enough samples to
          measure a rise
        - ``Largest Rise (MB)``, ``Median Rise (MB)``: increase of the process memory during such a
          task run. Allocations that were freed between two samples are missing
        - ``Worker``, ``Task Key``: of the task run with the peak
    """
    tasks, workers = run.tasks, run.named
    memory = memory_of_runs(run)
    codes, names = tasks["function"].cat.codes.to_numpy(), tasks["function"].cat.categories
    groups = Groups(codes, len(names))
    highest = groups.max(memory.highest)
    shown = np.flatnonzero(groups.sizes)
    shown = shown[np.argsort(-np.nan_to_num(highest[shown], nan=-1.0), kind="stable")]
    best = _rows_of_highest(codes, memory.highest, len(names))[shown]
    known = best >= 0
    labels, keys = np.full(len(shown), "", object), np.full(len(shown), "", object)
    labels[known] = workers.labels[workers.numbers(tasks.iloc[best[known]])]
    keys[known] = run.keys.texts(tasks["key_id"].to_numpy()[best[known]])
    return pd.DataFrame(
        {
            "Function": text(names.to_numpy(object)[shown]),
            "Task Runs": groups.sizes[shown],
            "Sampled": groups.known(memory.highest)[shown],
            "Highest (MB)": highest[shown] / 1e6,
            "Median (MB)": groups.median(memory.highest)[shown] / 1e6,
            "Alone": groups.known(memory.rise)[shown],
            "Largest Rise (MB)": groups.max(memory.rise)[shown] / 1e6,
            "Median Rise (MB)": groups.median(memory.rise)[shown] / 1e6,
            "Worker": text(labels),
            "Task Key": text(keys),
        }
    )


def _rows_of_highest(codes: Array, values: Array, count: int) -> Array:
    """Return, for each group, the row with the largest value, or -1 if the group has no value."""
    rows = np.full(count, -1, dtype=np.int64)
    known = np.flatnonzero(np.isfinite(values))
    known = known[np.argsort(values[known], kind="stable")]
    rows[codes[known]] = known
    return rows


#: Maximum seconds between a sample of a worker's results and a sample of its GPU.
_NEAR = 2.0
_HELD = ("device_size", "host_size", "disk_tasks")
_MOVED = ("device_to_host_size", "host_to_device_size", "host_to_disk_size")


@question(
    "GPU memory by worker",
    "balance",
    expendable=("Results on Disk",),
    needs=lambda run: len(run.gpu_usage) + len(run.device_memory) > 0,
)
def gpu_memory(run: Run) -> pd.DataFrame:
    """Show the memory use of each worker's GPU at its peak.

    Returns
    -------
    DataFrame
        One row per worker if its GPU was sampled, or if dask-cuda stored its results on a GPU:

        - ``Worker``, and ``GPU``, its NVML index
        - ``Time (s)``: time of the device's peak, since the start of the run. NA if it was not
          sampled
        - ``In Use (MB)``: memory of the device that all processes used at that time
        - ``Of (MB)``: total memory of the device
        - ``Own Process (MB)``: peak of the worker process over the full run. NA if the driver does
          not report it
        - ``Results There (MB)``, ``Results in Host Memory (MB)``, ``Results on Disk`` (their
          number): results that dask-cuda held on the device, in host memory and on disk, in the
          sample nearest to that time. If the device was not sampled, they are from the sample with
          most results on it. NA for workers without dask-cuda
        - ``Moved Out (MB)``, ``Moved Back (MB)``: from the device to host memory and back
        - ``To Disk (MB)``: from host memory to disk

        Memory in use beyond results belongs to other processes, to libraries, to pools (RMM
        reserves memory in advance), or to running tasks. The trace does not show how much belongs
        to each.
    """
    workers, devices = run.named, gpu_samples(run)
    held = run.device_memory.sort_values("time", kind="stable")
    of_held, of_sample = workers.numbers(held), workers.numbers(run.samples)
    indices, titles = devices.indices(), workers.titles()
    rows = []
    for number in range(len(workers)):
        read, worker_held = devices.of_worker(number), held.take(np.flatnonzero(of_held == number))
        used = read["gpu_memory_used"].to_numpy(dtype=float)
        if not (np.isfinite(used).any() or len(worker_held)):
            continue
        at = float("nan")
        row = {"Worker": titles[number], "GPU": indices[number]}
        if np.isfinite(used).any():
            fullest = row_of(read, int(np.nanargmax(used)))
            at = float(fullest["time"])
            row |= {"In Use (MB)": float(used[np.nanargmax(used)])}
            row |= {"Of (MB)": float(fullest.get("memory_total", np.nan))}
        process = run.samples.reindex(columns=["gpu_process_memory"]).to_numpy(dtype=float)
        row["Own Process (MB)"] = np.fmax.reduce(process[of_sample == number, 0], initial=np.nan)
        rows.append({**row, "Time (s)": run.seconds_at(at), **_results(worker_held, at)})
    table = pd.DataFrame(rows, columns=_COLUMNS)
    for name in table.columns[table.columns.str.endswith("(MB)")]:
        table[name] = table[name].to_numpy(dtype=float) / 1e6
    for name in ("GPU", "Results on Disk"):
        table[name] = integers(pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float))
    table["Worker"] = text(table["Worker"].to_numpy(dtype=object))
    table["Time (s)"] = table["Time (s)"].astype(float)
    return table


_COLUMNS = [
    *("Worker", "GPU", "Time (s)", "In Use (MB)", "Of (MB)", "Own Process (MB)"),
    *("Results There (MB)", "Results in Host Memory (MB)", "Results on Disk"),
    *("Moved Out (MB)", "Moved Back (MB)", "To Disk (MB)"),
]


def _results(held: pd.DataFrame, at: float) -> dict[str, float]:
    """Return a dask-cuda worker's results at the time `at`, and the data that it moved.

    If `at` is NaN, the results are those at the peak of results on the device.
    """
    if not len(held):
        return {}
    sizes = held["device_size"].to_numpy(dtype=float)
    distance = np.abs(held["time"].to_numpy(dtype=float) - at)
    if np.isnan(at) and np.isfinite(sizes).any():
        row = int(np.nanargmax(sizes))
    else:
        row = int(np.argmin(np.nan_to_num(distance, nan=np.inf)))
    near = np.isnan(at) or distance[row] <= _NEAR
    values = held.iloc[row][list(_HELD)].to_numpy(dtype=float) if near else np.full(3, np.nan)
    names = ("Results There (MB)", "Results in Host Memory (MB)", "Results on Disk")
    moved = ("Moved Out (MB)", "Moved Back (MB)", "To Disk (MB)")
    return {
        **dict(zip(names, values.tolist(), strict=True)),
        **{n: float(held[column].max()) for n, column in zip(moved, _MOVED, strict=True)},
    }


@question(
    "Workers that ran out of memory",
    "balance",
    short="memory-kills",
    expendable=("Told By", "Group (MB)", "Group Limit (MB)", "Group Workers"),
)
def died_of_memory(run: Run) -> pd.DataFrame:
    """List the workers that ran out of memory, with the function that probably used it.

    Returns
    -------
    DataFrame
        One row per worker exit, by time:

        - ``Worker``
        - ``Left (s)``: time of the exit, since the start of the run
        - ``Told By``: evidence of the exit (the nanny, or how the process ended)
        - ``Memory (MB)``, ``Limit (MB)``: memory of the process in its last sample, and its memory
          limit. Later allocations are in no sample, so it is unknown how much memory was needed
        - ``Group (MB)``, ``Group Limit (MB)``: total of the last samples of all workers in its
          control group (such as a Slurm job or a pod), and the limit of that group. The kernel also
          counts other memory of the group
        - ``Group Workers``: number of these workers. The previous two columns are NA, and this
          is 0, if the group has no limit or was not recorded
        - ``Results (MB)``: results in the memory of the process at the time of its last sample
        - ``Before (MB)``: memory of the process when the first of the running tasks started
        - ``Tasks``: for each function, the number of tasks that were running on the worker, and the
          time since the first of them started. Also the number of tasks that may have started, and
          the usual rise of memory during such a task
        - ``Suspect``: the function that used the memory, or that made the results, or empty
        - ``Certainty``: *certain*, *likely*, *cannot tell*
        - ``Because``: the evidence for the suspect and the certainty
    """
    kills = memory_kills(run)

    def megabytes(name: str) -> np.ndarray:
        return np.array([getattr(kill, name) for kill in kills], dtype=float) / 1e6

    return pd.DataFrame(
        {
            "Worker": of_workers(run, [kill.life for kill in kills]),
            "Left (s)": np.maximum([kill.left for kill in kills], 0.0),
            "Told By": text([exit_words(run, kill.life) for kill in kills]),
            "Memory (MB)": megabytes("memory"),
            "Limit (MB)": megabytes("limit"),
            "Group (MB)": np.array([kill.group.memory for kill in kills], dtype=float) / 1e6,
            "Group Limit (MB)": np.array([kill.group.limit for kill in kills], dtype=float) / 1e6,
            "Group Workers": np.array([kill.group.workers for kill in kills], dtype=np.int64),
            "Results (MB)": megabytes("results"),
            "Before (MB)": megabytes("before"),
            "Tasks": text(["; ".join(map(_in_words, kill.tasks)) for kill in kills]),
            "Suspect": text([kill.suspect or "" for kill in kills]),
            "Certainty": text([kill.certainty or "cannot tell" for kill in kills]),
            "Because": text([_because(kill) for kill in kills]),
        }
    )


def _in_words(tasks: UnderWay) -> str:
    parts = []
    if tasks.seen:
        parts.append(f"{tasks.seen} for {format_duration(tasks.seconds)}")
    if tasks.perhaps:
        parts.append(f"perhaps {tasks.perhaps}")
    usual = f"{format_size(tasks.rise)} each" if np.isfinite(tasks.rise) else "unknown"
    return f"{tasks.function}: {', '.join(parts)} (usually {usual})"


def _because(kill: MemoryKill) -> str:
    if kill.reason is Reason.RESULTS:
        return f"{kill.reason.value}: {format_size(kill.results)} of {format_size(kill.limit)}"
    return str(kill.reason.value)
