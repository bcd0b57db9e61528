"""Where every second of every thread went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dasfprof.analysis.model import busy_time, idle_time
from dasfprof.analysis.model.idle_cells import IdleCells, idle_cells, own_cells
from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.run_end import find_run_end
from dasfprof.analysis.model.slots import TaskSlots, task_slots, unfinished_runs, unseen_runs
from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.model.workers import WorkerLives, worker_lives
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


class ThreadTime(IntEnum):
    """What a thread-second was spent on; those of busy threads come first."""

    COMPUTING = 0
    WAITING_FOR_A_CORE = 1
    BLOCKED = 2
    RUNNING_CPU_UNKNOWN = 3
    DESERIALIZE = 4
    UNSPILL_AND_SPILL = 5
    TASK_OVERHEAD = 6
    STARTING = 7
    CLOSING = 8
    PAUSED_FOR_MEMORY = 9
    UNRECORDED = 10
    WORKER_LATENCY = 11
    TRANSFER_WAIT = 12
    ON_ITS_WAY = 13
    SCHEDULER_LATENCY = 14
    RUNNABLE_ELSEWHERE = 15
    NO_RUNNABLE_TASK = 16
    CALLS_OF_ACTORS = 17
    NOTHING_SUBMITTED = 18
    IDLE_CAUSE_UNKNOWN = 19


#: The classes in which a task's function runs in a thread.
RUNNING = (
    ThreadTime.COMPUTING,
    ThreadTime.WAITING_FOR_A_CORE,
    ThreadTime.BLOCKED,
    ThreadTime.RUNNING_CPU_UNKNOWN,
)


_OF_USES = {
    busy_time.COMPUTING: ThreadTime.COMPUTING,
    busy_time.CORE_WAIT: ThreadTime.WAITING_FOR_A_CORE,
    busy_time.BLOCKED: ThreadTime.BLOCKED,
    busy_time.CPU_UNKNOWN: ThreadTime.RUNNING_CPU_UNKNOWN,
    busy_time.DESERIALIZE: ThreadTime.DESERIALIZE,
    busy_time.SPILL: ThreadTime.UNSPILL_AND_SPILL,
    busy_time.OVERHEAD: ThreadTime.TASK_OVERHEAD,
}
_OF_CAUSES = {
    idle_time.IDLE_STARTING: ThreadTime.STARTING,
    idle_time.IDLE_CLOSING: ThreadTime.CLOSING,
    idle_time.IDLE_PAUSED: ThreadTime.PAUSED_FOR_MEMORY,
    idle_time.UNRECORDED: ThreadTime.UNRECORDED,
    idle_time.WORKER_LATENCY: ThreadTime.WORKER_LATENCY,
    idle_time.TRANSFER: ThreadTime.TRANSFER_WAIT,
    idle_time.ON_ITS_WAY: ThreadTime.ON_ITS_WAY,
    idle_time.SCHEDULER: ThreadTime.SCHEDULER_LATENCY,
    idle_time.ELSEWHERE: ThreadTime.RUNNABLE_ELSEWHERE,
    idle_time.DEPENDENCIES: ThreadTime.NO_RUNNABLE_TASK,
    idle_time.ACTORS: ThreadTime.CALLS_OF_ACTORS,
    idle_time.CLIENT: ThreadTime.NOTHING_SUBMITTED,
}
#: Of these only the scheduler knows.
NEEDS_SCHEDULER = (
    ThreadTime.NO_RUNNABLE_TASK,
    ThreadTime.CALLS_OF_ACTORS,
    ThreadTime.NOTHING_SUBMITTED,
)
#: About how many cells tell why threads were idle: a page has half a megabyte of them.
_MOST_CELLS = 100_000


@dataclass(frozen=True)
class Accounts:
    """Thread-seconds by class, in the order of `ThreadTime`."""

    #: The lives of the workers.
    lives: WorkerLives
    #: By life and class.
    of_lives: Array
    #: By function and class, in the order of `functions`; busy threads only.
    of_functions: Array
    functions: list[str]
    #: The same by step of the pipeline.
    of_steps: Array
    steps: list[str]


@dataclass(frozen=True)
class ThreadSeconds:
    """What `Accounts` of any window rest on, of a trace with its open runs."""

    lives: WorkerLives
    #: The idle threads of each life.
    cells: list[IdleCells]
    #: Seconds of busy threads by row of `Trace.workers`, by function and by step, and class.
    of_workers: Array
    of_functions: Array
    functions: list[str]
    of_steps: Array
    steps: list[str]


def make_accounts(trace: Trace) -> Accounts:
    """Account for every thread-second of every worker's life."""
    return accounts_within(trace, -np.inf, np.inf)


def accounts_within(trace: Trace, begin: float, end: float) -> Accounts:
    """Account for every thread-second of the workers' lives within a window.

    Task runs are taken to lie within it.
    """
    trace = with_open_runs(trace)
    found = thread_seconds(trace)
    lives = found.lives.within(begin, end)
    of_lives = found.of_workers[lives.ids]
    if len(lives.ids):
        cells = {own.worker: own for own in found.cells}
        idle = [cells[number].between(begin, end) for number in lives.ids.tolist()]
        of_lives += by_class(trace, np.stack(idle))
    return Accounts(
        lives, of_lives, found.of_functions, found.functions, found.of_steps, found.steps
    )


@once_per_trace
def thread_seconds(trace: Trace) -> ThreadSeconds:
    """Find the classes of all threads of a trace with its open runs."""
    return find_thread_seconds(trace, _MOST_CELLS)


def find_thread_seconds(trace: Trace, most: int) -> ThreadSeconds:
    """Do what `thread_seconds` does, with about so many cells."""
    slots = task_slots(trace)
    lives = worker_lives(trace, slots)
    span = float(lives.end.max() - lives.begin.min()) if len(lives.ids) else 0.0
    count = max(most // max(len(lives.ids), 1), 8)
    demand = idle_time.PoolDemand.of(trace, slots, unfinished_runs(trace))
    bounds = _bounds(trace, demand)
    owns = []
    lengths = np.zeros((3, len(slots.worker)))
    for rows, causes in own_causes_of(trace, slots, lives):
        own = own_cells(causes, bounds, span, count)
        lengths[:, rows] = _used(slots, rows, own.threads)
        owns.append(own)
    pool = idle_time.pool_of([own.threads for own in owns], demand)
    cells = list(idle_cells(lives, owns, pool, span, count))
    uses = busy_time.busy_seconds(trace, slots, *lengths)
    of_functions = _busy(uses, slots.function, len(slots.functions))
    ran = np.flatnonzero(np.bincount(slots.function, minlength=len(slots.functions)))
    codes, steps = step_groups(trace.tasks, unseen_runs(trace))
    of_steps = _busy(uses, codes, len(steps))
    present = np.flatnonzero(np.bincount(codes, minlength=len(steps)))
    return ThreadSeconds(
        lives,
        cells,
        _busy(uses, slots.worker, len(trace.workers)),
        of_functions[ran],
        [slots.functions[code] for code in ran],
        of_steps[present],
        [steps[code] for code in present],
    )


def by_class(trace: Trace, causes: Array) -> Array:
    """Turn idle thread-seconds by cause, the last axis, into those by class."""
    seconds = np.zeros((*causes.shape[:-1], len(ThreadTime)))
    for cause, spent in idle_classes(trace).items():
        seconds[..., spent] += causes[..., cause]
    return seconds


def _bounds(trace: Trace, demand: idle_time.PoolDemand) -> Array:
    """Return where windows that are asked for begin and end: with the run's work."""
    end = find_run_end(trace)
    ends = [] if end is None else [end.time - trace.begin]
    return np.concatenate([demand.arrival[:1], demand.known[-1:], ends])


def own_causes_of(
    trace: Trace, slots: TaskSlots, lives: WorkerLives
) -> Iterator[tuple[Array, idle_time.OwnCauses]]:
    """Yield for each life the rows of its slots, and what explains its free threads there."""
    unfinished = unfinished_runs(trace)
    rows_of = _rows_by(slots.worker, len(trace.workers))
    taken_of = _rows_by(np.where(unfinished.taken, unfinished.worker, -1), len(trace.workers))
    for place, number in enumerate(lives.ids.tolist()):
        rows, taken = rows_of(number), taken_of(number)
        own = idle_time.own_causes(
            (int(lives.threads[place]), lives.begin[place], lives.end[place]),
            lives.statuses[place],
            _edges(slots, rows),
            (unfinished.sent[taken], unfinished.known[taken]),
        )
        yield rows, own


def idle_classes(trace: Trace) -> dict[int, ThreadTime]:
    """Return the class of each cause of idle threads."""
    told = "sent" in trace.tasks or len(trace.scheduler_states) > 0
    return {
        cause: spent if told or spent not in NEEDS_SCHEDULER else ThreadTime.IDLE_CAUSE_UNKNOWN
        for cause, spent in _OF_CAUSES.items()
    }


def _rows_by(numbers: Array, count: int) -> Callable[[int], Array]:
    """Return a function that finds the rows that have a number."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    return lambda number: order[bounds[number] : bounds[number + 1]]


def _edges(slots: TaskSlots, rows: Array) -> list[Array]:
    times = slots.times
    stages = (slots.sent, times.received, times.ready, times.executing, slots.end)
    return [stage[rows] for stage in stages]


def _used(slots: TaskSlots, rows: Array, threads: idle_time.IdleThreads) -> Array:
    """Return the thread-seconds of runs before, in and after their functions."""
    end = slots.end[rows]
    edges = [slots.times.executing[rows], slots.times.start[rows], slots.times.stop[rows], end]
    edges = [np.minimum(edge, end) for edge in edges]
    if threads.used is not None:
        edges = [np.interp(edge, threads.used_times, threads.used) for edge in edges]
    return np.maximum(np.diff(np.stack(edges), axis=0), 0.0)


def _busy(uses: Array, groups: Array, count: int) -> Array:
    seconds = np.zeros((count, len(ThreadTime)))
    for use, spent in _OF_USES.items():
        seconds[:, spent] += np.bincount(groups, weights=uses[use], minlength=count)
    return seconds
