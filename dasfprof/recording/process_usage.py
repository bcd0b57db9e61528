"""What this process uses, read by the sampler: `ProcessUsage` at each tick, and its connections.

On Linux files of ``/proc/self`` are read through descriptors that stay open: psutil opens and
parses more than is needed here, which makes up more than half of a tick (`benchmarks/`). Elsewhere
psutil reads.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import NamedTuple

import psutil

_PROTOCOL = "system.sockprotoname"
#: Those of IPv6 begin in the same way.
_INTERNET = (b"TCP", b"UDP", b"MPTCP")

#: More than the text of any of the files.
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

    #: Seconds between two counts of descriptors and threads, which cost more than all the rest: in
    #: between, the last ones are given.
    COUNT_INTERVAL = 1.0

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._count_due = 0.0
        self._descriptors = self._threads = 0
        if sys.platform.startswith("linux"):
            self._page = os.sysconf("SC_PAGE_SIZE")
            with contextlib.suppress(OSError):  # hidden from us: psutil says what it can
                for name in ("statm", "stat", "io"):
                    path = f"/proc/self/{name}"
                    self._files[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> Usage:
        """Read once.

        Raises
        ------
        psutil.Error, OSError
            If the system does not permit it.
        """
        if "stat" not in self._files:
            return _by_psutil()
        now = time.monotonic()
        if now >= self._count_due:
            self._count_due = now + self.COUNT_INTERVAL
            self._descriptors = len(os.listdir("/proc/self/fd"))
            # Behind the command's name, which may hold anything: field 20, counted from 1
            # (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
            self._threads = int(self._text("stat").rpartition(b")")[2].split()[17])
        resident = int(self._text("statm").split(None, 2)[1]) * self._page
        counters = self._read_io()
        return Usage(time.process_time(), resident, self._descriptors, self._threads, *counters)

    def _read_io(self) -> tuple[int | None, int | None]:
        if "io" not in self._files:
            return None, None
        words = self._text("io").split()
        read, written = (words.index(name) + 1 for name in (b"read_bytes:", b"write_bytes:"))
        return int(words[read]), int(words[written])

    def _text(self, name: str) -> bytes:
        return os.pread(self._files[name], _LENGTH, 0)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])


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
