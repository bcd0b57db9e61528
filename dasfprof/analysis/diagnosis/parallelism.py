"""Rules about how much of the run could go on side by side, and what the rest waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import count, duration, percent, size
from dasfprof.analysis.model.accounting import ThreadTime
from dasfprof.database.columns import Array

#: Shares of the threads' time for which nothing could run, and of wall time with one task at most.
_NOTHING_RUNNABLE = 0.15
_SERIAL = 0.2
#: A chain has as many tasks, one after the other.
_CHAIN = 3
#: A function dominates if it has such a share of all seconds of tasks,
_DOMINATES = 0.5
#: and its task runs take so many times as long as those of the others, on average.
_TIMES_OTHERS = 3.0


@dataclass(frozen=True)
class _Narrow:
    """The compute segments of the critical path by task run, less stragglers and slow workers."""

    #: Rows of `Trace.tasks`, in the order of the path.
    rows: Array
    #: For each its seconds on the path, those alone, and wall seconds that threads idled.
    seconds: Array
    alone: Array
    idle: Array


@rule(
    "serial-chain",
    symptoms=(
        "imbalance",
        "too-few-tasks",
        "dominating-function",
    ),
)
def serial_chain(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that run one after another, alone, while all other threads wait for them."""
    if run.threads < 2 or run.share_of(ThreadTime.NO_RUNNABLE_TASK) < _NOTHING_RUNNABLE:
        return
    narrow = _narrow(run)
    mine = narrow.alone > 0.5 * narrow.seconds
    seconds = float(narrow.alone[mine].sum())
    if seconds < _SERIAL * run.wall or np.count_nonzero(mine) < _CHAIN:
        return
    rows = narrow.rows[mine]
    by_function = np.bincount(run.functions.codes[rows], weights=narrow.alone[mine])
    name = str(run.function_names[int(by_function.argmax())])
    yield Finding(
        f"A chain of {count(len(rows), 'task')} runs one after another: for {duration(seconds)} "
        f"({percent(seconds / run.wall)} of the run) no more than one task runs at a time, mostly "
        f"{name}.",
        f"{duration(float(by_function.max()))} of that in {name}; threads idle with nothing "
        f"runnable for {percent(run.share_of(ThreadTime.NO_RUNNABLE_TASK))} of their time. See "
        "critical_path_summary() and critical_path().",
        f"Break the chain of {name}: make its steps independent, combine results pairwise in a "
        "tree (dask's reductions do, split_every=2), or run several chains side by side.",
        seconds=float(narrow.idle[mine].sum()),
        function=name,
        start=float(run.slots.times.executing[rows[0]]),
        stop=float(run.slots.times.done[rows[-1]]),
    )


@rule("too-few-tasks")
def too_few_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find times at which there are fewer tasks than threads, for there are no more of them."""
    if run.threads < 2 or run.share_of(ThreadTime.NO_RUNNABLE_TASK) < _NOTHING_RUNNABLE:
        return
    narrow = _narrow(run)
    alone = narrow.alone > 0.5 * narrow.seconds
    mine = ~alone if np.count_nonzero(alone) >= _CHAIN else np.ones(len(alone), dtype=bool)
    seconds = float(narrow.idle[mine].sum())
    if seconds < 0.1 * run.wall:
        return
    codes = run.functions.codes[narrow.rows[mine]]
    name_code = int(np.bincount(codes, weights=narrow.idle[mine]).argmax())
    name, runs = str(run.function_names[name_code]), int(run.functions.sizes[name_code])
    chunk = np.fmax(run.task_column("size"), run.task_column("input_size"))
    usual = float(np.nan_to_num(run.functions.mean(chunk)[name_code]))
    own = narrow.rows[mine][codes == name_code]
    wanted = max(int(np.ceil(3 * run.threads / max(runs, 1))), 2)
    sized = f", chunks of {size(usual / wanted)} in place of {size(usual)}" if usual > 1e4 else ""
    yield Finding(
        f"There are too few tasks for {run.threads:.0f} threads: {duration(seconds)} of the run's "
        f"{duration(run.wall)} are lost as they idle, mostly while {count(runs, 'task')} of {name} "
        "run.",
        f"Nothing was runnable for {percent(run.share_of(ThreadTime.NO_RUNNABLE_TASK))} of the "
        "threads' time. See time_accounting() and critical_path_summary().",
        f"Split the work of {name} into {wanted} times as many partitions ({runs * wanted} "
        f"tasks{sized}), so that each thread has three; or run it on fewer workers.",
        seconds=seconds,
        function=name,
        start=float(run.slots.times.executing[own].min()),
        stop=float(run.slots.times.done[own].max()),
    )


@rule("dominating-function", symptoms=("blocked-tasks",))
def dominating_function(run: RunFigures) -> Iterator[Finding]:
    """Find a function that takes most of the time, and whose tasks are far longer than others."""
    total = run.functions.sum(run.working)
    if not total.sum() > 0:
        return
    code = int(total.argmax())
    share = float(total[code] / total.sum())
    others = total.sum() - total[code]
    rest = len(run.working) - int(run.functions.sizes[code])
    mean = float(total[code] / run.functions.sizes[code])
    if share < _DOMINATES or not rest or mean < _TIMES_OTHERS * others / rest:
        return
    name = str(run.function_names[code])
    cpu = np.nansum(run.task_column("cpu")[run.functions.codes == code]) / total[code]
    yield Finding(
        f"One function takes most of the time: {name} has {percent(share)} of all seconds of "
        f"tasks, {duration(mean)} a task.",
        f"{count(int(run.functions.sizes[code]), 'task')}, {duration(float(total[code]))} in all; "
        f"the tasks of all others take {duration(float(others / rest))} on average. It uses the "
        f"CPU for {percent(min(float(cpu), 1.0))} of its time. See per_function_bottleneck() and "
        "per_task_bottleneck().",
        f"Profile and speed up {name}: twice as fast, it would save about this time. Look at its "
        "algorithm, vectorise it, compile it, or move it to a GPU.",
        seconds=run.saved(0.5 * run.path_seconds_of(code), speedup={name: 2.0}),
        at_most="medium",
        at_least="low",
        function=name,
    )


def _narrow(run: RunFigures) -> _Narrow:
    path, times_ = run.path, run.slots.times
    own = path.rows < len(run.trace.tasks)
    rows = path.rows[own]
    start = np.maximum(times_.executing[rows], path.begin[own])
    stop = np.minimum(times_.done[rows], path.end[own])
    in_line = (stop > start) & ~np.isin(rows, run.outliers.stragglers.rows)
    in_line &= ~run.outliers.on_slow_worker[rows]
    rows, start, stop = rows[in_line], start[in_line], stop[in_line]
    return _Narrow(
        rows, stop - start, run.alone_between(start, stop), run.idle_between(start, stop)
    )
