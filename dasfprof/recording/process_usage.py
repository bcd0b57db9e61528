"""What this process uses, read by the sampler: `ProcessUsage` at each tick, and its connections.

On Linux two files of ``/proc/self`` are read through descriptors that stay open: psutil opens and
parses more than is needed here, which makes up more than half of a tick (`benchmarks/`). Elsewhere
psutil reads.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NamedTuple

import psutil

_PROTOCOL = "system.sockprotoname"
#: Those of IPv6 begin in the same way.
_INTERNET = (b"TCP", b"UDP", b"MPTCP")

#: More than the text of either file.
_LENGTH = 1024


class Usage(NamedTuple):
    """One reading; None where it is not told."""

    #: User's and system's, since the process began.
    cpu_seconds: float
    #: Resident, bytes.
    memory: int
    descriptors: int
    threads: int
    #: From and to storage, since the process began.
    read_bytes: int | None
    write_bytes: int | None


class ProcessUsage:
    """Reads the usage of the process that makes it."""

    def __init__(self) -> None:
        self._stat: int | None = None
        self._io: int | None = None
        if sys.platform.startswith("linux"):
            self._page = os.sysconf("SC_PAGE_SIZE")
            self._tick = 1.0 / os.sysconf("SC_CLK_TCK")
            with contextlib.suppress(OSError):  # hidden from us: psutil says what it can
                self._stat = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
                self._io = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> Usage:
        """Read once.

        Raises
        ------
        psutil.Error, OSError
            If the system does not permit it.
        """
        if self._stat is None:
            return _by_psutil()
        # Behind the command's name, which may hold anything. Counted from 1 the fields are: 14 and
        # 15 CPU ticks, 20 threads, 24 pages (https://man7.org/linux/man-pages/man5/proc.5.html).
        words = os.pread(self._stat, _LENGTH, 0).rpartition(b")")[2].split()
        return Usage(
            (int(words[11]) + int(words[12])) * self._tick,
            int(words[21]) * self._page,
            len(os.listdir("/proc/self/fd")),
            int(words[17]),
            *self._read_io(),
        )

    def _read_io(self) -> tuple[int | None, int | None]:
        if self._io is None:
            return None, None
        lines = os.pread(self._io, _LENGTH, 0).split(b"\n")
        counts = dict(line.split(b": ", 1) for line in lines if line)
        return int(counts[b"read_bytes"]), int(counts[b"write_bytes"])

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._stat, self._io):
            if descriptor is not None:
                os.close(descriptor)
        self._stat = self._io = None


def count_connections() -> int:
    """Count this process's TCP and UDP sockets.

    Linux tells the protocol of a socket as an extended attribute of its descriptor. Looking it up
    in ``/proc/net/tcp``, as psutil does, takes fifty times as long: the kernel walks the table of
    all connections for it.

    Raises
    ------
    psutil.Error, OSError
        If the system does not permit it.
    """
    if not sys.platform.startswith("linux"):
        return len(psutil.Process().net_connections("inet"))
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # no socket, or closed by now
            name = os.getxattr(f"/proc/self/fd/{descriptor}", _PROTOCOL)
            count += name.startswith(_INTERNET)
    return count


def _by_psutil() -> Usage:
    process = psutil.Process()
    times = process.cpu_times()
    read = written = None
    # Windows has no descriptors, macOS no counters.
    with contextlib.suppress(AttributeError, psutil.Error):
        counters = process.io_counters()
        read, written = counters.read_bytes, counters.write_bytes
    descriptors = process.num_fds() if hasattr(process, "num_fds") else 0
    memory, threads = process.memory_info().rss, process.num_threads()
    return Usage(times.user + times.system, memory, descriptors, threads, read, written)
