"""Where every second of every thread went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model import busy_time, idle_time
from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.slots import TaskSlots, task_slots, unfinished_runs, unseen_runs
from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.model.workers import WorkerLives, worker_lives
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

Grouping = Literal["cluster", "host", "worker", "function", "step"]

#: Each class of thread-seconds and what it means, those of busy threads first.
CLASSES = {
    "Computing": "A task's function used the CPU.",
    "Waiting for a core": "A task's function could run, but the host gave it no core.",
    "Blocked": (
        "A task's function did not use the CPU: it slept, or waited for I/O, a lock, the GIL or "
        "a GPU; and for a core, where that was not recorded."
    ),
    "Running, CPU unknown": "A task's function ran; nobody recorded how much CPU it used.",
    "Deserialize": "A task's function and arguments were deserialised.",
    "Unspill and spill": "Inputs were read back from disk, or results written, around a task.",
    "Task overhead": "A task held the thread before and after its function.",
    "Starting": "The worker had not joined the cluster yet.",
    "Closing": "The worker was leaving the cluster, or had left it.",
    "Paused for memory": "The worker took no task, because its memory was nearly full.",
    "Unrecorded": "Runs were on the worker that it died with, or of which there is no file.",
    "Worker latency": "A ready task was on the worker, and not begun yet.",
    "Transfer wait": "The worker's next task waited for inputs from other workers.",
    "Scheduler latency": (
        "A task could run, but was held at the scheduler or on its way from or to it."
    ),
    "Runnable elsewhere": "Ready tasks queued on other workers.",
    "No runnable task": "All tasks that could run did; the rest waited for their dependencies.",
    "Nothing submitted": "The client had no unfinished task on the cluster.",
    "Idle, cause unknown": "No task was there; without a scheduler's file nothing tells why.",
}
_NAMES = list(CLASSES)

_OF_USES = {
    busy_time.COMPUTING: "Computing",
    busy_time.CORE_WAIT: "Waiting for a core",
    busy_time.BLOCKED: "Blocked",
    busy_time.CPU_UNKNOWN: "Running, CPU unknown",
    busy_time.DESERIALIZE: "Deserialize",
    busy_time.SPILL: "Unspill and spill",
    busy_time.OVERHEAD: "Task overhead",
}
_OF_CAUSES = {
    idle_time.IDLE_STARTING: "Starting",
    idle_time.IDLE_CLOSING: "Closing",
    idle_time.IDLE_PAUSED: "Paused for memory",
    idle_time.UNRECORDED: "Unrecorded",
    idle_time.WORKER_LATENCY: "Worker latency",
    idle_time.TRANSFER: "Transfer wait",
    idle_time.ON_ITS_WAY: "Scheduler latency",
    idle_time.SCHEDULER: "Scheduler latency",
    idle_time.ELSEWHERE: "Runnable elsewhere",
    idle_time.DEPENDENCIES: "No runnable task",
    idle_time.CLIENT: "Nothing submitted",
}
#: Of these only the scheduler knows.
_UNKNOWN = {"No runnable task": "Idle, cause unknown", "Nothing submitted": "Idle, cause unknown"}

#: What stands for a function or step in the rows of threads that no task held.
NO_TASK = "(idle)"


@dataclass(frozen=True)
class Accounts:
    """Thread-seconds by class, in the order of `CLASSES`."""

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


def time_accounting(trace: Trace, by: Grouping = "cluster") -> pd.DataFrame:
    """Put every thread-second into one class; see `TraceAnalyser`."""
    if by not in get_args(Grouping):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(Grouping))}.")
    accounts = make_accounts(trace)
    workers = trace.workers.loc[accounts.lives.ids]
    names: list[tuple[str, ...]]
    if by in ("function", "step"):
        busy = accounts.of_functions if by == "function" else accounts.of_steps
        groups = accounts.functions if by == "function" else accounts.steps
        idle = accounts.of_lives.sum(axis=0)
        idle[: len(_OF_USES)] = 0.0
        seconds = np.vstack([busy, idle])
        columns, names = [by.capitalize()], [(name,) for name in (*groups, NO_TASK)]
    else:
        seconds = accounts.of_lives
        columns = {"cluster": [], "host": ["Host"], "worker": ["Host", "Worker"]}[by]
        rows = zip(workers["host"], workers["worker"], strict=True)
        names = [row[: len(columns)] for row in rows]
    return _table(columns, names, seconds)


def _table(columns: list[str], names: list[tuple[str, ...]], seconds: Array) -> pd.DataFrame:
    """List the classes of each group; those that no group has are left out."""
    distinct = sorted(set(names)) if columns else [()]
    places = {name: place for place, name in enumerate(distinct)}
    sums = np.zeros((len(distinct), len(CLASSES)))
    np.add.at(sums, [places[name] for name in names], seconds)
    of_tasks = columns in (["Function"], ["Step"])
    if of_tasks:
        order = np.argsort(-sums.sum(axis=1), kind="stable")
        distinct, sums = [distinct[place] for place in order], sums[order]
    totals = sums.sum(axis=1, keepdims=True)
    kept = np.flatnonzero((sums > 0).any(axis=0))
    parts = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
    table = {
        name: pd.Series([group[place] for group in distinct for _ in kept], dtype=object)
        for place, name in enumerate(columns)
    }
    classes = np.array(_NAMES, dtype=object)[kept]
    meanings = np.array(list(CLASSES.values()), dtype=object)[kept]
    whole = pd.DataFrame(
        {
            **table,
            "Class": pd.Series(np.tile(classes, len(distinct)), dtype=object),
            "Thread Time (s)": sums[:, kept].ravel(),
            "Share (%)": parts[:, kept].ravel() * 100,
            "Busy": np.tile(kept < len(_OF_USES), len(distinct)),
            "Meaning": pd.Series(np.tile(meanings, len(distinct)), dtype=object),
        }
    )
    if of_tasks:  # they do not idle
        whole = whole[whole["Thread Time (s)"] > 0].reset_index(drop=True)
    return whole


@once_per_trace
def make_accounts(trace: Trace) -> Accounts:
    """Account for every thread-second of every worker's life."""
    slots = task_slots(trace)
    lives = worker_lives(trace, slots)
    unfinished = unfinished_runs(trace)
    idle = []
    lengths = np.zeros((3, len(slots.worker)))
    rows_of = _rows_by(slots.worker, len(trace.workers))
    taken_of = _rows_by(np.where(unfinished.taken, unfinished.worker, -1), len(trace.workers))
    for place, number in enumerate(lives.ids.tolist()):
        rows, taken = rows_of(number), taken_of(number)
        threads = idle_time.idle_threads(
            (int(lives.threads[place]), lives.begin[place], lives.end[place]),
            lives.statuses[place],
            _edges(slots, rows),
            (unfinished.sent[taken], unfinished.known[taken]),
        )
        lengths[:, rows] = _used(slots, rows, threads)
        idle.append(threads)
    pool = idle_time.share_pool(idle, idle_time.PoolDemand.of(slots, unfinished))
    causes = np.array([threads.causes for threads in idle]).reshape(-1, idle_time.CAUSES) + pool
    uses = busy_time.busy_seconds(trace, slots, *lengths)
    place_of = np.zeros(len(trace.workers), dtype=np.int64)
    place_of[lives.ids] = np.arange(len(lives.ids))
    of_lives = _busy(uses, place_of[slots.worker], len(lives.ids))
    _add_idle(of_lives, causes, "sent" in trace.tasks)
    of_functions = _busy(uses, slots.function, len(slots.functions))
    ran = np.flatnonzero(np.bincount(slots.function, minlength=len(slots.functions)))
    functions = [slots.functions[code] for code in ran]
    codes, steps = step_groups(trace.tasks, unseen_runs(trace))
    of_steps = _busy(uses, codes, len(steps))
    present = np.flatnonzero(np.bincount(codes, minlength=len(steps)))
    steps = [steps[code] for code in present]
    return Accounts(lives, of_lives, of_functions[ran], functions, of_steps[present], steps)


def _rows_by(numbers: Array, count: int) -> Callable[[int], Array]:
    """Give a function that finds the rows that have a number."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    return lambda number: order[bounds[number] : bounds[number + 1]]


def _edges(slots: TaskSlots, rows: Array) -> list[Array]:
    times = slots.times
    stages = (slots.sent, times.received, times.ready, times.executing, slots.end)
    return [stage[rows] for stage in stages]


def _used(slots: TaskSlots, rows: Array, threads: idle_time.IdleThreads) -> Array:
    """Give the thread-seconds of runs before, in and after their functions."""
    end = slots.end[rows]
    edges = [slots.times.executing[rows], slots.times.start[rows], slots.times.stop[rows], end]
    edges = [np.minimum(edge, end) for edge in edges]
    if threads.used is not None:
        edges = [np.interp(edge, threads.used_times, threads.used) for edge in edges]
    return np.maximum(np.diff(np.stack(edges), axis=0), 0.0)


def _busy(uses: Array, groups: Array, count: int) -> Array:
    seconds = np.zeros((count, len(CLASSES)))
    for use, name in _OF_USES.items():
        sums = np.bincount(groups, weights=uses[use], minlength=count)
        seconds[:, _NAMES.index(name)] += sums
    return seconds


def _add_idle(seconds: Array, causes: Array, scheduler: bool) -> None:
    for cause, name in _OF_CAUSES.items():
        known = name if scheduler else _UNKNOWN.get(name, name)
        seconds[:, _NAMES.index(known)] += causes[:, cause]
