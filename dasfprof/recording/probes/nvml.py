"""`GpuReader`: reads one device through NVML; each reading may fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

from dasfprof.recording.probes.cuda_devices import Device
from dasfprof.schema.gpus import GpuAvailability

#: Seconds between two readings that take milliseconds or wait in the driver.
SLOW_INTERVAL = 1.0

Values = tuple[Any, ...]


#: Return codes of NVML as in nvml.h: older versions of pynvml lack some of their names.
_INVALID_ARGUMENT = 2
_REASONS = {
    3: GpuAvailability.NOT_SUPPORTED,
    4: GpuAvailability.NO_PERMISSION,
    6: GpuAvailability.NOT_FOUND,
    9: GpuAvailability.NO_DRIVER,  # not loaded
    12: GpuAvailability.NO_LIBRARY,
    13: GpuAvailability.NOT_SUPPORTED,  # a function that the library does not have
    15: GpuAvailability.LOST,
    16: GpuAvailability.LOST,  # until the device is reset
    18: GpuAvailability.NO_DRIVER,  # of another version than its library
    25: GpuAvailability.NOT_SUPPORTED,  # a structure that the library does not know
}


def reason_of(error: Exception) -> GpuAvailability:
    """Return the reason for an exception of a call through pynvml."""
    if isinstance(error, AttributeError):  # a function that pynvml does not have
        return GpuAvailability.NOT_SUPPORTED
    return _REASONS.get(getattr(error, "value", 0), GpuAvailability.FAILED)


@dataclass
class _Reading:
    """Values that are read together, and the functions to read them, the best first."""

    name: str
    width: int
    ways: list[Callable[[], Values]]
    reported: set[GpuAvailability] = field(default_factory=set)


class GpuReader:
    """Reads one device; used in the sampler's thread only.

    Parameters
    ----------
    nvml
        The module `pynvml`, after `nvmlInit`.
    device
        The device.
    """

    def __init__(self, nvml: Any, device: Device) -> None:
        self.device = device
        #: Whether the device fell off the bus and must not be read again.
        self.lost = False
        #: Rows of "GPU Failure" that are not yet recorded.
        self.failures: list[Values] = []
        #: Utilisation in percent, used bytes and bytes of this process, from the last sample.
        self.summary: tuple[float | None, float | None, float | None] = (None, None, None)
        self._nvml = nvml
        self._handle = device.handle
        self._slow_due: dict[str, float] = {}
        self._pcie_last: tuple[float, int, int] | None = None
        self._readings = [
            _Reading("utilization", 2, [self._utilization]),
            _Reading("memory", 2, [self._memory, self._memory_before_510]),
            _Reading("power", 1, [self._power]),
            _Reading("sm_clock", 1, [lambda: self._clock(nvml.NVML_CLOCK_SM)]),
            _Reading("memory_clock", 1, [lambda: self._clock(nvml.NVML_CLOCK_MEM)]),
            _Reading("temperature", 1, [self._temperature]),
            _Reading("pcie", 2, [self._pcie_counters, self._pcie_throughput]),
            _Reading("processes", 1, [self._processes]),
        ]

    def sample(self) -> Values | None:
        """Return a row of "GPU Usage"; None if the device is lost."""
        device = self.device
        row: list[Any] = [time(), device.uuid, device.index, device.name]
        for reading in self._readings:
            row += self._read(reading)
            if self.lost:
                return None
        self.summary = row[4], row[6], dict(row[-1] or ()).get(os.getpid())
        return tuple(row)

    def _read(self, reading: _Reading) -> Values:
        while reading.ways:
            try:
                return reading.ways[0]()
            except (self._nvml.NVMLError, AttributeError) as error:
                reason = reason_of(error)
                self.lost = reason is GpuAvailability.LOST
                if not self._is_final(error, reason):
                    self._report(reading, reason, error)
                    break
                # It would fail each time: go on with the next best function.
                reading.ways.pop(0)
                if not reading.ways:
                    self._report(reading, reason, error)
        return (None,) * reading.width

    def _is_final(self, error: Exception, reason: GpuAvailability) -> bool:
        return (
            reason in (GpuAvailability.NOT_SUPPORTED, GpuAvailability.NO_PERMISSION)
            or getattr(error, "value", 0) == _INVALID_ARGUMENT
        )

    def _report(self, reading: _Reading, reason: GpuAvailability, error: Exception) -> None:
        if self.device.is_instance and self._is_final(error, reason):
            reason = GpuAvailability.MIG
        if reason not in reading.reported:
            reading.reported.add(reason)
            self.failures.append((time(), self.device.uuid, reading.name, reason.value, str(error)))

    def _utilization(self) -> Values:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        return rates.gpu, rates.memory

    def _memory(self) -> Values:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle, self._nvml.nvmlMemory_v2)
        return memory.used, memory.total

    def _memory_before_510(self) -> Values:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        return memory.used, memory.total

    def _power(self) -> Values:
        return (self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,)

    def _clock(self, kind: int) -> Values:
        return (self._nvml.nvmlDeviceGetClockInfo(self._handle, kind),)

    def _temperature(self) -> Values:
        nvml = self._nvml
        return (nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU),)

    def _pcie_counters(self) -> Values:
        """Return the rates since the last sample, from counters of bytes."""
        nvml = self._nvml
        now = monotonic()
        fields = nvml.nvmlDeviceGetFieldValues(
            self._handle,
            [nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES],
        )
        for item in fields:
            if item.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(item.nvmlReturn)
        sent, received = (int(_field_value(nvml, item)) for item in fields)
        last, self._pcie_last = self._pcie_last, (now, sent, received)
        if last is None or sent < last[1] or received < last[2]:  # the counters wrap
            return None, None
        seconds = max(now - last[0], 1e-6)
        return (sent - last[1]) / seconds, (received - last[2]) / seconds

    def _pcie_throughput(self) -> Values:
        """Return the driver's rates, for which it counts for 20 ms in each of two calls."""
        if not self._is_due("pcie"):
            return None, None
        nvml = self._nvml
        kinds = nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES
        sent, received = (nvml.nvmlDeviceGetPcieThroughput(self._handle, kind) for kind in kinds)
        return sent * 1024.0, received * 1024.0

    def _processes(self) -> Values:
        """Return the memory of each process. In a container the driver may know other pids."""
        if not self._is_due("processes"):
            return (None,)
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return ([[process.pid, process.usedGpuMemory] for process in running],)

    def _is_due(self, name: str) -> bool:
        now = monotonic()
        if now < self._slow_due.get(name, 0.0):
            return False
        self._slow_due[name] = now + SLOW_INTERVAL
        return True


def _field_value(nvml: Any, item: Any) -> Any:
    names = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }
    return getattr(item.value, names.get(item.valueType, "ullVal"))
