"""What the resource monitor records: processes, hosts, disks and what workers hold."""

from __future__ import annotations

from dasfprof.schema.declaration import Column, event_kind

#: What is read of the host, once a second, by one worker of each host (else None).
HOST_COUNTERS = (
    Column("host_cpu", "float32", "number", "% of all cores, the host", "Cpu Percent"),
    Column("host_memory_total", "time", "bytes", "that the host has", "Memory Total"),
    Column("host_memory_available", "time", "bytes", "that one can still get", "Memory Available"),
    Column("host_memory_used", "time", "bytes", "the host's memory in use", "Memory Used"),
    Column(
        "host_swap_used", "time", "bytes", "swap in use", title="Swap Used", chart="Swap of hosts"
    ),
    Column("host_disk_io.read_count", "time", "count", "reads since boot", "Disk Io Read Count"),
    Column("host_disk_io.write_count", "time", "count", "writes since boot", "Disk Io Write Count"),
    Column("host_disk_io.read_size", "time", "bytes", "read since boot", "Disk Io Read"),
    Column("host_disk_io.write_size", "time", "bytes", "written since boot", "Disk Io Write"),
    Column("host_disk_io.read_bps", "float32", "number", "bytes a second read"),
    Column("host_disk_io.write_bps", "float32", "number", "bytes a second written"),
    Column("host_net_io.write_size", "time", "bytes", "sent since boot", "Network Sent"),
    Column("host_net_io.read_size", "time", "bytes", "received since boot", "Network Recv"),
    Column("host_net_io.read_bps", "float32", "number", "bytes a second received"),
    Column("host_net_io.write_bps", "float32", "number", "bytes a second sent"),
    Column("host_tcp_connections", "time", "count", "TCP sockets", "# of TCP Connections"),
    Column("host_udp_connections", "time", "count", "UDP sockets", "# of UDP Connections"),
)
#: Seconds since boot in which some of the host's tasks, or all of them, waited for a resource: the
#: totals of Linux's pressure stall information.
HOST_PRESSURE = (
    Column(
        "host_cpu_pressure.some",
        "time",
        "seconds",
        "some tasks of the host waited for a core, since boot",
        "Cpu Pressure Seconds",
    ),
    Column(
        "host_memory_pressure.some",
        "time",
        "seconds",
        "some waited for memory, since boot",
        "Memory Pressure Seconds",
    ),
    Column("host_memory_pressure.full", "time", "seconds", "all waited for memory, since boot"),
    Column(
        "host_io_pressure.some",
        "time",
        "seconds",
        "some waited for disks, since boot",
        "Io Pressure Seconds",
    ),
    Column("host_io_pressure.full", "time", "seconds", "all waited for disks, since boot"),
)
#: Of the worker's own GPU, where this worker reads it.
OWN_GPU = (
    Column("gpu_index", "text", "count", "NVML's index of the worker's GPU"),
    Column("gpu_utilization", "float32", "number", "% of the driver's last period with a kernel"),
    Column("gpu_memory_used", "time", "bytes", "of the GPU, by all processes"),
    Column("gpu_process_memory", "time", "bytes", "of the GPU, by this process"),
)

RESOURCE_USAGE = event_kind(
    "Resource Usage",
    "A sample of a worker's process, of its host too where this worker is the one that reads it.",
    recorder="ResourceMonitor",
    columns="""
time            float    time     when, as in the event's own timestamp
monotonic       float    seconds  the host's monotonic clock
""",
    more=(
        Column("cpu", "float32", "number", "% of one core, the process", "Cpu Percent"),
        Column("memory", "int", "bytes", "resident, the process", "Memory Used"),
        Column(
            "process_cpu_seconds",
            "float",
            "seconds",
            "user and system, since the process began",
            "Process Seconds",
        ),
        Column(
            "service_cpu_seconds",
            "time",
            "seconds",
            "of these, since the first sample: event loops, Dask's and dasfprof's threads, and the "
            "main thread; None: the system does not tell",
        ),
        Column(
            "process_io.read_size",
            "time",
            "bytes",
            "read from disk since the process began",
            "Disk Io Read",
        ),
        Column(
            "process_io.write_size",
            "time",
            "bytes",
            "written to disk since the process began",
            "Disk Io Write",
        ),
        Column("num_threads", "int", "count", "threads", "# of Threads"),
        Column("num_fds", "int", "count", "open file descriptors", "# of File Descriptors"),
        Column(
            "num_connections",
            "time",
            "count",
            "network connections; None: not read in this sample",
            "# of Connections",
        ),
        *HOST_COUNTERS,
        *HOST_PRESSURE,
        *OWN_GPU,
        Column(
            "oom_kills",
            "time",
            "count",
            "processes of the worker's control group that the kernel killed for want of memory, "
            "once a second",
        ),
    ),
)

MANAGED_MEMORY = event_kind(
    "Managed Memory",
    "A sample of what a worker holds and does.",
    recorder="ResourceMonitor",
    columns="""
tasks           int      count    results in memory or spilled
size            int      bytes    of them, as Dask measures it
spilled_size    int      bytes    of them on disk
executing       int      count    tasks that ran
ready           int      count    tasks that waited for a thread
state           text     text     the worker's status: running, paused, ...
spill_write     float    seconds  writing to disk since the worker began
spill_write_size float   bytes    written to disk since the worker began
spill_read      float    seconds  reading back since the worker began
spill_read_size float    bytes    read back since the worker began
loop_lag        time     seconds  that the event loop was late; None: not answered yet
p2p_size        time     bytes    rows in the buffers of P2P shuffles; None: unknown
""",
)

DISK_USAGE = event_kind(
    "Disk Usage",
    "A reading of a disk of a host.",
    recorder="ResourceMonitor",
    columns="""
device          text     text     as the kernel calls it, like sda1; else what is mounted
mountpoint      text     text     where it is mounted; None: nowhere
file_system     text     text     its kind
local_directory int      count    1: workers of this host spill there
total           time     bytes    that it has
used            time     bytes    in use
free            time     bytes    that users can have
read_count      time     count    reads since boot
write_count     time     count    writes since boot
read_size       time     bytes    read since boot
write_size      time     bytes    written since boot
read_time       time     seconds  reading since boot
write_time      time     seconds  writing since boot
""",
)

HOST_PROCESS = event_kind(
    "Host Process",
    "A process that had much of a host's memory, or used much of a core of a busy one, in a look "
    "at all of them.",
    recorder="ResourceMonitor",
    columns="""
pid             int      id       its number
name            text     text     the kernel's name of it, 15 characters; never its command line
owner           text     text     name of its user; where it has none, the number
cpu             float32  number   % of one core since the look before; None: there was none
memory          int      bytes    resident
interval        float    seconds  since the look before; 0: a look for memory alone
ancestors       value    object   numbers of the processes that it descends from, the nearest first
""",
)


# --- The sizes of memory at which a worker acts, as the headers of its files tell them ------------

#: What each size is of, by its name in a header: bytes, 0 if there is none. `Trace.workers` has
#: columns of these names, NaN where there is none or nothing tells.
MEMORY_SIZES = {
    "memory_limit": "that it may take",
    "memory_target": "of results, from which on it writes some to disk",
    "memory_spill": "of its process, from which on it writes results to disk",
    "memory_pause": "of its process, from which on it begins no task",
}
