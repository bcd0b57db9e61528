"""Categories of thread time, and the thread-seconds of task runs by category."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.model.processes import counter_growth, other_threads_cpu
from dasfprof.analysis.numeric.groups import as_type, is_constant, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.database.columns import Array

#: Index of the first colour in the page's palette that is used for categories. Earlier colours are
#: used for functions.
FIRST_COLOUR = 8


class ThreadTime(IntEnum):
    """A category of thread-seconds, in the order of display. Busy categories (`USES`) come first.

    `colour` is an index in the page's palette. `FIRST_COLOUR` and all later colours are muted, and
    only categories use them. The page draws busy categories solid, and idle categories hatched. Two
    idle categories may share a colour. Then one of them has `is_hatched_back`, and is hatched in
    the other direction.
    """

    label: str
    colour: int
    meaning: str
    is_hatched_back: bool

    def __new__(
        cls, label: str, colour: int, meaning: str, is_hatched_back: bool = False
    ) -> ThreadTime:
        """Return a category, numbered in the order of declaration."""
        made = int.__new__(cls, number := len(cls.__members__))
        made._value_ = number
        made.label, made.colour, made.meaning = label, FIRST_COLOUR + colour, meaning
        made.is_hatched_back = is_hatched_back
        return made

    COMPUTING = (
        "Computing",
        0,
        "A task's function used the CPU, or waited while threads of libraries in its process did.",
    )
    WAITING_FOR_A_CORE = (
        "Waiting for CPU",
        1,
        "A task's function was runnable, but the host had no free core for it.",
    )
    WAITING_FOR_STORAGE = (
        "Waiting for storage",
        4,
        "A task's function waited for requests of fsspec or Zarr, such as to S3, and used no CPU.",
    )
    BLOCKED = (
        "Blocked",
        2,
        "A task's function did not use the CPU: it slept, or waited for I/O, a lock, the GIL or "
        "a GPU. If its CPU wait was not recorded, it is included.",
    )
    RUNNING_CPU_UNKNOWN = (
        "Running (CPU time not recorded)",
        7,
        "A task's function ran, and its CPU time was not recorded.",
    )
    DESERIALIZE = (
        "Deserializing",
        6,
        "Inputs of a task, or the task itself, were deserialized in its thread.",
    )
    UNSPILL_AND_SPILL = (
        "Spilling",
        5,
        "Inputs were read back from disk, or results were written to it, around a task.",
    )
    TASK_OVERHEAD = (
        "Task overhead",
        3,
        "A task occupied the thread before or after its function. For example, its result waited "
        "for the worker's event loop.",
    )
    STARTING = "Worker starting", 4, "The worker had not joined the cluster yet.", True
    CLOSING = "Worker closing", 0, "The worker was leaving the cluster, or had left it.", True
    PAUSED_FOR_MEMORY = (
        "Worker paused",
        5,
        "The worker started no task, because its memory was nearly full.",
        True,
    )
    UNRECORDED = (
        "Not recorded",
        7,
        "Tasks were on the worker or in transit to it, but its file does not contain them: the "
        "worker died, or was not recorded at that time.",
        True,
    )
    WORKER_LATENCY = (
        "Task start delay",
        8,
        "A task was ready on the worker, but the worker had not started it.",
    )
    TRANSFER_WAIT = (
        "Waiting for transfer",
        9,
        "The worker's next task waited for inputs from other workers.",
    )
    ON_ITS_WAY = (
        "Task in transit",
        10,
        "The scheduler had sent a task, but the worker had not received it: an event loop or the "
        "network was busy. In a process pool without a cluster, no process existed or was free.",
    )
    SCHEDULER_LATENCY = (
        "Waiting for scheduler",
        11,
        "A task was runnable, but the scheduler had not sent it, or had not learned that another "
        "task finished.",
    )
    RUNNABLE_ELSEWHERE = (
        "Tasks queued elsewhere",
        12,
        "Runnable tasks were queued on other workers.",
    )
    NO_RUNNABLE_TASK = (
        "No runnable tasks",
        5,
        "Every task that could run was running. The others waited for their dependencies, or for "
        "a worker that may run them.",
    )
    CALLS_OF_ACTORS = (
        "Actor calls",
        6,
        "The client had no unfinished task on the cluster, and an actor was called, which runs in "
        "another thread.",
        True,
    )
    FUNCTIONS_OUTSIDE_TASKS = (
        "Functions outside tasks",
        2,
        "The client had no unfinished task on the cluster, and a function was running on workers "
        "by Client.run, outside of tasks.",
        True,
    )
    NOTHING_SUBMITTED = (
        "Waiting for client",
        6,
        "The client had no unfinished task on the cluster.",
    )
    IDLE_CAUSE_UNKNOWN = (
        "Idle (cause unknown)",
        7,
        "The thread had no task. Without a file of the scheduler, the reason is unknown.",
    )
    OTHER_CLIENTS = (
        "Other clients",
        3,
        "A task of another client held the thread, or may have; its name is not shown.",
        True,
    )


#: Number of categories of busy threads, which come before all others.
USES = ThreadTime.STARTING.value

#: Advice for each category: what usually helps if it takes much of the thread time.
HELPS = {
    ThreadTime.COMPUTING: "Profile the function, or give it more cores.",
    ThreadTime.WAITING_FOR_A_CORE: (
        "Run fewer threads than the host has cores, or stop other programs."
    ),
    ThreadTime.WAITING_FOR_STORAGE: "Read more in each call, or run more threads in parallel.",
    ThreadTime.BLOCKED: "Find in the flame graph what the function waits for, and avoid this wait.",
    ThreadTime.RUNNING_CPU_UNKNOWN: "Record the run with the newest version of dasfprof.",
    ThreadTime.DESERIALIZE: "Send large data to workers once, by scatter() or as a task.",
    ThreadTime.UNSPILL_AND_SPILL: "Give workers more memory, or keep less in memory at a time.",
    ThreadTime.TASK_OVERHEAD: "Use fewer, larger tasks.",
    ThreadTime.STARTING: "Start the cluster before the program needs it.",
    ThreadTime.CLOSING: "At the end of a run, nothing. Earlier, check why the worker left.",
    ThreadTime.PAUSED_FOR_MEMORY: "Give workers more memory, or keep less in memory at a time.",
    ThreadTime.UNRECORDED: "Check why the worker died, or record from the cluster's start.",
    ThreadTime.WORKER_LATENCY: "Use fewer, larger tasks, and check what blocks the event loop.",
    ThreadTime.TRANSFER_WAIT: "Use fewer dependencies between workers, or a faster network.",
    ThreadTime.ON_ITS_WAY: "Use fewer, larger tasks, and check what blocks event loops.",
    ThreadTime.SCHEDULER_LATENCY: "Use fewer, larger tasks.",
    ThreadTime.RUNNABLE_ELSEWHERE: "Check what binds tasks to workers: restrictions, or inputs.",
    ThreadTime.NO_RUNNABLE_TASK: "Split long tasks and chains into parts that run in parallel.",
    ThreadTime.CALLS_OF_ACTORS: "Do the actor's work as tasks, or spread it over several actors.",
    ThreadTime.FUNCTIONS_OUTSIDE_TASKS: "Do the function's work as tasks, which use all threads.",
    ThreadTime.NOTHING_SUBMITTED: "Submit more at once. Check what the client does in these gaps.",
    ThreadTime.IDLE_CAUSE_UNKNOWN: "Record the scheduler too.",
    ThreadTime.OTHER_CLIENTS: "Use a cluster of your own, or run when others do not.",
}

#: Categories in which a task's function runs in a thread.
RUNNING = (
    ThreadTime.COMPUTING,
    ThreadTime.WAITING_FOR_A_CORE,
    ThreadTime.WAITING_FOR_STORAGE,
    ThreadTime.BLOCKED,
    ThreadTime.RUNNING_CPU_UNKNOWN,
)


#: Causes of idle threads that are only known from the scheduler's file.
NEEDS_SCHEDULER = (
    ThreadTime.NO_RUNNABLE_TASK,
    ThreadTime.CALLS_OF_ACTORS,
    ThreadTime.FUNCTIONS_OUTSIDE_TASKS,
    ThreadTime.NOTHING_SUBMITTED,
)


def with_known_causes(seconds: Array, knows_tasks: bool) -> Array:
    """Return thread-seconds by category (last axis), without causes that the trace cannot show.

    If `knows_tasks` is false, the causes that follow from the scheduler's tasks count as unknown.
    """
    if not knows_tasks:
        seconds = seconds.copy()
        # The scheduler's record of tasks is missing. Causes that follow from this record are
        # unknown.
        needing = list(NEEDS_SCHEDULER)
        seconds[..., ThreadTime.IDLE_CAUSE_UNKNOWN] += seconds[..., needing].sum(axis=-1)
        seconds[..., needing] = 0.0
    return seconds


def busy_seconds(run: Run, slots: TaskSlots, before: Array, inside: Array, after: Array) -> Array:
    """Return the thread-seconds of task runs by category, with the shape (`USES`, task runs).

    `before`, `inside` and `after` are thread-seconds before, in and after the function.
    """
    costs = recorded_costs(run, len(inside))
    uses = uses_of(slots.times.stop - slots.times.start, costs, before, inside, after)
    return with_spilling(run, uses, after, slots.worker)


#: Columns with known parts of each task run's time, and defaults for missing values.
COSTS = {"cpu": np.nan, "run_queue": 0.0, "storage": 0.0, "deserialize": 0.0, "disk_read": 0.0}


#: Minimum CPU time of other threads, as a share of the time for which a function's tasks waited. A
#: smaller share may be due to threads of Dask.
_MINIMUM_SHARE_OF_OTHER_THREADS = 0.05


def recorded_costs(run: Run, count: int) -> dict[str, Array]:
    """Return the columns of task runs that `COSTS` names, as arrays of length `count`.

    The CPU time includes the time of threads of libraries for which the task runs waited.
    """
    # COSTS also has the value of each column for task runs that no worker's file contains.
    tasks = run.task_runs
    costs = {name: recorded_column(tasks, name, count, missing) for name, missing in COSTS.items()}
    used = costs["cpu"] + costs["run_queue"] + costs["storage"]
    waited = recorded_column(tasks, "duration", count) - used
    for function, seconds in other_threads_cpu(run, "helped").items():
        rows = np.flatnonzero(tasks["function"] == function)
        theirs = np.fmax(waited[rows], 0.0)
        share = min(seconds / max(float(theirs.sum()), 1e-9), 1.0)
        # Which of the function's task runs waited for these threads is unknown.
        if share >= _MINIMUM_SHARE_OF_OTHER_THREADS:
            costs["cpu"][rows] += theirs * share
    return costs


def uses_of(
    length: Array, costs: Mapping[str, Array], before: Array, inside: Array, after: Array
) -> Array:
    """Divide the thread-seconds of task runs into categories, using only the task runs' records.

    `length` contains the seconds of functions, and `costs` is a result of `recorded_costs`. For
    `before`, `inside` and `after`, see `busy_seconds`.
    """
    seconds = np.zeros((USES, len(inside)))
    unspill = np.minimum(costs["disk_read"], before)
    deserialize = np.minimum(costs["deserialize"], before - unspill)
    seconds[ThreadTime.DESERIALIZE] = deserialize
    seconds[ThreadTime.UNSPILL_AND_SPILL] = unspill
    # The records of task runs do not show when workers spilled results after functions, so the time
    # after functions counts as overhead.
    seconds[ThreadTime.TASK_OVERHEAD] = (before - unspill - deserialize) + after
    # If a task run seceded, it occupied its thread only during a part of its function.
    share = np.nan_to_num(ratio(inside, length))
    known = ~np.isnan(costs["cpu"])
    split = _split_running(
        inside, costs["cpu"] * share, costs["run_queue"] * share, costs["storage"] * share
    )
    np.copyto(seconds[: len(split)], split, where=known)  # the first categories of `RUNNING`
    np.copyto(seconds[ThreadTime.RUNNING_CPU_UNKNOWN], inside, where=~known)
    return seconds


class RunningSeconds(NamedTuple):
    """Seconds in functions, split by what the threads did meanwhile."""

    #: On a core. NaN if CPU time was not recorded.
    cpu: Array
    #: Waiting for CPU, waiting for storage, and neither of both. All three are NaN if CPU wait was
    #: not recorded. If only storage waits were not recorded, `storage` is NaN, and its time is part
    #: of `blocked`.
    core_wait: Array
    storage: Array
    blocked: Array


def running_seconds(tasks: pd.DataFrame) -> RunningSeconds:
    """Divide the seconds of each task run's function by the activity of the thread."""
    duration, cpu = tasks["duration"].to_numpy(), tasks["cpu"].to_numpy(dtype=float)
    core_wait = as_type(tasks["run_queue"].to_numpy(), float)
    storage = as_type(tasks["storage"].to_numpy(), float)
    return RunningSeconds(*_split_running(duration, np.maximum(cpu, 0.0), core_wait, storage))


def _split_running(
    seconds: Array, cpu: Array, core_wait: Array, storage: Array
) -> tuple[Array, Array, Array, Array]:
    """Divide seconds in functions into time on a core, CPU wait, storage wait, and blocked time."""
    computing = np.minimum(cpu, seconds)
    if is_constant(core_wait) and np.isnan(core_wait[0]):
        return computing, core_wait, core_wait, core_wait
    waiting = np.minimum(np.maximum(core_wait, 0.0), seconds - computing)
    remaining = seconds - computing - waiting
    # The recorded CPU wait and storage wait overlap, because CPU wait during a storage request is
    # part of both. The overlap is unknown, so storage wait is only limited to the remaining
    # seconds.
    stored = np.minimum(np.maximum(storage, 0.0), remaining)
    return computing, waiting, stored, remaining - np.nan_to_num(stored)


def with_spilling(run: Run, uses: Array, after: Array, worker: Array) -> Array:
    """Move the estimated time of writing to disk from `TASK_OVERHEAD` to `UNSPILL_AND_SPILL`.

    `uses` contains the thread-seconds of task runs, or of groups of them, by category. It is
    changed and returned. `after` are the seconds after functions, and `worker` is the worker.
    """
    # After a function, its result is stored, and other results may be spilled, before the thread is
    # released. The time of spilling is only known per worker, so it is distributed over its task
    # runs.
    spilled = counter_growth(run, run.managed_memory, "spill_write")
    finishing = np.bincount(worker, weights=after, minlength=len(run.workers))
    spill = after * np.minimum(np.nan_to_num(ratio(spilled, finishing)), 1.0)[worker]
    uses[ThreadTime.UNSPILL_AND_SPILL] += spill
    uses[ThreadTime.TASK_OVERHEAD] -= spill
    return uses


def recorded_column(tasks: pd.DataFrame, name: str, count: int, unknown: float = 0.0) -> Array:
    """Return a non-negative column of task runs, with `unknown` (0 or NaN) for missing values."""
    # Values are missing for task runs that no worker's file contains.
    column = np.full(count, unknown)
    if name in tasks:
        values = tasks[name].to_numpy(dtype=float)
        # If a value is NaN, `np.fmax` returns 0 and `np.maximum` returns NaN.
        highest = np.maximum if np.isnan(unknown) else np.fmax
        highest(values, 0.0, out=column[: len(values)])
    return column
