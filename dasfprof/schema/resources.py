"""What the resource monitor records: processes, hosts, disks, GPUs and what workers hold."""

from __future__ import annotations

from enum import Enum

from dasfprof.schema.events import Column, event_kind

#: Seconds between two samples of a worker on which nothing changes.
IDLE_INTERVAL = 60.0

RESOURCE_USAGE = event_kind(
    "Resource Usage",
    "A sample of a worker's process, of its host too where this worker is the one that reads it.",
    recorder="ResourceMonitor",
    columns="""
time            float    time     when, as in the event's own timestamp
monotonic       float    seconds  the host's monotonic clock
cpu             float32  number   % of one core, the process [Cpu Percent]
memory          int      bytes    resident, the process [Memory Used]
process_cpu_seconds float seconds user and system, since the process began [Process Seconds]
service_cpu_seconds time seconds  of these, since the first sample: event loops, Dask's and
    dasfprof's threads, and the main thread; None: the system does not tell
process_io.read_size time bytes   read from disk since the process began [Disk Io Read]
process_io.write_size time bytes  written to disk since the process began [Disk Io Write]
num_threads     int      count    threads [# of Threads]
num_fds         int      count    open file descriptors [# of File Descriptors]
num_connections time     count    network connections; None: not read in this sample
    [# of Connections]
host_cpu        float32  number   % of all cores, the host [Cpu Percent]
host_memory_total time   bytes    that the host has [Memory Total]
host_memory_available time bytes  that one can still get [Memory Available]
host_memory_used time    bytes    the host's memory in use [Memory Used]
host_swap_used  time     bytes    swap in use [Swap Used | Swap of hosts]
host_disk_io.read_count time count reads since boot [Disk Io Read Count]
host_disk_io.write_count time count writes since boot [Disk Io Write Count]
host_disk_io.read_size time bytes read since boot [Disk Io Read]
host_disk_io.write_size time bytes written since boot [Disk Io Write]
host_disk_io.read_bps float32 number bytes a second read
host_disk_io.write_bps float32 number bytes a second written
host_net_io.write_size time bytes sent since boot [Network Sent]
host_net_io.read_size time bytes  received since boot [Network Recv]
host_net_io.read_bps float32 number bytes a second received
host_net_io.write_bps float32 number bytes a second sent
host_tcp_connections time count   TCP sockets [# of TCP Connections]
host_udp_connections time count   UDP sockets [# of UDP Connections]
host_cpu_pressure.some time seconds some tasks of the host waited for a core, since boot
    [Cpu Pressure Seconds]
host_memory_pressure.some time seconds some waited for memory, since boot [Memory Pressure Seconds]
host_memory_pressure.full time seconds all waited for memory, since boot
host_io_pressure.some time seconds some waited for disks, since boot [Io Pressure Seconds]
host_io_pressure.full time seconds all waited for disks, since boot
gpu_index       text     count    NVML's index of the worker's GPU
gpu_utilization float32  number   % of the driver's last period with a kernel
gpu_memory_used time     bytes    of the GPU, by all processes
gpu_process_memory time  bytes    of the GPU, by this process
oom_kills       time     count    processes of the worker's control group that the kernel killed for
    want of memory, once a second
throttled_seconds time   seconds  for which the worker's control group had used up its CPU quota,
    summed over cores, once a second; None: it has none
""",
)


def _named(begin: str) -> tuple[Column, ...]:
    return tuple(column for column in RESOURCE_USAGE.columns if column.name.startswith(begin))


#: Seconds since boot in which some of the host's tasks, or all of them, waited for a resource: the
#: totals of Linux's pressure stall information.
HOST_PRESSURE = tuple(column for column in _named("host_") if "_pressure." in column.name)
#: What else is read of the host, once a second, by one worker of each host (else None).
HOST_COUNTERS = tuple(column for column in _named("host_") if column not in HOST_PRESSURE)
#: Of the worker's own GPU, where this worker reads it.
OWN_GPU = _named("gpu_")

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
    "memory_terminate": "of its process, from which on its nanny kills it",
}


# --- What is recorded of GPUs, and why there may be nothing ---------------------------------------
#
# A GPU is named by NVML's UUID; `index` is NVML's, as in ``nvidia-smi``, and need not be CUDA's. A
# device is read by one worker of its host, so its rows may stand in another worker's file than that
# of the worker that computes on it: join "GPU Usage" to a worker by the `uuid` of the worker's own
# "GPU Devices" row and the host.


class GpuAvailability(str, Enum):
    """Whether there are readings of a worker's GPU; every reason why not."""

    AVAILABLE = "available"
    """The worker's own device is read."""
    MIG = "MIG"
    """It is an instance of a GPU in MIG mode: NVML tells its memory, but not its utilisation."""
    LOST = "lost"
    """It fell off the bus or needs a reset; it was read until then."""
    ORDER_UNKNOWN = "order unknown"
    """It was given by number among unlike GPUs, whose order only CUDA knows, and this process has
    not initialised CUDA. The row is followed by another one when it does."""
    HIDDEN = "hidden"
    """CUDA_VISIBLE_DEVICES hides all devices from this worker."""
    NOT_FOUND = "not found"
    """CUDA_VISIBLE_DEVICES names a device that NVML does not know."""
    NO_DEVICE = "no device"
    """There is a driver but no GPU."""
    NO_PERMISSION = "no permission"
    """This user may not ask the driver, or not this device."""
    NO_DRIVER = "no driver"
    """The driver is not loaded, or does not fit its library."""
    NO_LIBRARY = "no library"
    """The driver's library libnvidia-ml.so.1 is not there: most machines without a GPU."""
    NO_BINDING = "no pynvml"
    """The package nvidia-ml-py is not installed: ``pip install "dasfprof[gpu]"``."""
    TURNED_OFF = "turned off"
    """Dask's setting ``distributed.diagnostics.nvml`` is false on this worker."""
    NOT_SUPPORTED = "not supported"
    """This device or driver does not offer the reading."""
    FAILED = "failed"
    """The driver gave another error, see `detail`."""


class GpuMatch(str, Enum):
    """How CUDA's devices were found among NVML's."""

    UUID = "uuid"
    """CUDA_VISIBLE_DEVICES names them."""
    ONLY = "only"
    """There is only one."""
    PCI = "pci"
    """By number, and CUDA_DEVICE_ORDER=PCI_BUS_ID makes that the order on the bus."""
    ALIKE = "alike"
    """By number, and all are of one model: CUDA then keeps the order on the bus."""
    CUDA = "cuda"
    """CUDA itself, once initialised in this process, gave their UUIDs."""


GPU_DEVICES = event_kind(
    "GPU Devices",
    "The devices that a worker may use: one event as it starts, one more each time this changes.",
    recorder="ResourceMonitor",
    columns="""
availability    text     text     a value of GpuAvailability, of the worker's own device
detail          text     text     what the driver said
match           text     text     how it was found: a value of GpuMatch
uuid            text     text     the worker's own device, the first in CUDA's order
index           value    count    its NVML index; of a MIG instance, its GPU's
name            text     text     its model
-visible_uuids   value   object   of all devices, in CUDA's order, the own device first
-visible_indices value   object   their NVML indices
-visible_names   value   object   their models
-cuda_visible_devices text text   the variable; None: not set
-driver          text    text     its version
-pid             int     count    of the worker, as in `processes` of "GPU Usage"
""",
)

GPU_USAGE = event_kind(
    "GPU Usage",
    "A reading of a device by one worker of its host. None: not offered, failed, or not read now.",
    recorder="ResourceMonitor",
    columns="""
uuid            text     text     the device
index           int      count    its NVML index
name            text     text     its model
utilization     float32  number   % of the driver's last period (1/6 to 1 s) with a kernel on it
memory_utilization float32 number % of it with reads or writes of its memory
memory_used     time     bytes    by all processes, without what the driver reserves
memory_total    time     bytes    that it has
power           float32  number   W
sm_clock        float32  number   MHz
memory_clock    float32  number   MHz
temperature     float32  number   degrees Celsius
pcie_tx         float32  number   bytes a second sent
pcie_rx         float32  number   bytes a second received
-processes      value    object   [[pid, bytes or None], ...]; None: not read in this sample
""",
)

GPU_FAILURE = event_kind(
    "GPU Failure",
    "The first time that a reading of a device failed for a reason.",
    recorder="ResourceMonitor",
    columns="""
uuid            text     text     the device
reading         text     text     what was not read
reason          text     text     a value of GpuAvailability
detail          text     text     what the driver said
""",
)

DEVICE_MEMORY = event_kind(
    "Device Memory",
    "What a worker of dask-cuda holds where, and what it moved since recording began. Its results "
    "on disk take no bytes that are known.",
    recorder="ResourceMonitor",
    columns="""
device_tasks         int   count   results on the device
device_size          time  bytes   of them, as Dask measures it; None: no limit is set
host_tasks           int   count   results in the host's memory, those from the device among them
host_size            time  bytes   of them
disk_tasks           int   count   results on disk
device_to_host       float seconds moving results so
device_to_host_size  float bytes   moved so
device_to_host_count int   count   results moved so
host_to_device       float seconds moving results so
host_to_device_size  float bytes   moved so
host_to_device_count int   count   results moved so
host_to_disk         float seconds moving results so
host_to_disk_size    float bytes   moved so
host_to_disk_count   int   count   results moved so
disk_to_host         float seconds moving results so
disk_to_host_size    float bytes   moved so
disk_to_host_count   int   count   results moved so
""",
)
