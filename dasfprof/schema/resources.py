"""Event kinds of the resource monitor: samples of processes, hosts, disks, GPUs and workers."""

from __future__ import annotations

from enum import Enum
from functools import partial

from dasfprof.schema.events import Column, event_kind

#: Seconds between two samples of a worker whose values do not change.
IDLE_INTERVAL = 60.0

_monitor_event = partial(event_kind, recorder="ResourceMonitor")

RESOURCE_USAGE = _monitor_event(
    "Resource Usage",
    "A sample of a worker's process, and of its host if this worker samples the host.",
    columns="""
time            float    time     time of the sample, as in the event's timestamp
monotonic       float    seconds  the host's monotonic clock
cpu             float32  number   CPU of the process, % of one core [Cpu Percent]
memory          int      bytes    resident memory of the process [Memory Used]
process_cpu_seconds float seconds user and system, since the process started [Process Seconds]
service_cpu_seconds time seconds  part of these since the first sample: event loops, threads of
    Dask and dasfprof, and the main thread; None if the system does not report it
process_io.read_size time bytes   read from disk since the process started [Disk Io Read]
process_io.write_size time bytes  written to disk since the process started [Disk Io Write]
num_threads     int      count    number of threads [# of Threads]
num_fds         int      count    number of open file descriptors [# of File Descriptors]
host_cpu        float32  number   CPU of the host, % of all cores [Cpu Percent]
host_memory_total time   bytes    memory of the host [Memory Total]
host_memory_available time bytes  available memory [Memory Available]
host_memory_used time    bytes    used memory [Memory Used]
host_swap_used  time     bytes    used swap space [Swap Used | Swap of hosts]
host_disk_io.read_count time count reads since boot [Disk Io Read Count]
host_disk_io.write_count time count writes since boot [Disk Io Write Count]
host_disk_io.read_size time bytes read since boot [Disk Io Read]
host_disk_io.write_size time bytes written since boot [Disk Io Write]
host_disk_io.read_bps float32 number bytes per second read
host_disk_io.write_bps float32 number bytes per second written
host_net_io.write_size time bytes sent since boot [Network Sent]
host_net_io.read_size time bytes  received since boot [Network Recv]
host_net_io.read_bps float32 number bytes per second received
host_net_io.write_bps float32 number bytes per second sent
host_tcp_connections time count   TCP sockets [# of TCP Connections]
host_udp_connections time count   UDP sockets [# of UDP Connections]
gpu_index       text     count    NVML's index of the worker's GPU
gpu_utilization float32  number   % of the driver's last period with a running kernel
gpu_memory_used time     bytes    memory of the GPU used by all processes
gpu_process_memory time  bytes    memory of the GPU used by this process
oom_kills       time     count    processes of the worker's control group that the kernel killed
    when memory ran out, sampled once per second
throttled_seconds time   seconds  time for which the worker's control group had exhausted its CPU
    quota, summed over cores, sampled once per second; None without a quota
""",
)


def _named(begin: str) -> tuple[Column, ...]:
    return tuple(column for column in RESOURCE_USAGE.columns if column.name.startswith(begin))


#: Columns about the host. One worker of each host samples their values once per second.
HOST_COUNTERS = _named("host_")
#: Columns about the GPU that the worker uses. They are only filled if this worker samples that GPU.
WORKER_GPU = _named("gpu_")

MANAGED_MEMORY = _monitor_event(
    "Managed Memory",
    "A sample of a worker's managed memory and tasks.",
    columns="""
tasks           int      count    number of results in memory or on disk
size            int      bytes    size of these, as Dask counts it
spilled_size    int      bytes    size of the spilled ones
executing       int      count    number of executing tasks
ready           int      count    number of tasks that wait for a thread
state           text     text     the worker's status: running, paused, ...
spill_write     float    seconds  time for writing to disk since the worker started
spill_write_size float   bytes    written to disk since the worker started
spill_read      float    seconds  time for reading back since the worker started
spill_read_size float    bytes    read back since the worker started
loop_lag        time     seconds  delay of the event loop, or None if it has not answered yet
p2p_size        time     bytes    buffers of P2P shuffles, or None if unknown
""",
)

DISK_USAGE = _monitor_event(
    "Disk Usage",
    "A sample of a disk of a host.",
    columns="""
device          text     text     the kernel's name, such as sda1, or else what is mounted
mountpoint      text     text     where it is mounted, or None
file_system     text     text     type of the file system
local_directory int      count    1 if workers of this host spill to it
total           time     bytes    size of the disk [Disk Total]
used            time     bytes    used space [Disk Used]
free            time     bytes    free space for users [Disk Free]
read_count      time     count    number of reads since boot [Disk Io Read Count]
write_count     time     count    number of writes since boot [Disk Io Write Count]
read_size       time     bytes    read since boot [Disk Io Read]
write_size      time     bytes    written since boot [Disk Io Write]
read_time       time     seconds  time of reading since boot [Disk Io Read Seconds]
write_time      time     seconds  time of writing since boot [Disk Io Write Seconds]
""",
)

HOST_PROCESS = _monitor_event(
    "Host Process",
    "A process with much of a host's memory, or with much CPU on a busy host, from a sample of all "
    "processes.",
    columns="""
pid             int      id       process id
name            text     text     the kernel's name of it (15 characters), never its command line
owner           text     text     name of its user, or else the number
cpu             float32  number   % of one core since the previous sample, or None in the first
memory          int      bytes    resident memory
interval        float    seconds  time since the previous sample, or 0 for a sample of memory only
ancestors       value    object   process ids of its ancestors, from the parent on
""",
)


#: Meaning of each memory limit, by name in the header of a file. Headers contain the limit in
#: bytes, or 0 if there is no limit. `Trace.workers` has columns with these names, which are NaN if
#: there is no limit or the limit is unknown.
MEMORY_SIZES = {
    "memory_limit": "that it may use",
    "memory_target": "of managed memory, above which it spills results",
    "memory_spill": "of its process, above which it spills results",
    "memory_pause": "of its process, above which it starts no tasks",
    "memory_terminate": "of its process, above which its nanny kills it",
}


#
# A GPU is identified by NVML's UUID. `index` is NVML's index, as in ``nvidia-smi``, which can
# differ from CUDA's index. Only one worker of a host samples a device. Therefore the samples of the
# device that a worker uses may be in another worker's file. To join "GPU Usage" with a worker, use
# the host and the `uuid` of the worker's own "GPU Devices" row.


class GpuAvailability(str, Enum):
    """Whether a worker's GPU is sampled. If not, the value gives the reason."""

    AVAILABLE = "available"
    """The worker's own device is sampled."""
    MIG = "MIG"
    """It is an instance of a GPU in MIG mode. NVML reports its memory, but not its utilization."""
    LOST = "lost"
    """It fell off the bus or needs a reset. It was sampled until then."""
    ORDER_UNKNOWN = "order unknown"
    """It was selected by number among different GPUs, whose order only CUDA knows. If
    CUDA_DEVICE_ORDER=PCI_BUS_ID is set, or UUIDs select the GPUs, the order is known."""
    HIDDEN = "hidden"
    """CUDA_VISIBLE_DEVICES hides all devices from this worker."""
    NOT_FOUND = "not found"
    """CUDA_VISIBLE_DEVICES names a device that NVML does not know."""
    NO_DEVICE = "no device"
    """There is a driver but no GPU."""
    NO_PERMISSION = "no permission"
    """This user has no access to the driver or to this device."""
    NO_DRIVER = "no driver"
    """The driver is not loaded, or does not match its library."""
    NO_LIBRARY = "no library"
    """The driver's library libnvidia-ml.so.1 is missing, as on most hosts without a GPU."""
    NO_BINDING = "no pynvml"
    """The package nvidia-ml-py is not installed: ``pip install "dasfprof[gpu]"``."""
    TURNED_OFF = "turned off"
    """Dask's setting ``distributed.diagnostics.nvml`` is false on this worker."""
    NOT_SUPPORTED = "not supported"
    """This device or driver does not offer the reading."""
    FAILED = "failed"
    """The driver reported another error, see `detail`."""


class GpuMatch(str, Enum):
    """Methods by which CUDA's devices were identified among the devices of NVML."""

    UUID = "uuid"
    """CUDA_VISIBLE_DEVICES names them."""
    ONLY = "only"
    """There is only one."""
    PCI = "pci"
    """By number, with the order on the bus, because CUDA_DEVICE_ORDER=PCI_BUS_ID is set."""
    ALIKE = "alike"
    """By number, with the order on the bus, which CUDA uses for GPUs of one model."""


GPU_DEVICES = _monitor_event(
    "GPU Devices",
    "The devices that a worker may use, when it starts and each time this changes.",
    columns="""
availability    text     text     a value of GpuAvailability, for the worker's own device
detail          text     text     message of the driver
match           text     text     how it was identified: a value of GpuMatch
uuid            text     text     UUID of the worker's own device, the first in CUDA's order
index           value    count    NVML index of the device, or of the GPU of a MIG instance
name            text     text     model of the device
-pid             int     count    process id of the worker, as in `processes` of "GPU Usage"
""",
)

GPU_USAGE = _monitor_event(
    "GPU Usage",
    "A sample of a device by one worker of its host. Values are None if they are not available, "
    "failed, or were not read in this sample.",
    columns="""
uuid            text     text     UUID of the device
index           int      count    its NVML index
name            text     text     its model
utilization     float32  number   % of the driver's last period (1/6 to 1 s) with a running kernel
memory_utilization float32 number % of that period with reads or writes of its memory
memory_used     time     bytes    memory used by all processes, without the driver's reserve
memory_total    time     bytes    memory of the device
power           float32  number   power in W
sm_clock        float32  number   clock of the multiprocessors in MHz
memory_clock    float32  number   clock of the memory in MHz
temperature     float32  number   temperature in degrees Celsius
pcie_tx         float32  number   bytes per second sent
pcie_rx         float32  number   bytes per second received
-processes      value    object   [[pid, bytes or None], ...], or None if not read in this sample
""",
)

GPU_FAILURE = _monitor_event(
    "GPU Failure",
    "The first failure to read a value of a device for one reason.",
    columns="""
uuid            text     text     UUID of the device
reading         text     text     the value that was not read
reason          text     text     a value of GpuAvailability
detail          text     text     message of the driver
""",
)

DEVICE_MEMORY = _monitor_event(
    "Device Memory",
    "Results of a worker of dask-cuda on the device, on the host and on disk, and those moved "
    "between these since recording began. The size of results on disk is unknown.",
    columns="""
device_tasks         int   count   number of results on the device
device_size          time  bytes   size of these, as Dask counts it, or None without a limit
host_tasks           int   count   number of results in the host's memory, also from the device
host_size            time  bytes   size of these
disk_tasks           int   count   number of results on disk
device_to_host       float seconds time for moving results
device_to_host_size  float bytes   size of the moved results
device_to_host_count int   count   number of moved results
host_to_device       float seconds time for moving results
host_to_device_size  float bytes   size of the moved results
host_to_device_count int   count   number of moved results
host_to_disk         float seconds time for moving results
host_to_disk_size    float bytes   size of the moved results
host_to_disk_count   int   count   number of moved results
disk_to_host         float seconds time for moving results
disk_to_host_size    float bytes   size of the moved results
disk_to_host_count   int   count   number of moved results
""",
)
