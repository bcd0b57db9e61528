"""Growth of memory from one computation to the next, and with the task runs of a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.held_results import held_at, results_at
from dasfprof.analysis.model.run_memory import (
    ProcessMemory,
    Readings,
    memory_of_others,
    memory_of_processes,
)
from dasfprof.analysis.model.steps import asked_lines
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.numeric.significance import FEWEST, Drift, drift_of
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Maximum number of time ranges that are compared. Then number of windows into which a run with a
#: single computation is divided.
_MOST, _WINDOWS = 200, 20
#: Reason and lines of a function whose results are not held.
_NOBODY = -1, "", ""


@dataclass(frozen=True)
class Moments:
    """Sorted, disjoint time ranges, for a comparison of the minimum memory in each."""

    begin: Array
    end: Array
    #: Number of computations (or windows) from each range to the next.
    steps: Array
    #: Duration of a window in seconds, or NaN if the ranges are the times between computations.
    window: float

    def __len__(self) -> int:
        return len(self.begin)

    def least(self, times: Array, values: Array) -> Array:
        """Return the index of the minimum value within each range, or -1 if there is no value."""
        indices = np.full(len(self), -1, dtype=np.int64)
        first, end = np.searchsorted(times, self.begin), np.searchsorted(times, self.end)
        for number in np.flatnonzero(end > first).tolist():
            indices[number] = first[number] + int(values[first[number] : end[number]].argmin())
        return indices

    def select(self, chosen: Array) -> Moments:
        """Return the chosen ranges. `steps` counts the computations (or windows) between them."""
        at = np.append(0.0, np.cumsum(self.steps))[chosen]
        return Moments(self.begin[chosen], self.end[chosen], np.diff(at), self.window)


@dataclass(frozen=True)
class ProcessGrowth:
    """How the memory of a process with one or several workers changed over time."""

    lives: Array
    memory: Drift
    results: Drift
    spilled: Drift
    unmanaged: Drift
    #: Number of results that the process held.
    number: Drift


@dataclass(frozen=True)
class FunctionGrowth:
    """Bytes of a function's held results over time, and why they are held at the end."""

    function: str
    size: Drift
    #: Reason why most bytes are held at the last time (a constant of `held_results`, or -1 if none
    #: are held). Then the line that built their tasks, and the line that requested them. Both are
    #: empty if unknown.
    why: int
    line: str
    asked: str


@dataclass(frozen=True)
class MemoryGrowth:
    """How the memory of processes, and the held results of each function, grew during a run."""

    moments: Moments
    #: Processes with workers that were sampled in every range, and the sum of these processes, or
    #: None if there is no such process.
    processes: list[ProcessGrowth]
    together: ProcessGrowth | None
    #: Drift of the memory of the scheduler's process. None if it was not recorded, or if a worker
    #: runs in the same process. `client` is the same for the client's process.
    scheduler: Drift | None
    client: Drift | None
    functions: list[FunctionGrowth]


@once_per_trace
def memory_growth_of(run: Run) -> MemoryGrowth:
    """Return how memory grew from one computation (or window) of a run to the next."""
    processes, others = memory_of_processes(run), memory_of_others(run)
    moments = _moments(run, processes)
    looks = [(p, moments.least(p.time, p.unmanaged)) for p in processes]
    sampled = [(p, at) for p, at in looks if len(moments) and (at >= 0).all()]

    def growth(chosen: list[tuple[ProcessMemory, Array]]) -> ProcessGrowth:
        names = ("memory", "results", "spilled", "unmanaged", "number")
        sums = [np.sum([getattr(p, name)[at] for p, at in chosen], axis=0) for name in names]
        lives = np.concatenate([p.lives for p, _ in chosen])
        return ProcessGrowth(lives, *(drift_of(values, moments.steps) for values in sums))

    return MemoryGrowth(
        moments,
        [growth([each]) for each in sampled],
        growth(sampled) if sampled else None,
        _of_other(others.get("scheduler"), moments),
        _of_other(others.get("client"), moments),
        list(_of_functions(run, moments)),
    )


def _moments(run: Run, processes: list[ProcessMemory]) -> Moments:
    """Return the time ranges (between computations, or windows) in which to compare memory."""
    # Time ranges in which any task was in progress.
    times, only = run.all_slots.times, run.scheduler_only
    begins = np.append(times.arrival, run.since_begin(only["sent"]))
    ends = np.append(times.known, run.since_begin(only["known"]))
    timed = np.isfinite(begins) & np.isfinite(ends)
    begins, ends = union(begins[timed], ends[timed])
    none = Moments(np.empty(0), np.empty(0), np.empty(0), float("nan"))
    if not len(begins) or not processes:
        return none
    # After the last computation, the program may release everything.
    between = Moments(ends[:-1], begins[1:], np.ones(max(len(ends) - 2, 0)), float("nan"))
    # All processes must have been sampled in a time range.
    sampled = [between.least(p.time, p.unmanaged) >= 0 for p in processes]
    chosen = np.flatnonzero(np.all(sampled, axis=0))
    if len(chosen) >= FEWEST:
        indices = np.unique(np.linspace(0, len(chosen) - 1, min(len(chosen), _MOST)).astype(int))
        return between.select(chosen[indices])
    begin, end = float(begins[0]), float(min(ends[-1], run.wall))
    if not end > begin:
        return none
    edges = np.linspace(begin, end, _WINDOWS + 1)
    return Moments(edges[:-1], edges[1:], np.ones(_WINDOWS - 1), (end - begin) / _WINDOWS)


def _of_other(process: Readings | None, moments: Moments) -> Drift | None:
    """Return the drift of values that were sampled only occasionally, or None if all are unknown.

    For each time range in `moments`, the last value before its end is used.
    """
    if process is None or not len(moments):
        return None
    read = np.array([process.at(end) for end in moments.end.tolist()])
    chosen = np.flatnonzero(np.isfinite(read))
    return drift_of(read[chosen], moments.select(chosen).steps) if len(chosen) else None


def _of_functions(run: Run, moments: Moments) -> Iterator[FunctionGrowth]:
    """Yield the growth of each function's held results, measured at the end of each time range."""
    if not len(moments):
        return
    last = held_at(run, float(moments.end[-1]))
    runs, size = run.tasks.iloc[last.run], np.nan_to_num(last.size)
    columns = runs["function"], last.why, runs["line"], asked_lines(run)[last.run], size
    holders: dict[str, Counter[tuple[int, str, str]]] = {}
    for name, why, line, asked, held_bytes in zip(*columns, strict=True):
        built_by = line if isinstance(line, str) else ""
        holders.setdefault(str(name), Counter())[int(why), built_by, str(asked)] += held_bytes
    for name, sizes in results_at(run, moments.end).items():
        ((holder, _),) = holders.get(name, Counter({_NOBODY: 0})).most_common(1)
        yield FunctionGrowth(name, drift_of(sizes, moments.steps), *holder)


@dataclass(frozen=True)
class RunGrowth:
    """Unmanaged memory that remains in worker processes after task runs of a function."""

    function: str
    #: Number of its task runs during which no other function ran in the same process.
    alone: int
    #: Drift over the task runs that ran alone, by time. `first` to `last` are cumulative bytes.
    drift: Drift


def growth_by_runs(run: Run) -> list[RunGrowth]:
    """Return the growth of unmanaged memory by function, for functions that ran alone."""
    slots = run.all_slots
    rises: dict[int, list[tuple[float, float, float]]] = {}
    for process in memory_of_processes(run):
        rows = np.flatnonzero(np.isin(slots.worker, process.lives))
        rows = rows[np.argsort(slots.times.executing[rows], kind="stable")]
        # Indices of the last sample in each time range in which the process ran no task.
        first, last = union(slots.times.executing[rows], slots.times.done[rows])
        at = np.searchsorted(process.time, np.append(first, np.inf)) - 1
        at = np.unique(at[(at >= 0) & (process.time[at] >= np.append(-np.inf, last))])
        # The first tasks of a process allocate memory for imports and caches, so they do not count.
        for before, after in zip(at[1:-1].tolist(), at[2:].tolist(), strict=True):
            begin, end = np.searchsorted(
                slots.times.executing[rows], process.time[[before, after]], side="right"
            )
            functions = np.unique(slots.function[rows[begin:end]])
            if len(functions) == 1:
                rise = float(process.unmanaged[after] - process.unmanaged[before])
                growth = float(process.time[after]), rise, float(end - begin)
                rises.setdefault(int(functions[0]), []).append(growth)
    growths = []
    for code, of_function in rises.items():
        _, grown, runs = np.array(sorted(of_function)).T
        drift = drift_of(np.append(0.0, np.cumsum(grown)), runs)
        growths.append(RunGrowth(slots.functions[code], int(runs.sum()), drift))
    return growths
