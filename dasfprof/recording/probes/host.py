"""Probes that read a worker, its process and its host, in the thread of the resource monitor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic, time
from typing import Any, Protocol

import psutil

from dasfprof.recording.dask_internals.undocumented import p2p_buffers, spill_metrics, spilled_bytes
from dasfprof.recording.probes.gpu import GpuProbe
from dasfprof.recording.probes.process import (
    ProcessUsage,
    ServiceCpu,
    cpu_group,
    oom_kills,
)
from dasfprof.schema.events import Schema
from dasfprof.schema.resources import (
    DISK_USAGE,
    MANAGED_MEMORY,
    RESOURCE_USAGE,
    WORKER_GPU,
)
from dasfprof.system import PROC

#: Prefixes of devices that are not disks.
_NO_DISKS = ("loop", "ram", "zram", "fd", "sr")
_COUNTERS = ("read_count", "write_count", "read_bytes", "write_bytes")
_NO_SPACE = (None, None, None)

Row = tuple[Any, ...]


class DiskProbe:
    """Reads free space and I/O counters of the host's disks, on the worker with the `HostDuty`.

    Network file systems are left out, except that of the worker's local directory.

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
        """Yield a row of "Disk Usage" for each disk, if `INTERVAL` has passed."""
        now = monotonic()
        if not host_duty or now < self._due:
            return
        self._due = now + self.INTERVAL
        timestamp = time()
        for row in self._disks():
            yield DISK_USAGE, (timestamp, *row)

    def close(self) -> None:
        """Do nothing, because the probe holds no resources."""

    def _disks(self) -> Iterator[Row]:
        # `nowrap=False` turns off psutil's correction of overflows, because this correction
        # remembers only one previous reading for all callers.
        counters = _or_none(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False)) or {}
        mounted = self._mounted()
        for device, (point, file_system, local) in mounted.items():
            yield device, point, file_system, local, *_space(point), *_counted(counters.get(device))
        for device, counter in counters.items():
            is_used = any(getattr(counter, name, 0) for name in _COUNTERS)
            if device not in mounted and not device.startswith(_NO_DISKS) and is_used:
                yield device, None, None, 0, *_NO_SPACE, *_counted(counter)

    def _mounted(self) -> dict[str, tuple[str, str, int]]:
        """Return the mount point, the file system and a flag of each disk, by name of the device.

        The flag is 1 for the disk of the worker's local directory, otherwise 0.
        """
        # A network server that is down would block the monitor's thread forever. Only the local
        # directory's file system is read in any case, because without it the worker cannot work
        # either.
        directory, disks = self._local_directory + os.sep, psutil.disk_partitions(all=True)
        spilled_to = max(
            (d for d in disks if directory.startswith(d.mountpoint.rstrip(os.sep) + os.sep)),
            key=lambda part: len(part.mountpoint),
            default=None,
        )
        mounted: dict[str, tuple[str, str, int]] = {}
        if spilled_to is not None:
            mounted[_name(spilled_to.device)] = spilled_to.mountpoint, spilled_to.fstype, 1
        # If a disk has several mount points, the shortest of them is returned.
        for part in sorted(psutil.disk_partitions(), key=lambda part: len(part.mountpoint)):
            if not part.device.startswith("/dev/loop"):
                mounted.setdefault(_name(part.device), (part.mountpoint, part.fstype, 0))
        return mounted


def _name(device: str) -> str:
    """Return the kernel's name of a device, or `device` unchanged if it is not under ``/dev``."""
    if not device.startswith("/dev/"):
        return device
    return os.path.basename(os.path.realpath(device))


def _counted(counter: Any) -> Row:
    """Return the operations, bytes and seconds of a disk counter, with None for unknown values."""
    times = (getattr(counter, name, None) for name in ("read_time", "write_time"))
    return (
        *(getattr(counter, name, None) for name in _COUNTERS),
        *(None if milliseconds is None else milliseconds / 1000 for milliseconds in times),
    )


def _space(mountpoint: str) -> Row:
    usage = _or_none(lambda: psutil.disk_usage(mountpoint))
    return _NO_SPACE if usage is None else (usage.total, usage.used, usage.free)


Rows = Iterable[tuple[Schema, tuple[Any, ...]]]

#: Columns of "Resource Usage", in their order.
_COLUMNS = [name for name, _ in RESOURCE_USAGE.fields + RESOURCE_USAGE.args]
_WORKER_GPU = [column.name for column in WORKER_GPU]


class Probe(Protocol):
    """A source of resource samples. It is called only in the thread of the resource monitor."""

    def sample(self, host_duty: bool) -> Rows:
        """Take one sample, and return its rows with their schemas.

        Parameters
        ----------
        host_duty
            Whether this worker is the one that reads values of the host.
        """

    def close(self) -> None:
        """Release the resources of the probe."""


class ResourceProbe:
    """Reads this process and, if the worker has the `HostDuty`, its host.

    Parameters
    ----------
    gpu
        The probe of GPUs, which must be sampled before this probe. The row "Resource Usage"
        includes the values of the worker's GPU.
    usage
        The object that reads the process. The default is a `ProcessUsage`.
    """

    #: Seconds between two readings of the host, and between two readings of the process's control
    #: group. Reading the host costs ten times as much as reading the process.
    HOST_INTERVAL = 1.0
    #: Minimum seconds over which a CPU percentage is computed, because the kernel counts CPU time
    #: in ticks of 10 ms.
    MIN_CPU_INTERVAL = 0.02

    def __init__(self, gpu: GpuProbe, usage: ProcessUsage | None = None) -> None:
        self._gpu = gpu
        self._usage = ProcessUsage() if usage is None else usage
        self._service = ServiceCpu()
        self._cpu_group = cpu_group()
        self._last_cpu = monotonic(), self._usage.read().cpu_seconds
        self._host_due = self._group_due = monotonic()
        self._last: tuple[float, Any, Any] | None = None

    def sample(self, host_duty: bool) -> Rows:
        """Yield one row of "Resource Usage".

        It has values of the host once per `HOST_INTERVAL`, if the worker has the host duty.
        """
        now, clock = time(), monotonic()
        usage = self._usage.read()
        reading = {
            "timestamp": now,
            "time": now,
            "monotonic": clock,
            "cpu": self._cpu_percent(clock, usage.cpu_seconds),
            "memory": usage.memory,
            "num_fds": usage.descriptors,
            "num_threads": usage.threads,
            "process_cpu_seconds": usage.cpu_seconds,
            "service_cpu_seconds": self._service.read(),
            "process_io.read_size": usage.read_bytes,
            "process_io.write_size": usage.write_bytes,
            **dict(zip(_WORKER_GPU, self._gpu.device_usage, strict=True)),
        }
        if clock >= self._group_due:
            self._group_due = clock + self.HOST_INTERVAL
            reading["oom_kills"] = _or_none(oom_kills)
            if self._cpu_group is not None:
                reading["throttled_seconds"] = self._cpu_group.throttled()
        if host_duty and clock >= self._host_due:
            self._host_due = clock + self.HOST_INTERVAL
            reading |= self._host(clock)
        yield RESOURCE_USAGE, tuple(map(reading.get, _COLUMNS))

    def close(self) -> None:
        """Close the files from which the usage of the process is read."""
        self._usage.close()

    def _cpu_percent(self, clock: float, seconds: float) -> float | None:
        """Return the CPU use since the last result, in percent of one core, or None if too soon."""
        last_clock, last_seconds = self._last_cpu
        if clock - last_clock < self.MIN_CPU_INTERVAL:
            return None
        self._last_cpu = clock, seconds
        return 100.0 * (seconds - last_seconds) / (clock - last_clock)

    def _host(self, clock: float) -> dict[str, Any]:
        memory = psutil.virtual_memory()
        # Dask reads the same counters in another thread. psutil's correction of overflows remembers
        # one previous reading for all threads, and would mistake concurrent readings for overflows.
        net = psutil.net_io_counters(nowrap=False)
        disk = _or_none(lambda: psutil.disk_io_counters(nowrap=False))
        cpu: float | None = psutil.cpu_percent()
        if self._last is None:  # psutil counts from this thread's last call. This is the first.
            cpu = None
        last_clock, last_net, last_disk = self._last or (clock, net, disk)
        self._last = clock, net, disk
        seconds = clock - last_clock

        def rate(counters: Any, last: Any, name: str) -> float | None:
            if seconds <= 0 or counters is None or last is None:
                return None
            moved = getattr(counters, name) - getattr(last, name)
            # The difference is negative after an overflow, or after a device was removed.
            return float(moved) / seconds if moved >= 0 else None

        io: dict[str, Any] = {}
        for prefix, counters, last_counters, names in (
            ("host_net_io", net, last_net, ("bytes_recv", "bytes_sent")),
            ("host_disk_io", disk, last_disk, ("read_bytes", "write_bytes")),
        ):
            for kind, name in zip(("read", "write"), names, strict=True):
                io[f"{prefix}.{kind}_bps"] = rate(counters, last_counters, name)
                io[f"{prefix}.{kind}_size"] = getattr(counters, name, None)
        tcp, udp = _host_sockets()
        return {
            "host_cpu": cpu,
            "host_memory_used": memory.used,
            "host_memory_available": memory.available,
            "host_memory_total": memory.total,
            "host_swap_used": _or_none(lambda: psutil.swap_memory().used),
            **io,
            "host_disk_io.read_count": getattr(disk, "read_count", None),
            "host_disk_io.write_count": getattr(disk, "write_count", None),
            "host_tcp_connections": tcp,
            "host_udp_connections": udp,
        }


class WorkerProbe:
    """Reads the stored results and the tasks of a worker, and the delay of its event loop.

    Parameters
    ----------
    worker
        The Dask worker. The probe never changes it, because it runs in another thread.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._asked: float | None = None
        self._lag: float | None = None

    def sample(self, host_duty: bool) -> Rows:
        """Yield one row of "Managed Memory"."""
        worker = self._worker
        state, data = worker.state, worker.data
        metrics = _or_none(lambda: spill_metrics(data)) or {}
        row = (
            time(),
            len(data),
            state.nbytes,
            spilled_bytes(data),
            state.executing_count,
            len(state.ready),
            worker.status.name,
            metrics.get(("disk-write", "seconds"), 0.0),
            float(metrics.get(("disk-write", "bytes"), 0)),
            metrics.get(("disk-read", "seconds"), 0.0),
            float(metrics.get(("disk-read", "bytes"), 0)),
            self._loop_lag(),
            _or_none(lambda: p2p_buffers(worker)),
        )
        yield MANAGED_MEMORY, row

    def close(self) -> None:
        """Do nothing, because the probe holds no resources."""

    def _loop_lag(self) -> float | None:
        """Return how many seconds the event loop took to start the last call posted to it.

        If that call has not run yet, return the time since it was posted.
        """
        if self._asked is not None:
            return monotonic() - self._asked
        lag, self._asked = self._lag, monotonic()
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._worker.loop.asyncio_loop.call_soon_threadsafe(self._answer)
        return lag

    def _answer(self) -> None:
        if self._asked is not None:
            self._lag = monotonic() - self._asked
            self._asked = None


def _or_none(read: Any) -> Any:
    """Return the result of `read`, or None if the system does not support or permit it."""
    try:
        return read()
    except (psutil.Error, OSError, AttributeError, NotImplementedError, RuntimeError):
        return None


def _host_sockets() -> tuple[int | None, int | None]:
    """Return the number of TCP sockets and of UDP sockets in use on the host, or None."""
    counts: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path(PROC, "net/sockstat").read_text().splitlines():
            protocol, _, values = line.partition(": inuse ")
            if values:
                counts[protocol] = int(values.split()[0])
    return counts.get("TCP"), counts.get("UDP")
