"""Which GPUs a process may use, in CUDA's order, and which one is its own.

CUDA numbers the GPUs that a process may use in an order of its own: with
``CUDA_DEVICE_ORDER=FASTEST_FIRST``, its default, the fastest first, else as they sit on the bus.
NVML has yet another order. ``CUDA_VISIBLE_DEVICES`` selects and rearranges them, by CUDA's numbers
or by UUID. So the two are matched by UUID, or by the place on the bus where that is enough, or
by asking CUDA; and where nothing of this is possible yet, the answer is that it is not known.

Nothing here initialises CUDA. That would take memory on a device, and settle CUDA's view of the
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
    """A GPU, or an instance of one in MIG mode, as NVML knows it."""

    handle: Any = field(compare=False)
    uuid: str
    #: Of a MIG instance, that of its GPU.
    index: int
    name: str
    #: Domain, bus, device: the place on the bus.
    place: tuple[int, int, int]
    #: An instance of a GPU in MIG mode.
    is_instance: bool = False
    mig_mode: bool = False
    instances: tuple[Device, ...] = ()


@dataclass(frozen=True)
class VisibleDevices:
    """The devices that a process may use in CUDA's order, its own first, or why there are none."""

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
    """Find the devices that CUDA will show to a process with this environment.

    As CUDA does, a list ends at the first entry that names no device: ``0,1,-1,2`` shows two, and
    an empty list or ``-1`` none. UUIDs may be cut where they stay unambiguous.

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
    """Find the devices that CUDA itself names, see `ask_cuda`."""
    by_uuid = {_bare(device.uuid): device for device in with_instances(installed)}
    devices = [by_uuid[bare] for bare in uuids if bare in by_uuid]
    if len(devices) < len(uuids):
        return VisibleDevices((), GpuAvailability.NOT_FOUND)
    return _visible(devices, GpuMatch.CUDA, GpuAvailability.HIDDEN)


def ask_cuda() -> list[str] | None:
    """Ask CUDA for the UUIDs, without prefix, of this process's devices in its order.

    Gives None while no library of this process has initialised CUDA: the driver is asked only if
    it is loaded already, and then answers without initialising anything.
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
    """List GPUs, each followed by its MIG instances."""
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
    """Bring all devices in CUDA's order; no match where that cannot be told from outside."""
    on_bus = sorted(installed, key=lambda device: device.place)
    if len(on_bus) == 1:
        # Of a GPU in MIG mode, CUDA uses the first instance.
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
    """Cut the prefix: CUDA gives bytes, and a MIG instance's come without one too."""
    return identity.partition("-")[2].lower()
