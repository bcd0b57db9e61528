"""Memory: what functions held, GPUs too, and workers that died of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.model.memory_kills import MemoryKill, Reason, UnderWay, memory_kills
from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.columns import of_workers, text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.columns import row_of
from dasfprof.database.columns import Array
from dasfprof.text import format_duration, format_size

# --- How much memory functions held --------------------------------------------------------------


@question("Memory of functions", "balance", short="memory", expendable=("Median (MB)", "Worker"))
def function_memory(run: Run) -> pd.DataFrame:
    """Say how much memory workers' processes held while functions ran, by the samples there are.

    Returns
    -------
    DataFrame
        A row a function, the highest first; NA where no sample tells:

        - ``Function``, ``Task Runs``
        - ``Sampled``: its task runs during which a sample was taken, ten a second by default
        - ``Highest (MB)``: the most that a process held (its resident memory) in such a sample,
          whatever for; ``Median (MB)``: of the most in each run
        - ``Alone``: its task runs that had their process to themselves and enough samples to tell
          of a rise
        - ``Largest Rise (MB)``, ``Median Rise (MB)``: by how much the process held more during
          such a run than before it. What came and went between two samples is not in it
        - ``Worker``, ``Task Key``: of the run with the highest
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
    """Return the row of the largest value of each group; -1 where none has any."""
    rows = np.full(count, -1, dtype=np.int64)
    told = np.flatnonzero(np.isfinite(values))
    told = told[np.argsort(values[told], kind="stable")]
    rows[codes[told]] = told
    return rows


# --- What workers had in the memory of their GPUs, and what dask-cuda moved out of it -------------

#: Seconds within which a sample of what a worker holds tells of a reading of its device.
_NEAR = 2.0
_HELD = ("device_size", "host_size", "disk_tasks")
_MOVED = ("device_to_host_size", "host_to_device_size", "host_to_disk_size")


@question(
    "Memory of GPUs by worker",
    "balance",
    expendable=("Results on Disk",),
    needs=lambda run: len(run.gpu_usage) + len(run.device_memory) > 0,
)
def gpu_memory(run: Run) -> pd.DataFrame:
    """Say what each worker had in its GPU's memory when that was fullest.

    Returns
    -------
    DataFrame
        A row a worker whose GPU was read, or that dask-cuda gives its results a place on one:

        - ``Worker``, ``GPU``: its NVML index
        - ``Time (s)`` from begin: when most of the device was in use; NA: it was not read
        - ``In Use (MB)``: then, by all processes; ``Of (MB)`` that the device has
        - ``Own Process (MB)``: the most that the worker's process had there at any time; NA: the
          driver did not tell
        - ``Results There (MB)``: of the worker on the device, ``Results in Host Memory (MB)`` and
          ``Results on Disk`` (their number): by dask-cuda, in the sample nearest to that time, or,
          where the device was not read, when most were there; NA: its worker is none of dask-cuda's
        - ``Moved Out (MB)`` from the device to the host's memory, ``Moved Back (MB)``, ``To Disk
          (MB)``: while recorded

        What is in use beyond results are other processes, the libraries' own, pools (RMM takes
        memory before anybody needs it) and what tasks take while they run: which of these, nothing
        recorded tells.
    """
    workers, devices = run.named, gpu_samples(run)
    held = run.device_memory.sort_values("time", kind="stable")
    of_held, of_sample = workers.numbers(held), workers.numbers(run.samples)
    indices, titles = devices.indices(), workers.titles()
    rows = []
    for number in range(len(workers)):
        read, own = devices.of(number), held.take(np.flatnonzero(of_held == number))
        used = read["gpu_memory_used"].to_numpy(dtype=float)
        if not (np.isfinite(used).any() or len(own)):
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
        rows.append({**row, "Time (s)": run.seconds_at(at), **_results(own, at)})
    table = pd.DataFrame(rows, columns=_COLUMNS)
    for name in table.columns[table.columns.str.endswith("(MB)")]:
        table[name] = table[name].to_numpy(dtype=float) / 1e6
    for name in ("GPU", "Results on Disk"):
        table[name] = whole(pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float))
    table["Worker"] = text(table["Worker"].to_numpy(dtype=object))
    table["Time (s)"] = table["Time (s)"].astype(float)
    return table


_COLUMNS = [
    *("Worker", "GPU", "Time (s)", "In Use (MB)", "Of (MB)", "Own Process (MB)"),
    *("Results There (MB)", "Results in Host Memory (MB)", "Results on Disk"),
    *("Moved Out (MB)", "Moved Back (MB)", "To Disk (MB)"),
]


def _results(held: pd.DataFrame, at: float) -> dict[str, float]:
    """Return what a worker of dask-cuda held at a time, or at most, and what it moved."""
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


# --- Workers that died of want of memory, and what took it ----------------------------------------


@question(
    "Workers that died of want of memory",
    "balance",
    short="memory-kills",
    expendable=("Told By", "Group (MB)", "Group Limit (MB)", "Group Workers"),
)
def died_of_memory(run: Run) -> pd.DataFrame:
    """Say of each worker that died of want of memory which function took it, and how sure that is.

    Returns
    -------
    DataFrame
        A row a death, in their order; what a killed process would have needed nothing tells:

        - ``Worker``, ``Left (s)`` from begin; ``Told By``: its nanny, or how its process ended
        - ``Memory (MB)``, ``Limit (MB)``: of the process in its last sample; what it took after
          that is in none
        - ``Group (MB)``, ``Group Limit (MB)``: what the workers of its control group had in their
          last samples together, as of a Slurm job or a pod, and what they may; ``Group Workers``:
          how many; NA and 0: none limits it, or it was not recorded. What else is in the group
          counts for the kernel and is not in this
        - ``Results (MB)``: results in memory by then; ``Before (MB)``: what the process held when
          the first of the tasks under way began
        - ``Tasks``: those that ran there, for how long, and what a run usually takes
        - ``Suspect``: the function that took the memory, or whose results did; empty: none is
          named; ``Certainty``: *certain*, *likely*, *cannot tell*; ``Because``: what that rests on
    """
    kills = memory_kills(run)

    def megabytes(name: str) -> np.ndarray:
        return np.array([getattr(kill, name) for kill in kills], dtype=float) / 1e6

    return pd.DataFrame(
        {
            "Worker": of_workers(run, [kill.life for kill in kills]),
            "Left (s)": np.array([kill.left for kill in kills], dtype=float),
            "Told By": text([exit_words(run, kill.life) for kill in kills]),
            "Memory (MB)": megabytes("memory"),
            "Limit (MB)": megabytes("limit"),
            "Group (MB)": np.array([one.group.memory for one in kills], dtype=float) / 1e6,
            "Group Limit (MB)": np.array([one.group.limit for one in kills], dtype=float) / 1e6,
            "Group Workers": np.array([one.group.workers for one in kills], dtype=np.int64),
            "Results (MB)": megabytes("results"),
            "Before (MB)": megabytes("before"),
            "Tasks": text(["; ".join(map(_in_words, kill.tasks)) for kill in kills]),
            "Suspect": text([kill.suspect or "" for kill in kills]),
            "Certainty": text([kill.certainty.value for kill in kills]),
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
