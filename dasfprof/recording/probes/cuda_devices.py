"""Which GPUs a process may use, in CUDA's order, and which one is its own.

CUDA has its own order of the GPUs that a process may use: with
``CUDA_DEVICE_ORDER=FASTEST_FIRST``, the default, the fastest first, else by their place on the bus.
NVML has another order. ``CUDA_VISIBLE_DEVICES`` selects and reorders devices, by CUDA's numbers or
by UUID. The two orders are matched by UUID, by the place on the bus where that is enough, or by
asking CUDA. Where none of these is possible yet, the match is unknown.

Nothing here initialises CUDA: that would take memory on a device and fix CUDA's view of the
environment before the user's code is ready.
"""

from __future__ import annotations

import ctypes
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dasfprof.schema.gpus import GpuAvailability, GpuMatch


@dataclass(frozen=True)
class Device:
    """A GPU, or an instance of a GPU in MIG mode, as NVML describes it."""

    handle: Any = field(compare=False)
    uuid: str
    #: NVML's index; for a MIG instance, that of its GPU.
    index: int
    name: str
    #: The place on the bus: domain, bus and device.
    place: tuple[int, int, int]
    #: Whether it is an instance of a GPU in MIG mode.
    is_instance: bool = False
    mig_mode: bool = False
    instances: tuple[Device, ...] = ()


@dataclass(frozen=True)
class VisibleDevices:
    """The devices that a process may use, in CUDA's order, or why there are none."""

    devices: tuple[Device, ...]
    availability: GpuAvailability
    match: GpuMatch | None = None

    @property
    def own(self) -> Device | None:
        """The device that Dask's worker computes on by convention: the first."""
        return self.devices[0] if self.devices else None


def visible_devices(
    installed: Sequence[Device], environment: Mapping[str, str] = os.environ
) -> VisibleDevices:
    """Return the devices that CUDA will show to a process with this environment.

    As with CUDA, a list ends at the first entry that is not a device: ``0,1,-1,2`` shows two
    devices, and an empty list or ``-1`` none. UUIDs may be abbreviated if they are unambiguous.

    Parameters
    ----------
    installed
        All GPUs that NVML knows, in any order.
    environment
        ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` are read.
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


def devices_of_cuda(installed: Sequence[Device], uuids: Sequence[str]) -> VisibleDevices:
    """Return the devices with the UUIDs that CUDA reports; see `ask_cuda`."""
    by_uuid = {_bare(device.uuid): device for device in with_instances(installed)}
    devices = [by_uuid[bare] for bare in uuids if bare in by_uuid]
    if len(devices) < len(uuids):
        return VisibleDevices((), GpuAvailability.NOT_FOUND)
    return _visible(devices, GpuMatch.CUDA, GpuAvailability.HIDDEN)


def ask_cuda() -> list[str] | None:
    """Return the UUIDs, without prefix, of this process's devices in CUDA's order.

    None while no library of this process has initialised CUDA: the driver is called only if it is
    already loaded, and then answers without initialising anything.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=getattr(os, "RTLD_NOLOAD", 0))
        describe = getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)
    except (OSError, AttributeError):
        return None
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    uuids = []
    for ordinal in range(count.value):
        device, identity = ctypes.c_int(), ctypes.create_string_buffer(16)
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or describe(identity, device):
            return None
        uuids.append(str(uuid.UUID(bytes=identity.raw)))
    return uuids


def with_instances(installed: Sequence[Device]) -> list[Device]:
    """Return GPUs, each followed by its MIG instances."""
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
    found: list[Device] = []
    for entry in entries:
        same = [device for device in with_instances(installed) if device.uuid.startswith(entry)]
        if len(same) != 1 or entry in ("", "GPU-", "MIG-"):
            break
        found += same
    return found


def _in_cuda_order(
    installed: Sequence[Device], order: str
) -> tuple[Sequence[Device], GpuMatch | None]:
    """Return all devices in CUDA's order; no match if that order is unknown without CUDA."""
    on_bus = sorted(installed, key=lambda device: device.place)
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


def _bare(identity: str) -> str:
    """Return a UUID without its prefix, as CUDA has it."""
    return identity.partition("-")[2].lower()
