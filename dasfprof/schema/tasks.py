"""What workers and the scheduler record of tasks, transfers and workers.

The event's fields `process_id` and `thread_id` are the host's name and the worker's label,
``worker-{host}-{name}``, in files of worker plugins; the host's name and ``scheduler`` in the
scheduler's. A time that did not happen is None.
"""

from __future__ import annotations

from dasfprof.schema.events import EventPhases, event_kind

#: Begin of the annotations by which a recording marks tasks for workers.
MARK = "dasfprof_hidden_"
#: The function of tasks of other clients, of which no texts are recorded.
OTHER_CLIENTS = "other-clients"

COMPUTE = event_kind(
    "Compute",
    "One attempt to run a key on a worker. The event's time is that of the user's function, in "
    "the thread that ran it.",
    recorder="TracePlugin",
    phase=EventPhases.COMPLETE,
    columns="""
key             key      key      the key
-name           text     text     dask.utils.key_split of the key
run_id          int      id       Dask's number of the attempt; with the key it identifies a run
state           text     text     that it ended in: memory, erred, cancelled, rescheduled
size            int      bytes    the result; 0 where there is none
type            text     text     qualified name of the result's type
dtype           text     text     the result's dtype
shape           text     object   the result's shape, a tuple of int
dependencies    keys     keys     the keys it depends on
input_size      int      bytes    the dependencies' results together
thread          text     text     identity of the thread; None for coroutines
cpu             float32  seconds  CPU time of the thread; None for coroutines. Of a task that meters
    parts of itself, as P2P shuffles do, None under a millisecond, and one that follows such on its
    thread may have that of the 5 ms before it
run_queue       float32  seconds  the thread could run and had no core; None: not known; 0 of a
    task under a millisecond: it is not read; a longer one that follows such on its thread may have
    waits of the 5 ms before it
received        time     time     the worker knew of it
ready           time     time     its dependencies were on the worker
executing       time     time     it was given a thread
seceded         time     time     it gave its thread back and went on (long-running)
done            time     time     the worker knew the outcome
deserialize     float32  seconds  deserialising in the run, as of unspilled inputs; functions and
    arguments were unpickled before it, see Task Unpickled
disk_read       float32  seconds  unspilling of inputs
disk_read_size  int      bytes    inputs that were unspilled
executor        float32  seconds  waiting for the thread pool, and returning from it
collecting      float32  seconds  CPU time of Python's garbage collector in the task's thread, with
    the finalizers that it called, but for its youngest generation; None for coroutines
storage         float32  seconds  in requests of fsspec and Zarr, while the thread was on no core
exception       text     text     what it raised
raised_at       text     text     the last line of user code in its traceback: file:line function
""",
)

TRANSFER = event_kind(
    "Transfer",
    "One message that brought results from another worker, in the receiver's file.",
    recorder="TracePlugin",
    phase=EventPhases.COMPLETE,
    columns="""
source          text     text     address of the sender
keys            keys     keys     the keys of the results
size            int      bytes    of the results
state           text     text     success, busy, missing, failed
network         float32  seconds  on the network; the sender's serialising is within
deserialize     float32  seconds  deserialising
""",
)

SHUFFLE_MESSAGE = event_kind(
    "Shuffle Message",
    "One message of a P2P shuffle to another worker, in the sender's file. The event's time is "
    "until the receiver had taken it in.",
    recorder="TracePlugin",
    phase=EventPhases.COMPLETE,
    columns="""
target          text     text     address of the receiver
size            int      bytes    of the rows or blocks, as Dask counts them
state           text     text     success, failed
""",
)

ACTOR_CALL = event_kind(
    "Actor Call",
    "A call of an actor's method, in the file of the worker that has the actor. The event's time "
    "is from the arrival of the call to its answer, or to the end of the recording where there was "
    "none: methods that are no coroutines take turns in one thread of the worker, and the wait for "
    "it is within.",
    recorder="TracePlugin",
    phase=EventPhases.COMPLETE,
    columns="""
key             key      key      of the actor
method          text     text     the method's name
state           text     text     success, failed, unanswered
""",
)

WORKER_FUNCTION = event_kind(
    "Worker Function",
    "A function that a client ran on the worker outside of tasks, as Client.run does. The event's "
    "time is from the arrival of the request to its answer, or to the end of the recording where "
    "there was none. A function that is no coroutine blocks the event loop.",
    recorder="TracePlugin",
    phase=EventPhases.COMPLETE,
    columns="""
function        text     text     the function, with its module; None: unknown
cpu             time     seconds  of the event loop's thread, for the function alone
state           text     text     success, failed, unanswered
""",
)

LOG_RECORD = event_kind(
    "Log Record",
    "What a task run logged by `logging`: the first 20 records from a level on, and its first "
    "error. Its task may have caught that error, and then counts as done. And, if that was asked "
    "for, the first 20 lines that it printed, of logger stdout and level PRINT.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
logger          text     text     the logger's name
level           text     text     the level's name
message         text     text     as the program wrote it, before its values were filled in, unless
    these were asked for
exception       text     text     qualified name of the exception's type; None: none was logged
line            text     text     the line that logged it, as file:line function
error           int      flag     1: the task run's first record of level ERROR or above, or with an
    exception
""",
)

TRACEBACK = event_kind(
    "Traceback",
    "The traceback of a failed task run; the first 1000 of a worker.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
text            text     text     the calls, the outermost first, without the exception; of a long
    one its begin and end
""",
)

FUNCTION_CODE = event_kind(
    "Function Code",
    "A Python function that the tasks of one name call: the first five of the user's own, or of "
    "libraries if there are none.",
    recorder="TracePlugin",
    columns="""
name            text     text     dask.utils.key_split of the tasks' keys
function        text     text     qualified name, with its module
file            text     text     where it is
line            int      id       its first line
source          text     text     its first 100 lines; None: see missing
missing         text     text     why there is no source: of a library, no such file, changed since
""",
)

TASK_ARGUMENTS = event_kind(
    "Task Arguments",
    "What a task run of 10 ms or more, or a failed one, was called with: the first 1,000 such runs "
    "of each function on a worker.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
arguments       text     text     name, type, dtype, shape or length of the first 20 arguments,
    those of plain types by value if that was asked for; empty: it has none, or they are unknown
""",
)

STORAGE = event_kind(
    "Storage",
    "What a task run read from a storage and wrote to it, by store: in requests of fsspec and Zarr "
    "3, in any thread or event loop, the outermost of those within one another; or, of a run of a "
    "millisecond or more, what its thread moved to and from disks of its host.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
protocol        text     text     s3, gs, https, ... as the file system calls itself; of stores of
    Zarr file, memory, zip, ...; disk: the kernel's count of bytes from and to block devices, where
    cached files that are read count nothing and those that are written count at once; it may have
    those of tasks of less than a millisecond in the 0.1 s before it on its thread
reads           int      count    requests that read; 0 of disk
read_size       int      bytes    read
reading         float32  seconds  in these requests, those side by side as well; 0 of disk
writes          int      count    requests that wrote; 0 of disk
write_size      int      bytes    written
writing         float32  seconds  in these requests
waiting         float32  seconds  while a request of either kind was in progress, and no thread was
    on a core for the run; of several stores, shared out by their seconds
unsized         int      count    requests whose bytes are unknown, as of those that failed
helpers_cpu     float32  seconds  of CPU of other threads that the run started by asyncio.to_thread,
    as Zarr does to decompress, at most those for which there were any; shared out as waiting
helpers_queue   float32  seconds  for which these could run and had no core, at most the rest
items           text     text     hashes of the first 16 objects, or ranges of them, that it read
    from all stores, without metadata of Zarr; empty of disk
""",
)

TASK_UNPICKLED = event_kind(
    "Task Unpickled",
    "A worker unpickled a task's function and arguments, with a millisecond of CPU or for 20 ms. "
    "The event's time is its end; the task may never have run there.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
size            int      bytes    pickled
seconds         float32  seconds  unpickling, on the worker's event loop but for what has 10 MB; of
    the first that came together each an equal part, if all are of one function, else not told
cpu             float32  seconds  of CPU among them: the rest are waits, for the interpreter's lock
    as well; waits for a core alone are left out
""",
)

RESULT_SERIALISED = event_kind(
    "Result Serialised",
    "A worker serialised a result for somebody who asked, and compressed it where Dask does, with "
    "a millisecond of CPU or for 20 ms. The event's time is when it had been sent.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt; -1: it ran elsewhere
target          text     text     address of the worker that asked; None: the client or scheduler
size            int      bytes    as Dask sizes it in memory
seconds         float32  seconds  serialising, with waits for the interpreter's lock
""",
)

WORKER_ERROR = event_kind(
    "Worker Error",
    "An error with an exception that Dask logged in a worker's process, not in a task's thread: "
    "the first 100. Where a worker ends by itself, the last one often tells why.",
    recorder="TracePlugin",
    columns="""
logger          text     text     the logger's name
exception       text     text     the exception's type and text
""",
)

CLOCK = event_kind(
    "Clock",
    "A change of Dask's estimate of the distance between the worker's and the scheduler's clock.",
    recorder="TracePlugin",
    columns="""
scheduler_delay float    seconds  the estimate
""",
)

TASK_RUN = event_kind(
    "Task Run",
    "A task run as the scheduler saw it: from being sent to a worker until the outcome was known.",
    recorder="SchedulerPlugin",
    phase=EventPhases.COMPLETE,
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
worker          text     text     address
state           text     text     what it became: memory, erred, released, ...; processing: open
waiting         time     time     the scheduler knew of it, waiting for dependencies
queued          time     time     runnable, but held back at the scheduler: queued or no-worker
stolen          time     time     last moved to another worker before it ran
start           time     time     start, as the scheduler was told, shifted by Dask's estimate
stop            time     time     end, as the scheduler was told
size            int      bytes    the result, as the scheduler was told
wanted          int      count    1: as it ended a client held a future of it, and was told
cause           key      stimulus stimulus id of what sent it
end_cause       key      stimulus stimulus id of what ended it
graph           key      stimulus stimulus id of the graph that made it runnable
priority_user       float  number the user's priority
priority_generation int    count  Dask's: lower for graphs that came earlier
priority_order      int    count  Dask's: place within its graph
annotations     value    object   Dask's annotations, a dict
exception       text     text     the exception, as the scheduler was told
""",
)

RESULT_RELEASED = event_kind(
    "Result Released",
    "The scheduler let the result of a task run go, or lost it with its workers. The event's time "
    "is that, rounded up to 1/1024 s.",
    recorder="SchedulerPlugin",
    columns="""
run_id          int      id       Dask's number of the attempt whose result it was
""",
)

COPY_DROPPED = event_kind(
    "Copy Dropped",
    "The scheduler asked a worker to drop its copy of a result that another worker has as well.",
    recorder="SchedulerPlugin",
    columns="""
key             key      key      the key
worker          text     text     address of the worker
""",
)

UNSENT_TASKS = event_kind(
    "Unsent Tasks",
    "Tasks of a function and state that no worker had been sent when recording ended. The event's "
    "time is when the first of them came to the scheduler.",
    recorder="SchedulerPlugin",
    columns="""
name            text     text     dask.utils.key_split of the keys
state           text     text     waiting, queued or no-worker
tasks           int      count    how many
key             key      key      of the first
restrictions    value    object   what the first asks of a worker: workers, hosts, resources
""",
)

GRAPH = event_kind(
    "Graph",
    "A graph of tasks arrived at the scheduler.",
    recorder="SchedulerPlugin",
    columns="""
client          text     text     of which client
tasks           int      count    how many tasks
wanted          int      count    how many results the client asked for
stimulus        key      stimulus its stimulus id
step            value    object   names of the steps that it was computed in, the outermost first
""",
)

CLIENT = event_kind(
    "Client",
    "A client sent its first graph while it was recorded.",
    recorder="SchedulerPlugin",
    columns="""
client          text     text     the client's id
name            text     text     user, host and script, if dasfprof runs in its process, else the
    host of its connection, or None
""",
)

CLIENT_TASKS = event_kind(
    "Client Tasks",
    "Tasks of a client that came with none of its recorded graphs: known when recording began, or "
    "brought by the graph of another client and wanted by this one as well.",
    recorder="SchedulerPlugin",
    columns="""
client          text     text     the client's id
keys            keys     keys     the keys of the tasks
""",
)

STEAL = event_kind(
    "Steal",
    "A task was moved from a busy worker to an idle one before it ran.",
    recorder="SchedulerPlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
victim          text     text     address that lost it
thief           text     text     address that got it
requested       time     time     the scheduler asked the victim for it
""",
)

WORKER_ADDED = event_kind(
    "Worker Added",
    "A worker joined the cluster, or was there when recording began.",
    recorder="SchedulerPlugin",
    columns="""
worker          text     text     address
name            value    object   as Dask calls it
host            text     text     as the scheduler knows it, often an IP address
nthreads        int      count    its threads
memory_limit    int      bytes    that it may take; 0: no limit
resources       value    object   that tasks may ask it for, a dict of their amounts
""",
)

WORKER_REMOVED = event_kind(
    "Worker Removed",
    "A worker left the cluster.",
    recorder="SchedulerPlugin",
    columns="""
worker          text     text     address
reason          text     text     why
""",
)

WORKER_EXIT = event_kind(
    "Worker Exit",
    "The process of a worker that left ended so, as its nanny logged it. It comes a moment after "
    "Worker Removed; where no nanny tells, there is none.",
    recorder="SchedulerPlugin",
    columns="""
worker          text     text     address
exit_code       int      number   the exit status; negative: the signal that killed it; None:
    unknown
reason          text     text     why its nanny ended it; None: it did not, as far as is known
""",
)

CLUSTER_CHANGE = event_kind(
    "Cluster Change",
    "Somebody or something restarted, retired or gave up workers, cancelled tasks, paused a "
    "worker, or asked for another number of workers.",
    recorder="SchedulerPlugin",
    columns="""
action          text     text     restart, retire, worker-ttl (the scheduler gave a worker up that
    had sent no heartbeat for longer), pause, resume, cancel, adapt
who             text     text     who asked: a client, the worker itself, adaptive, scheduler; None:
    unknown
workers         value    object   addresses of the workers that it is about
number          float32  number   cancel: of tasks; restart: of tasks that it took away before they
    were sent to a worker; adapt: of workers that are wanted; worker-ttl: of seconds without a
    heartbeat
""",
)
