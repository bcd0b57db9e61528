"""What is recorded of work that has begun and not ended, so that a file is true at any moment.

What holds is the last that was recorded of a task, client or process before the evidence ends, as
long as no later event says that the work has ended.
"""

from __future__ import annotations

from dasfprof.schema.events import event_kind

#: Dask's names for the states of unfinished tasks on the scheduler.
UNFINISHED = ("waiting", "no-worker", "queued", "processing")

#: What a thread is doing: columns that tasks, clients and event loops share.
_OF_A_THREAD = """
thread_state    text     text     the kernel's state of the thread: running (or runnable; or it used
    over 5 % of a core since the last look), sleeping, disk, stopped; None: unknown
stack           int      id       number of the Stack in the same file; -1: unknown
"""
#: What a thread waits for in one of Dask's calls.
_WAITS = """
waits_in        text     text     the Dask call that it waits in: Lock, Semaphore, MultiLock, Event,
    Queue.get, Queue.put, Variable, gather, result, wait, as_completed; None: in none
waits_for       value    object   name of that lock, event, ..., a list for a MultiLock
waits_keys      keys     keys     the first 100 keys of the futures that it waits for
"""

STACK = event_kind(
    "Stack",
    "A distinct stack of a thread, written once in a file before the first event that has its "
    "number.",
    recorder="TracePlugin",
    columns="""
number          int      id       the number, from 0
frames          value    object   a list of [function, file, line], the outermost first
parent          int      id       number of the Stack whose frames come before these; -1: none
""",
)

TASK_UNDER_WAY = event_kind(
    "Task Under Way",
    "A task that a worker began over a second ago and that has not ended. Written when it is first "
    "seen so, 1, 2, 4 ... 60 s later, and when its state, its thread's state, its stack or what it "
    "waits for changes. It has ended where a Compute says so.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
state           text     text     executing, long-running (seceded), fetching (its inputs),
    cancelled (released, but its thread goes on), or released (while it was fetching: it has ended)
since           time     time     it was given its thread; before that, the worker knew of it
thread          text     text     identity of the thread; None for coroutines and without a thread
cpu             float32  seconds  CPU time of the thread since it was first looked at, in the
    task's first second; None: unknown
holds           value    object   Dask's locks and semaphores that it holds: a list of [kind, name]
"""
    + _OF_A_THREAD
    + _WAITS,
)

LOCK_HELD = event_kind(
    "Lock Held",
    "A task gave a lock or semaphore of Dask's back, as its lines say: the event's time. What one "
    "holds at its end is not told.",
    recorder="TracePlugin",
    columns="""
kind            text     text     Lock, Semaphore or MultiLock
name            text     text     its name
limit           int      count    how many may hold it at a time
since           time     time     the task had it
waited          float32  seconds  it had waited for it
""",
)

LOOP_BLOCKED = event_kind(
    "Loop Blocked",
    "The event loop of a worker or of the scheduler had not turned for over a second. Written "
    "again 1, 2, 4 ... 60 s later while it is still so, when its stack changes, and at its end. "
    "Where no thread could run, as while C code held the interpreter's lock, at its end alone.",
    recorder="TracePlugin",
    columns="""
since           time     time     it last turned, to within a second where the stack is unknown
until           time     time     it had turned again; None: not yet
"""
    + _OF_A_THREAD,
)

SCHEDULER_STATE = event_kind(
    "Scheduler State",
    "What the scheduler had under way: once a second while something of it changes, else every "
    "10 s. Keys in it are texts.",
    recorder="SchedulerPlugin",
    columns="""
occasion        text     text     interval; client-left: just before its tasks are released, so
    that this event has what a client's end took away; closing
client          text     text     id of the client that left
tasks           value    object   number of tasks by function (Dask's prefix) and state, of those
    that are waiting, no-worker, queued, processing, memory or erred: a dict of dicts
finished        value    object   since the recording began, by function: a list of how many tasks
    succeeded, how many failed (or had an input that did), and the compute seconds of the former
unfinished      int      count    tasks that are waiting, no-worker, queued or processing
held_back       value    object   the first 100 tasks that no worker may run: dicts with key,
    function, since, restrictions (as of Unsent Tasks) and unmet (what no worker has, in words)
clients         value    object   dicts with client, wanted and unfinished (numbers of tasks),
    last_seen, keys (the first 20 unfinished ones)
workers         value    object   dicts with worker (address), name, status, last_seen, threads,
    processing and executing (numbers of tasks), occupancy, memory, memory_limit, keys (the first
    20 of those that are processing)
primitives      value    object   Dask's locks, events, ... that something waits for or holds: dicts
    with kind, name, waiting (how many), holders (leases), limit, set, items
memory          time     bytes    resident, the process; None: unknown
""",
)

CLIENT_UNDER_WAY = event_kind(
    "Client Under Way",
    "What the client's main thread was doing: when that changes, or the memory of its process has "
    "by 16 MiB, at most once a second.",
    recorder="StepRecorder",
    columns="""
client          text     text     the client's id
host            text     text     the host of its process
pid             int      id       the number of its process
since           time     time     its stack has been the same since
"""
    + _OF_A_THREAD
    + _WAITS
    + """
memory          time     bytes    resident, the process; None: unknown
""",
)
