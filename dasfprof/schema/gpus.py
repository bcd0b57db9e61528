"""What is recorded of GPUs, and why there may be nothing.

A GPU is named by NVML's UUID; `index` is NVML's, as in ``nvidia-smi``, and need not be CUDA's. A
device is read by one worker of its host, so its rows may stand in another worker's file than that
of the worker that computes on it: join "GPU Usage" to a worker by the `uuid` of the worker's own
"GPU Devices" row and the host.
"""

from __future__ import annotations

from enum import Enum

from dasfprof.schema.declaration import event_kind


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
