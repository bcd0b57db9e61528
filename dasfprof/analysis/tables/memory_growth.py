"""Memory over time: what held it at one moment and for what purpose, and how it grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.held_results import WANTED, HeldResults, ends_of_lives, held_at
from dasfprof.analysis.model.memory_growth import (
    MemoryGrowth,
    Moments,
    ProcessGrowth,
    memory_growth_of,
)
from dasfprof.analysis.model.run_memory import (
    memory_of_others,
    memory_of_processes,
    nearest_sample,
    processes_of_workers,
    results_of_workers,
    samples_of_workers,
    time_of_peak,
)
from dasfprof.analysis.model.steps import asked_lines
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.numeric.significance import FEWEST, Course, Drift
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import integers, known_texts, text
from dasfprof.analysis.tables.questions import question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

Holder = Literal["cluster", "worker"]

#: Labels of the purposes of held results. Their order is that of the constants of `held_results`.
REASONS = (
    "for tasks yet to begin",
    "for running tasks",
    "for the client",
    "released late",
    "copy by transfer",
    "unknown: for whom",
    "unknown: if held",
)
#: Labels of memory that belongs to no result.
_ON_DISK, _MORE, _FEWER = "(spilled to disk)", "(more results)", "(fewer results)"
_P2P, _OLD, _RECENT = "(P2P buffers)", "(unmanaged, old)", "(unmanaged, recent)"
_EITHER, _NO_SAMPLE = "(unmanaged or results)", "(no sample near)"
#: Threshold (seconds): older unmanaged memory counts as old, as in Dask.
_OLD_AFTER = 30.0
#: Labels of processes that are not workers.
_OTHERS = {"scheduler": "(process of the scheduler)", "client": "(process of the client)"}

_LABELS = ["Why Held", "Function", "Line", "Needed By", "Asked At"]
_SUMS = ["Memory (MB)", "Results"]


@question(
    "Memory at its peak",
    "balance",
    expendable=("Line", "Asked At", "Results"),
    page="memory-peak",
    needs="samples",
)
def memory_peak(run: Run, by: Holder = "cluster") -> pd.DataFrame:
    """List what held memory at the peak of the worker processes, and for what purpose.

    Parameters
    ----------
    by
        ``"cluster"`` uses the peak of all processes together. ``"worker"`` uses the peak of each
        worker's process.

    Returns
    -------
    DataFrame
        The columns of `memory_at`.
    """
    samples = samples_of_workers(run, run.samples, ["memory"])
    process, memory = processes_of_workers(run)[samples["life"]], samples["memory"]
    if by == "worker":
        highest = memory.groupby(process).idxmax()
        moments = zip(samples["time"][highest].tolist(), highest.index.tolist(), strict=True)
        parts = [_anatomy(run, at, by, number) for at, number in moments]
        return pd.concat(parts or [_anatomy(run, np.nan, by)], ignore_index=True)
    ends = np.full(int(processes_of_workers(run).max(initial=-1)) + 1, -np.inf)
    np.maximum.at(ends, processes_of_workers(run), ends_of_lives(run))
    gone = np.flatnonzero(np.isfinite(ends))  # A process that has exited holds no memory.
    peak = time_of_peak(
        np.append(process, gone),
        np.append(samples["time"], ends[gone]),
        np.append(memory, np.zeros(len(gone))),
    )
    return _anatomy(run, peak, by)


@question("Memory at one moment", "balance", expendable=("Line", "Asked At", "Results"))
def memory_at(run: Run, time: float, by: Holder = "cluster") -> pd.DataFrame:
    """List what held memory at one moment, and for what purpose.

    Parameters
    ----------
    time
        Seconds since the start of the run.
    by
        ``"cluster"`` sums over all workers. ``"worker"`` lists each worker.

    Returns
    -------
    DataFrame
        One row per purpose, function and line, sorted by memory in descending order. Rows for
        memory that belongs to no result follow. Known values of ``Memory (MB)`` sum to the memory
        of the processes in the samples nearest to the moment:

        - ``Time (s)``, since the start of the run
        - ``Worker``, with ``by="worker"``. Several workers that share a process share its rows
        - ``Memory (MB)``, ``Results``: size of these results in memory or spilled, as Dask measures
          it, and their number
        - ``Why Held``: the first of these purposes that applies:

          - *for tasks yet to begin*: the scheduler already knew a task that needed the result
          - *for running tasks*
          - *unknown: if held*: no scheduler's file records the release, so the size is NA
          - *for the client*: a client wanted the result when its task ended
          - *released late*: the last dependent had ended, but the scheduler did not know this yet
          - *unknown: for whom*: perhaps a client requested it later, or a task never ended

          A copy on a further worker has the purpose *copy by transfer*, as long as the worker that
          made the result holds it. The scheduler may ask for the removal of such a copy. Copies
          with *unknown: if held* keep this label
        - ``Function``, ``Line``: function and program line that made the results
        - ``Needed By``: the function of the dependent that starts last
        - ``Asked At``: for results that are held for the client, the line that created their
          futures or computed them
        - For memory that belongs to no result, ``Why Held`` is a name in parentheses:

          - *spilled to disk*: results on disk, which are subtracted
          - *more results* (positive) or *fewer results* (negative): size of the results by the
            worker's own measurement, minus the sum of the listed results
          - *unmanaged or results*: all other memory, if there is no such measurement
          - *P2P buffers*: data of shuffles
          - *unmanaged, old*: minimum of the unmanaged memory over the previous 30 s, as Dask
            defines it
          - *unmanaged, recent*: unmanaged memory beyond this, including deserialized inputs.
            ``Needed By`` names the function if tasks of only one function ran there
          - *no sample near*: there was no sample within 2 s
          - *process of the scheduler*, *process of the client*, with ``by="cluster"``: last sample
            of these processes, if they are separate

    Raises
    ------
    InvalidArgumentError
        If the time is outside the run, or `by` is invalid.
    """
    if not 0 <= time <= run.wall:
        raise InvalidArgumentError(
            f"time={time!r}: expected seconds since the start of the run, 0 to {run.wall:g}."
        )
    return _anatomy(run, time, by)


def _anatomy(run: Run, time: float, by: Holder, process: int | None = None) -> pd.DataFrame:
    """Return the table of `memory_at` for all workers, or for the workers of one process."""
    held, processes = held_at(run, time), processes_of_workers(run)
    workers = run.named
    titles = np.array(workers.titles(), dtype=object)[workers.of_lives]
    alive = (run.workers["kind"] == "worker").to_numpy() & (ends_of_lives(run) > time)
    alive &= run.since_begin(run.workers["first_seen"]) <= time
    if process is not None:
        held, alive = held.select(processes[held.life] == process), alive & (processes == process)
    used = samples_of_workers(run, run.samples, ["memory"])
    counted = results_of_workers(run)
    other_rows = list[tuple[str, str, float, str]]()
    for number in np.unique(processes[alive]).tolist():
        lives = np.flatnonzero(alive & (processes == number))
        worker_results = [nearest_sample(counted, [life], time) for life in lives.tolist()]
        explained = float(np.nansum(held.size[np.isin(held.life, lives)]))
        memory = float(nearest_sample(used, lives, time)["memory"])
        who = ", ".join(titles[lives])
        unmanaged = _unmanaged(run, lives, time)
        slots = run.all_slots
        running = (slots.times.executing <= time) & (slots.times.done > time)
        ran = np.unique(slots.function[running & np.isin(slots.worker, lives)])
        # If tasks of several functions ran, it is unknown which of them allocated the memory.
        runs = slots.functions[ran[0]] if len(ran) == 1 else ""
        other_rows += [
            (who, what, size, runs if what == _RECENT else "")
            for what, size in _remainder(memory, worker_results, explained, unmanaged)
        ]
    if by == "cluster":
        for name, readings in memory_of_others(run).items():
            if np.isfinite(readings.at(time)):
                other_rows.append(("", _OTHERS[name], readings.at(time), ""))
    group = ["Worker", *_LABELS] if by == "worker" else _LABELS
    of_results = _summed(_results(run, held, titles), group)
    of_results = of_results.sort_values("Memory (MB)", ascending=False, kind="stable")
    others: dict[str, Sequence[Any]] = {name: [""] * len(other_rows) for name in _LABELS}
    others["Results"] = [np.nan] * len(other_rows)
    for at, name in enumerate(("Worker", "Why Held", "Memory (MB)", "Needed By")):
        others[name] = [row[at] for row in other_rows]
    table = pd.concat([of_results, _summed(others, group)], ignore_index=True)
    if by == "worker":
        table = table.sort_values("Worker", kind="stable", ignore_index=True)
    table["Memory (MB)"] /= 1e6
    table["Results"] = integers(table["Results"].to_numpy(dtype=float))
    table.insert(0, "Time (s)", time)
    return table[["Time (s)", *group[: -len(_LABELS)], *_SUMS, *_LABELS]]


def _results(run: Run, held: HeldResults, titles: Array) -> dict[str, Array]:
    runs = run.tasks.iloc[held.run]
    names = np.append(run.tasks["function"].cat.categories.to_numpy(object), "")
    return {
        "Worker": titles[held.life],
        "Why Held": np.array(REASONS, dtype=object)[held.why],
        "Function": names[runs["function"].cat.codes.to_numpy()],
        "Line": known_texts(runs["line"]).to_numpy(object),
        "Needed By": names[held.needed_by],
        "Asked At": np.where(held.why == WANTED, asked_lines(run)[held.run], ""),
        "Memory (MB)": held.size,
        "Results": np.ones(len(runs)),
    }


def _summed(rows: Mapping[str, Sequence[Any] | Array], group: list[str]) -> pd.DataFrame:
    """Return the sums of rows that are equal in the columns `group`.

    A sum is NaN if all of its values are unknown.
    """
    labels = [rows.get(name, ()) for name in group]
    codes, distinct = pd.factorize(pd.Series(list(zip(*labels, strict=True)), dtype=object))
    groups = Groups(codes, len(distinct))
    numbers = {name: np.array(rows.get(name, ()), dtype=float) for name in _SUMS}
    return pd.DataFrame(
        {
            **{name: text([row[at] for row in distinct]) for at, name in enumerate(group)},
            **{
                name: np.where(groups.known(values) > 0, groups.sum(values), np.nan)
                for name, values in numbers.items()
            },
        }
    )


def _remainder(
    memory: float, counted: list[pd.Series], explained: float, old: float
) -> Iterator[tuple[str, float]]:
    """Yield a label and the bytes of each part of a process's memory that no listed result uses.

    `memory` is the process's memory, and `counted` contains what each of its workers measured.
    `explained` is the size of the listed results, and `old` the minimum of the unmanaged memory
    over the previous 30 s.
    """
    size = sum(worker["size"] for worker in counted)
    spilled = float(np.nan_to_num(sum(worker["spilled_size"] for worker in counted)))
    if spilled:
        yield _ON_DISK, -spilled
    if size != explained and not np.isnan(size):
        yield _MORE if size > explained else _FEWER, size - explained
    if np.isnan(memory):
        yield _NO_SAMPLE, np.nan
    elif np.isnan(size):
        yield _EITHER, memory - explained + spilled
    else:
        p2p = sum(worker["p2p_size"] for worker in counted)
        beside = memory - (size - spilled) - p2p
        if p2p:
            yield _P2P, p2p
        yield _OLD, min(old, beside)
        if beside > old:
            yield _RECENT, beside - old


def _unmanaged(run: Run, lives: Array, time: float) -> float:
    """Return the minimum unmanaged memory of a process in the 30 s before `time`.

    `lives` are the workers of the process. The result is infinity if there is no sample.
    """
    least = np.inf
    for process in memory_of_processes(run):
        if np.isin(process.lives, lives).any():
            lately = (process.time <= time) & (process.time >= time - _OLD_AFTER)
            least = min(least, float(process.unmanaged[lately].min(initial=np.inf)))
    return least


_CLASSES = {
    "memory": "processes of workers",
    "results": "results in memory",
    "spilled": "results spilled to disk",
    "unmanaged": "unmanaged: what processes have beyond results",
}
_SCHEDULER, _CLIENT = "process of the scheduler", "process of the client"
#: Kind of memory, worker, drift, purpose, line that made the results, and line that requested them.
_Row = tuple[str, str, Drift, str, str, str]


@question(
    "Memory growth", "balance", expendable=("At Half (MB)", "Line", "Asked At"), needs="samples"
)
def memory_growth(run: Run, by: Holder = "cluster") -> pd.DataFrame:
    """Test which memory grows from one computation to the next.

    Memory is compared at the ends of idle times, in which no task was in progress. The first of
    these follows the first computation, which imports libraries and fills caches. If there are
    fewer than eight idle times, or no samples in them, the comparison uses 20 time windows and the
    minimum unmanaged memory in each.

    Parameters
    ----------
    by
        ``"cluster"`` compares the sum of all workers that were present all the time, and separately
        the scheduler, the client, and the results of each function. ``"worker"`` compares each
        worker process.

    Returns
    -------
    DataFrame
        One row per kind of memory, and with ``by="worker"`` per worker process:

        - ``Memory``; ``Worker``, with ``by="worker"``
        - ``Compared``: number and kind of the compared intervals
        - ``At First (MB)``, ``At Half (MB)``, ``At Last (MB)``: the first value, the value after
          half of the intervals, and the last value
        - ``Each (MB)``: mean change per computation or window. NA for fewer than eight values
        - ``At Least (MB)``, ``At Most (MB)``: 95 % confidence interval of the mean change, assuming
          that the growth is steady
        - ``Verdict``: *rises* only if the memory rose in both halves, in the second by at least
          half as much as in the first, and the interval excludes 0
        - ``Why Held``, ``Line`` and ``Asked At``, with ``by="cluster"`` only: as in `memory_at`,
          for the largest part of a function's results at the end. Empty for processes

    Notes
    -----
    Changes are modelled as a random walk with drift, and the interval is that of Student's t. A
    trace cannot distinguish a leak from memory that malloc keeps after it was freed. To find out,
    run ``ctypes.CDLL("libc.so.6").malloc_trim(0)`` on the workers with ``client.run``.

    Raises
    ------
    InvalidArgumentError
        If `by` is invalid.
    """
    growth, workers = memory_growth_of(run), run.named
    titles = np.array(workers.titles(), dtype=object)[workers.of_lives]
    if by == "worker":
        rows = [
            row
            for process in growth.processes
            for row in _of_process(", ".join(dict.fromkeys(titles[process.lives])), process)
        ]
    else:
        rows = list(_of_cluster(growth))
    moments = growth.moments
    table = pd.DataFrame(
        {
            "Memory": text([row[0] for row in rows]),
            "Worker": text([row[1] for row in rows]),
            "Compared": text(np.full(len(rows), _compared(moments), dtype=object)),
            **_figures(
                [row[2] for row in rows], "computation" if np.isnan(moments.window) else "window"
            ),
            "Why Held": text([row[3] for row in rows]),
            "Line": text([row[4] for row in rows]),
            "Asked At": text([row[5] for row in rows]),
        }
    )
    return table.drop(columns="Worker" if by == "cluster" else ["Why Held", "Line", "Asked At"])


def _of_cluster(growth: MemoryGrowth) -> Iterator[_Row]:
    if growth.together is not None:
        yield from _of_process("", growth.together)
    for name, drift in ((_SCHEDULER, growth.scheduler), (_CLIENT, growth.client)):
        if drift is not None:
            yield name, "", drift, "", "", ""
    for results in sorted(growth.functions, key=lambda f: f.size.first - f.size.last):
        held = REASONS[results.why] if results.why >= 0 else ""
        name = f"results of {results.function}"
        yield name, "", results.size, held, results.line, results.asked


def _of_process(who: str, process: ProcessGrowth) -> Iterator[_Row]:
    for name, label in _CLASSES.items():
        yield label, who, getattr(process, name), "", "", ""


def _figures(drifts: Sequence[Drift], unit: str) -> dict[str, pd.Series]:
    labels = ("At First", "At Half", "At Last", "Each", "At Least", "At Most")
    names = ("first", "half", "last", "each", "least", "most")
    numbers = {
        f"{label} (MB)": pd.Series([getattr(drift, name) / 1e6 for drift in drifts], dtype=float)
        for label, name in zip(labels, names, strict=True)
    }
    verdicts = np.array([_verdict(drift, unit) for drift in drifts], dtype=object)
    return {**numbers, "Verdict": text(verdicts)}


def _compared(moments: Moments) -> str:
    if not len(moments):
        return "nothing"
    if np.isnan(moments.window):
        return f"{moments.steps.sum():.0f} computations"
    return f"{len(moments) - 1} windows of {format_duration(moments.window)}"


def _verdict(drift: Drift, unit: str) -> str:
    rise, since = drift.last - drift.first, drift.last - drift.half
    if drift.course is Course.FEW:
        return f"Too few values: {FEWEST} are needed."
    if drift.course is Course.RISES:
        return f"Rises by {format_size(drift.each)} with each {unit}."
    if drift.course is Course.AT_FIRST:
        return f"Rose at first: of {format_size(rise)} {format_size(since)} in the second half."
    return "No steady rise."
