"""The facts about GPUs: the schemas that `GpuProbe` records, and why there may be none.

A GPU is named by NVML's UUID; `index` is NVML's, as in ``nvidia-smi``, and need not be CUDA's. A
device is read by one worker of its host, so its rows may stand in another worker's file than that
of the worker that computes on it: join "GPU Usage" to a worker by the `uuid` of the worker's own
"GPU Devices" row and the host.
"""

from __future__ import annotations

from enum import Enum

from dasfprof.database.batch import Schema
from dasfprof.events import EventPhases


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


#: The devices that a worker may use: one row as it starts, one more each time this changes.
GPU_DEVICES = Schema(
    EventPhases.INSTANT,
    "GPU Devices",
    (("timestamp", "float"),),
    (
        ("availability", "text"),  # a value of GpuAvailability, of the worker's own device
        ("detail", "text"),  # what the driver said
        ("match", "text"),  # a value of GpuMatch
        ("uuid", "text"),  # of the worker's own device, the first in CUDA's order
        ("index", "value"),  # its NVML index; of a MIG instance, its GPU's
        ("name", "text"),
        ("visible_uuids", "value"),  # lists in CUDA's order, the own device first
        ("visible_indices", "value"),
        ("visible_names", "value"),
        ("cuda_visible_devices", "text"),  # the variable; None: not set
        ("driver", "text"),  # its version
        ("pid", "int"),  # of the worker, as in `processes` of "GPU Usage"
    ),
)

#: One reading of one device, by one worker of its host. NA: not offered, failed, or not read in
#: this sample.
GPU_USAGE = Schema(
    EventPhases.INSTANT,
    "GPU Usage",
    (("timestamp", "float"),),
    (
        ("uuid", "text"),
        ("index", "int"),
        ("name", "text"),
        ("utilization", "float32"),  # % of the driver's last period (1/6 to 1 s) with a kernel
        ("memory_utilization", "float32"),  # % of it with reads or writes of device memory
        ("memory_used", "time"),  # bytes, of all processes, without what the driver reserves
        ("memory_total", "time"),  # bytes
        ("power", "float32"),  # W
        ("sm_clock", "float32"),  # MHz
        ("memory_clock", "float32"),  # MHz
        ("temperature", "float32"),  # degrees Celsius
        ("pcie_tx", "float32"),  # bytes per second that the device sent
        ("pcie_rx", "float32"),  # and received
        ("processes", "value"),  # [[pid, bytes or None], ...]; None: not read in this sample
    ),
)

#: The first time that a reading of a device failed for a reason.
GPU_FAILURE = Schema(
    EventPhases.INSTANT,
    "GPU Failure",
    (("timestamp", "float"),),
    (
        ("uuid", "text"),
        ("reading", "text"),
        ("reason", "text"),  # a value of GpuAvailability
        ("detail", "text"),
    ),
)

#: What a worker of dask-cuda holds where, and what it moved since recording began. Its results on
#: disk take no bytes that are known.
DEVICE_MEMORY = Schema(
    EventPhases.INSTANT,
    "Device Memory",
    (("timestamp", "float"),),
    (
        ("device_tasks", "int"),  # results on the device
        ("device_size", "time"),  # their bytes, as Dask measures them; None: no limit is set
        ("host_tasks", "int"),  # results in the host's memory, those from the device among them
        ("host_size", "time"),
        ("disk_tasks", "int"),
        ("device_to_host", "float"),  # seconds
        ("device_to_host_size", "float"),  # bytes
        ("device_to_host_count", "int"),
        ("host_to_device", "float"),
        ("host_to_device_size", "float"),
        ("host_to_device_count", "int"),
        ("host_to_disk", "float"),
        ("host_to_disk_size", "float"),
        ("host_to_disk_count", "int"),
        ("disk_to_host", "float"),
        ("disk_to_host_size", "float"),
        ("disk_to_host_count", "int"),
    ),
)
