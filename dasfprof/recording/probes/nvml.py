"""The GPUs that a process may use, and `GpuReader`, which reads one GPU through NVML."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

from dasfprof.schema.resources import GpuAvailability, GpuMatch

#
# CUDA orders the GPUs that a process may use by speed (``CUDA_DEVICE_ORDER=FASTEST_FIRST``, the
# default) or by their position on the bus. NVML has another order. ``CUDA_VISIBLE_DEVICES`` selects
# and reorders devices, by CUDA's numbers or by UUID. CUDA's devices are matched with NVML's devices
# by UUID, or by the position on the bus if that is sufficient. Otherwise the match is unknown,
# because CUDA is not asked. Initializing CUDA would take memory on a device, and would fix CUDA's
# view of the environment before the user's code is ready.


@dataclass(frozen=True)
class Device:
    """A GPU, or an instance of a GPU in MIG mode, as NVML describes it."""

    handle: Any = field(compare=False)
    uuid: str
    #: NVML's index of the device. For a MIG instance, the index of its GPU.
    index: int
    name: str
    #: Position on the bus: domain, bus and device.
    position: tuple[int, int, int]
    #: Whether this device is an instance of a GPU in MIG mode.
    is_instance: bool = False
    mig_mode: bool = False
    instances: tuple[Device, ...] = ()


@dataclass(frozen=True)
class VisibleDevices:
    """The devices that a process may use, in CUDA's order, or the reason why there are none."""

    devices: tuple[Device, ...]
    availability: GpuAvailability
    match: GpuMatch | None = None

    @property
    def worker_device(self) -> Device | None:
        """The first device, which a Dask worker uses by convention, or None if there is none."""
        return self.devices[0] if self.devices else None


def visible_devices(
    installed: Sequence[Device], environment: Mapping[str, str] = os.environ
) -> VisibleDevices:
    """Return the devices that CUDA will show to a process with this environment.

    As in CUDA, ``CUDA_VISIBLE_DEVICES`` ends at the first entry that is not a device, such as -1.
    UUIDs may be abbreviated if they are unambiguous.

    Parameters
    ----------
    installed
        All GPUs that NVML knows, in any order.
    environment
        Environment variables, of which ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` are used.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    entries = None if given is None else [entry.strip() for entry in given.split(",")]
    if entries is not None and entries[0].startswith(("GPU-", "MIG-")):
        named = _named_devices(entries, installed)
        return _visible(named, GpuMatch.UUID, GpuAvailability.NOT_FOUND)
    if entries is not None and _number(entries[0]) is None:
        return VisibleDevices((), GpuAvailability.HIDDEN)
    ordered, match = _in_cuda_order(installed, environment.get("CUDA_DEVICE_ORDER", ""))
    if match is None:
        return VisibleDevices((), GpuAvailability.ORDER_UNKNOWN)
    if entries is None:
        return _visible(ordered, match, GpuAvailability.NO_DEVICE)
    numbered = []
    for number in map(_number, entries):
        if number is None or number >= len(ordered):
            break
        numbered.append(ordered[number])
    return _visible(numbered, match, GpuAvailability.NOT_FOUND)


def with_instances(installed: Sequence[Device]) -> list[Device]:
    """Return a list of all GPUs, each followed by its MIG instances."""
    return [part for device in installed for part in (device, *device.instances)]


def _visible(
    devices: Sequence[Device], match: GpuMatch, otherwise: GpuAvailability
) -> VisibleDevices:
    unique = tuple(dict.fromkeys(devices))
    if not unique:
        return VisibleDevices((), otherwise)
    is_mig = unique[0].is_instance or unique[0].mig_mode
    return VisibleDevices(
        unique, GpuAvailability.MIG if is_mig else GpuAvailability.AVAILABLE, match
    )


def _named_devices(entries: Sequence[str], installed: Sequence[Device]) -> list[Device]:
    named: list[Device] = []
    for entry in entries:
        matches = [device for device in with_instances(installed) if device.uuid.startswith(entry)]
        if len(matches) != 1 or entry in ("", "GPU-", "MIG-"):
            break
        named += matches
    return named


def _in_cuda_order(
    installed: Sequence[Device], order: str
) -> tuple[Sequence[Device], GpuMatch | None]:
    """Return all devices in CUDA's order, and how this function determined the order.

    `order` is the value of ``CUDA_DEVICE_ORDER``. If only CUDA knows the order, return an empty
    sequence and None.
    """
    on_bus = sorted(installed, key=lambda device: device.position)
    if len(on_bus) == 1:
        # CUDA uses the first instance of a GPU in MIG mode.
        return on_bus[0].instances[:1] or on_bus, GpuMatch.ONLY
    if any(device.mig_mode for device in on_bus):
        return (), None
    if order == "PCI_BUS_ID":
        return on_bus, GpuMatch.PCI
    if len({device.name for device in on_bus}) <= 1:
        return on_bus, GpuMatch.ALIKE
    return (), None


def _number(entry: str) -> int | None:
    return int(entry) if entry.isdecimal() else None


#: Seconds between two slow readings. A slow reading takes milliseconds, or waits in the driver.
SLOW_INTERVAL = 1.0

Values = tuple[Any, ...]


#: Return codes of NVML, as in nvml.h. They are numbers, because older versions of pynvml lack some
#: of their names.
_INVALID_ARGUMENT = 2
_REASONS = {
    3: GpuAvailability.NOT_SUPPORTED,
    4: GpuAvailability.NO_PERMISSION,
    6: GpuAvailability.NOT_FOUND,
    9: GpuAvailability.NO_DRIVER,  # The driver is not loaded.
    12: GpuAvailability.NO_LIBRARY,
    13: GpuAvailability.NOT_SUPPORTED,  # The library lacks the function.
    15: GpuAvailability.LOST,
    16: GpuAvailability.LOST,  # The device has to be reset.
    18: GpuAvailability.NO_DRIVER,  # The versions of the driver and of the library differ.
    25: GpuAvailability.NOT_SUPPORTED,  # The library does not know the structure.
}

#: Reasons for which a reading fails each time.
_FINAL = (GpuAvailability.NOT_SUPPORTED, GpuAvailability.NO_PERMISSION)


def reason_of(error: Exception) -> GpuAvailability:
    """Return the reason for a failed call of NVML, from the exception that pynvml raised."""
    if isinstance(error, AttributeError):  # pynvml lacks the function.
        return GpuAvailability.NOT_SUPPORTED
    return _REASONS.get(getattr(error, "value", 0), GpuAvailability.FAILED)


@dataclass
class _Reading:
    """Values that are read together, and the function that reads them."""

    name: str
    width: int
    #: None if it can never work.
    read: Callable[[], Values] | None
    #: Seconds between two readings, and time of the next reading.
    interval: float = 0.0
    due: float = 0.0
    reported: set[GpuAvailability] = field(default_factory=set)


class GpuReader:
    """Reads one device in the thread of the resource monitor. Each of its readings may fail.

    Parameters
    ----------
    nvml
        The module `pynvml`, after `nvmlInit`.
    """

    def __init__(self, nvml: Any, device: Device) -> None:
        self.device = device
        #: Whether the device fell off the bus and must not be read again.
        self.lost = False
        #: Rows of "GPU Failure" that are not yet written.
        self.failures: list[Values] = []
        #: Utilization in percent, used bytes and bytes of this process, from the last sample.
        self.summary: tuple[float | None, float | None, float | None] = (None, None, None)
        self._nvml = nvml
        self._handle = device.handle
        self._readings = [
            _Reading("utilization", 2, self._utilization),
            _Reading("memory", 2, self._memory),
            _Reading("power", 1, lambda: (nvml.nvmlDeviceGetPowerUsage(device.handle) / 1000,)),
            _Reading("sm_clock", 1, lambda: self._clock(nvml.NVML_CLOCK_SM)),
            _Reading("memory_clock", 1, lambda: self._clock(nvml.NVML_CLOCK_MEM)),
            _Reading("temperature", 1, self._temperature),
            _Reading("pcie", 2, self._pcie, SLOW_INTERVAL),
            _Reading("processes", 1, self._processes, SLOW_INTERVAL),
        ]

    def sample(self) -> Values | None:
        """Return a row of "GPU Usage", or None if the device is lost."""
        device = self.device
        row: list[Any] = [time(), device.uuid, device.index, device.name]
        for reading in self._readings:
            row += self._read(reading)
            if self.lost:
                return None
        self.summary = row[4], row[6], dict(row[-1] or ()).get(os.getpid())
        return tuple(row)

    def _read(self, reading: _Reading) -> Values:
        now = monotonic()
        if reading.read is not None and now >= reading.due:
            reading.due = now + reading.interval
            try:
                return reading.read()
            except (self._nvml.NVMLError, AttributeError) as error:
                reason = reason_of(error)
                self.lost = reason is GpuAvailability.LOST
                if reason in _FINAL or getattr(error, "value", 0) == _INVALID_ARGUMENT:
                    reading.read = None  # It would fail each time.
                    reason = GpuAvailability.MIG if self.device.is_instance else reason
                if reason not in reading.reported:
                    reading.reported.add(reason)
                    facts = self.device.uuid, reading.name, reason.value, str(error)
                    self.failures.append((time(), *facts))
        return (None,) * reading.width

    def _utilization(self) -> Values:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        return rates.gpu, rates.memory

    def _memory(self) -> Values:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle, self._nvml.nvmlMemory_v2)
        return memory.used, memory.total

    def _clock(self, kind: int) -> Values:
        return (self._nvml.nvmlDeviceGetClockInfo(self._handle, kind),)

    def _temperature(self) -> Values:
        nvml = self._nvml
        return (nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU),)

    def _pcie(self) -> Values:
        """Return the rates of sent and received bytes per second."""
        nvml = self._nvml
        kinds = nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES
        # The driver measures for 20 ms in each call.
        sent, received = (nvml.nvmlDeviceGetPcieThroughput(self._handle, kind) for kind in kinds)
        return sent * 1024.0, received * 1024.0

    def _processes(self) -> Values:
        """Return the GPU memory of each process, as a list of process id and bytes.

        In a container, the driver's process ids may differ from the ids that this process sees.
        """
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return ([[process.pid, process.usedGpuMemory] for process in running],)
