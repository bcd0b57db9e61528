"""Event kinds that report work in progress.

The last event about a task, client or process is valid until a later event reports the end of the
work. Therefore a file shows which work was in progress when its process was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dasfprof.schema.events import event_kind

#: Dask's names for the states of unfinished tasks on the scheduler.
UNFINISHED = ("waiting", "no-worker", "queued", "processing")

#: Columns about the state of a thread. The events about tasks and clients have them.
_OF_A_THREAD = """
thread_state    text     text     the kernel's state of the thread: running (also runnable, or over
    5 % of a core since the last snapshot), sleeping, disk or stopped, or None if unknown
stack           int      id       number of the Stack in the same file, or -1 if unknown
"""
#: Columns about the call to Dask in which a thread waits.
_WAITS = """
waits_in        text     text     Dask call in which it waits, or None: Lock, Semaphore, MultiLock,
    Event, Queue.get, Queue.put, Variable, gather, result, wait or as_completed
waits_for       value    object   name of that lock, event and so on, or a list for a MultiLock
waits_keys      keys     keys     the first 100 keys of the futures for which it waits
"""

STACK = event_kind(
    "Stack",
    "A distinct stack of a thread, written once in a file before the first event with its number.",
    recorder="TracePlugin",
    columns="""
number          int      id       the number, from 0
frames          value    object   a list of [function, file, line], from the outermost on
parent          int      id       number of the Stack with the frames before these, or -1 for none
""",
)

TASK_UNDER_WAY = event_kind(
    "Task Under Way",
    "A task that a worker started over a second ago and has not finished. Written when this is "
    "first seen, again after 1, 2, 4 ... 60 s, and when its state, the state of its thread, its "
    "stack or its wait changes. A Compute event reports its end.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
state           text     text     executing, long-running (seceded), fetching (its inputs),
    cancelled (released, but its thread continues), or released (while fetching, which ended it)
since           time     time     when it was assigned a thread, or before that, when the worker
    received it
thread          text     text     identity of the thread, or None for coroutines or without a thread
cpu             float32  seconds  CPU time of the thread since the first snapshot, in the task's
    first second, or None if unknown
holds           value    object   Dask's locks and semaphores that it holds, a list of [kind, name]
"""
    + _OF_A_THREAD
    + _WAITS,
)

LOCK_HELD = event_kind(
    "Lock Held",
    "A line of a task released a Dask lock or semaphore at the event's time. A lock that a task "
    "still holds at its end is not reported.",
    recorder="TracePlugin",
    columns="""
kind            text     text     Lock, Semaphore or MultiLock
name            text     text     its name
limit           int      count    maximum number of simultaneous holders
since           time     time     when the task acquired it
waited          float32  seconds  time of waiting before that
""",
)

SCHEDULER_STATE = event_kind(
    "Scheduler State",
    "A snapshot of the scheduler, once per second while it changes, else every 10 s. Keys in it "
    "are texts.",
    recorder="SchedulerPlugin",
    columns="""
occasion        text     text     interval, client-left (just before the tasks of the client are
    released), or closing
client          text     text     id of the client that left
tasks           value    object   number of tasks by function (Dask's prefix) and by state: waiting,
    no-worker, queued, processing, memory or erred; a dict of dicts
finished        value    object   since recording began, by function: a list of the number of
    succeeded tasks, of failed tasks (also by their inputs), and the compute seconds of the former
unfinished      int      count    number of tasks that are waiting, no-worker, queued or processing
held_back       value    object   the first 100 tasks that no worker may run: dicts with key,
    function, since, restrictions (as in Unsent Tasks) and unmet (a description of what no worker
    has)
clients         value    object   dicts with client, wanted and unfinished (numbers of tasks),
    last_seen and keys (the first 20 unfinished ones)
workers         value    object   dicts with worker (address), name, status, last_seen, threads,
    processing and executing (numbers of tasks), occupancy, memory, memory_limit and keys (the first
    20 that are processing)
primitives      value    object   Dask's locks, events and so on that are held or waited for: dicts
    with kind, name, waiting (a number), holders (leases), limit, set and items
memory          time     bytes    resident memory of the process, or None if unknown
""",
)

CLIENT_UNDER_WAY = event_kind(
    "Client Under Way",
    "What the client's main thread does, when this changes or the memory of its process changes by "
    "16 MiB, at most once per second.",
    recorder="StepRecorder",
    columns="""
client          text     text     id of the client
host            text     text     host of the client's process
pid             int      id       process id
since           time     time     since when its stack has been the same
"""
    + _OF_A_THREAD
    + _WAITS
    + """
memory          time     bytes    resident memory of the process, or None if unknown
""",
)


def unfinished_in(counts: Iterable[Mapping[str, int]]) -> int:
    """Return the number of unfinished tasks, from each function's numbers of tasks by state."""
    return sum(states.get(state, 0) for states in counts for state in UNFINISHED)


def unmet(
    restrictions: Mapping[str, Any], workers: Mapping[str, tuple[str, Mapping[str, float]]]
) -> str:
    """Return a description of the restriction that no worker meets, or "" if there is none.

    `workers` has the host and the resources of each worker, by address.
    """
    if not workers:
        return "there is no worker"
    addresses, hosts = restrictions.get("workers", ()), restrictions.get("hosts", ())
    if addresses and not workers.keys() & set(addresses):
        return f"there is no worker {', '.join(addresses)}"
    if hosts and not {host for host, _ in workers.values()} & set(hosts):
        return f"there is no worker on {', '.join(hosts)}"
    for resource, amount in restrictions.get("resources", {}).items():
        most = max(resources.get(resource, 0) for _, resources in workers.values())
        if most < amount:
            return f"no worker has {resource}={amount:g}, and the maximum is {most:g}"
    return "no worker meets all requirements at once" if restrictions else ""


def narrowed(
    row: Mapping[Any, Any], has_function: Callable[[str], bool], has_client: Callable[[str], bool]
) -> dict[str, Any]:
    """Return the columns of a row about tasks and clients, without other functions and clients."""
    tasks, finished = (
        {name: value for name, value in (row[column] or {}).items() if has_function(name)}
        for column in ("tasks", "finished")
    )
    held_back, clients = row["held_back"] or (), row["clients"] or ()
    return {
        "tasks": tasks,
        "finished": finished,
        "unfinished": unfinished_in(tasks.values()),
        "held_back": [task for task in held_back if has_function(task["function"])],
        "clients": [client for client in clients if has_client(client["client"])],
    }
