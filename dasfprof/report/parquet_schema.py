"""What is in the Parquet files: each table, its columns, their types and meanings.

``PARQUET.md`` says the same to readers of the files.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What a column of each kind holds, in words.
KINDS = {
    "id": "whole number",
    "count": "whole number",
    "bytes": "whole number of bytes",
    "seconds": "floating-point seconds",
    "number": "floating point",
    "time": "timestamp in microseconds, UTC",
    "text": "text",
    "key": "text",
    "stimulus": "text",
    "flag": "boolean",
    "ids": "list of whole numbers",
}


@dataclass(frozen=True)
class Column:
    """A column of a file."""

    name: str
    #: One of `KINDS`.
    kind: str
    about: str


@dataclass(frozen=True)
class TableSchema:
    """A file, named as its table."""

    name: str
    about: str
    columns: tuple[Column, ...]


def _table(name: str, about: str, columns: str) -> TableSchema:
    lines = [line.split(None, 2) for line in columns.splitlines() if line]
    return TableSchema(name, about, tuple(Column(*words) for words in lines))


_WHO = """
worker_id             id       row of workers, from 0
host                  text     host of the worker
worker                text     label of the worker
"""

_SCHEDULER = """
scheduler_waiting     time     the scheduler knew of it, waiting for dependencies
queued                time     runnable, but held back at the scheduler
stolen                time     last moved to another worker before it ran
sent                  time     sent to its worker
known                 time     the scheduler knew the outcome
scheduler_start       time     start, as the scheduler was told
scheduler_stop        time     end, as the scheduler was told
scheduler_state       text     what it became, to the scheduler
scheduler_size        bytes    the result, as the scheduler was told
scheduler_exception   text     the exception, as the scheduler was told
priority_user         number   the user's priority
priority_generation   count    Dask's: lower for graphs that came earlier
priority_order        count    Dask's: place within its graph
cause                 stimulus stimulus id of what sent it
end_cause             stimulus stimulus id of what ended it
annotations           text     Dask's annotations
"""

_RUN = f"""
key_id                id       number of the key, as in keys
key                   key      the key, as Python writes it
run_id                id       Dask's number of the attempt; with the key it identifies a task run
{_WHO.strip()}
function              text     Dask's key_split of the key
step                  text     of the pipeline; of nested ones the path
"""

SCHEMAS = (
    _table(
        "tasks",
        "A row a task run: one attempt to run a key on a worker.",
        f"""{_RUN}
state                 text     that it ended in: memory, erred, cancelled, rescheduled
source                text     who recorded it: worker, or scheduler where no worker's file is there
start                 time     its function began
duration              seconds  of its function
received              time     the worker knew of it
ready                 time     its dependencies were on the worker
executing             time     it was given a thread
seceded               time     it gave its thread back and went on
done                  time     the worker knew the outcome
thread                text     identity of the thread; null for coroutines
cpu                   seconds  CPU time of the thread
run_queue             seconds  the thread could run and had no core
deserialize           seconds  deserialising in the run
disk_read             seconds  unspilling of inputs
disk_read_size        bytes    inputs that were unspilled
executor              seconds  waiting for the thread pool, and returning from it
size                  bytes    the result
input_size            bytes    the dependencies' results together
type                  text     the result's type
dtype                 text     the result's dtype
shape                 text     the result's shape
exception             text     what it raised
dependencies          ids      key_id of each dependency; null where nobody told
{_SCHEDULER}""",
    ),
    _table(
        "scheduler_only",
        "Task runs that the scheduler saw and no worker's file holds.",
        f"""{_RUN}
lost                  flag     it ended in memory or erred, so that it ran for certain
reason                text     why its worker's file lacks it
{_SCHEDULER}""",
    ),
    _table(
        "keys",
        "A row a key, those that never ran too.",
        """
key_id                id       its number, from 0
key                   key      the key, as Python writes it
function              text     Dask's key_split of the key
""",
    ),
    _table(
        "transitions",
        "A row a change of state of a task run.",
        """
key_id                id       number of the key, as in keys
run_id                id       Dask's number of the attempt
worker_id             id       row of workers, from 0
observer              text     who recorded it: worker, scheduler
state                 text     the state that began
time                  time     when
""",
    ),
    _table(
        "transfers",
        "A row a message that brought results from another worker.",
        f"""{_WHO}
source                text     address of the sender
start                 time     it was asked for
duration              seconds  until it was there
state                 text     success, busy, missing, failed
size                  bytes    of the results
network               seconds  on the network
deserialize           seconds  deserialising
keys                  ids      key_id of each result
""",
    ),
    _table(
        "samples",
        "A row a sample of a worker's process, of its host too where this worker is the one that "
        "reads it.",
        f"""{_WHO}
time                  time     when
cpu                   number   % of one core, the process
memory                bytes    resident, the process
num_fds               count    open file descriptors
num_threads           count    threads
num_connections       count    network connections
process_cpu_seconds   seconds  user and system, since the process began
process_io.read_size  bytes    read from disk since the process began
process_io.write_size bytes    written to disk since the process began
host_cpu              number   % of all cores, the host
host_memory_used      bytes    the host's memory in use
host_memory_available bytes    that processes could still get
host_memory_total     bytes    that the host has
host_net_io.read_bps  number   bytes a second received
host_net_io.write_bps number   bytes a second sent
host_net_io.read_size bytes    received since boot
host_net_io.write_size bytes   sent since boot
host_disk_io.read_bps number   bytes a second read
host_disk_io.write_bps number  bytes a second written
host_disk_io.read_size bytes   read since boot
host_disk_io.write_size bytes  written since boot
host_disk_io.read_count count  reads since boot
host_disk_io.write_count count writes since boot
host_tcp_connections  count    TCP connections of the host
host_udp_connections  count    UDP connections of the host
gpu_index             count    NVML's index of the worker's GPU
gpu_utilization       number   % of the driver's last period with a kernel on it
gpu_memory_used       bytes    of the GPU, by all processes
gpu_process_memory    bytes    of the GPU, by this process
monotonic             seconds  the host's monotonic clock
""",
    ),
    _table(
        "managed_memory",
        "A row a sample of what a worker holds and does.",
        f"""{_WHO}
time                  time     when
tasks                 count    results in memory or spilled
size                  bytes    of them, as Dask measures it
spilled_size          bytes    of them on disk
executing             count    tasks that ran
ready                 count    tasks that waited for a thread
state                 text     the worker's status
spill_write           seconds  writing to disk since the worker began
spill_write_size      bytes    written to disk since the worker began
spill_read            seconds  reading back since the worker began
spill_read_size       bytes    read back since the worker began
loop_lag              seconds  that the event loop was late
""",
    ),
    _table(
        "workers",
        "A row a life of a worker process; the scheduler is one of them.",
        """
worker_id             id       its number, from 0
host                  text     name of its host
worker                text     its label
kind                  text     worker, scheduler, or host for facts of no worker
name                  text     as Dask calls it
address               text     as Dask knows it
nthreads              count    its threads
pid                   count    its process
boot_id               text     of its host: equal ones share a clock
first_seen            time     its earliest fact
last_seen             time     its latest fact
joined                time     it joined the cluster, by the scheduler
left                  time     it left, by the scheduler
left_reason           text     why
closed                flag     its files were finished; false: they end early
""",
    ),
    _table(
        "steps",
        "A row each time that a step of the pipeline was entered.",
        """
step                  text     the path of the steps' names
name                  text     its own name
parent                id       row, from 0, of the step around it; null: none
start                 time     it was entered
duration              seconds  until it was left
id                    id       its number
""",
    ),
    _table(
        "graphs",
        "A row a graph of tasks that arrived at the scheduler.",
        """
time                  time     when
client                text     of which client
tasks                 count    how many tasks
wanted                count    how many results the client asked for
step                  text     steps in which it was computed, the outermost first
stimulus              stimulus its stimulus id
""",
    ),
    _table(
        "steals",
        "A row a task that was moved from a busy worker to an idle one before it ran.",
        """
time                  time     when
key                   key      the key, as Python writes it
run_id                id       Dask's number of the attempt
victim                text     address that lost it
thief                 text     address that got it
""",
    ),
    _table(
        "clocks",
        "A row a change of Dask's estimate of the distance to the scheduler's clock.",
        f"""{_WHO}
time                  time     when
scheduler_delay       seconds  the estimate
monotonic             seconds  the host's monotonic clock
""",
    ),
    _table(
        "disk_usage",
        "A row a reading of a disk of a host.",
        f"""{_WHO}
time                  time     when
device                text     as the kernel calls it
mountpoint            text     where it is mounted
file_system           text     its kind
local_directory       count    1: workers spill there
total                 bytes    that it has
used                  bytes    in use
free                  bytes    that users can have
read_count            count    reads since boot
write_count           count    writes since boot
read_size             bytes    read since boot
write_size            bytes    written since boot
read_time             seconds  reading since boot
write_time            seconds  writing since boot
""",
    ),
    _table(
        "gpu_devices",
        "A row each time that what is known of a worker's GPU changed.",
        f"""{_WHO}
time                  time     when
availability          text     whether it can be read, and why not
detail                text     what the driver said
match                 text     how it was found
uuid                  text     the device
name                  text     its model
index                 count    its NVML index
""",
    ),
    _table(
        "gpu_usage",
        "A row a reading of a GPU.",
        f"""{_WHO}
time                  time     when
uuid                  text     the device
name                  text     its model
index                 count    its NVML index
utilization           number   % of the driver's last period with a kernel on it
memory_utilization    number   % of it with reads or writes of its memory
memory_used           bytes    by all processes
memory_total          bytes    that it has
power                 number   W
sm_clock              number   MHz
memory_clock          number   MHz
temperature           number   degrees Celsius
pcie_tx               number   bytes a second sent
pcie_rx               number   bytes a second received
""",
    ),
)
