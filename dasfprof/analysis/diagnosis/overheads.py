"""Rules about what Dask itself costs: many small tasks, the scheduler, deserialising."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import count, duration, percent, size, times
from dasfprof.analysis.model.accounting import ThreadTime
from dasfprof.analysis.model.critical_path import SegmentKind

_OVERHEAD = (ThreadTime.SCHEDULER_LATENCY, ThreadTime.WORKER_LATENCY, ThreadTime.TASK_OVERHEAD)

#: Tasks are small if their median is shorter, overhead is so much of their seconds,
_SMALL = 0.010
_BY_COMPUTE = 0.5
#: and it takes such a share of the threads' time.
_SHARE = 0.2
#: Larger tasks are worth it from such a factor on.
_WORTH_IT = 1.5


@rule(
    "tasks-too-small",
    symptoms=(
        "scheduler-bound",
        "imbalance",
        "serial-chain",
        "too-few-tasks",
        "poor-placement",
        "transfer-bound",
        "client-gaps",
        "lock-bound",
    ),
)
def tasks_too_small(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that are so short that handling them takes longer than running them."""
    durations = run.working[run.succeeded]
    if not len(durations) or not len(run.chunk_costs.order):
        return
    overhead, median = run.seconds_of(*_OVERHEAD), float(np.median(durations))
    compute = float(durations.sum()) / run.threads
    share = run.share_of(*_OVERHEAD)
    if not (median < _SMALL and overhead > _BY_COMPUTE * compute and share >= _SHARE):
        return
    costs = run.chunk_costs
    most = int(costs.order[0])
    name = str(costs.functions[most])
    yield Finding(
        f"Tasks are too small: {count(len(durations), 'task')} take {duration(median)} each (the "
        f"median), and handling them takes {percent(share)} of the threads' time.",
        f"Overhead is {times(overhead / compute) if compute > 0 else 'all'} times what the tasks "
        f"compute; each of {name} costs {duration(float(costs.overhead[most]))} besides its own "
        f"{duration(float(costs.duration[most]))}. See chunk_sizing() and time_accounting().",
        _larger_chunks(run, most),
        seconds=overhead,
        function=name,
    )


@rule("scheduler-bound")
def scheduler_bound(run: RunFigures) -> Iterator[Finding]:
    """Find threads that stand idle while tasks are runnable, and the scheduler has them."""
    share, on_path = (
        run.share_of(ThreadTime.SCHEDULER_LATENCY),
        run.path_seconds(SegmentKind.SCHEDULER),
    )
    if share < _SHARE or on_path < _SHARE * run.wall:
        return
    seconds = run.seconds_of(ThreadTime.SCHEDULER_LATENCY)
    rate = len(run.trace.tasks) / run.wall
    yield Finding(
        f"The scheduler holds the run up: for {percent(share)} of their time threads idle though "
        "tasks are runnable, which it has not sent to them yet.",
        f"It handled {rate:.0f} tasks a second; {duration(on_path)} of the critical path are "
        "spent at it. See critical_path_summary() and cluster_sizing().",
        "Give it fewer, larger tasks (chunk_sizing() has the sizes); fuse or batch cheap ones; "
        "keep large objects out of the graph; and look for what else its process does.",
        seconds=seconds,
    )


@rule("deserialising")
def deserialising(run: RunFigures) -> Iterator[Finding]:
    """Find threads that are busy with deserialising tasks."""
    share = run.share_of(ThreadTime.DESERIALIZE)
    if share < 0.1:
        return
    seconds = np.nan_to_num(run.task_column("deserialize"))
    by_function = run.functions.sum(seconds)
    name = str(run.function_names[int(by_function.argmax())])
    yield Finding(
        f"Deserialising tasks takes {percent(share)} of the threads' time, most for {name}.",
        f"{duration(float(by_function.max()))} of thread time for {name}. See "
        'time_accounting("function").',
        f"Large objects are part of the tasks of {name}: hand them over once, by "
        "client.scatter(object, broadcast=True), or load them on the workers.",
        seconds=run.seconds_of(ThreadTime.DESERIALIZE),
        function=name,
    )


def _larger_chunks(run: RunFigures, most: int) -> str:
    costs = run.chunk_costs
    name, chunk = str(costs.functions[most]), float(costs.chunk[most])
    larger = float(costs.times_larger[most])
    if not larger > 1:
        return f"Put more work into each task of {name}: batch inputs, or fuse it with others."
    width = run.width(name)
    factor = min(larger, width / (3 * run.threads))
    if factor < _WORTH_IT:
        return (
            f"Have fewer tasks to handle: do several steps of the pipeline in one function (there "
            f"are only {count(width, 'task')} of {name} in a layer, and larger chunks would leave "
            "threads without), or use fewer threads."
        )
    words = f"Make the tasks of {name} about {times(factor)} times larger"
    if chunk >= 1000:
        words += f": chunks of {size(chunk * factor)} in place of {size(chunk)}"
    else:
        words += f": put {times(factor)} inputs into each, as a list"
    return f"{words}. That leaves {width / factor:,.0f} tasks in a layer."
