"""The rules about memory that grows with computations, and that stays when tasks have ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import Finding, Words, rule, said
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.held_results import WANTED
from dasfprof.analysis.model.memory_growth import (
    FunctionGrowth,
    ProcessGrowth,
    growth_by_runs,
    memory_growth_of,
)
from dasfprof.analysis.numeric.significance import Course, Drift
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds, Share

#: Bytes of a rise that are much, and the share of the workers' limits from which it is grave.
_MUCH, _OF_LIMIT = 100_000_000, 0.2
#: The share of the rise of all results that functions have to have for them to be named.
_MOST = 0.5


@rule(
    "memory-grows",
    explains="unmanaged-memory memory-near-limit",
)
def memory_grows(run: RunFigures) -> Iterator[Finding]:
    """Find memory that rises steadily from one computation to the next."""
    if not len(run.trace.samples):
        return
    found = memory_growth_of(run.trace)
    whole = found.together
    # Of windows of one computation nothing tells what its tasks are in the middle of.
    if not np.isnan(found.moments.window):
        return
    if whole is not None and _much(whole.unmanaged):
        yield _of_unmanaged(run, whole)
    if whole is not None and _much(whole.results):
        yield _of_results(run, whole, found.functions)
    if found.scheduler is not None and _much(found.scheduler):
        yield said(
            _say_scheduler_grows,
            of="scheduler",
            at_most="medium",
            at_least="low",
            **_figures(found.scheduler),
            tasks=_more_tasks(found.scheduler_tasks),
            computations=Count(round(found.moments.steps.sum())),
        )


def _more_tasks(known: Drift | None) -> Count | None:
    """Return how many tasks more the scheduler knew at last, if steadily or if it did not at all.

    None: nothing tells, or what came at first may be what grew.
    """
    if known is None or known.course is Course.FEW:
        return None
    more = round(known.last - known.first)
    return Count(max(more, 0)) if known.course is Course.RISES or more <= 0 else None


def _much(drift: Drift) -> bool:
    return drift.course is Course.RISES and drift.last - drift.first >= _MUCH


def _figures(drift: Drift) -> dict[str, Any]:
    names = ("first", "last", "each", "least", "most")
    return {
        **{name: Bytes(getattr(drift, name)) for name in names},
        "since_half": Bytes(drift.last - drift.half),
    }


def _of_limits(run: RunFigures, process: ProcessGrowth, rise: float) -> dict[str, Any]:
    """Return the share of the workers' limits that a rise is, and how grave that makes it."""
    limits = float(run.trace.workers["memory_limit"].to_numpy(dtype=float)[process.lives].sum())
    known = np.isfinite(limits) and limits > 0
    share = Share(rise / limits) if known else None
    return {
        "share": share,
        "workers": Count(len(process.lives)),
        "at_most": "medium",
        "at_least": "medium" if share is None or share >= _OF_LIMIT else "low",
    }


def _of_unmanaged(run: RunFigures, whole: ProcessGrowth) -> Finding:
    by_runs = [one for one in growth_by_runs(run.trace) if _much(one.drift)]
    one = by_runs[0] if len(by_runs) == 1 else None
    # Of objects that it does not know Dask takes the size to be small.
    unsized = whole.number.course is Course.RISES
    return said(
        _say_unsized_results if unsized else _say_unmanaged_grows,
        of="unmanaged",
        **_figures(whole.unmanaged),
        **_of_limits(run, whole, whole.unmanaged.last - whole.unmanaged.first),
        computations=_computations(run),
        results=Count(round(whole.number.last - whole.number.first)),
        function=None if one is None or unsized else one.function,
        a_run=None if one is None else Bytes(one.drift.each),
        runs=None if one is None else Count(one.alone),
    )


def _of_results(run: RunFigures, whole: ProcessGrowth, functions: list[FunctionGrowth]) -> Finding:
    rising = [one for one in functions if one.size.course is Course.RISES]
    rising.sort(key=lambda one: one.size.first - one.size.last)
    most = rising[0] if rising else None
    rise = whole.results.last - whole.results.first
    if most is not None and most.size.last - most.size.first < _MOST * rise:
        most = None
    return said(
        _say_results_grow,
        of="results",
        **_figures(whole.results),
        # What a program keeps on purpose is no fault.
        **{**_of_limits(run, whole, rise), "at_least": "low"},
        computations=_computations(run),
        function=None if most is None else most.function,
        of_function=None if most is None else Bytes(most.size.last - most.size.first),
        wanted=most is not None and most.why == WANTED,
        line=None if most is None or not most.line else most.line,
        asked=None if most is None or not most.asked else most.asked,
    )


def _computations(run: RunFigures) -> Count:
    return Count(round(memory_growth_of(run.trace).moments.steps.sum()))


def _course(f: Figures) -> str:
    return (
        f"by {f.each} each (at 95 % {f.least} to {f.most}), "
        f"from {f.first} to {f.last} over {f.computations:computation}"
    )


def _say_unmanaged_grows(f: Figures) -> Words:
    share = f", {f.share} of the workers' limits" if f.share is not None else ""
    named = ""
    if f.function is not None:
        named = (
            f"{f.a_run} stay with each run of {f.function}: so over {f.runs:run} beside which no "
            "other function ran. "
        )
    return (
        f"Memory of workers' processes that is of no result grows with each computation, "
        f"{_course(f)}{share}.",
        f"It is that of {f.workers:worker} together when nothing was under way; in the second half "
        f'it rose by {f.since_half}. {named}See memory_growth() and memory_growth("function").',
        "This trace cannot tell a leak from memory that malloc keeps after it was freed: "
        "client.run(lambda: ctypes.CDLL('libc.so.6').malloc_trim(0)), with import ctypes within "
        "it, would. What that frees malloc kept: call it now and then, or set "
        "MALLOC_TRIM_THRESHOLD_ lower. What it does not free is in module globals, caches, actors "
        "or reference cycles of what tasks use; until that is mended, workers with --lifetime "
        "begin anew.",
    )


def _say_unsized_results(f: Figures) -> Words:
    return (
        f"Workers hold {f.results:result} more than at first, and their processes grow beyond what "
        f"Dask takes results to be: {_course(f)}.",
        f"It is that of {f.workers:worker} together when nothing was under way. Whether these "
        "results are larger than Dask measures them, or tasks leave memory behind, this trace "
        "cannot tell. See memory_growth().",
        "Let futures go that are needed no more. For types of your own, tell Dask their size: "
        "dask.sizeof.sizeof.register.",
    )


def _say_results_grow(f: Figures) -> Words:
    named = ""
    if f.function is not None:
        line = f", built at {f.line}" if f.line is not None else ""
        futures = f", by futures made at {f.asked}" if f.asked is not None else ""
        held = f", which a client wanted when they were made{futures}," if f.wanted else ""
        named = f"{f.of_function} of that are results of {f.function}{line}{held} and not let go. "
    return (
        "Results stay from computation to computation: those in workers' memory grow "
        f"{_course(f)}.",
        f"{named}It is the memory of {f.workers:worker} together when nothing was under way. See "
        "memory_growth().",
        "If the program needs them later, that is as it should be, and what grows will need room. "
        "If not, let go of the futures and persisted collections: del, or client.cancel(); a "
        "notebook's Out[] and a list of futures hold them as well.",
    )


def _say_scheduler_grows(f: Figures) -> Words:
    others = (
        "histories, which are limited in length (distributed.admin.log-length, "
        "distributed.scheduler.transition-log-length), data of graphs, and what malloc keeps after "
        "it was freed"
    )
    if f.tasks is None:
        kept = (
            f"What it keeps are tasks that clients hold futures of, with their graphs; {others}. "
            "Which of these it is this trace cannot tell."
        )
    elif f.tasks > 0:
        kept = (
            f"It knew {f.tasks:task} more at last than at first, and keeps their graphs with them: "
            "let go of futures and persisted collections that are needed no more."
        )
    else:
        kept = (
            f"It did not know more tasks at last than at first, so that it is no futures that are "
            f"held. Which it is of {others} this trace cannot tell."
        )
    return (
        f"The scheduler's process grows with each computation, {_course(f)}.",
        f"In the second half it rose by {f.since_half}. See memory_growth().",
        kept,
    )


# --- The rule about memory that stays in workers' processes when their tasks have ended -----------

#: Bytes, and the share of a worker's limit, that are much, and seconds for which nothing runs.
_MUCH_UNMANAGED, _UNMANAGED_OF_LIMIT, _QUIET = 200_000_000, 0.2, 2.0


@rule(
    "unmanaged-memory",
    explains="memory-near-limit",
)
def unmanaged_memory(run: RunFigures) -> Iterator[Finding]:
    """Find processes that keep memory which is of no result, after they had run tasks."""
    trace = run.trace
    if not len(trace.samples) or not len(trace.managed_memory):
        return
    found: list[tuple[float, float, float, float, int]] = []
    for life in np.unique(trace.tasks["worker_id"].to_numpy()).tolist():
        quiet = _quiet(trace.managed_memory, life)
        memory = trace.samples.reindex(columns=["worker_id", "time", "memory"]).dropna()
        memory = memory[(memory["worker_id"] == life).to_numpy(dtype=bool)]
        if quiet is None or not len(memory):
            continue
        begin, end, results = quiet
        within = memory[memory["time"].between(begin, end).to_numpy(dtype=bool)]
        if not len(within):
            continue
        began = trace.begin + float(run.slots.times.start[_first(run, life)])
        before = memory["memory"].to_numpy(dtype=float)[(memory["time"] <= began).to_numpy()]
        first = float(before.max(initial=0.0)) if len(before) else float(memory["memory"].iloc[0])
        # The least within that time: what is freed late is not kept.
        left = float(within["memory"].min()) - results - first
        limit = float(trace.workers["memory_limit"].iloc[life])
        if left >= _MUCH_UNMANAGED and not left < _UNMANAGED_OF_LIMIT * limit:
            found.append((left, results, limit, end - begin, life))
    if not found:
        return
    left, results, limit, lasted, life = max(found)
    yield said(
        _say_unmanaged_memory,
        worker=str(trace.workers["worker"].iloc[life]),
        left=Bytes(left),
        results=Bytes(results),
        limit=Bytes(limit) if np.isfinite(limit) and limit > 0 else None,
        share=Share(left / limit) if np.isfinite(limit) and limit > 0 else None,
        lasted=Seconds(lasted),
        workers=Count(len(found)),
        severity="medium",
    )


def _say_unmanaged_memory(f: Figures) -> Words:
    limit = f", {f.share} of its limit of {f.limit}" if f.limit is not None else ""
    return (
        f"Memory stays in workers' processes when no task runs: {f.left} in that of {f.worker}, "
        f"beyond what it had before its first task and the results that it holds{limit}.",
        f"Results: {f.results}. Nothing ran there for {f.lasted}, and no less was used meanwhile. "
        f"So on {f.workers:worker}. Dask calls such memory unmanaged, and can neither spill nor "
        "free it. See processes_resource_usage().",
        "Whether the allocator keeps what was freed, or something still refers to it, this trace "
        "cannot tell; client.run(lambda: ctypes.CDLL('libc.so.6').malloc_trim(0)), with import "
        "ctypes within it, would. What that frees the allocator kept: call it now and then "
        "(MALLOC_TRIM_THRESHOLD_, which Dask's nannies set, frees what lies at the end alone). "
        "What it does not free is in module globals, caches and reference cycles of what tasks "
        "use.",
    )


def _quiet(held: pd.DataFrame, life: int) -> tuple[float, float, float] | None:
    """Return a time in which a worker ran nothing and its results stayed, and what they took.

    That is the last one that is long, after its last task; None: there was none. What results that
    are released give back, as at the end of the program, was not kept.
    """
    own = held[(held["worker_id"] == life).to_numpy(dtype=bool)]
    times = own["time"].to_numpy(dtype=float)
    spilled = np.nan_to_num(own["spilled_size"].to_numpy(dtype=float))
    # A few bytes are more as they are spilled.
    results = np.maximum(own["size"].to_numpy(dtype=float) - spilled, 0.0)
    busy = np.flatnonzero(~(own["executing"].to_numpy(dtype=float) == 0))
    first = int(busy[-1]) + 1 if len(busy) else 0
    changes = np.flatnonzero(np.diff(results[first:])) + first + 1
    bounds = [first, *changes.tolist(), len(times)]
    for begin, end in reversed(list(itertools.pairwise(bounds))):
        long = end > begin and times[end - 1] - times[begin] >= _QUIET
        if long and np.isfinite(results[begin]):
            return float(times[begin]), float(times[end - 1]), float(results[begin])
    return None


def _first(run: RunFigures, life: int) -> int:
    """Return a worker's first task run."""
    rows = np.flatnonzero(run.trace.tasks["worker_id"].to_numpy() == life)
    return int(rows[np.argmin(run.slots.times.start[rows])])
