"""The facts that the plugins record: one schema each, the contract between recording and analysis.

Times are Unix seconds of the recording host's own clock, None (NA) where they did not happen.
Sizes are bytes. The event's fields `process_id` and `thread_id` are the host's name and the
worker's label, ``worker-{host}-{name}``, in files of worker plugins; the host's name and
``scheduler`` in the scheduler's.
"""

from __future__ import annotations

from dasfprof.database.batch import Schema
from dasfprof.events import EventPhases

#: A task run: one attempt to run a key on a worker, in the worker's file. The event's time is that
#: of the user's function, in the thread that ran it.
COMPUTE = Schema(
    EventPhases.COMPLETE,
    "Compute",
    (("timestamp", "float"), ("duration", "float")),
    (
        ("key", "key"),
        ("name", "text"),  # dask.utils.key_split of the key
        ("run_id", "int"),
        ("state", "text"),  # memory, erred, cancelled, rescheduled
        ("size", "int"),  # of the result; 0 where there is none
        ("type", "text"),  # qualified name of the result's type
        ("dtype", "text"),
        ("shape", "text"),  # tuple of int, or None
        ("dependencies", "keys"),
        ("input_size", "int"),  # sum of the dependencies' sizes
        ("thread", "text"),  # thread's identity, an int; None for coroutines
        ("cpu", "float32"),  # CPU seconds of the thread; None for coroutines
        # Seconds the thread could run and had no core; None: not known. 0 for a task of less than a
        # millisecond, which is not read; a longer one behind such may have waits of up to 5 ms of
        # them, as far as it was off the CPU so long.
        ("run_queue", "float32"),
        ("received", "time"),  # the worker learned of the task
        ("ready", "time"),  # its dependencies were there
        ("executing", "time"),  # it was given a thread
        ("seceded", "time"),  # it gave its thread back (long-running)
        ("done", "time"),  # the worker's loop knew the outcome
        ("deserialize", "float32"),  # seconds spent so within the run
        ("disk_read", "float32"),  # seconds spent unspilling inputs
        ("disk_read_size", "int"),
        ("executor", "float32"),  # seconds waiting for and returning from the thread pool
        ("exception", "text"),
    ),
)

#: Dependencies fetched from one other worker in one message, in the receiver's file.
TRANSFER = Schema(
    EventPhases.COMPLETE,
    "Transfer",
    (("timestamp", "float"), ("duration", "float")),
    (
        ("source", "text"),  # address of the sending worker
        ("keys", "keys"),
        ("size", "int"),
        ("state", "text"),  # success, busy, missing, failed
        ("network", "float32"),  # seconds
        ("deserialize", "float32"),  # seconds
    ),
)

#: A change of Dask's estimate of the distance between the worker's and the scheduler's clock.
CLOCK = Schema(
    EventPhases.INSTANT,
    "Clock",
    (("timestamp", "float"),),
    (("scheduler_delay", "float"),),
)

#: What a worker holds and does, sampled in its resource file.
MANAGED_MEMORY = Schema(
    EventPhases.INSTANT,
    "Managed Memory",
    (("timestamp", "float"),),
    (
        ("tasks", "int"),  # results in memory or spilled
        ("size", "int"),  # their bytes, as Dask measures them
        ("spilled_size", "int"),  # bytes of them on disk
        ("executing", "int"),
        ("ready", "int"),  # waiting for a thread
        ("state", "text"),  # the worker's status: running, paused, ...
        ("spill_write", "float"),  # seconds since the worker's start
        ("spill_write_size", "float"),
        ("spill_read", "float"),
        ("spill_read_size", "float"),
        ("loop_lag", "time"),  # seconds that the event loop was late; None: not answered yet
    ),
)

#: A task run as the scheduler saw it: from being sent to a worker until the outcome was known.
TASK_RUN = Schema(
    EventPhases.COMPLETE,
    "Task Run",
    (("timestamp", "float"), ("duration", "float")),
    (
        ("key", "key"),
        ("run_id", "int"),
        ("worker", "text"),  # address
        ("state", "text"),  # what it became: memory, erred, released, ...; processing: unfinished
        ("waiting", "time"),  # known, waiting for dependencies
        ("queued", "time"),  # runnable, but held back: queued or no-worker
        ("stolen", "time"),  # when it was last moved to another worker before it ran
        ("start", "time"),  # of the user's function, shifted by Dask's estimate
        ("stop", "time"),
        ("size", "int"),
        ("wanted", "int"),  # 1: as it ended, a client held a future of it, and was told
        ("cause", "key"),  # stimulus id of what sent it
        ("end_cause", "key"),  # stimulus id of what ended it
        ("graph", "key"),  # stimulus id of the graph that made it runnable
        ("priority_user", "float"),
        ("priority_generation", "int"),
        ("priority_order", "int"),
        ("annotations", "value"),  # a dict
        ("exception", "text"),
    ),
)

#: Tasks that had not been sent to any worker when recording ended: a row a function and state.
UNSENT_TASKS = Schema(
    EventPhases.INSTANT,
    "Unsent Tasks",
    (("timestamp", "float"),),  # when the first of them came to the scheduler
    (
        ("name", "text"),  # dask.utils.key_split of the keys
        ("state", "text"),  # waiting, queued, no-worker
        ("tasks", "int"),
        ("key", "key"),  # of the first
        ("restrictions", "value"),  # what the first asks of a worker: workers, hosts, resources
    ),
)

#: A graph of tasks arrived at the scheduler.
GRAPH = Schema(
    EventPhases.INSTANT,
    "Graph",
    (("timestamp", "float"),),
    (
        ("client", "text"),
        ("tasks", "int"),
        ("wanted", "int"),
        ("stimulus", "key"),
        ("step", "value"),  # names of the steps that it was computed in, the outermost first
    ),
)

#: A task was moved from a busy worker to an idle one before it ran.
STEAL = Schema(
    EventPhases.INSTANT,
    "Steal",
    (("timestamp", "float"),),
    (("key", "key"), ("run_id", "int"), ("victim", "text"), ("thief", "text")),
)

#: A worker joined the cluster, or was there when recording began.
WORKER_ADDED = Schema(
    EventPhases.INSTANT,
    "Worker Added",
    (("timestamp", "float"),),
    (
        ("worker", "text"),  # address
        ("name", "value"),
        ("host", "text"),  # as the scheduler knows it, often an IP address
        ("nthreads", "int"),
        ("memory_limit", "int"),  # 0: none
    ),
)

#: A worker left the cluster.
WORKER_REMOVED = Schema(
    EventPhases.INSTANT,
    "Worker Removed",
    (("timestamp", "float"),),
    (("worker", "text"), ("reason", "text")),
)

#: The process in every sample; its host once a second, by one worker of each host (else None).
RESOURCE_USAGE = Schema(
    EventPhases.INSTANT,
    "Resource Usage",
    (("timestamp", "float"),),
    (
        ("time", "float"),
        ("monotonic", "float"),
        ("cpu", "float32"),  # percent of one core, this process
        ("memory", "int"),  # resident bytes, this process
        ("num_fds", "int"),  # counted once a second, as threads are
        ("num_threads", "int"),
        ("num_connections", "time"),  # None: not read in this sample
        ("process_cpu_seconds", "float"),  # user and system, since its start
        ("process_io.read_size", "time"),  # bytes since its start
        ("process_io.write_size", "time"),
        ("host_cpu", "float32"),  # percent of all cores
        ("host_memory_used", "time"),
        ("host_memory_available", "time"),
        ("host_memory_total", "time"),
        ("host_net_io.read_bps", "float32"),
        ("host_net_io.write_bps", "float32"),
        ("host_net_io.read_size", "time"),  # bytes since boot
        ("host_net_io.write_size", "time"),
        ("host_disk_io.read_bps", "float32"),
        ("host_disk_io.write_bps", "float32"),
        ("host_disk_io.read_size", "time"),
        ("host_disk_io.write_size", "time"),
        ("host_disk_io.read_count", "time"),
        ("host_disk_io.write_count", "time"),
        ("host_tcp_connections", "time"),
        ("host_udp_connections", "time"),
        # Seconds since boot in which some of the host's tasks, or all, waited: see pressure.py.
        ("host_cpu_pressure.some", "time"),
        ("host_memory_pressure.some", "time"),
        ("host_memory_pressure.full", "time"),
        ("host_io_pressure.some", "time"),
        ("host_io_pressure.full", "time"),
        # Of the worker's own GPU, where this worker reads it: see gpu_facts.py.
        ("gpu_index", "text"),  # NVML's, an int
        ("gpu_utilization", "float32"),  # percent
        ("gpu_memory_used", "time"),  # bytes, of all processes
        ("gpu_process_memory", "time"),  # bytes, of this one; None: not told, or not in this sample
    ),
)
