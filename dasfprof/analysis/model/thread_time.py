"""The classes of thread-seconds."""

from __future__ import annotations

from enum import IntEnum

from dasfprof.analysis.model import busy_time, idle_time

#: The first place of the classes' colours among the page's: those before are of what ran.
FIRST_COLOUR = 8


class ThreadTime(IntEnum):
    """What a thread-second was spent on, in the order in which it is shown: busy threads first.

    Each has its label; its colour, a place among the page's series; its meaning; and whether it is
    hatched backwards, as there are more classes of idle threads than colours. Classes have muted
    colours that no function, step or worker has: eight of them, from `FIRST_COLOUR` on.
    """

    label: str
    colour: int
    meaning: str
    is_hatched_back: bool

    def __new__(
        cls, label: str, colour: int, meaning: str, is_hatched_back: bool = False
    ) -> ThreadTime:
        """Return a class, numbered in the order of declaration."""
        made = int.__new__(cls, number := len(cls.__members__))
        made._value_ = number
        made.label, made.colour, made.meaning = label, FIRST_COLOUR + colour, meaning
        made.is_hatched_back = is_hatched_back
        return made

    COMPUTING = "Computing", 0, "A task's function used the CPU."
    WAITING_FOR_A_CORE = (
        "Waiting for a core",
        1,
        "A task's function could run, but the host gave it no core.",
    )
    WAITING_FOR_STORAGE = (
        "Waiting for storage",
        4,
        "A task's function was in a call of fsspec, as of S3, and did not use the CPU.",
    )
    BLOCKED = (
        "Blocked",
        2,
        "A task's function did not use the CPU: it slept, or waited for I/O, a lock, the GIL or a"
        " GPU; and for a core, where that was not recorded.",
    )
    RUNNING_CPU_UNKNOWN = (
        "Running, CPU unknown",
        7,
        "A task's function ran; nobody recorded how much CPU it used.",
    )
    DESERIALIZE = (
        "Deserialize",
        6,
        "What a task takes was deserialised in its thread, as unspilled inputs are.",
    )
    UNSPILL_AND_SPILL = (
        "Unspill and spill",
        5,
        "Inputs were read back from disk, or results written, around a task.",
    )
    TASK_OVERHEAD = "Task overhead", 3, "A task held the thread before and after its function."
    STARTING = "Starting", 4, "The worker had not joined the cluster yet.", True
    CLOSING = "Closing", 0, "The worker was leaving the cluster, or had left it.", True
    PAUSED_FOR_MEMORY = (
        "Paused for memory",
        5,
        "The worker took no task, because its memory was nearly full.",
        True,
    )
    UNRECORDED = (
        "Unrecorded",
        7,
        "Runs were on the worker, or on their way to it, that no file of it tells of: it died "
        "with them, or was not recorded then.",
        True,
    )
    WORKER_LATENCY = "Worker latency", 4, "A ready task was on the worker, and not begun yet."
    TRANSFER_WAIT = (
        "Transfer wait",
        1,
        "The worker's next task waited for inputs from other workers.",
    )
    ON_ITS_WAY = (
        "On its way",
        2,
        "The scheduler had sent a task, and the worker had not taken it in: the event loop of "
        "either was busy, or the network. In a pool of processes, without a cluster: none was there"
        " yet, or free of what it had been handed before.",
    )
    SCHEDULER_LATENCY = (
        "Scheduler latency",
        0,
        "A task could run and was held at the scheduler, or word of a task's end was on its way.",
    )
    RUNNABLE_ELSEWHERE = "Runnable elsewhere", 3, "Ready tasks queued on other workers."
    NO_RUNNABLE_TASK = (
        "No runnable task",
        5,
        "All tasks that could run did; the rest waited for their dependencies, or for a worker "
        "that may run them.",
    )
    CALLS_OF_ACTORS = (
        "Calls of actors",
        6,
        "The client had no unfinished task on the cluster, and an actor was being called: that "
        "runs in no thread of tasks.",
        True,
    )
    NOTHING_SUBMITTED = (
        "Nothing submitted",
        6,
        "The client had no unfinished task on the cluster, and no recorded call of an actor was "
        "under way.",
    )
    IDLE_CAUSE_UNKNOWN = (
        "Idle, cause unknown",
        7,
        "No task was there; without a scheduler's file nothing tells why.",
    )


#: What usually helps where a class takes much of the time of threads.
HELPS = {
    ThreadTime.COMPUTING: "Profile the function, or give it more cores.",
    ThreadTime.WAITING_FOR_A_CORE: "Run fewer threads than the host has cores, or fewer programs.",
    ThreadTime.WAITING_FOR_STORAGE: "Read more in each call, or run more threads side by side.",
    ThreadTime.BLOCKED: "Look in the flame graph for what it waits for; then for a way without.",
    ThreadTime.RUNNING_CPU_UNKNOWN: "Record a run with the newest profiler to tell what it was.",
    ThreadTime.DESERIALIZE: "Give tasks less to take: larger data once, by scatter() or as a task.",
    ThreadTime.UNSPILL_AND_SPILL: "Give workers more memory, or hold less at a time.",
    ThreadTime.TASK_OVERHEAD: "Use fewer, larger tasks.",
    ThreadTime.STARTING: "Start the cluster before the program needs it.",
    ThreadTime.CLOSING: "Nothing, at the end of a run; before it, see why the worker left.",
    ThreadTime.PAUSED_FOR_MEMORY: "Give workers more memory, or hold less at a time.",
    ThreadTime.UNRECORDED: "See why the worker died, or record from the cluster's begin on.",
    ThreadTime.WORKER_LATENCY: "Use fewer, larger tasks; look for what blocks the event loop.",
    ThreadTime.TRANSFER_WAIT: "Use fewer dependencies between workers, or a faster network.",
    ThreadTime.ON_ITS_WAY: "Use fewer, larger tasks; look for what blocks event loops.",
    ThreadTime.SCHEDULER_LATENCY: "Use fewer, larger tasks.",
    ThreadTime.RUNNABLE_ELSEWHERE: "Look at what binds tasks to workers: restrictions, or inputs.",
    ThreadTime.NO_RUNNABLE_TASK: "Cut long tasks and chains into parts that run side by side.",
    ThreadTime.CALLS_OF_ACTORS: "Do the actor's work as tasks, or spread it over several actors.",
    ThreadTime.NOTHING_SUBMITTED: "Submit more in one go: see what the client does in these gaps.",
    ThreadTime.IDLE_CAUSE_UNKNOWN: "Record the scheduler too.",
}

#: The classes in which a task's function runs in a thread.
RUNNING = (
    ThreadTime.COMPUTING,
    ThreadTime.WAITING_FOR_A_CORE,
    ThreadTime.WAITING_FOR_STORAGE,
    ThreadTime.BLOCKED,
    ThreadTime.RUNNING_CPU_UNKNOWN,
)


#: The class of each use of a thread that a task run holds.
OF_USES = {
    busy_time.COMPUTING: ThreadTime.COMPUTING,
    busy_time.CORE_WAIT: ThreadTime.WAITING_FOR_A_CORE,
    busy_time.STORAGE: ThreadTime.WAITING_FOR_STORAGE,
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
