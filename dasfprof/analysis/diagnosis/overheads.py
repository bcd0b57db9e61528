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
from dasfprof.analysis.wording import Bytes, Count, Factor, Figures, Seconds, Share, Words

_OVERHEAD = (ThreadTime.SCHEDULER_LATENCY, ThreadTime.WORKER_LATENCY, ThreadTime.TASK_OVERHEAD)

#: Tasks are small if their median is shorter, overhead is so much of their seconds,
_SMALL = 0.010
_BY_COMPUTE = 0.5
#: and it takes such a share of the threads' time.
_SHARE = 0.2
#: The share of the threads' time, and of the critical path, for which tasks are on their way.
_LATE = 0.1
#: The share of their way for which the worker's event loop is blocked, to be why they are late.
_BLOCKED = 0.5
#: Larger tasks are worth it from such a factor on.
_WORTH_IT = 1.5
#: Bytes of a chunk below which it is not one that could be larger.
_DIVISIBLE = 1000


@rule("tasks-too-small")
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
    yield Finding.of(
        _say_tasks_too_small,
        function=name,
        tasks=Count(len(durations)),
        median=Seconds(median),
        handling=Share(share),
        overhead=Factor(overhead / compute) if compute > 0 else None,
        besides=Seconds(costs.overhead[most]),
        own=Seconds(np.mean(run.working[run.functions.codes == _code_of(run, name)])),
        advice=_larger_chunks(run, most),
        seconds=overhead,
    )


def _say_tasks_too_small(f: Figures) -> Words:
    return (
        f"Tasks are too small: {f.tasks:task} take {f.median} each (the median), and handling them "
        f"takes {f.handling} of the threads' time.",
        f"Overhead is {f.overhead or 'all'} times what the tasks compute; each of {f.function} "
        f"costs {f.besides} besides its own {f.own} (means; all without waits for a core). See "
        "chunk_sizing() and time_accounting().",
        _advice(f.advice),
    )


def _advice(f: Figures) -> str:
    """Say how to have larger tasks, or fewer."""
    if f.how == "fewer-steps":
        return (
            "Have fewer tasks to handle: do several steps of the pipeline in one function (there "
            f"are only {f.width:task} of {f.function} in a layer, and larger chunks would leave "
            "threads without), or use fewer threads."
        )
    if f.how == "more-work":
        return (
            f"Put more work into each task of {f.function}: batch inputs, or fuse it with others."
        )
    left = f"That leaves {f.left} tasks in a layer."
    if f.how == "batches":
        return f"Put {f.inputs} inputs into each task of {f.function}, as a list. {left}"
    shapes = f", chunks={f.new_chunks} in place of {f.chunks}" if f.chunks else ""
    unproven = ", if its time grows as they do: all were about as large" if f.unproven else ""
    return (
        f"Make the tasks of {f.function} about {f.factor} times larger: chunks of {f.new_size} in "
        f"place of {f.size}{shapes}{unproven}. {left}"
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
    yield Finding.of(
        _say_scheduler_bound,
        idle=Share(share),
        on_path=Seconds(on_path),
        tasks_a_second=len(run.trace.tasks) / run.wall,
        seconds=run.seconds_of(ThreadTime.SCHEDULER_LATENCY),
    )


def _say_scheduler_bound(f: Figures) -> Words:
    return (
        f"The scheduler holds the run up: for {f.idle} of their time threads idle while it has "
        "runnable tasks to send, or until it has heard that the last ones ended.",
        f"It handled {f.tasks_a_second:.0f} tasks a second; {f.on_path} of the critical path are "
        "spent at it. See critical_path_summary() and cluster_sizing().",
        "Give it fewer, larger tasks (chunk_sizing() has the sizes); fuse or batch cheap ones; "
        "keep large objects out of the graph; and look for what else its process does.",
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
    by_function = np.bincount(run.slots.function, weights=way)
    yield Finding.of(
        _say_late_receipt,
        function=str(run.slots.functions[int(by_function.argmax())]),
        idle=Share(share),
        longest=Seconds(way.max()),
        on_path=Seconds(on_path),
        blocked=Share(_blocked_share(run)),
        seconds=run.seconds_of(ThreadTime.ON_ITS_WAY),
    )


def _say_late_receipt(f: Figures) -> Words:
    busy = f.blocked >= _BLOCKED
    return (
        f"Workers take tasks in late: for {f.idle} of their time threads idle while tasks are on "
        f"their way from the scheduler, for up to {f.longest}"
        + (", as the workers' event loops are blocked." if busy else "."),
        f"{f.on_path} of the critical path; most of it tasks of {f.function}. For {f.blocked} of "
        "this time the event loop of the worker did not answer. See critical_path_summary() and "
        "time_accounting().",
        "Look for what holds the event loop of workers: large arguments and functions that are "
        "unpickled there (client.scatter() large objects), modules that these import (import them "
        "beforehand, by client.run), spilling, and code that holds the GIL for long."
        if busy
        else "Keep large objects out of the graph: client.scatter() them, or load them in the "
        "tasks. Fewer, larger tasks make fewer messages.",
    )


@rule("deserialising")
def deserialising(run: RunFigures) -> Iterator[Finding]:
    """Find threads that are busy with deserialising tasks."""
    share = run.share_of(ThreadTime.DESERIALIZE)
    if share < 0.1:
        return
    seconds = np.nan_to_num(run.task_column("deserialize"))
    by_function = run.functions.sum(seconds)
    yield Finding.of(
        _say_deserialising,
        function=str(run.function_names[int(by_function.argmax())]),
        share=Share(share),
        of_function=Seconds(by_function.max()),
        seconds=run.seconds_of(ThreadTime.DESERIALIZE),
    )


def _say_deserialising(f: Figures) -> Words:
    return (
        f"Deserialising tasks takes {f.share} of the threads' time, most for {f.function}.",
        f'{f.of_function} of thread time for {f.function}. See time_accounting("function").',
        f"Large objects are part of the tasks of {f.function}: hand them over once, by "
        "client.scatter(object, broadcast=True), or load them on the workers.",
    )


def _blocked_share(run: RunFigures) -> float:
    """Return the share of the tasks' time on their way for which the worker's loop was blocked."""
    way = float(run.slots.on_its_way.sum())
    return float(blocked_on_the_way(run.trace).sum()) / way if way > 0 else 0.0


def _code_of(run: RunFigures, name: str) -> int:
    return int(np.flatnonzero(run.function_names == name)[0])


def _larger_chunks(run: RunFigures, most: int) -> Figures:
    """Return how the tasks of a function can be made larger."""
    costs, chunks = run.chunk_costs, find_chunks(run.trace)
    name, chunk = str(costs.functions[most]), float(costs.chunk[most])
    larger, width = float(costs.times_larger[most]), int(chunks.width[most])
    more_work = Figures(how="more-work", function=name)
    if not larger > 1:
        return more_work
    factor = min(larger, width / (3 * run.threads))
    if factor < _WORTH_IT:
        return Figures(how="fewer-steps", function=name, width=Count(width))
    source = _chunks_are_chosen_in(run, most, chunk * factor)
    if source != most:
        return _larger_chunks(run, source) if costs.times_larger[source] > 1 else more_work
    if not chunks.divisible[most] or chunk < _DIVISIBLE:
        inputs = Count(max(2, round(factor)))
        left = Count(round(width / inputs))
        return Figures(how="batches", function=name, inputs=inputs, left=left)
    arrays = chunks.shapes[most]
    return Figures(
        how="larger-chunks",
        function=name,
        factor=Factor(factor),
        size=Bytes(chunk),
        new_size=Bytes(chunk * factor),
        chunks=None if arrays is None else str(arrays[0]),
        new_chunks=None if arrays is None else str(larger_shape(*arrays, factor)),
        unproven=bool(np.isnan(costs.power[most])),
        left=Count(round(width / factor)),
    )


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
