"""The classes of thread-seconds."""

from __future__ import annotations

from enum import IntEnum

from dasfprof.analysis.model import busy_time, idle_time


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


#: The class of each use of a thread that a task run holds.
OF_USES = {
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


def idle_classes(knows_tasks: bool) -> dict[int, ThreadTime]:
    """Return the class of each cause of idle threads, see `knows_tasks`."""
    return {
        cause: spent
        if knows_tasks or spent not in NEEDS_SCHEDULER
        else ThreadTime.IDLE_CAUSE_UNKNOWN
        for cause, spent in _OF_CAUSES.items()
    }
