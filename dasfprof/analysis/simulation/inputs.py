"""Inputs of a replay, from a recorded run: task graph, durations, order, cluster and costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dasfprof.analysis.model.links import dependency_rows, last_slots
from dasfprof.analysis.model.steps import number_layers
from dasfprof.analysis.model.thread_time import recorded_column
from dasfprof.analysis.numeric.groups import distinct
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.analysis.run.workers import WorkerLives
from dasfprof.analysis.simulation.submission import GraphSubmissions, find_submissions
from dasfprof.database.columns import Array

#: Number of root tasks per thread that the scheduler assigns to a worker before it queues more of
#: them. This is Dask's default.
SATURATION = 1.1


@dataclass(frozen=True)
class ReplayInputs:
    """The task runs of `TaskSlots` in the form that a replay needs, in seconds and bytes."""

    #: Seconds for which each task run occupies its thread: before its function (excluding
    #: unspilling), for unspilling, for its function, and after its function.
    before: Array
    unspill: Array
    running: Array
    after: Array
    #: For task runs that seceded: seconds from releasing the thread until the task run was done.
    seceded: Array
    #: Bytes of the result of each task run.
    size: Array
    #: Index of the function of each task run in `functions`.
    function: Array
    functions: list[str]
    #: Task runs whose results each task run uses, as compressed rows: task run ``i`` uses
    #: ``inputs[input_offsets[i]:input_offsets[i + 1]]``.
    input_offsets: Array
    inputs: Array
    #: Position of each task run in the order of starts, and in the order of Dask's priorities.
    start_order: Array
    priority: Array
    #: Number of tasks that the task group had when the task run arrived. It is 0 if the task group
    #: depends on so many other tasks that Dask cannot call it root-ish.
    root_group_size: Array
    #: Index of the graph of each task run, and the arrivals of graphs.
    graph: Array
    submissions: GraphSubmissions
    #: Seconds from the first arrival to the last known finish.
    wall: float

    def __len__(self) -> int:
        return len(self.running)


def replay_inputs(run: Run, slots: TaskSlots, lives: WorkerLives) -> ReplayInputs:
    """Return the inputs for replays of a run."""
    times, count = slots.times, len(slots.worker)
    start_order = np.argsort(np.lexsort((times.known, times.executing)))
    offsets, inputs = _input_rows(run, start_order)
    graph, submissions = find_submissions(run, times, int(lives.threads.sum()))
    key_ids, (functions, _) = run.of_slots("key_id"), run.keys.functions()
    # As in `dask.utils.key_split_group`, tasks with tuple keys form a group if the part of the key
    # before the numbers is the same, and other tasks if their prefix is. Packed keys are grouped by
    # their prefix, too.
    groups = number_layers(run, key_ids, functions[key_ids])
    end = slots.end
    start, stop = np.minimum(times.start, end), np.minimum(times.stop, end)
    prelude = start - times.executing
    unspill = np.minimum(recorded_column(run.tasks, "disk_read", count), prelude)
    return ReplayInputs(
        before=prelude - unspill,
        unspill=unspill,
        running=stop - start,
        after=end - stop,
        seceded=times.done - end,
        size=recorded_column(run.tasks, "size", count),
        function=slots.function,
        functions=slots.functions,
        input_offsets=offsets,
        inputs=inputs,
        start_order=start_order,
        priority=_priorities(run, start_order),
        root_group_size=_root_group_sizes(groups, graph, offsets, inputs),
        graph=graph,
        submissions=submissions,
        wall=float(times.known.max() - times.arrival.min()) if count else 0.0,
    )


def inputs_before_a_run(
    offsets: Array, inputs: Array, priority: Array, layer: Array, functions: list[str]
) -> ReplayInputs:
    """Return the inputs for replays of a graph that has not run and is submitted at once.

    The layers of the graph are used as functions and as task groups. All durations and sizes are 0.
    """
    count = len(priority)
    graph = np.zeros(count, dtype=np.int64)
    submissions = GraphSubmissions(
        np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1), np.zeros(count, dtype=bool)
    )
    nothing = ("before", "unspill", "running", "after", "seceded", "size")
    return ReplayInputs(
        **dict.fromkeys(nothing, np.zeros(count)),
        function=layer,
        functions=functions,
        input_offsets=offsets,
        inputs=inputs,
        start_order=priority,
        priority=priority,
        root_group_size=_root_group_sizes(layer, graph, offsets, inputs),
        graph=graph,
        submissions=submissions,
        wall=0.0,
    )


def takers_of(inputs: ReplayInputs, priority: Array) -> tuple[list[int], list[int]]:
    """Return the task runs that use the result of each task run, as ``offsets, users``.

    The users of the result of task run ``i`` are ``users[offsets[i]:offsets[i + 1]]``, sorted by
    priority.
    """
    takers = np.repeat(np.arange(len(inputs)), np.diff(inputs.input_offsets))
    order = np.lexsort((priority[takers], inputs.inputs))
    offsets = np.searchsorted(inputs.inputs[order], np.arange(len(inputs) + 1))
    return offsets.tolist(), takers[order].tolist()


def _input_rows(run: Run, start_order: Array) -> tuple[Array, Array]:
    """Return the task runs for which each task run waits, as ``offsets, rows``.

    Task run ``i`` waits for ``rows[offsets[i]:offsets[i + 1]]``.
    """
    count = len(start_order)
    rows, inputs = dependency_rows(run)
    key_ids = run.of_slots("key_id")
    order = np.lexsort((start_order, key_ids))
    # A task run waits for the previous run of the same key, too.
    again = np.flatnonzero(key_ids[order[1:]] == key_ids[order[:-1]])
    rows, inputs = np.append(rows, order[again + 1]), np.append(inputs, order[again])
    right = start_order[inputs] < start_order[rows]
    rows, inputs = rows[right], inputs[right]
    pairs = distinct(rows.astype(np.int64) * count + inputs) if count else rows
    rows, inputs = np.divmod(pairs, max(count, 1))
    return np.searchsorted(rows, np.arange(count + 1)), inputs


def _priorities(run: Run, start_order: Array) -> Array:
    """Return the rank of each task run by Dask's priorities, or by start if these are unknown."""
    names = ("priority_order", "priority_generation", "priority_user")
    keys = [run.tasks[name].to_numpy(dtype=float) for name in names if name in run.tasks]
    if len(run.tasks) < len(start_order) or np.isnan(keys).any():
        return start_order
    return np.argsort(np.lexsort([start_order, *keys]))


def _root_group_sizes(groups: Array, graph: Array, offsets: Array, inputs: Array) -> Array:
    """Return the size of each task run's task group, or 0 if the group cannot be root-ish."""
    count = int(groups.max(initial=-1)) + 1
    consumers = groups[np.repeat(np.arange(len(groups)), np.diff(offsets))]
    pairs = distinct(consumers.astype(np.int64) * max(count, 1) + groups[inputs])
    takers, givers = np.divmod(pairs, max(count, 1))
    sizes = np.bincount(groups, minlength=count)
    number = np.bincount(takers, minlength=count)
    tasks = np.bincount(takers, weights=sizes[givers], minlength=count)
    # A group grows when a graph with tasks of this group arrives.
    order = np.lexsort((graph, groups))
    so_far = np.empty(len(groups), dtype=np.int64)
    cells = groups[order].astype(np.int64) * (int(graph.max(initial=0)) + 1) + graph[order]
    first = np.searchsorted(groups[order], groups[order])
    so_far[order] = np.searchsorted(cells, cells, side="right") - first
    # As in Dask's `SchedulerState.is_rootish`, the group must use results of fewer than 5 groups,
    # which must have fewer than 5 tasks in total.
    return np.where(((number < 5) & (tasks < 5))[groups], so_far, 0)


#: Tolerance in seconds: a worker that joins this soon after the first task counts as present from
#: the start. A worker that leaves this soon after it got a task did run the task.
_AT_ONCE = 0.001


@dataclass(frozen=True)
class ReplayCluster:
    """Workers of a replay, with times in seconds from the arrival of the first task."""

    threads: Array
    #: Time at which each worker joins, or 0 if it is present from the start.
    joined: Array
    #: Time at which each worker leaves, or infinity if it stays.
    left: Array

    @property
    def most_workers(self) -> int:
        """The maximum number of workers at the same time."""
        joins = np.sort(self.joined)
        leaves = np.sort(self.left)
        there = np.arange(1, len(joins) + 1) - np.searchsorted(leaves, joins, side="right")
        return int(there.max(initial=0))

    @property
    def most_threads(self) -> int:
        """The maximum number of threads at the same time."""
        order = np.argsort(np.r_[self.left, self.joined], kind="stable")
        steps = np.r_[-self.threads, self.threads][order]
        return int(np.cumsum(steps).max(initial=0))

    def with_workers(self, count: int) -> ReplayCluster:
        """Return a cluster with `count` workers, which join and leave like the recorded workers."""
        if not len(self.threads):
            return ReplayCluster(
                np.ones(count, dtype=np.int64), np.zeros(count), np.full(count, np.inf)
            )
        lives = max(round(len(self.threads) * count / max(self.most_workers, 1)), 1)
        like = np.arange(lives) * len(self.threads) // lives
        return ReplayCluster(self.threads[like], self.joined[like], self.left[like])

    def with_threads(self, count: int) -> ReplayCluster:
        """Return a cluster with the same workers, but another number of threads per worker."""
        return replace(self, threads=np.full(len(self.threads), count))


def recorded_cluster(run: Run, lives: WorkerLives, slots: TaskSlots) -> ReplayCluster:
    """Return the cluster on which a run was recorded."""
    first = float(slots.times.arrival.min(initial=np.inf))
    last = float(slots.times.sent.max(initial=-np.inf))
    joined, left = run.joined[lives.ids], run.left[lives.ids]
    joined = np.where(np.isnan(joined), 0.0, np.fmax(joined, lives.begin)) - first
    # A worker that left during the run leaves the replay right after the start of its last recorded
    # task. After this start, the worker was closing, or later tasks on it were lost.
    taken = np.full(len(run.workers), -np.inf)
    np.maximum.at(taken, slots.worker, slots.times.executing)
    taken = np.where(np.isfinite(taken[lives.ids]), taken[lives.ids] + _AT_ONCE, left)
    # A worker that left after all tasks were assigned stays in the replay.
    return ReplayCluster(
        threads=lives.threads,
        joined=np.where(joined > _AT_ONCE, joined, 0.0),
        left=np.where(left < last, np.maximum(np.fmin(left, taken) - first, 0.0), np.inf),
    )


#: Default costs if there are no measurements: seconds of the scheduler per task, seconds of a
#: message in transit, and bytes per second (Dask's own initial guess).
_USUAL_TASK, _USUAL_LATENCY, _USUAL_BANDWIDTH = 0.0003, 0.001, 100e6
#: Maximum bytes of a transfer whose duration does not depend on its size.
_SMALL = 100_000
#: Maximum of a latency, and maximum of the scheduler's time per task, as multiples of the median.
#: If a process takes longer, it did something else.
_LONGEST, _LONGEST_GAP = 20.0, 3.0
#: Minimum number of measurements from which a cost is computed.
_ENOUGH = 10


@dataclass(frozen=True)
class Costs:
    """Latencies and other costs of handling tasks in seconds, and bandwidth in bytes per second."""

    #: Seconds from the scheduler sending a task until the worker receives the task. Like any
    #: message, it waits until the previous message is 2 ms old, and for the event loops of both
    #: processes.
    to_worker: float
    #: Seconds from a worker knowing the outcome of a task until the scheduler knows the outcome.
    to_scheduler: float
    #: Seconds for which a finished task, with all consequences, occupies the scheduler.
    scheduler: float
    #: Seconds from a task being ready until a free thread takes the task.
    start: float
    #: Seconds of a message with inputs. The time for the bytes of the inputs is added.
    transfer: float
    bandwidth: float


#: Costs that are assumed if there are no measurements.
USUAL_COSTS = Costs(
    _USUAL_LATENCY, _USUAL_LATENCY, _USUAL_TASK, 0.0, _USUAL_LATENCY, _USUAL_BANDWIDTH
)


def measure_costs(run: Run, slots: TaskSlots) -> Costs:
    """Return the costs that were measured in a run, with defaults for costs not measured."""
    tasks, count = run.tasks, len(run.tasks)
    received, done, known = (getattr(slots.times, x)[:count] for x in ("received", "done", "known"))
    scheduled = np.full(count, "sent" in tasks)
    if "sent" in tasks:
        scheduled &= tasks["sent"].notna().to_numpy()
    is_received = tasks["received"].notna().to_numpy() & scheduled
    is_done = tasks["done"].notna().to_numpy() & scheduled
    # Latencies are means, because chains of tasks add them up.
    to_worker = _mean(received[is_received] - slots.sent[:count][is_received], _USUAL_LATENCY)
    done, known = done[is_done], known[is_done]
    to_scheduler, scheduler = _from_workers(done, known)
    executing, ready = slots.times.executing, slots.times.ready
    free = (last_slots(slots, executing, ready) < 0)[:count]
    free &= tasks["ready"].notna().to_numpy() & tasks["executing"].notna().to_numpy()
    waits = (executing - ready)[:count][free]
    return Costs(to_worker, to_scheduler, scheduler, _mean(waits, 0.0), *_transfers(run))


def _mean(values: Array, usual: float, longest: float = _LONGEST) -> float:
    """Return the mean of latencies, or `usual` if there are none."""
    if not len(values):
        return usual
    # Values are limited to a multiple of the median, because some include a pause.
    return float(np.mean(np.minimum(values, longest * np.median(values))))


def _from_workers(done: Array, known: Array) -> tuple[float, float]:
    """Return the latency of reports of finished tasks, and the scheduler's seconds per report.

    `done` is when each task finished on its worker, and `known` when the scheduler knew this.
    """
    order = np.argsort(known, kind="stable")
    done, known = done[order], known[order]
    before = np.append(-np.inf, known)[:-1]
    # The latency is the mean delay of reports that did not wait for an earlier report.
    alone = (known - done)[before <= done]
    latency = _mean(alone if len(alone) >= _ENOUGH else known - done, _USUAL_LATENCY)
    # The scheduler's time is the mean time between a report that waited and the report before it.
    gaps = (known - before)[done + latency < before]
    if len(gaps) < _ENOUGH:
        return latency, min(_USUAL_TASK, latency)
    return latency, _mean(gaps, _USUAL_TASK, _LONGEST_GAP)


def _transfers(run: Run) -> tuple[float, float]:
    """Return the latency of transfers in seconds, and their bandwidth in bytes per second."""
    table = run.transfers
    brought = (table["state"].isna() | (table["state"] == "success")).to_numpy(dtype=bool)
    size, seconds = table["size"].to_numpy(dtype=float), table["duration"].to_numpy(dtype=float)
    known = brought & np.isfinite(size) & np.isfinite(seconds) & (seconds >= 0)
    size, seconds = size[known], seconds[known]
    small = size <= _SMALL
    latency = _mean(seconds[small], _USUAL_LATENCY)
    if small.all():
        return latency, _USUAL_BANDWIDTH
    beyond = np.maximum(seconds[~small] - latency, 0.1 * seconds[~small]).sum()
    return latency, float(size[~small].sum() / beyond) if beyond > 0 else _USUAL_BANDWIDTH
