"""`GpuProbe`: reads the GPUs that a worker may use, in the thread of the resource monitor.

If the GPUs cannot be read, for example because the driver or the permission is missing, the probe
raises no error but writes the reason into a row of "GPU Devices". Therefore it can also run on
workers that have no GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from time import monotonic, perf_counter, thread_time, time
from typing import Any

import dask.config

from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.probes.nvml import (
    Device,
    GpuReader,
    VisibleDevices,
    reason_of,
    visible_devices,
    with_instances,
)
from dasfprof.schema.events import Schema
from dasfprof.schema.resources import (
    DEVICE_MEMORY,
    GPU_DEVICES,
    GPU_FAILURE,
    GPU_USAGE,
    GpuAvailability,
)

#: Seconds after which a worker also reads those of its visible devices that no other worker reads.
#: By then, each worker has taken the duty to read the device that it uses itself.
OTHERS_AFTER = 1.0

#: Maximum fraction of a core that readings may take. After each reading, the next one is delayed
#: accordingly, because the cost of calls of the driver differs by a factor of ten between devices.
CPU_SHARE = 0.003

_NOTHING = (None, None, None, None)


class GpuProbe:
    """Reads the GPUs of a worker. Each GPU of a host is read by only one worker.

    Parameters
    ----------
    elect
        A function that returns the `HostDuty` for the UUID of a device.
    """

    def __init__(self, elect: Callable[[str], Any]) -> None:
        # Each device has a duty, which one worker takes. So each worker of a LocalCUDACluster reads
        # the device that it uses, and one of the workers that share a device reads it.
        self._elect = elect
        self._nvml: Any = None
        self._visible = VisibleDevices((), GpuAvailability.FAILED)
        self._readers: dict[str, tuple[GpuReader, Any]] = {}
        #: Values of the worker's device in this sample: NVML index, utilization in %, used bytes,
        #: and bytes that this process uses. All are None if the device was not read.
        self.device_usage: tuple[Any, ...] = _NOTHING
        self._due = 0.0
        #: Time from which other devices are read, or None before the first sample.
        self._others_due: float | None = None

    def sample(self, host_duty: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Yield rows of the devices that this worker has the duty to read."""
        now = monotonic()
        if self._others_due is None:
            self._others_due = now + OTHERS_AFTER
            yield self._connect()
        self.device_usage = _NOTHING
        if now >= self._due:
            begin = thread_time()
            yield from self._read(now >= self._others_due)
            self._due = now + (thread_time() - begin) / CPU_SHARE

    def _read(self, others: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Yield rows of the worker's device and, if `others` is true, of other devices."""
        device = self._visible.worker_device
        for uuid, (reader, duty) in list(self._readers.items()):
            is_worker_device = device is not None and uuid == device.uuid
            if reader.lost or not (is_worker_device or others) or not duty.held():
                continue
            row = reader.sample()
            yield from ((GPU_FAILURE, failure) for failure in reader.failures)
            reader.failures.clear()
            if row is not None:
                yield GPU_USAGE, row
                if is_worker_device:
                    self.device_usage = reader.device.index, *reader.summary
            elif is_worker_device:
                yield self._describe(GpuAvailability.LOST)

    def close(self) -> None:
        """Release each device's `HostDuty` for other workers, and shut NVML down."""
        for _, duty in self._readers.values():
            duty.release()
        self._readers.clear()
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            with contextlib.suppress(nvml.NVMLError):  # Other code has shut it down already.
                nvml.nvmlShutdown()

    def _connect(self) -> tuple[Schema, tuple[Any, ...]]:
        """Initialize NVML, find the devices, and return a row of "GPU Devices"."""
        if not dask.config.get("distributed.diagnostics.nvml", True):
            return self._describe(GpuAvailability.TURNED_OFF)
        try:
            import pynvml
        except ImportError:
            try:
                ctypes.CDLL("libnvidia-ml.so.1")
            except OSError:
                return self._describe(GpuAvailability.NO_LIBRARY)
            return self._describe(GpuAvailability.NO_BINDING)
        try:
            pynvml.nvmlInit()
            self._nvml = pynvml
            installed, refusal = list_devices(pynvml)
        except Exception as error:
            return self._describe(reason_of(error), str(error))
        if not installed and refusal is None:
            return self._describe(GpuAvailability.NO_DEVICE)
        self._visible = visible = visible_devices(installed)
        # If it is unknown which of the installed devices the worker uses, all of them are read.
        order_unknown = visible.availability is GpuAvailability.ORDER_UNKNOWN
        for device in with_instances(installed) if order_unknown else visible.devices:
            self._readers[device.uuid] = GpuReader(pynvml, device), self._elect(device.uuid)
        if refusal is not None and visible.worker_device is None:
            return self._describe(reason_of(refusal), str(refusal))
        return self._describe(visible.availability)

    def _describe(
        self, availability: GpuAvailability, detail: str | None = None
    ) -> tuple[Schema, tuple[Any, ...]]:
        device, match = self._visible.worker_device, self._visible.match
        names = (device.uuid, device.index, device.name) if device else (None, None, None)
        facts = availability.value, detail, match.value if match else None, *names
        return GPU_DEVICES, (time(), *facts, os.getpid())


def list_devices(nvml: Any) -> tuple[list[Device], Any]:
    """Return the host's GPUs that can be opened, and an error.

    If GPUs cannot be opened, it is the error of the last of them. Otherwise, it is None.
    """
    devices, refusal = [], None
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            bus = nvml.nvmlDeviceGetPciInfo(handle)
            position = bus.domain, bus.bus, bus.device
            instances = _list_instances(nvml, handle, index, position)
            devices.append(
                Device(
                    handle,
                    nvml.nvmlDeviceGetUUID(handle),
                    index,
                    nvml.nvmlDeviceGetName(handle),
                    position,
                    mig_mode=instances is not None,
                    instances=instances or (),
                )
            )
        except nvml.NVMLError as error:
            refusal = error
    return devices, refusal


def _list_instances(
    nvml: Any, handle: Any, index: int, position: tuple[int, int, int]
) -> tuple[Device, ...] | None:
    """Return the MIG instances of a GPU, or None if it is not in MIG mode."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # The GPU does not support MIG.
        return None
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    instances = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            uuid, name = nvml.nvmlDeviceGetUUID(part), nvml.nvmlDeviceGetName(part)
        except nvml.NVMLError:  # There is no instance with this number.
            continue
        instances.append(Device(part, uuid, index, name, position, is_instance=True))
    return tuple(instances)


Values = tuple[float, int, int]


class DeviceMemoryProbe:
    """Reads where the results of a worker are: in device memory, in host memory or on disk.

    It reads the number of results in each of the three places, and the bytes in the two memories.
    It also counts the moves between these places. It yields no rows if the worker's data is not a
    `DeviceHostFile` of dask-cuda.
    """

    def __init__(self, worker: Any) -> None:
        data = worker.data
        # Recognize the class by its attributes, because dask-cuda cannot be imported without CUDA.
        funcs = [getattr(data, name, None) for name in ("device_host_func", "disk_func")]
        self._data = data if funcs[0] is not None and hasattr(data, "device") else None
        #: Seconds, bytes and number of moves, by pair of memories and direction (``dump`` or
        #: ``load``). Pair 0 is device and host, pair 1 is host and disk.
        self._moved: dict[tuple[int, str], Values] = {}
        self._patches: list[Patch] = []
        for number, func in enumerate(funcs if self._data is not None else ()):
            for name in ("dump", "load"):
                self._moved[number, name] = (0.0, 0, 0)
                if func is not None:
                    self._patches.append(Patch(func, name, partial(self._metering, number, name)))

    def sample(self, host_duty: bool) -> Iterator[tuple[Schema, tuple[Any, ...]]]:
        """Yield one row of "Device Memory"."""
        data = self._data
        if data is None:
            return
        held = (
            len(data.device),
            _weight(data.device_buffer),
            len(data.host),
            _weight(data.host_buffer),
            len(data.disk) if data.disk is not None else 0,
        )
        yield DEVICE_MEMORY, (time(), *held, *chain.from_iterable(self._moved.values()))

    def close(self) -> None:
        """Restore the functions of `DeviceHostFile` that this probe wraps."""
        while self._patches:
            self._patches.pop().remove()

    def _metering(self, number: int, name: str, original: Any, patch: Patch) -> Any:
        """Return a wrapper of a function that moves a result.

        The wrapper adds the seconds, the bytes and the number of moves to `_moved[number, name]`.
        """

        def metered(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            result = original(*args, **kwargs)
            if patch.active:
                with contextlib.suppress(Exception):
                    took, stored = perf_counter() - start, (*args, *kwargs.values())[0]
                    size = _size(result if name == "dump" else stored)
                    seconds, sizes, count = self._moved[number, name]
                    self._moved[number, name] = seconds + took, sizes + size, count + 1
            return result

        return metered


def _size(stored: Any) -> int:
    """Return the bytes of a serialized result, which consists of frames."""
    frames = getattr(stored, "frames", stored)
    if isinstance(frames, list | tuple):
        return sum(memoryview(frame).nbytes for frame in frames)
    return memoryview(frames).nbytes


def _weight(buffer: Any) -> float | None:
    """Return the bytes of results in the attribute ``fast`` of a zict buffer, or None."""
    # Dask does not count these bytes if the buffer has no limit.
    weight = getattr(getattr(buffer, "fast", None), "total_weight", None)
    return None if weight is None else float(weight)
