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

    def others(self) -> tuple[str, pd.DataFrame] | None:
        """Return the host on which programs outside of the run use most CPU, and these programs.

        The result is None if no host was busy.
        """
        if not self.looks:
            return None
        others = self.programs[~self.programs["ours"].to_numpy(dtype=bool)]
        cores = {host: float(others["cores"][others["host"] == host].sum()) for host in self.looks}
        host = max(cores, key=lambda each: cores[each])
        return host, others[others["host"] == host]


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


def _texts(column: Any) -> list[str]:
    """Replace lone surrogates in texts, because pandas cannot group by them."""
    return [
        text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else "unknown"
        for text in column.tolist()
    ]


# `process_cpu`: CPU time of worker processes, divided into threads that run tasks, other threads,
# and threads of Dask itself.


@dataclass(frozen=True)
class ProcessCpu:
    """CPU seconds of worker processes, from the first to the last sample of each process."""

    #: One row per process, indexed by the row in `Trace.workers` of its first worker: total
    #: ``seconds``; ``tasks`` (threads that run tasks); ``service`` (event loops, threads of Dask
    #: and dasfprof, and the main thread); ``idle`` (other threads while no task ran);
    #: ``unapportioned`` (other threads while several functions ran). If ``service`` is unknown
    #: (NaN), all other threads count as ``unapportioned``.
    processes: pd.DataFrame
    #: One row per process and function: ``worker_id, function``; ``tasks`` (threads that ran its
    #: tasks); ``others`` (other threads, of libraries or P2P, while only this function ran);
    #: ``uncertain`` (error of ``others``, because it is unknown at which times its tasks used the
    #: CPU); ``helped`` (seconds of its tasks for which these threads used the CPU instead).
    functions: pd.DataFrame


def other_threads_cpu(run: Run, column: str = "others") -> dict[str, float]:
    """Return, for each function, the CPU seconds of threads that it uses but that run no tasks.

    `column` is ``others``, or ``helped`` for the seconds of the function's tasks meanwhile.
    """
    table = process_cpu(run).functions
    # These threads were started by the function's libraries, or by P2P. Their time only counts if
    # it is certain, and if no other function ran in the process at that time.
    certain = table[(table["others"] > table["uncertain"]).to_numpy(dtype=bool)]
    return dict(certain.groupby("function")[column].sum().astype(float))


@once_per_trace
def process_cpu(run: Run) -> ProcessCpu:
    """Divide the CPU time of each worker process among threads and functions."""
    names = ["worker_id", "time", "process_cpu_seconds", "service_cpu_seconds"]
    samples = run.samples.reindex(columns=names).dropna(subset=names[:3])
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
    of_processes, of_functions = {}, []
    for process in np.unique(of_sample).tolist():
        read = samples[of_sample == process]
        first = int(read["worker_id"].iloc[0])
        read = read[read["worker_id"] == first]  # All workers of a process sample the same values.
        if len(read) < 2:
            continue
        rows = np.flatnonzero((of_task == process) & np.isfinite(runs.stop))
        of_processes[first], functions = _of_process(read, runs.iloc[rows])
        of_functions += [(first, *each) for each in functions]
    columns = ["worker_id", "function", "tasks", "others", "uncertain", "helped"]
    functions_table = pd.DataFrame(of_functions, columns=columns)
    named = tasks["function"].cat.categories.to_numpy(dtype=object)
    numbers = functions_table["function"].to_numpy(dtype=np.int64)
    functions_table["function"] = pd.Series(named[numbers], dtype=object)
    kinds = ["seconds", "tasks", "service", "idle", "unapportioned"]
    table = pd.DataFrame.from_dict(of_processes, orient="index", columns=kinds, dtype=float)
    return ProcessCpu(table, functions_table)


def _of_process(
    samples: pd.DataFrame, runs: pd.DataFrame
) -> tuple[list[float], list[tuple[int, float, float, float, float]]]:
    """Return the CPU seconds of one process for each kind of thread, and for each function.

    The first list is a row of ``ProcessCpu.processes``. The second list has a tuple per function:
    its code, and the values of ``tasks``, ``others``, ``uncertain`` and ``helped`` in
    ``ProcessCpu.functions``.
    """
    start, stop, cpu_known, function = (
        runs[name].to_numpy() for name in ("start", "stop", "cpu", "function")
    )
    times = samples["time"].to_numpy()
    used = np.maximum(np.diff(samples["process_cpu_seconds"].to_numpy()), 0.0)
    service = np.maximum(np.diff(samples["service_cpu_seconds"].to_numpy()), 0.0)
    count, known = len(used), bool(np.isfinite(service).all())
    # All pairs of a task run and an interval between two samples in which it ran.
    first = np.searchsorted(times, start, "right") - 1
    last = np.searchsorted(times, stop, "left")
    first, last = np.clip(first, 0, count), np.clip(last, 0, count)
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
    alone = np.where((lowest == highest) & known, lowest, -1)
    # A coroutine runs in the thread of the event loop, so its CPU time is unknown.
    alone[in_interval.sum(np.isnan(cpu_known)[run].astype(float)) > 0] = -1
    alone = np.nan_to_num(alone, nan=-1).astype(np.int64)
    other = used - tasks - np.nan_to_num(service)
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
        others = max(float(other[is_it].sum()), 0.0) if is_it.any() else np.nan
        cpu_seconds = float((cpu * np.bincount(run, share, len(length)))[selected].sum())
        functions.append((code, cpu_seconds, others, off, float(helped[is_it].sum())))
    idle = float(np.maximum(other[in_interval.sizes == 0].sum(), 0.0)) if known else np.nan
    given = sum(others for _, _, others, *_ in functions if np.isfinite(others))
    spent = float(service.sum()) if known else np.nan
    left = float(used.sum() - tasks.sum()) - np.nan_to_num(spent) - np.nan_to_num(idle) - given
    return [float(used.sum()), float(tasks.sum()), spent, idle, max(left, 0.0)], functions
