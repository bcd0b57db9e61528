"""Event kinds of tasks, transfers and workers, recorded by workers and the scheduler.

The field `process_id` of an event is the name of the host. The field `thread_id` is the worker's
label, ``worker-{host}-{name}``, in files of worker plugins, and ``scheduler`` in files of the
scheduler. The time of something that did not happen is None.
"""

from __future__ import annotations

from functools import partial

from dasfprof.schema.events import EventPhases, event_kind

#: Prefix of the annotations that tell workers that a task is hidden in a run.
MARK = "dasfprof_hidden_"
#: Name that replaces the function of hidden tasks, which belong to other clients.
OTHER_CLIENTS = "other-clients"

_worker_event = partial(event_kind, recorder="TracePlugin")
_complete_event = partial(_worker_event, phase=EventPhases.COMPLETE)
_scheduler_event = partial(event_kind, recorder="SchedulerPlugin")

COMPUTE = _complete_event(
    "Compute",
    "One attempt to run a task on a worker. The event's time is that of the user's function in its "
    "thread.",
    columns="""
key             key      key      the key
-name           text     text     dask.utils.key_split of the key
run_id          int      id       Dask's number of the attempt; with the key it identifies a run
state           text     text     final state: memory, erred, cancelled or rescheduled
size            int      bytes    size of the result, or 0 without a result
type            text     text     qualified name of the result's type
dtype           text     text     the result's dtype
shape           text     object   the result's shape, a tuple of int
dependencies    keys     keys     keys of the dependencies
input_size      int      bytes    total size of the dependencies' results
thread          text     text     identity of the thread, or None for coroutines
cpu             float32  seconds  CPU time of the thread, or None for coroutines and for tasks under
    a millisecond that meter parts of themselves, as P2P shuffles do. The next task on their thread
    may include the CPU time of up to 5 ms before it
run_queue       float32  seconds  time for which the thread waited for a CPU core, or None if
    unknown. It is 0 for tasks under a millisecond, whose waits of up to 5 ms may count for the next
    longer task on their thread
received        time     time     when the worker received the task
ready           time     time     when its dependencies were on the worker
executing       time     time     when it was assigned a thread
seceded         time     time     when it seceded from its thread (long-running)
done            time     time     when the worker knew the outcome
deserialize     float32  seconds  deserialization during the run, for example of unspilled inputs.
    Functions and arguments are unpickled before the run
disk_read       float32  seconds  time for unspilling inputs
disk_read_size  int      bytes    size of the unspilled inputs
collecting      float32  seconds  CPU time of Python's garbage collector in the task's thread and of
    the finalizers that it called, without the youngest generation; None for coroutines
storage         float32  seconds  time in requests of fsspec and Zarr while the thread was off-CPU
exception       text     text     the exception that it raised
raised_at       text     text     last line of user code in its traceback, as file:line function
""",
)

TRANSFER = _complete_event(
    "Transfer",
    "One message with results from another worker, in the receiver's file.",
    columns="""
source          text     text     address of the sender
keys            keys     keys     keys of the results
size            int      bytes    size of the results
state           text     text     success, busy, missing or failed
network         float32  seconds  network time, including the sender's serialization
deserialize     float32  seconds  time for deserialization
""",
)

SHUFFLE_MESSAGE = _complete_event(
    "Shuffle Message",
    "One message of a P2P shuffle to another worker, in the sender's file. The event ends when the "
    "receiver has accepted it.",
    columns="""
target          text     text     address of the receiver
size            int      bytes    size of the rows or blocks, as Dask counts it
state           text     text     success or failed
""",
)

ACTOR_CALL = _complete_event(
    "Actor Call",
    "A call of an actor's method, in the file of the actor's worker. The event's time is from the "
    "arrival of the call to its answer, or to the end of the recording. Methods that are not "
    "coroutines share one thread of the worker, and the time includes the wait for it.",
    columns="""
key             key      key      key of the actor
method          text     text     name of the method
state           text     text     success, failed or unanswered
""",
)

WORKER_FUNCTION = _complete_event(
    "Worker Function",
    "A function that a client ran on the worker outside of tasks, for example with Client.run. The "
    "event's time is from the arrival of the request to its answer, or to the end of the "
    "recording. A function that is not a coroutine blocks the event loop.",
    columns="""
function        text     text     the function with its module, or None if unknown
cpu             time     seconds  CPU time of the event loop's thread in the function
state           text     text     success, failed or unanswered
""",
)

LOG_RECORD = _worker_event(
    "Log Record",
    "A record that a task run wrote with `logging`: the first 20 of at least a minimum level, and "
    "the first error, which the task may have caught.",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
logger          text     text     name of the logger
level           text     text     name of the level
message         text     text     the message, without its arguments unless log_values is set
exception       text     text     qualified name of the logged exception's type, or None
line            text     text     the line that logged it, as file:line function
error           int      flag     1 for the task run's first record of level ERROR or above or with
    an exception
""",
)

TRACEBACK = _worker_event(
    "Traceback",
    "The traceback of a failed task run, for the first 1000 of a worker.",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
text            text     text     the calls from the outermost on, without the exception. The middle
    of a long traceback is left out
""",
)

FUNCTION_CODE = _worker_event(
    "Function Code",
    "A Python function that tasks with the same name call: the first five user functions, or "
    "library functions if there are none.",
    columns="""
name            text     text     dask.utils.key_split of the tasks' keys
function        text     text     qualified name with the module
file            text     text     the file
line            int      id       its first line
source          text     text     its first 100 lines, or None (see missing)
missing         text     text     why there is no source: of a library, no such file, changed since
""",
)

TASK_ARGUMENTS = _worker_event(
    "Task Arguments",
    "The arguments of a task run that took at least 10 ms or failed, for the first 1,000 such runs "
    "of each function on a worker.",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
arguments       text     text     name, type, dtype, shape or length of the first 20 arguments.
    Empty if there are none or they are unknown
""",
)

#: Prefix of the hash of a chunk that is stored in an HDF5 file (`STORED_CHUNK`), and prefix of the
#: hash of a file or dataset that was read completely (`COMPLETE`).
STORED_CHUNK, COMPLETE = "h", "w"
STORAGE = _worker_event(
    "Storage",
    "Data that a task run read from and wrote to one store, by outermost requests of fsspec, "
    "Zarr 3 and h5py in any thread or event loop; or, for runs of at least a millisecond, data "
    "that its thread moved from and to disks of its host.",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
protocol        text     text     protocol of the file system, such as s3, gs or https; file, memory
    or zip for stores of Zarr; hdf5 for bytes in memory; disk for the kernel's count of bytes from
    and to block devices, which omits reads of cached files, includes writes immediately, and may
    include tasks under a millisecond in the 0.1 s before this run on its thread
reads           int      count    number of read requests, 0 for disk
read_size       int      bytes    bytes read
reading         float32  seconds  total time of read requests, also parallel ones, 0 for disk
writes          int      count    number of write requests, 0 for disk
write_size      int      bytes    bytes written
writing         float32  seconds  total time of write requests
waiting         float32  seconds  time with a request in progress and all threads of the run
    off-CPU, divided among several stores in proportion to their seconds
unsized         int      count    number of requests of unknown size, for example failed ones
helpers_cpu     float32  seconds  CPU time of threads that the run started by asyncio.to_thread, as
    Zarr does to decompress, at most the time with such threads, divided as waiting
helpers_queue   float32  seconds  time for which these threads waited for a CPU core, at most the
    remainder of that time
used            int      bytes    bytes that reads of fsspec's files and Zarr's arrays returned to
    the task, in memory, or -1 if any of its read requests were made otherwise
items           text     text     hashes of the first 16 objects or ranges of objects that it read
    from all stores, without metadata of Zarr. Hashes of stored chunks of HDF5 begin with h, and are
    recorded if the cache of the dataset cannot hold what was read. Those of CSV files, Parquet
    files, and HDF5 datasets of at least 1 MB that were read completely begin with w
""",
)

RESULT_SERIALISED = _worker_event(
    "Result Serialised",
    "A worker serialized a result for another process, including Dask's compression, which took at "
    "least 1 ms of CPU time or 20 ms. The event's time is when the result had been sent.",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt, or -1 if it ran on another worker
target          text     text     address of the requesting worker, or None for the client or
    scheduler
size            int      bytes    size in memory, as Dask counts it
seconds         float32  seconds  time for serialization, including waits for the GIL
""",
)

WORKER_ERROR = _worker_event(
    "Worker Error",
    "An error with an exception that Dask logged in a worker's process outside of tasks, for the "
    "first 100. The last one often explains why a worker ended.",
    columns="""
logger          text     text     name of the logger
exception       text     text     type and message of the exception
""",
)

CLOCK = _worker_event(
    "Clock",
    "A change of Dask's estimate of the offset between the worker's and the scheduler's clock.",
    columns="""
scheduler_delay float    seconds  the estimate
""",
)

TASK_RUN = _scheduler_event(
    "Task Run",
    "A task run as the scheduler saw it, from its assignment to a worker until its outcome was "
    "known.",
    phase=EventPhases.COMPLETE,
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
worker          text     text     address of the worker
state           text     text     next state: memory, erred, released or another, or processing if
    unfinished
waiting         time     time     when the scheduler began to wait for its dependencies
queued          time     time     when it was runnable but stayed on the scheduler: queued or
    no-worker
stolen          time     time     when it was last moved to another worker before it ran
start           time     time     start reported to the scheduler, with Dask's clock offset
stop            time     time     end reported to the scheduler, with Dask's clock offset
size            int      bytes    size of the result reported to the scheduler
wanted          int      count    1 if a client held a future of it at the end and was notified
cause           key      stimulus stimulus id of the event that assigned it
end_cause       key      stimulus stimulus id of the event that ended it
graph           key      stimulus stimulus id of the graph that made it runnable
priority_user       float  number the user's priority
priority_generation int    count  Dask's generation, which is lower for earlier graphs
priority_order      int    count  Dask's order within the graph
annotations     value    object   Dask's annotations, a dict
exception       text     text     exception reported to the scheduler
""",
)

RESULT_RELEASED = _scheduler_event(
    "Result Released",
    "The scheduler released the result of a task run, or lost it with its workers. The event's "
    "time is rounded up to 1/1024 s.",
    columns="""
run_id          int      id       Dask's number of the attempt that made the result
""",
)

COPY_DROPPED = _scheduler_event(
    "Copy Dropped",
    "The scheduler asked a worker to drop its copy of a result that another worker also has.",
    columns="""
key             key      key      the key
worker          text     text     address of the worker
""",
)

UNSENT_TASKS = _scheduler_event(
    "Unsent Tasks",
    "Tasks of one function and state that were not assigned to a worker when recording ended. The "
    "event's time is when the first of them was submitted.",
    columns="""
name            text     text     dask.utils.key_split of the keys
state           text     text     waiting, queued or no-worker
tasks           int      count    number of tasks
key             key      key      key of the first task
restrictions    value    object   restrictions of the first task: workers, hosts and resources
""",
)

GRAPH = _scheduler_event(
    "Graph",
    "A graph of tasks arrived at the scheduler.",
    columns="""
client          text     text     id of the client
tasks           int      count    number of tasks
wanted          int      count    number of results that the client requested
stimulus        key      stimulus stimulus id of the graph
step            value    object   names of the steps that it was computed in, from the outermost on
""",
)

CLIENT = _scheduler_event(
    "Client",
    "A client sent its first recorded graph.",
    columns="""
client          text     text     id of the client
name            text     text     user, host and script if dasfprof runs in the client's process,
    else the host of its connection, or None
""",
)

CLIENT_TASKS = _scheduler_event(
    "Client Tasks",
    "Tasks of a client that are in none of its recorded graphs, because they existed when "
    "recording began, or another client's graph contained them.",
    columns="""
client          text     text     id of the client
keys            keys     keys     keys of the tasks
""",
)

STEAL = _scheduler_event(
    "Steal",
    "A task was moved from a busy worker to an idle one before it ran.",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
victim          text     text     address of the busy worker
thief           text     text     address of the idle worker
""",
)

WORKER_ADDED = _scheduler_event(
    "Worker Added",
    "A worker joined the cluster, or was in it when recording began.",
    columns="""
worker          text     text     address
name            value    object   Dask's name of the worker
host            text     text     host as the scheduler knows it, often an IP address
nthreads        int      count    number of threads
memory_limit    int      bytes    memory limit, or 0 for none
resources       value    object   amounts of resources that tasks can require, a dict
""",
)

WORKER_REMOVED = _scheduler_event(
    "Worker Removed",
    "A worker left the cluster.",
    columns="""
worker          text     text     address
reason          text     text     the reason
""",
)

WORKER_EXIT = _scheduler_event(
    "Worker Exit",
    "How the process of a worker that left the cluster ended, from its nanny's log. It follows "
    "shortly after Worker Removed, and is missing without a nanny.",
    columns="""
worker          text     text     address
exit_code       int      number   exit status, negative for the signal that killed it, or None if
    unknown
reason          text     text     why the nanny ended it, or None if no reason is known
""",
)

CLUSTER_CHANGE = _scheduler_event(
    "Cluster Change",
    "Workers were restarted, retired, removed or paused, tasks were cancelled, or another number "
    "of workers was requested.",
    columns="""
action          text     text     restart, retire, worker-ttl (the scheduler removed a worker that
    had sent no heartbeat for too long), pause, resume, cancel or adapt
who             text     text     a client, the worker itself, adaptive or scheduler, or None if
    unknown
workers         value    object   addresses of the affected workers
number          float32  number   cancel: number of tasks; restart: number of tasks that were
    cancelled before their assignment; adapt: requested number of workers; worker-ttl: seconds
    without a heartbeat
""",
)
