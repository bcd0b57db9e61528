"""The Parquet files of what was read again and again: of workers, hosts, disks and GPUs."""

from __future__ import annotations

from dasfprof.report.formats.parquet.schema import WHO, table

READINGS = (
    table(
        "samples",
        "A row a sample of a worker's process, of its host too where this worker is the one that "
        "reads it.",
        f"""{WHO}
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
host_cpu_pressure.some seconds some tasks of the host waited for a core, since boot
host_memory_pressure.some seconds some waited for memory, since boot
host_memory_pressure.full seconds all waited for memory, since boot
host_io_pressure.some seconds  some waited for disks, since boot
host_io_pressure.full seconds  all waited for disks, since boot
gpu_index             count    NVML's index of the worker's GPU
gpu_utilization       number   % of the driver's last period with a kernel on it
gpu_memory_used       bytes    of the GPU, by all processes
gpu_process_memory    bytes    of the GPU, by this process
monotonic             seconds  the host's monotonic clock
""",
    ),
    table(
        "managed_memory",
        "A row a sample of what a worker holds and does.",
        f"""{WHO}
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
    table(
        "clocks",
        "A row a change of Dask's estimate of the distance to the scheduler's clock.",
        f"""{WHO}
time                  time     when
scheduler_delay       seconds  the estimate
monotonic             seconds  the host's monotonic clock
""",
    ),
    table(
        "disk_usage",
        "A row a reading of a disk of a host.",
        f"""{WHO}
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
    table(
        "gpu_devices",
        "A row each time that what is known of a worker's GPU changed.",
        f"""{WHO}
time                  time     when
availability          text     whether it can be read, and why not
detail                text     what the driver said
match                 text     how it was found
uuid                  text     the device
name                  text     its model
index                 count    its NVML index
""",
    ),
    table(
        "gpu_usage",
        "A row a reading of a GPU.",
        f"""{WHO}
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
