"""What a replay takes from a recorded run: its task graph, durations, order and placement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.links import dependency_rows
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.slots import TaskSlots
from dasfprof.analysis.model.workers import WorkerLives
from dasfprof.analysis.numeric.groups import distinct
from dasfprof.analysis.simulation.submission import GraphSubmissions, find_submissions
from dasfprof.database.columns import Array
from dasfprof.database.keys import TUPLE

#: How many tasks for each thread a worker is sent of those that can wait in the queue, as Dask's
#: default.
SATURATION = 1.1


@dataclass(frozen=True)
class ReplayInputs:
    """The runs of `TaskSlots` as a replay sees them: seconds and bytes."""

    #: What each run of `TaskSlots` did on its thread: before its function less unspilling,
    #: unspilling, its function, and after it until the thread was free.
    before: Array
    unspill: Array
    running: Array
    after: Array
    #: From giving its thread back until it was done: of runs that seceded.
    seceded: Array
    #: Bytes of its result.
    size: Array
    #: Place of its function in `functions`.
    function: Array
    functions: list[str]
    #: The runs whose results it takes, as compressed rows: those of run ``i`` are
    #: ``inputs[input_offsets[i]:input_offsets[i + 1]]``.
    input_offsets: Array
    inputs: Array
    #: Where it ran: a place among the recorded lives of workers.
    worker: Array
    #: Places in the order in which threads took the runs, and in that of Dask's priorities.
    begun: Array
    priority: Array
    #: Its group takes so many other tasks' results at most that Dask may call it root-ish: then
    #: how many tasks the group had when it arrived, else 0.
    root_group_size: Array
    #: The number of its group.
    group: Array
    #: The graph that it came with, and when graphs come.
    graph: Array
    submissions: GraphSubmissions
    #: Whether the scheduler holds root-ish runs back in its queue, as it does by default.
    queues: bool
    #: Wall seconds from the first arrival to the last known finish.
    wall: float

    def __len__(self) -> int:
        return len(self.running)


def replay_inputs(run: Run, slots: TaskSlots, lives: WorkerLives) -> ReplayInputs:
    """Collect what a replay of a trace needs."""
    times, count = slots.times, len(slots.worker)
    begun = np.empty(count, dtype=np.int64)
    begun[np.lexsort((np.arange(count), times.known, times.executing))] = np.arange(count)
    offsets, inputs = _input_rows(run, begun)
    place_of = np.zeros(len(run.trace.workers), dtype=np.int64)
    place_of[lives.ids] = np.arange(len(lives.ids))
    graph, submissions = find_submissions(run, times)
    groups = _groups(run)
    root_sizes = _root_group_sizes(groups, graph, offsets, inputs)
    rootish = root_sizes > 2 * lives.threads.sum()
    room = int(np.ceil(SATURATION * lives.threads).sum())
    end = slots.end
    start, stop = np.minimum(times.start, end), np.minimum(times.stop, end)
    prelude = start - times.executing
    unspill = np.minimum(_told(run, "disk_read", count), prelude)
    return ReplayInputs(
        before=prelude - unspill,
        unspill=unspill,
        running=stop - start,
        after=end - stop,
        seceded=times.done - end,
        size=_told(run, "size", count),
        function=slots.function,
        functions=slots.functions,
        input_offsets=offsets,
        inputs=inputs,
        worker=place_of[slots.worker],
        begun=begun,
        priority=_priorities(run, begun),
        root_group_size=root_sizes,
        group=groups,
        graph=graph,
        submissions=submissions,
        queues=_queues(run, groups, graph, rootish, room),
        wall=float(times.known.max() - times.arrival.min()) if count else 0.0,
    )


def takers_of(inputs: ReplayInputs, priority: Array) -> tuple[list[int], list[int]]:
    """Return runs that take each run's result, the first by priority first, as rows of places."""
    takers = np.repeat(np.arange(len(inputs)), np.diff(inputs.input_offsets))
    order = np.lexsort((priority[takers], inputs.inputs))
    offsets = np.searchsorted(inputs.inputs[order], np.arange(len(inputs) + 1))
    return offsets.tolist(), takers[order].tolist()


def _told(run: Run, column: str, count: int) -> Array:
    """Return a column of the trace's tasks for all runs, 0 where it is not told or negative."""
    told = np.zeros(count)
    if column in run.ended.tasks:
        values = np.nan_to_num(run.ended.tasks[column].to_numpy(dtype=float))
        told[: len(values)] = np.maximum(values, 0.0)
    return told


def _input_rows(run: Run, begun: Array) -> tuple[Array, Array]:
    """Return the runs that each run has to wait for: of its inputs, and of its key before it."""
    count = len(begun)
    rows, inputs = dependency_rows(run)
    key_ids = run.ended.column("key_id")
    order = np.lexsort((begun, key_ids))
    again = np.flatnonzero(key_ids[order[1:]] == key_ids[order[:-1]])
    rows, inputs = np.append(rows, order[again + 1]), np.append(inputs, order[again])
    right = begun[inputs] < begun[rows]
    rows, inputs = rows[right], inputs[right]
    pairs = distinct(rows.astype(np.int64) * count + inputs) if count else rows
    rows, inputs = np.divmod(pairs, max(count, 1))
    return np.searchsorted(rows, np.arange(count + 1)), inputs


def _priorities(run: Run, begun: Array) -> Array:
    """Rank runs by Dask's priorities; those that are not known, in the order in which they ran."""
    count = len(begun)
    names = ("priority_user", "priority_generation", "priority_order")
    keys = [begun]
    for name in reversed(names):
        values = np.zeros(count)
        if name in run.ended.tasks:
            own = run.ended.tasks[name].to_numpy(dtype=float)
            if np.isnan(own).any():
                return begun
            values[: len(own)] = own
        keys.append(values)
    if len(run.ended.tasks) < count:
        return begun
    ranks = np.empty(count, dtype=np.int64)
    ranks[np.lexsort(keys)] = np.arange(count)
    return ranks


def _root_group_sizes(groups: Array, graph: Array, offsets: Array, inputs: Array) -> Array:
    """Return sizes of groups that may be root-ish, as Dask's `SchedulerState.is_rootish` has it.

    Such a group takes results of fewer than 5 groups, which have fewer than 5 tasks in all.
    """
    count = int(groups.max(initial=-1)) + 1
    consumers = groups[np.repeat(np.arange(len(groups)), np.diff(offsets))]
    pairs = distinct(consumers.astype(np.int64) * max(count, 1) + groups[inputs])
    takers, givers = np.divmod(pairs, max(count, 1))
    sizes = np.bincount(groups, minlength=count)
    number = np.bincount(takers, minlength=count)
    tasks = np.bincount(takers, weights=sizes[givers], minlength=count)
    # A group grows with each graph that adds to it.
    order = np.lexsort((graph, groups))
    so_far = np.empty(len(groups), dtype=np.int64)
    own = groups[order].astype(np.int64) * (int(graph.max(initial=0)) + 1) + graph[order]
    first = np.searchsorted(groups[order], groups[order])
    so_far[order] = np.searchsorted(own, own, side="right") - first
    return np.where(((number < 5) & (tasks < 5))[groups], so_far, 0)


def _groups(run: Run) -> Array:
    """Number the groups of runs: a key's name with its token where it is a tuple, else its prefix.

    As `dask.utils.key_split_group`, but for packed keys, which count by their prefix.
    """
    keys = run.trace.keys
    codes, names = keys.functions()
    key_ids = run.ended.column("key_id")
    heads = keys.head_ids[key_ids]
    in_tuples = np.array([kind >= TUPLE for kind, _ in keys.heads], dtype=bool)
    return np.where(in_tuples[heads], heads + len(names), codes[key_ids])


def _queues(run: Run, groups: Array, graph: Array, rootish: Array, slots: int) -> bool:
    """Return whether the scheduler holds runs back, if it did not: only where it had no need to.

    It sends all at once where ``distributed.scheduler.worker-saturation`` is infinite.
    """
    if "queued" not in run.ended.tasks or run.ended.tasks["queued"].notna().any():
        return True
    rows = np.flatnonzero(rootish)
    together = groups[rows].astype(np.int64) * (int(graph.max(initial=0)) + 1) + graph[rows]
    largest = np.unique(together, return_counts=True)[1].max(initial=0)
    return bool(largest <= slots)
