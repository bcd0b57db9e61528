"""Resource use of processes: programs of hosts, and the use of CPU within worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run_memory import processes_of_workers
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Maximum plausible seconds between two samples. A row with a longer interval is damaged.
_LONGEST = 1e5
_PROGRAM = ["host", "name", "owner", "ours"]


@dataclass(frozen=True)
class HostPrograms:
    """Programs that were sampled on hosts, with their CPU time and memory."""

    #: One row per program and host, sorted by CPU time in descending order:
    #: ``host, name, owner, ours`` (whether the program belongs to the run), ``processes`` (number
    #: of processes), ``seconds`` (CPU time), ``cores`` (mean number of cores over the samples of
    #: the busy host), ``memory`` (maximum over time of the sum of all processes).
    programs: pd.DataFrame
    #: Number of samples of each busy host.
    looks: dict[str, int]


@once_per_trace
def host_programs(run: Run) -> HostPrograms:
    """Return the CPU time and memory of the programs on each host, computed from all samples."""
    table = run.host_processes
    table = table[((table["interval"] >= 0) & (table["interval"] < _LONGEST)).to_numpy(dtype=bool)]
    table = table.reset_index(drop=True)
    hosts = run.workers["host"].to_numpy(dtype=object)[table["worker_id"].to_numpy()]
    seen = table[["ours", "pid", "time", "interval", "memory"]].assign(
        host=_texts(hosts),
        name=_texts(table["name"]),
        owner=_texts(table["owner"]),
        seconds=table["cpu"].fillna(0.0) / 100 * table["interval"],
    )
    busy = seen[(seen["interval"] > 0).to_numpy(dtype=bool)]
    looks = busy.drop_duplicates(["host", "time"]).groupby("host", sort=False)["interval"]
    at_a_time = seen.groupby([*_PROGRAM, "time"], sort=False)["memory"].sum(min_count=1)
    groups = seen.groupby(_PROGRAM, sort=False)
    programs = groups.agg(processes=("pid", "nunique"), seconds=("seconds", "sum"))
    memory = at_a_time.groupby(level=_PROGRAM, sort=False).max()
    programs = programs.assign(memory=memory).reset_index()
    programs["cores"] = programs["seconds"] / programs["host"].map(looks.sum()).astype(float)
    programs = programs.sort_values("seconds", ascending=False, kind="stable", ignore_index=True)
    return HostPrograms(programs, {str(host): int(n) for host, n in looks.count().items()})


def counter_growth(run: Run, samples: pd.DataFrame, name: str) -> Array:
    """Return by how much a counter in `samples` grew on each worker instance, or NaN if unknown."""
    if name not in samples:
        return np.full(len(run.workers), np.nan)
    values = pd.to_numeric(samples[name], errors="coerce").to_numpy(dtype=float)
    workers = Groups(samples["worker_id"].to_numpy(), len(run.workers))
    return workers.max(values) - workers.min(values)


def _texts(column: Any) -> list[str]:
    """Replace lone surrogates in texts, because pandas cannot group by them."""
    return [
        text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else "unknown"
        for text in column.tolist()
    ]


@dataclass(frozen=True)
class OtherThreads:
    """CPU seconds of threads that run no tasks, in worker processes while tasks ran.

    They are threads of libraries or of P2P. Threads of Dask and dasfprof do not count.
    """

    #: One row per process and function: ``function``; ``others`` (CPU seconds while only this
    #: function ran); ``uncertain`` (error of ``others``, because it is unknown at which times its
    #: tasks used the CPU); ``helped`` (seconds of its tasks for which these threads used the CPU
    #: instead).
    functions: pd.DataFrame
    #: CPU seconds while several functions ran.
    shared: float


def other_threads_cpu(run: Run, column: str = "others") -> dict[str, float]:
    """Return, for each function, the CPU seconds of threads that it uses but that run no tasks.

    `column` is ``others``, or ``helped`` for the seconds of the function's tasks meanwhile.
    """
    table = other_threads(run).functions
    # The time of these threads only counts if it is certain.
    certain = table[(table["others"] > table["uncertain"]).to_numpy(dtype=bool)]
    return dict(certain.groupby("function")[column].sum().astype(float))


@once_per_trace
def other_threads(run: Run) -> OtherThreads:
    """Return the CPU time of other threads by function, from the samples of worker processes."""
    names = ["worker_id", "time", "process_cpu_seconds", "service_cpu_seconds"]
    samples = run.samples.reindex(columns=names).dropna()
    samples = samples.sort_values("time", kind="stable").astype(float)
    tasks = run.task_runs
    processes = processes_of_workers(run)
    of_sample = processes[samples["worker_id"].to_numpy(dtype=np.int64)]
    of_task = processes[tasks["worker_id"].to_numpy(dtype=np.int64)]
    # Unix seconds, CPU seconds (NaN if unknown), and codes of functions.
    runs = tasks[["start", "cpu"]].astype(float)
    runs = runs.assign(
        stop=runs["start"] + tasks["duration"].astype(float),
        function=tasks["function"].cat.codes.to_numpy(dtype=np.int64),
    )
    of_functions, shared = list[tuple[int, float, float, float]](), 0.0
    for process in np.unique(of_sample).tolist():
        read = samples[of_sample == process]
        # All workers of a process sample the same values.
        read = read[read["worker_id"] == read["worker_id"].iloc[0]]
        if len(read) >= 2:
            rows = np.flatnonzero((of_task == process) & np.isfinite(runs.stop))
            functions, more = _of_process(read, runs.iloc[rows])
            of_functions += functions
            shared += more
    columns = ["function", "others", "uncertain", "helped"]
    table = pd.DataFrame(of_functions, columns=columns)
    named = tasks["function"].cat.categories.to_numpy(dtype=object)
    table["function"] = pd.Series(named[table["function"].to_numpy(dtype=np.int64)], dtype=object)
    return OtherThreads(table, shared)


def _of_process(
    samples: pd.DataFrame, runs: pd.DataFrame
) -> tuple[list[tuple[int, float, float, float]], float]:
    """Return the CPU seconds of other threads in one process.

    The list has a tuple per function: its code, and the values of ``others``, ``uncertain`` and
    ``helped`` in ``OtherThreads.functions``. The second value is ``OtherThreads.shared``.
    """
    start, stop, cpu_known, function = (
        runs[name].to_numpy() for name in ("start", "stop", "cpu", "function")
    )
    times = samples["time"].to_numpy()
    used, service = (
        np.maximum(np.diff(samples[name].to_numpy()), 0.0)
        for name in ("process_cpu_seconds", "service_cpu_seconds")
    )
    count = len(used)
    # All pairs of a task run and an interval between two samples in which it ran.
    first = np.clip(np.searchsorted(times, start, "right") - 1, 0, count)
    last = np.clip(np.searchsorted(times, stop, "left"), 0, count)
    sizes = np.maximum(last - first, 0)
    run = np.repeat(np.arange(len(sizes)), sizes)
    interval = np.arange(len(run)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + first[run]
    begin, end = np.maximum(start[run], times[interval]), stop[run]
    overlap = np.maximum(np.minimum(end, times[interval + 1]) - begin, 0.0)
    length = np.maximum(stop - start, 1e-9)
    share = overlap / length[run]
    cpu = np.nan_to_num(cpu_known)
    in_interval = Groups(interval, count)
    tasks = in_interval.sum(cpu[run] * share)
    lowest, highest = in_interval.min(function[run]), in_interval.max(function[run])
    alone = np.where(lowest == highest, lowest, -1)
    # A coroutine runs in the thread of the event loop, so its CPU time is unknown.
    alone[in_interval.sum(np.isnan(cpu_known)[run].astype(float)) > 0] = -1
    other = used - tasks - service
    # Several of these threads may use the CPU at the same time.
    helped = np.clip(other, 0.0, np.maximum(in_interval.sum(overlap) - tasks, 0.0))
    within = alone[interval] >= 0
    covered = np.bincount(run[within], share[within], len(length))
    functions = []
    for code in np.unique(function).tolist():
        selected, is_it = function == code, alone == code
        # If a task run is only partly within these intervals, its CPU time is assumed to be
        # constant over time. The error is computed from two extremes: as much of its CPU time as
        # possible was within the intervals, or as little as possible.
        inside = np.minimum(covered[selected], 1.0)
        even, within_it = cpu[selected] * inside, inside * length[selected]
        most = np.minimum(cpu[selected], within_it)
        least = np.maximum(cpu[selected] - (length[selected] - within_it), 0.0)
        off = float(np.maximum(most - even, even - least).sum())
        functions.append((code, float(other[is_it].sum()), off, float(helped[is_it].sum())))
    return functions, max(float(other[(in_interval.sizes > 0) & (alone < 0)].sum()), 0.0)
