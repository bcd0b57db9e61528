"""What held memory at a moment, why it was not let go, and how it grows."""

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
    growth_by_runs,
    memory_growth_of,
)
from dasfprof.analysis.model.run_memory import (
    Samples,
    memory_of_others,
    memory_of_processes,
    peak_of,
    processes_of_workers,
    results_of_workers,
)
from dasfprof.analysis.model.steps import asked_lines
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.numeric.significance import FEWEST, Course, Drift
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

# --- What held memory at a moment, and why it was not let go --------------------------------------

Holder = Literal["cluster", "worker"]

#: Why a result was held, in the order of the constants of `held_results`.
REASONS = (
    "for tasks yet to begin",
    "for running tasks",
    "for the client",
    "released late",
    "copy by transfer",
    "unknown: for whom",
    "unknown: if held",
)
#: What is no result.
_ON_DISK, _MORE, _FEWER = "(spilled to disk)", "(more results)", "(fewer results)"
_P2P, _OLD, _RECENT = "(P2P buffers)", "(unmanaged, old)", "(unmanaged, recent)"
_EITHER, _NO_SAMPLE = "(unmanaged or results)", "(no sample near)"
#: Seconds after which unmanaged memory is old, as Dask has it.
_OLD_AFTER = 30.0
#: The processes that are no workers'.
_OTHERS = {"scheduler": "(process of the scheduler)", "client": "(process of the client)"}

_LABELS = ["Why Held", "Function", "Line", "Needed By", "Asked At"]
_SUMS = ["Memory (MB)", "Results"]


@question(
    "What held memory at its peak",
    "balance",
    expendable=("Line", "Asked At", "Results"),
    page="memory-peak",
    needs="samples",
)
def memory_peak(run: Run, by: Holder = "cluster") -> pd.DataFrame:
    """Say what held memory when workers' processes held most, and why it was not let go.

    Parameters
    ----------
    by
        ``cluster``: when all processes together held most; ``worker``: for each worker, when its
        process did.

    Returns
    -------
    DataFrame
        As of `memory_at`.
    """
    samples = Samples.of(run, run.samples, "memory")
    process, memory = processes_of_workers(run)[samples.life], samples.values["memory"]
    if by == "worker":
        moments = [
            (float(samples.time[rows[np.argmax(memory[rows])]]), number)
            for number in np.unique(process).tolist()
            for rows in [np.flatnonzero(process == number)]
        ]
        parts = [_anatomy(run, at, by, number) for at, number in moments]
        return pd.concat(parts or [_anatomy(run, np.nan, by)], ignore_index=True)
    ends = np.full(int(processes_of_workers(run).max(initial=-1)) + 1, -np.inf)
    np.maximum.at(ends, processes_of_workers(run), ends_of_lives(run))
    gone = np.flatnonzero(np.isfinite(ends))  # what a process held is gone with it
    peak = peak_of(
        np.append(process, gone),
        np.append(samples.time, ends[gone]),
        np.append(memory, np.zeros(len(gone))),
    )
    return _anatomy(run, peak.time, by)


@question("What held memory at a moment", "balance", expendable=("Line", "Asked At", "Results"))
def memory_at(run: Run, time: float, by: Holder = "cluster") -> pd.DataFrame:
    """Say what held memory at a moment, and why it was not let go.

    Parameters
    ----------
    time
        Seconds from the run's begin.
    by
        ``cluster``: all workers together; ``worker``: each.

    Returns
    -------
    DataFrame
        A row a reason, function and line, the largest first, then what is no result. What is known
        of ``Memory (MB)`` adds up to the processes' memory in the samples nearest to the moment:

        - ``Time (s)`` from begin; ``Worker``: with ``by="worker"``; several that share a process
          where it is about that
        - ``Memory (MB)``, ``Results``: their size, in memory or spilled, as Dask measures it, and
          their number
        - ``Why Held``, the first that applies: *for tasks yet to begin*, that the scheduler knew
          of; *for running tasks*; *for the client*, which wanted the result when its task ended;
          *released late*: the scheduler had yet to hear that the last dependent had ended;
          *unknown: for whom*: a client that asked later, or a task that never ended; *unknown: if
          held*, size NA: no scheduler's file tells when results were let go. *copy by transfer*, on
          a further worker, until the scheduler asks one of them to drop it
        - ``Function``, ``Line`` of the program that built it; ``Needed By``: the function of the
          dependent that begins last of those; ``Asked At``: of what is held for the client, the
          line that made its futures, or computed it
        - what is no result, in parentheses: *spilled to disk*, taken off; *more results*, or
          *fewer*, than these, as the worker counts; *P2P buffers*, of shuffles; *unmanaged*: what
          its process had beyond all that: *old*, the least of the 30 s before, as Dask has it, and
          *recent*, with the function in ``Needed By`` where tasks of one alone ran there: what
          these allocated, inputs that were deserialised among it; *no sample near*, NA: none
          within 2 s; of the cluster also the *process of the scheduler* and *of the client*, where
          these are of their own, as last read

    Raises
    ------
    InvalidArgumentError
        If the run was not at that time, or `by` is neither.
    """
    if not 0 <= time <= run.wall:
        raise InvalidArgumentError(
            f"time={time!r}: give seconds from the run's begin, 0 to {run.wall:g}."
        )
    return _anatomy(run, time, by)


def _anatomy(run: Run, time: float, by: Holder, process: int | None = None) -> pd.DataFrame:
    """Return the table of a moment; of one process, or all."""
    held, processes = held_at(run, time), processes_of_workers(run)
    workers = run.named
    titles = np.array(workers.titles(), dtype=object)[workers.of_lives]
    alive = (run.workers["kind"] == "worker").to_numpy() & (ends_of_lives(run) > time)
    alive &= run.since_begin(run.workers["first_seen"]) <= time
    if process is not None:
        held, alive = held.of(processes[held.life] == process), alive & (processes == process)
    used = Samples.of(run, run.samples, "memory")
    counted = results_of_workers(run)
    rest = list[tuple[str, str, float, str]]()
    for number in np.unique(processes[alive]).tolist():
        lives = np.flatnonzero(alive & (processes == number))
        own = [counted.nearest([life], time) for life in lives.tolist()]
        explained = float(np.nansum(held.size[np.isin(held.life, lives)]))
        memory = used.nearest(lives, time)["memory"]
        who = ", ".join(titles[lives])
        unmanaged = _unmanaged(run, lives, time)
        slots = run.whole.slots
        running = (slots.times.executing <= time) & (slots.times.done > time)
        ran = np.unique(slots.function[running & np.isin(slots.worker, lives)])
        # Of several functions it is not known which allocated the memory.
        runs = slots.functions[ran[0]] if len(ran) == 1 else ""
        rest += [
            (who, what, size, runs if what == _RECENT else "")
            for what, size in _rest(memory, own, explained, unmanaged)
        ]
    if by == "cluster":
        read = {name: one.at(time) for name, one in memory_of_others(run).items()}
        rest += [("", _OTHERS[name], size, "") for name, size in read.items() if np.isfinite(size)]
    group = ["Worker", *_LABELS] if by == "worker" else _LABELS
    of_results = _summed(_results(run, held, titles), group)
    of_results = of_results.sort_values("Memory (MB)", ascending=False, kind="stable")
    others: dict[str, Sequence[Any]] = {name: [""] * len(rest) for name in _LABELS}
    others["Results"] = [np.nan] * len(rest)
    for at, name in enumerate(("Worker", "Why Held", "Memory (MB)", "Needed By")):
        others[name] = [row[at] for row in rest]
    table = pd.concat([of_results, _summed(others, group)], ignore_index=True)
    if by == "worker":
        table = table.sort_values("Worker", kind="stable", ignore_index=True)
    table["Memory (MB)"] /= 1e6
    table["Results"] = whole(table["Results"].to_numpy(dtype=float))
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
    """Sum rows up that have the same texts, in the order of the first ones; NaN: nothing known."""
    labels = [rows.get(name, ()) for name in group]
    codes, distinct = pd.factorize(pd.Series(list(zip(*labels, strict=True)), dtype=object))
    groups = Groups(codes, len(distinct))
    numbers = {name: np.array(rows.get(name, ()), dtype=float) for name in _SUMS}
    return pd.DataFrame(
        {
            **{n: text([one[at] for one in distinct]) for at, n in enumerate(group)},
            **{
                name: np.where(groups.known(values) > 0, groups.sum(values), np.nan)
                for name, values in numbers.items()
            },
        }
    )


def _rest(
    memory: float, counted: list[dict[str, float]], explained: float, old: float
) -> Iterator[tuple[str, float]]:
    """Yield what a process's memory was beside the results of its workers, in bytes."""
    size = sum(own["size"] for own in counted)
    spilled = float(np.nan_to_num(sum(own["spilled_size"] for own in counted)))
    if spilled:
        yield _ON_DISK, -spilled
    if size != explained and not np.isnan(size):
        yield _MORE if size > explained else _FEWER, size - explained
    if np.isnan(memory):
        yield _NO_SAMPLE, np.nan
    elif np.isnan(size):
        yield _EITHER, memory - explained + spilled
    else:
        p2p = sum(own["p2p_size"] for own in counted)
        beside = memory - (size - spilled) - p2p
        if p2p:
            yield _P2P, p2p
        yield _OLD, min(old, beside)
        if beside > old:
            yield _RECENT, beside - old


def _unmanaged(run: Run, lives: Array, time: float) -> float:
    """Return the least unmanaged memory of a process for so long that it is old; infinite: none."""
    least = np.inf
    for process in memory_of_processes(run):
        if np.isin(process.lives, lives).any():
            lately = (process.time <= time) & (process.time >= time - _OLD_AFTER)
            least = min(least, float(process.unmanaged[lately].min(initial=np.inf)))
    return least


# --- How memory grows while a cluster goes on -----------------------------------------------------

By = Literal["cluster", "worker", "function"]

_CLASSES = {
    "memory": "processes of workers",
    "results": "results in memory",
    "spilled": "results spilled to disk",
    "unmanaged": "unmanaged: what processes have beyond results",
}
_SCHEDULER, _CLIENT = "process of the scheduler", "process of the client"
#: What a row tells beside figures: which memory, of whom, why it is held, the line that built it
#: and the one that made its futures.
_Row = tuple[str, str, Drift, str, str, str]


@question(
    "Memory that grows", "balance", expendable=("At Half (MB)", "Line", "Asked At"), needs="samples"
)
def memory_growth(run: Run, by: By = "cluster") -> pd.DataFrame:
    """Say which memory grows from one computation to the next, and how sure that is.

    Memory is compared at the ends of the times in which nothing was under way, the first of them
    after the first computation, which imports and fills caches. Of a run with fewer than eight such
    times, or times in which no sample was taken, 20 windows are compared, by the least memory
    beside results in each.

    Parameters
    ----------
    by
        ``cluster``: all workers that were there all the time together, the scheduler, the client,
        and the results of each function; ``worker``: each process of workers; ``function``: what
        stays in processes with the runs of a function beyond results.

    Returns
    -------
    DataFrame
        A row a class of memory (with ``by="function"`` a function, the most growing first):

        - ``Memory``, ``Worker`` or ``Function``
        - ``Compared``: the number of computations, or windows, from the first to the last, and what
          one is; with ``by="function"`` ``Task Runs``, and ``Alone``: those that no run of another
          function in the same process stands beside, which alone tell
        - ``At First (MB)``, ``At Half (MB)``, ``At Last (MB)``
        - ``Each (MB)``: the mean change with each computation, window or run; the true one is
          between ``At Least (MB)`` and ``At Most (MB)`` in 95 of 100 cases, if it goes on as it
          did; NA: fewer than eight values
        - ``Verdict``: *rises* only where it did in both halves, by no less than half as much in the
          second, and zero is outside of the interval
        - ``Why Held``, ``Line`` of the program that built it, ``Asked At``: of most of a function's
          results at last, see `memory_at`

    Notes
    -----
    Changes are taken for a random walk with drift: the interval is that of Student's t of the
    changes. Of unmanaged memory that rises no trace tells a leak from what malloc keeps after it
    was freed; ``client.run(trim)`` with ``ctypes.CDLL("libc.so.6").malloc_trim(0)`` would.

    Raises
    ------
    InvalidArgumentError
        If `by` is none of these.
    """
    if by == "function":
        return _by_function(run)
    found, workers = memory_growth_of(run), run.named
    titles = np.array(workers.titles(), dtype=object)[workers.of_lives]
    if by == "worker":
        rows = [
            row
            for process in found.processes
            for row in _of_process(", ".join(dict.fromkeys(titles[process.lives])), process)
        ]
    else:
        rows = list(_of_cluster(found))
    moments = found.moments
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


def _of_cluster(found: MemoryGrowth) -> Iterator[_Row]:
    if found.together is not None:
        yield from _of_process("", found.together)
    for name, drift in ((_SCHEDULER, found.scheduler), (_CLIENT, found.client)):
        if drift is not None:
            yield name, "", drift, "", "", ""
    for one in sorted(found.functions, key=lambda one: one.size.first - one.size.last):
        held = REASONS[one.why] if one.why >= 0 else ""
        yield f"results of {one.function}", "", one.size, held, one.line, one.asked


def _of_process(who: str, process: ProcessGrowth) -> Iterator[_Row]:
    for name, told in _CLASSES.items():
        yield told, who, getattr(process, name), "", "", ""


def _by_function(run: Run) -> pd.DataFrame:
    found = growth_by_runs(run)
    table = pd.DataFrame(
        {
            "Function": text([one.function for one in found]),
            "Task Runs": np.array([one.runs for one in found], dtype=np.int64),
            "Alone": np.array([one.alone for one in found], dtype=np.int64),
            **_figures([one.drift for one in found], "run"),
        }
    )
    return table.drop(columns=["At First (MB)", "At Half (MB)"]).rename(
        columns={"At Last (MB)": "Stayed (MB)"}
    )


def _figures(drifts: Sequence[Drift], unit: str) -> dict[str, pd.Series]:
    labels = ("At First", "At Half", "At Last", "Each", "At Least", "At Most")
    names = ("first", "half", "last", "each", "least", "most")
    numbers = {
        f"{label} (MB)": pd.Series([getattr(drift, name) / 1e6 for drift in drifts], dtype=float)
        for label, name in zip(labels, names, strict=True)
    }
    verdicts = np.array([_verdict(one, unit) for one in drifts], dtype=object)
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
