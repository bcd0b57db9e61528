"""`GpuProbe`: reads the GPUs that a worker may use, in the sampler's thread.

Whatever keeps it from reading is recorded as a row of "GPU Devices" and raises nothing: no
library, no driver, no permission, no device. The probe runs on workers that never see a GPU too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, thread_time, time
from typing import Any, Protocol

import dask.config

from dasfprof.recording.cuda_devices import (
    Device,
    VisibleDevices,
    ask_cuda,
    devices_of_cuda,
    visible_devices,
    with_instances,
)
from dasfprof.recording.gpu_reader import GpuReader, reason_of
from dasfprof.schema.declaration import Schema
from dasfprof.schema.gpus import GPU_DEVICES, GPU_FAILURE, GPU_USAGE, GpuAvailability

#: Seconds after which a worker also reads devices that it may use and that nobody reads: their
#: own workers have had the time to take them.
OTHERS_AFTER = 1.0

#: Seconds between two questions whether CUDA has been initialised in this process.
CUDA_INTERVAL = 1.0

#: The share of a core that readings may take. What a driver's calls cost differs by a factor of
#: ten between devices, so that the next readings wait until the last ones are within it.
CPU_SHARE = 0.003

_NOTHING = (None, None, None, None)


class Duty(Protocol):
    """The right to read something, which one process of a host has at a time."""

    def held(self) -> bool:
        """Tell whether this process has it, taking it if it is free."""
        ...

    def release(self) -> None:
        """Leave it to another process."""
        ...


class GpuProbe:
    """Reads each device once a tick per host, however many workers may use it.

    The duty of the sampler is for the host; this probe has a duty a device. So each worker of
    LocalCUDACluster reads its own device, and of workers that share a device one does.

    Parameters
    ----------
    elect
        Makes the duty of a device from its UUID.
    """

    def __init__(self, elect: Callable[[str], Duty]) -> None:
        self._elect = elect
        self._nvml: Any = None
        self._installed: list[Device] = []
        self._visible: VisibleDevices | None = None
        self._readers: dict[str, tuple[GpuReader, Duty]] = {}
        #: What this tick read of the worker's own device, None where it did not: NVML index,
        #: utilisation in %, used bytes, and bytes that this process uses.
        self.own_usage: tuple[Any, ...] = _NOTHING
        self._due = 0.0
        self._others_due = 0.0
        self._cuda_due = 0.0
        self._cuda_asked = False

    def sample(self, host_duty: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Read the devices whose duty this worker has; the first call opens the driver."""
        now = monotonic()
        if self._visible is None:
            self._others_due = now + OTHERS_AFTER
            yield self._connect()
        if self._installed and not self._cuda_asked and now >= self._cuda_due:
            self._cuda_due = now + CUDA_INTERVAL
            yield from self._consult_cuda()
        self.own_usage = _NOTHING
        if now >= self._due:
            begin = thread_time()
            yield from self._read(now >= self._others_due)
            self._due = now + (thread_time() - begin) / CPU_SHARE

    def _read(self, others: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Read the own device, and the others too if it is time for that."""
        for uuid, (reader, duty) in list(self._readers.items()):
            is_own = self._own is not None and uuid == self._own.uuid
            if reader.lost or not (is_own or others) or not duty.held():
                continue
            row = reader.sample()
            yield from ((GPU_FAILURE, failure) for failure in reader.failures)
            reader.failures.clear()
            if row is not None:
                yield GPU_USAGE, row
                if is_own:
                    self.own_usage = reader.device.index, *reader.summary
            elif is_own:
                yield self._describe(GpuAvailability.LOST)

    def close(self) -> None:
        """Leave the devices to other workers and let go of the driver."""
        for _, duty in self._readers.values():
            duty.release()
        self._readers.clear()
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            with contextlib.suppress(nvml.NVMLError):  # somebody else shut it down already
                nvml.nvmlShutdown()

    @property
    def _own(self) -> Device | None:
        return self._visible.own if self._visible else None

    def _connect(self) -> tuple[Schema, tuple[Any, ...]]:
        """Open the driver and find the devices; gives a row of "GPU Devices"."""
        self._visible = VisibleDevices((), GpuAvailability.FAILED)
        if not dask.config.get("distributed.diagnostics.nvml", True):
            return self._describe(GpuAvailability.TURNED_OFF)
        try:
            import pynvml
        except ImportError:
            return self._describe(GpuAvailability.NO_BINDING)
        try:
            pynvml.nvmlInit()
            self._nvml = pynvml
            self._installed, refusal = list_devices(pynvml)
        except Exception as error:
            return self._describe(reason_of(error), str(error))
        if not self._installed and refusal is None:
            return self._describe(GpuAvailability.NO_DEVICE)
        self._show(visible_devices(self._installed))
        if refusal is not None and self._own is None:
            return self._describe(reason_of(refusal), str(refusal))
        return self._describe(self._visible.availability)

    def _consult_cuda(self) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Take CUDA's own word for the devices once it has been initialised in this process."""
        uuids = ask_cuda()
        if uuids is None:
            return
        self._cuda_asked = True
        before = self._visible
        self._show(devices_of_cuda(self._installed, uuids))
        if self._visible is not None and self._visible != before:
            yield self._describe(self._visible.availability)

    def _show(self, visible: VisibleDevices) -> None:
        self._visible = visible
        devices: Sequence[Device] = visible.devices
        if visible.availability is GpuAvailability.ORDER_UNKNOWN:
            # One of them is its own: read them all, and find out later which.
            devices = with_instances(self._installed)
        shown = {device.uuid: device for device in devices}
        for uuid in self._readers.keys() - shown.keys():
            self._readers.pop(uuid)[1].release()
        for uuid, device in shown.items():
            if uuid not in self._readers:
                self._readers[uuid] = GpuReader(self._nvml, device), self._elect(uuid)

    def _describe(
        self, availability: GpuAvailability, detail: str | None = None
    ) -> tuple[Schema, tuple[Any, ...]]:
        own = self._own
        visible = self._visible or VisibleDevices((), availability)
        return GPU_DEVICES, (
            time(),
            availability.value,
            detail,
            visible.match.value if visible.match else None,
            own.uuid if own else None,
            own.index if own else None,
            own.name if own else None,
            [device.uuid for device in visible.devices],
            [device.index for device in visible.devices],
            [device.name for device in visible.devices],
            os.environ.get("CUDA_VISIBLE_DEVICES"),
            _driver_version(self._nvml),
            os.getpid(),
        )


def list_devices(nvml: Any) -> tuple[list[Device], Any]:
    """List the host's GPUs; with the last error of those that cannot be opened, else None."""
    devices, refusal = [], None
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            bus = nvml.nvmlDeviceGetPciInfo(handle)
            place = bus.domain, bus.bus, bus.device
            instances = _list_instances(nvml, handle, index, place)
            devices.append(
                Device(
                    handle,
                    nvml.nvmlDeviceGetUUID(handle),
                    index,
                    nvml.nvmlDeviceGetName(handle),
                    place,
                    mig_mode=instances is not None,
                    instances=instances or (),
                )
            )
        except nvml.NVMLError as error:
            refusal = error
    return devices, refusal


def _list_instances(
    nvml: Any, handle: Any, index: int, place: tuple[int, int, int]
) -> tuple[Device, ...] | None:
    """List the MIG instances of a GPU; None if it is not in MIG mode."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # GPUs of the time before MIG
        return None
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    instances = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            uuid, name = nvml.nvmlDeviceGetUUID(part), nvml.nvmlDeviceGetName(part)
        except nvml.NVMLError:  # no instance of this number
            continue
        instances.append(Device(part, uuid, index, name, place, is_instance=True))
    return tuple(instances)


def _driver_version(nvml: Any) -> str | None:
    try:
        return str(nvml.nvmlSystemGetDriverVersion()) if nvml is not None else None
    except nvml.NVMLError:
        return None
