"""The rule about memory that grows from computation to computation, or stays after tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.held_results import WANTED
from dasfprof.analysis.model.memory_growth import (
    FunctionGrowth,
    MemoryGrowth,
    ProcessGrowth,
    growth_by_runs,
    memory_growth_of,
)
from dasfprof.analysis.numeric.significance import Course, Drift
from dasfprof.analysis.wording import Bytes, Count, Seconds, Share

#: Threshold (bytes) of a rise that is reported. Threshold (fraction of the workers' memory limits)
#: of a rise of medium severity.
_MUCH, _OF_LIMIT = 100_000_000, 0.2
#: Threshold (fraction of the total rise of results): the functions that cause it are named.
_MOST = 0.5
#: Thresholds of memory that stays after tasks: bytes, fraction of the worker's memory limit, and
#: seconds without a task on the worker.
_MUCH_UNMANAGED, _UNMANAGED_OF_LIMIT, _QUIET = 200_000_000, 0.2, 2.0
_COURSE = (
    "by {each} per computation (95 % confidence interval: {least} to {most}), from {first} to "
    "{last} over {computations:computation}"
)
#: Advice that distinguishes a leak from memory that the allocator keeps.
TRIM = (
    "Run client.run(lambda: __import__('ctypes').CDLL('libc.so.6').malloc_trim(0)) to tell a leak "
    "from freed memory that malloc keeps. If memory drops, run this regularly or lower "
    "MALLOC_TRIM_THRESHOLD_. If not, look for references in module "
    "globals, caches, actors, or cycles. Until the leak is fixed, restart workers regularly with "
    "--lifetime."
)


@rule("memory-growth", explains="paused-workers")
def memory_growth(run: RunFigures) -> Iterator[Finding]:
    """Find memory that rises with each computation, or that stays when its tasks have finished."""
    growth = memory_growth_of(run.trace)
    processes = growth.together
    # Time windows within one computation would include memory of tasks that are still running.
    if not np.isnan(growth.moments.window):
        yield from _stays(run)
        return
    if processes is not None and _much(processes.unmanaged):
        yield _of_unmanaged(run, growth, processes)
    else:
        yield from _stays(run)
    if processes is not None and _much(processes.results):
        yield _of_results(run, growth, processes)
    if growth.scheduler is not None and _much(growth.scheduler):
        yield _of_scheduler(growth, growth.scheduler)


def _much(drift: Drift) -> bool:
    return drift.course is Course.RISES and drift.last - drift.first >= _MUCH


def _figures(growth: MemoryGrowth, drift: Drift) -> dict[str, Any]:
    names = ("first", "last", "each", "least", "most")
    return {
        **{name: Bytes(getattr(drift, name)) for name in names},
        "since_half": Bytes(drift.last - drift.half),
        "computations": Count(round(growth.moments.steps.sum())),
    }


def _of_limits(run: RunFigures, process: ProcessGrowth, rise: float) -> dict[str, Any]:
    """Return figures and the severity of a rise in the memory of workers.

    The figure ``share`` is the rise as a fraction of the memory limits, or None if these are not
    all known.
    """
    limits = float(run.trace.workers["memory_limit"].to_numpy(dtype=float)[process.lives].sum())
    share = Share(rise / limits) if np.isfinite(limits) and limits > 0 else None
    return {
        "share": share,
        "workers": Count(len(process.lives)),
        "at_most": "medium",
        "at_least": "medium" if share is None or share >= _OF_LIMIT else "low",
    }


def _of_unmanaged(run: RunFigures, growth: MemoryGrowth, processes: ProcessGrowth) -> Finding:
    figures = {
        "of": "unmanaged",
        **_figures(growth, processes.unmanaged),
        **_of_limits(run, processes, processes.unmanaged.last - processes.unmanaged.first),
        "results": Count(round(processes.number.last - processes.number.first)),
    }
    together = "The figures are the memory of all {workers:worker} together while no task ran"
    # Dask assumes that objects of unknown types are small.
    if processes.number.course is Course.RISES:
        return Finding.of(
            "Workers hold {results:more result} than at the start, and their processes grow by "
            f"more than the size that Dask measures for these results: {_COURSE}.",
            f"{together}. Either these results are larger than Dask measures, or tasks leave "
            "memory behind. This trace does not show which. See memory_growth().",
            "Release futures that are no longer needed. For your own types, register their size "
            "with dask.sizeof.sizeof.register.",
            **figures,
        )
    by_runs = [culprit for culprit in growth_by_runs(run.trace) if _much(culprit.drift)]
    culprit = by_runs[0] if len(by_runs) == 1 else None
    named = (
        "Each run of {function} leaves {a_run} behind, measured in {runs:run} during which no "
        "other function ran. "
    )
    of_limits = "" if figures["share"] is None else " The growth is {share} of their memory limits."
    return Finding.of(
        f"Unmanaged memory of the workers grows {_COURSE}.",
        f"{together}.{of_limits} In the second half of the run, this memory rose by "
        "{since_half}. "
        f"{named if culprit else ''}See memory_growth() and function_memory().",
        TRIM,
        **figures,
        function=culprit and culprit.function,
        a_run=culprit and Bytes(culprit.drift.each),
        runs=culprit and Count(culprit.alone),
    )


def _of_results(run: RunFigures, growth: MemoryGrowth, processes: ProcessGrowth) -> Finding:
    rise = processes.results.last - processes.results.first
    rising = [growth_of for growth_of in growth.functions if growth_of.size.course is Course.RISES]
    most: FunctionGrowth | None = max(
        rising, key=lambda growth_of: growth_of.size.last - growth_of.size.first, default=None
    )
    if most is not None and most.size.last - most.size.first < _MOST * rise:
        most = None
    named = ""
    if most is not None:
        futures = " through futures that were created at {asked}" if most.asked else ""
        wanted = f" A client requested them{futures}."
        named = (
            f"Results of {{function}}{' (built at {line})' if most.line else ''} account for "
            f"{{of_function}} of the growth.{wanted if most.why == WANTED else ''} They were not "
            "released. "
        )
    return Finding.of(
        f"Results of earlier computations stay in the workers' memory, which grows {_COURSE}.",
        f"{named}The figures are the memory of all {{workers:worker}} together while no task "
        "ran. See memory_growth().",
        "Release futures and persisted collections that your program no longer needs, with del "
        "or client.cancel(). A notebook's Out[] and lists of futures also keep results. If the "
        "program needs the results later, plan for the memory.",
        of="results",
        **_figures(growth, processes.results),
        # The program may keep results on purpose, so low severity is possible.
        **{**_of_limits(run, processes, rise), "at_least": "low"},
        function=most and most.function,
        of_function=most and Bytes(most.size.last - most.size.first),
        wanted=most is not None and most.why == WANTED,
        line=(most and most.line) or None,
        asked=(most and most.asked) or None,
    )


def _of_scheduler(growth: MemoryGrowth, drift: Drift) -> Finding:
    return Finding.of(
        f"The memory of the scheduler's process grows {_COURSE}.",
        "In the second half of the run, it rose by {since_half}. See memory_growth().",
        "Release futures that are no longer needed: the scheduler keeps their tasks and graphs. "
        "Its process also holds histories of limited length (distributed.admin.log-length, "
        "distributed.scheduler.transition-log-length), data of graphs, and memory that malloc has "
        "not returned. This trace does not show which of these grows.",
        of="scheduler",
        **_figures(growth, drift),
        isolated=True,
        at_most="medium",
        at_least="low",
    )


def _stays(run: RunFigures) -> Iterator[Finding]:
    """Yield a finding if unmanaged memory of workers stays after their tasks have finished."""
    trace, candidates = run.trace, list[tuple[float, float, float, float, int]]()
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
        mine = trace.tasks["worker_id"].to_numpy() == life
        began = trace.begin + float(run.slots.times.start[: len(mine)][mine].min())
        before = memory["memory"].to_numpy(dtype=float)[(memory["time"] <= began).to_numpy()]
        first = float(before.max(initial=0.0)) if len(before) else float(memory["memory"].iloc[0])
        # Use the minimum within this time range, because memory that is freed late was not kept.
        left = float(within["memory"].min()) - results - first
        limit = float(trace.workers["memory_limit"].iloc[life])
        if left >= _MUCH_UNMANAGED and not left < _UNMANAGED_OF_LIMIT * limit:
            candidates.append((left, results, limit, end - begin, life))
    if not candidates:
        return
    left, results, limit, lasted, life = max(candidates)
    known = np.isfinite(limit) and limit > 0
    of_limit = ", {share} of its limit of {limit}" if known else ""
    yield Finding.of(
        "Worker {worker} has {left} of unmanaged memory while no task is "
        f"running{of_limit}. This does not count its results, or the memory it used before its "
        "first task.",
        "Its results take {results}. For {lasted}, no task ran on the worker, and its unmanaged "
        "memory did not drop below {left}. This affects {workers:worker}. Dask can neither spill "
        "nor free unmanaged memory. See processes_resource_usage().",
        TRIM,
        of="stays",
        worker=str(trace.workers["worker"].iloc[life]),
        left=Bytes(left),
        results=Bytes(results),
        limit=Bytes(limit) if known else None,
        share=Share(left / limit) if known else None,
        lasted=Seconds(lasted),
        workers=Count(len(candidates)),
        severity="medium",
    )


def _quiet(held: pd.DataFrame, life: int) -> tuple[float, float, float] | None:
    """Return the last long time range in which a worker ran no task and kept the same results.

    The values are its start, its end, and the bytes of the worker's results. The result is None if
    there is no such time range.
    """
    of_worker = held[(held["worker_id"] == life).to_numpy(dtype=bool)]
    times = of_worker["time"].to_numpy(dtype=float)
    spilled = np.nan_to_num(of_worker["spilled_size"].to_numpy(dtype=float))
    # The size of results changes by a few bytes when they are spilled.
    results = np.maximum(of_worker["size"].to_numpy(dtype=float) - spilled, 0.0)
    # Only the time after the worker's last task counts.
    busy = np.flatnonzero(~(of_worker["executing"].to_numpy(dtype=float) == 0))
    first = int(busy[-1]) + 1 if len(busy) else 0
    # Each change of the results, such as their release at the end of the program, begins another
    # time range.
    changes = np.flatnonzero(np.diff(results[first:])) + first + 1
    bounds = [first, *changes.tolist(), len(times)]
    for begin, end in reversed(list(itertools.pairwise(bounds))):
        long = end > begin and times[end - 1] - times[begin] >= _QUIET
        if long and np.isfinite(results[begin]):
            return float(times[begin]), float(times[end - 1]), float(results[begin])
    return None
