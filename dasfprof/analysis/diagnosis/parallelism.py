"""Rules about how much of the run could go on side by side, and what the rest waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.p2p import p2p_runs
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.stack_samples.sentences import hottest_line
from dasfprof.database.columns import Array
from dasfprof.text import count_of, format_duration, format_share, format_size

#: Shares of the threads' time for which nothing could run, and of wall time with one task at most.
_NOTHING_RUNNABLE = 0.15
_SERIAL = 0.2
#: A chain has as many tasks, one after the other.
_CHAIN = 3
#: A function dominates if it has such a share of all seconds of tasks,
_DOMINATES = 0.5
#: and its task runs take so many times as long as those of the others, on average.
_TIMES_OTHERS = 3.0
#: From so many times the median on, the mean of its tasks is told besides.
_UNEVEN = 3.0


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
    # Without inputs a task waits for no other: the client came with it late.
    linked = run.trace.task_dependencies[0][narrow.rows] > 0
    mine = (narrow.alone > 0.5 * narrow.seconds) & linked
    seconds = float(narrow.alone[mine].sum())
    if seconds < _SERIAL * run.wall or np.count_nonzero(mine) < _CHAIN:
        return
    rows = narrow.rows[mine]
    by_function = np.bincount(run.functions.codes[rows], weights=narrow.alone[mine])
    name = str(run.function_names[int(by_function.argmax())])
    yield Finding(
        f"A chain of {count_of(len(rows), 'task')} runs one after another: for "
        f"{format_duration(seconds)} ({format_share(seconds / run.wall)} of the run) no "
        f"more than one task runs at a time, mostly {name}.",
        f"{format_duration(float(by_function.max()))} of that in {name}; threads idle with "
        f"nothing runnable for {format_share(run.share_of(ThreadTime.NO_RUNNABLE_TASK))} of their "
        f"time. {run.needs_cores}See critical_path_summary() and critical_path().",
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
    sized = (
        f", chunks of {format_size(usual / wanted)} in place of {format_size(usual)}"
        if usual > 1e4
        else ""
    )
    yield Finding(
        f"There are too few tasks for {run.threads:.0f} threads: {format_duration(seconds)} of "
        f"the run's {format_duration(run.wall)} are lost as they idle, mostly while "
        f"{count_of(runs, 'task')} of {name} run.",
        f"Nothing was runnable for {format_share(run.share_of(ThreadTime.NO_RUNNABLE_TASK))} of "
        f"the threads' time. {run.needs_cores}See time_accounting() and critical_path_summary().",
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
    # What a function takes at its first use on a worker is no part of its work.
    working, first = run.working.copy(), run.first_uses
    working[first.rows] = np.minimum(working[first.rows], first.usual)
    total = run.functions.sum(working)
    if not total.sum() > 0:
        return
    code = int(total.argmax())
    own = run.functions.codes == code
    share = float(total[code] / total.sum())
    rest, median = int(np.count_nonzero(~own)), float(np.median(working[own]))
    others = float(total.sum() - total[code])
    if share < _DOMINATES or not rest or median < _TIMES_OTHERS * others / rest:
        return
    cpu = float(run.cpu[own].sum() / run.working[own].sum())
    name, mean = str(run.function_names[code]), float(working[own].mean())
    uneven = f"; {format_duration(mean)} on average" if mean > _UNEVEN * median else ""
    yield Finding(
        f"One function takes most of the time: {name} has {format_share(share)} of all seconds of "
        f"tasks, {format_duration(median)} a task (the median{uneven}).",
        f"{count_of(int(run.functions.sizes[code]), 'task')}, "
        f"{format_duration(float(total[code]))} in all, first uses and waits for a core left out; "
        f"the tasks of all others take {format_duration(others / rest)} on average. It uses the "
        f"CPU for {format_share(cpu)} of its time. {hottest_line(run.trace, name)}"
        "See per_function_bottleneck(), hot_lines() and per_task_bottleneck().",
        f"{name} is a part of Dask's P2P shuffle: shuffle less, by fewer columns and rows, or "
        "fewer and larger partitions; and give it a local disk."
        if p2p_runs(run.trace)[own].any()
        else f"Profile {name} and speed it up: twice as fast, it would save about this time.",
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
    stop = np.minimum(run.slots.end[rows], path.end[own])
    in_line = (stop > start) & ~np.isin(rows, run.outliers.stragglers.rows)
    in_line &= ~run.outliers.on_slow_worker[rows]
    rows, start, stop = rows[in_line], start[in_line], stop[in_line]
    return _Narrow(
        rows, stop - start, run.alone_between(start, stop), run.idle_between(start, stop)
    )
