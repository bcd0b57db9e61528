"""`DiskProbe`: the free space of each disk of a host, and what was read and written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from time import monotonic, time
from typing import Any

import psutil

from dasfprof.schema.declaration import Schema
from dasfprof.schema.resources import DISK_USAGE

#: Prefixes of devices that are not disks.
_NO_DISKS = ("loop", "ram", "zram", "fd", "sr")
_COUNTERS = ("read_count", "write_count", "read_bytes", "write_bytes")
_NO_SPACE = (None, None, None)

Row = tuple[Any, ...]


class DiskProbe:
    """Reads the disks of the host, on the worker with host duty only.

    Network file systems are left out, because a missing server would block the sampler forever.
    The file system of the worker's local directory is always read, as the worker depends on it.

    Parameters
    ----------
    local_directory
        The directory that the worker spills to.
    """

    #: Seconds between two readings.
    INTERVAL = 5.0

    def __init__(self, local_directory: str) -> None:
        self._local_directory = os.path.realpath(local_directory)
        self._due = monotonic()

    def sample(self, host_duty: bool) -> Iterator[tuple[Schema, Row]]:
        """Yield a row of "Disk Usage" for each disk, when they are due."""
        now = monotonic()
        if not host_duty or now < self._due:
            return
        self._due = now + self.INTERVAL
        timestamp = time()
        for row in self._disks():
            yield DISK_USAGE, (timestamp, *row)

    def close(self) -> None:
        """Do nothing: the probe holds no resources."""

    def _disks(self) -> Iterator[Row]:
        counters = _read_counters()
        mounted = self._mounted()
        for device, (point, file_system, local) in mounted.items():
            yield device, point, file_system, local, *_space(point), *_counted(counters.get(device))
        for device, counter in counters.items():
            idle = not any(getattr(counter, name, 0) for name in _COUNTERS)
            if device not in mounted and not device.startswith(_NO_DISKS) and not idle:
                yield device, None, None, 0, *_NO_SPACE, *_counted(counter)

    def _mounted(self) -> dict[str, tuple[str, str, int]]:
        """Return where each device is mounted, the shortest path if there are several."""
        spilled_to = max(
            (part for part in psutil.disk_partitions(all=True) if self._holds(part.mountpoint)),
            key=lambda part: len(part.mountpoint),
            default=None,
        )
        found: dict[str, tuple[str, str, int]] = {}
        if spilled_to is not None:
            device = _name(spilled_to.device)
            found[device] = spilled_to.mountpoint, spilled_to.fstype, 1
        for part in sorted(psutil.disk_partitions(), key=lambda part: len(part.mountpoint)):
            if not part.device.startswith("/dev/loop"):
                found.setdefault(_name(part.device), (part.mountpoint, part.fstype, 0))
        return found

    def _holds(self, mountpoint: str) -> bool:
        above = mountpoint.rstrip(os.sep) + os.sep
        return (self._local_directory + os.sep).startswith(above)


def _name(device: str) -> str:
    """Return the kernel's name of a device, or the name unchanged if it is not a device."""
    if not device.startswith("/dev/"):
        return device
    return os.path.basename(os.path.realpath(device))


def _read_counters() -> dict[str, Any]:
    # Without psutil's correction of overflows: it keeps one last reading for all callers, and the
    # resource probe calls it too.
    with contextlib.suppress(OSError, RuntimeError, NotImplementedError, psutil.Error):
        return dict(psutil.disk_io_counters(perdisk=True, nowrap=False))
    return {}


def _counted(counter: Any) -> Row:
    """Return operations, bytes and seconds; psutil has milliseconds, on some systems only."""
    times = (getattr(counter, name, None) for name in ("read_time", "write_time"))
    return (
        *(getattr(counter, name, None) for name in _COUNTERS),
        *(None if milliseconds is None else milliseconds / 1000 for milliseconds in times),
    )


def _space(mountpoint: str) -> Row:
    try:
        usage = psutil.disk_usage(mountpoint)
    except (OSError, psutil.Error):
        return _NO_SPACE
    return usage.total, usage.used, usage.free
