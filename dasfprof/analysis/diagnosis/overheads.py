"""Rules about what Dask itself costs: many small tasks, the scheduler, deserialising."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.chunks import find_chunks, larger_shape
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.loops import blocked_on_the_way
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.text import count_of, format_duration, format_factor, format_share, format_size

_OVERHEAD = (ThreadTime.SCHEDULER_LATENCY, ThreadTime.WORKER_LATENCY, ThreadTime.TASK_OVERHEAD)

#: Tasks are small if their median is shorter, overhead is so much of their seconds,
_SMALL = 0.010
_BY_COMPUTE = 0.5
#: and it takes such a share of the threads' time.
_SHARE = 0.2
#: The share of the threads' time, and of the critical path, for which tasks are on their way.
_LATE = 0.1
#: Larger tasks are worth it from such a factor on.
_WORTH_IT = 1.5


@rule(
    "tasks-too-small",
    symptoms=(
        "scheduler-bound",
        "imbalance",
        "too-few-tasks",
        "poor-placement",
        "transfer-bound",
        "late-receipt",
        "lock-bound",
    ),
)
def tasks_too_small(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that are so short that handling them takes longer than running them."""
    durations = run.working[run.succeeded]
    # As few tasks as threads cannot be made fewer.
    if len(durations) <= run.threads or not len(run.chunk_costs.order):
        return
    median, compute = float(np.median(durations)), float(durations.sum()) / run.threads
    # The more messages, the longer they take; a blocked loop has causes of its own.
    received = 1.0 - _blocked_share(run)
    overhead = run.seconds_of(*_OVERHEAD) + received * run.seconds_of(ThreadTime.ON_ITS_WAY)
    share = run.share_of(*_OVERHEAD) + received * run.share_of(ThreadTime.ON_ITS_WAY)
    if not (median < _SMALL and overhead > _BY_COMPUTE * compute and share >= _SHARE):
        return
    costs = run.chunk_costs
    # Others may cost more and are none of those that are too small.
    small = run.functions.median(np.where(run.succeeded, run.working, np.nan)) < _SMALL
    most = int(next((place for place in costs.order if small[place]), costs.order[0]))
    name = str(costs.functions[most])
    own = float(np.mean(run.working[run.functions.codes == _code_of(run, name)]))
    yield Finding(
        f"Tasks are too small: {count_of(len(durations), 'task')} take {format_duration(median)} "
        f"each (the median), and handling them takes {format_share(share)} of the threads' time.",
        f"Overhead is {format_factor(overhead / compute) if compute > 0 else 'all'} times what "
        f"the tasks compute; each of {name} costs {format_duration(float(costs.overhead[most]))} "
        f"besides its own {format_duration(own)} (means; all without waits for a core). See "
        "chunk_sizing() and time_accounting().",
        _larger_chunks(run, most),
        seconds=overhead,
        function=name,
    )


@rule("scheduler-bound")
def scheduler_bound(run: RunFigures) -> Iterator[Finding]:
    """Find threads that stand idle until the scheduler sends a task or has heard of an end."""
    share, on_path = (
        run.share_of(ThreadTime.SCHEDULER_LATENCY),
        run.path_seconds(SegmentKind.SCHEDULER),
    )
    if share < _SHARE or on_path < _SHARE * run.wall:
        return
    seconds = run.seconds_of(ThreadTime.SCHEDULER_LATENCY)
    rate = len(run.trace.tasks) / run.wall
    yield Finding(
        f"The scheduler holds the run up: for {format_share(share)} of their time threads idle "
        "while it has runnable tasks to send, or until it has heard that the last ones ended.",
        f"It handled {rate:.0f} tasks a second; {format_duration(on_path)} of the critical path "
        "are spent at it. See critical_path_summary() and cluster_sizing().",
        "Give it fewer, larger tasks (chunk_sizing() has the sizes); fuse or batch cheap ones; "
        "keep large objects out of the graph; and look for what else its process does.",
        seconds=seconds,
    )


@rule("late-receipt")
def late_receipt(run: RunFigures) -> Iterator[Finding]:
    """Find threads that stand idle while tasks are on their way to them."""
    share, on_path = (
        run.share_of(ThreadTime.ON_ITS_WAY),
        run.path_seconds(SegmentKind.ON_ITS_WAY),
    )
    if share < _LATE or on_path < _LATE * run.wall:
        return
    way = run.slots.on_its_way
    blocked = _blocked_share(run)
    by_function = np.bincount(run.slots.function, weights=way)
    name = run.slots.functions[int(by_function.argmax())]
    busy = blocked >= 0.5
    yield Finding(
        f"Workers take tasks in late: for {format_share(share)} of their time threads idle while "
        f"tasks are on their way from the scheduler, for up to {format_duration(float(way.max()))}"
        + (", as the workers' event loops are blocked." if busy else "."),
        f"{format_duration(on_path)} of the critical path; most of it tasks of {name}. For "
        f"{format_share(blocked)} of this time the event loop of the "
        "worker did not answer. See critical_path_summary() and time_accounting().",
        "Look for what holds the event loop of workers: large arguments and functions that are "
        "unpickled there (client.scatter() large objects), modules that these import (import them "
        "beforehand, by client.run), spilling, and code that holds the GIL for long."
        if busy
        else "Keep large objects out of the graph: client.scatter() them, or load them in the "
        "tasks. Fewer, larger tasks make fewer messages.",
        seconds=run.seconds_of(ThreadTime.ON_ITS_WAY),
        function=name,
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
        f"Deserialising tasks takes {format_share(share)} of the threads' time, most for {name}.",
        f"{format_duration(float(by_function.max()))} of thread time for {name}. See "
        'time_accounting("function").',
        f"Large objects are part of the tasks of {name}: hand them over once, by "
        "client.scatter(object, broadcast=True), or load them on the workers.",
        seconds=run.seconds_of(ThreadTime.DESERIALIZE),
        function=name,
    )


def _blocked_share(run: RunFigures) -> float:
    """Return the share of the tasks' time on their way for which the worker's loop was blocked."""
    way = float(run.slots.on_its_way.sum())
    return float(blocked_on_the_way(run.trace).sum()) / way if way > 0 else 0.0


def _code_of(run: RunFigures, name: str) -> int:
    return int(np.flatnonzero(run.function_names == name)[0])


def _larger_chunks(run: RunFigures, most: int) -> str:
    costs = run.chunk_costs
    name, chunk = str(costs.functions[most]), float(costs.chunk[most])
    larger = float(costs.times_larger[most])
    more_work = f"Put more work into each task of {name}: batch inputs, or fuse it with others."
    if not larger > 1:
        return more_work
    width = int(find_chunks(run.trace).width[most])
    factor = min(larger, width / (3 * run.threads))
    if factor < _WORTH_IT:
        return (
            "Have fewer tasks to handle: do several steps of the pipeline in one function (there "
            f"are only {count_of(width, 'task')} of {name} in a layer, and larger chunks would "
            "leave threads without), or use fewer threads."
        )
    chunks = find_chunks(run.trace)
    source = _chunks_are_chosen_in(run, most, chunk * factor)
    if source != most:
        return _larger_chunks(run, source) if costs.times_larger[source] > 1 else more_work
    if not chunks.divisible[most] or chunk < 1000:
        inputs = max(2, round(factor))
        return (
            f"Put {inputs:,} inputs into each task of {name}, as a list. That leaves "
            f"{width / inputs:,.0f} tasks in a layer."
        )
    words = f"Make the tasks of {name} about {format_factor(factor)} times larger"
    words += f": chunks of {format_size(chunk * factor)} in place of {format_size(chunk)}"
    arrays = chunks.shapes[most]
    if arrays is not None:
        words += f", chunks={larger_shape(*arrays, factor)} in place of {arrays[0]}"
    if np.isnan(costs.power[most]):
        words += ", if its time grows as they do: all were about as large"
    return f"{words}. That leaves {width / factor:,.0f} tasks in a layer."


def _chunks_are_chosen_in(run: RunFigures, most: int, wanted: float) -> int:
    """Return the function whose chunks decide how large those of a function are.

    That is the function itself, unless such a chunk were larger than each array or frame that the
    run begins with: what a product has in between, for example, is larger than both matrices, and
    its chunks are what theirs make of it.
    """
    chunks, (lengths, _) = find_chunks(run.trace), run.trace.task_dependencies
    begins = np.zeros(len(chunks.width), dtype=bool)
    begins[run.functions.codes[lengths == 0]] = True
    sources = np.flatnonzero(begins & chunks.divisible)
    whole = (chunks.size * chunks.width)[sources]
    if not len(sources) or wanted <= whole.max():
        return most
    return int(sources[whole.argmax()])
