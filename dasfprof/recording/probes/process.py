"""`ProcessUsage`: what this process uses; its job; CPU of its threads; connections; kills.

On Linux it reads files of ``/proc/self`` through descriptors that stay open: psutil opens and
parses more than is needed, which would take more than half of a tick (`benchmarks/`). On other
systems psutil is used.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import psutil

from dasfprof.system import CONTROL_GROUPS, LINUX, PROC

_PROTOCOL = "system.sockprotoname"
#: Prefixes of protocols, also of those over IPv6.
_INTERNET = (b"TCP", b"UDP", b"MPTCP")

#: Bytes to read, more than the length of any of the files.
_LENGTH = 1024


#: Variables in which batch systems and clouds say which job a process belongs to. No other variable
#: of the environment is recorded.
JOB_VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "LSB_JOBINDEX",
    "JOB_ID",
    "SGE_TASK_ID",
    "OAR_JOB_ID",
    "AWS_BATCH_JOB_ID",
    "COILED_CLUSTER_ID",
    "COILED_INSTANCE_ID",
    "DASK_GATEWAY_CLUSTER_NAME",
    "POD_NAME",
)
#: Characters of a value.
_LONGEST_VALUE = 200


def job_of_process(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the `JOB_VARIABLES` that are set; in a pod that does not name it, its ``HOSTNAME``.

    Grid Engine sets ``SGE_TASK_ID`` to ``undefined`` in jobs without tasks, LSF ``LSB_JOBINDEX`` to
    0 in those without an array: these tell nothing.
    """
    told = {name: environment.get(name, "")[:_LONGEST_VALUE] for name in JOB_VARIABLES}
    if "KUBERNETES_SERVICE_HOST" in environment and not told["POD_NAME"]:
        told["POD_NAME"] = environment.get("HOSTNAME", "")[:_LONGEST_VALUE]
    nothing = {("SGE_TASK_ID", "undefined"), ("LSB_JOBINDEX", "0")}
    return {name: value for name, value in told.items() if value and (name, value) not in nothing}


class Usage(NamedTuple):
    """One reading; None for values that the system does not provide."""

    #: User and system time since the start of the process.
    cpu_seconds: float
    #: Resident bytes.
    memory: int
    descriptors: int
    threads: int
    #: From and to storage since the start of the process.
    read_bytes: int | None
    write_bytes: int | None


class ProcessUsage:
    """Reads the usage of this process."""

    #: Seconds between two counts of descriptors and threads, which cost more than everything else;
    #: in between, `read` returns the last ones.
    COUNT_INTERVAL = 1.0

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._count_due = 0.0
        self._descriptors = self._threads = 0
        if LINUX:
            self._page = os.sysconf("SC_PAGE_SIZE")
            with contextlib.suppress(OSError):  # not permitted: psutil returns what it can
                for name in ("statm", "stat", "io"):
                    path = f"{PROC}/self/{name}"
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
            self._descriptors = len(os.listdir(f"{PROC}/self/fd"))
            # After the command's name, which may hold any characters: field 20, counted from 1
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


class FamilyUsage(ProcessUsage):
    """Reads the usage of this process and of those that it has begun, such as a pool's."""

    #: Seconds between two looks for new ones: the parents of all processes are read for it.
    LOOK_INTERVAL = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._look_due = 0.0
        self._children: dict[int, psutil.Process] = {}
        #: By child: its CPU seconds and bytes of disks when it was last read; they count on after
        #: its end.
        self._used: dict[psutil.Process, tuple[float, int, int]] = {}

    def read(self) -> Usage:
        """Read once; a child's bytes of disks count where this process may read them."""
        own, now = super().read(), time.monotonic()
        if now >= self._look_due:
            self._look_due = now + self.LOOK_INTERVAL
            found = {each.pid: each for each in psutil.Process().children(recursive=True)}
            self._children = {pid: self._children.get(pid, each) for pid, each in found.items()}
        memory, descriptors, threads = own.memory, own.descriptors, own.threads
        for child in self._children.values():
            with contextlib.suppress(psutil.Error, OSError), child.oneshot():
                times, before = child.cpu_times(), self._used.get(child, (0.0, 0, 0))
                moved = before[1:]
                with contextlib.suppress(psutil.Error, OSError, AttributeError):
                    counters = child.io_counters()
                    moved = counters.read_bytes, counters.write_bytes
                self._used[child] = times.user + times.system, *moved
                memory += child.memory_info().rss
                threads += child.num_threads()
                descriptors += child.num_fds()
        used = self._used.values()
        seconds, read, written = (sum(each) for each in zip((0.0, 0, 0), *used, strict=True))
        return Usage(
            own.cpu_seconds + seconds,
            memory,
            descriptors,
            threads,
            None if own.read_bytes is None else own.read_bytes + int(read),
            None if own.write_bytes is None else own.write_bytes + int(written),
        )


def resident_memory() -> int | None:
    """Return the resident bytes of this process; None where the system does not tell."""
    try:
        with open(f"{PROC}/self/statm", "rb") as file:
            return int(file.read().split(None, 2)[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        with contextlib.suppress(psutil.Error):
            return int(psutil.Process().memory_info().rss)
    return None


def oom_kills() -> int | None:
    """Return how many processes of this one's control group the kernel killed for want of memory.

    None where no file of the group tells: outside of Linux, or in its root.
    """
    for path in _memory_files():
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return None


@lru_cache(maxsize=1)
def _memory_files() -> tuple[Path, ...]:
    """Return the files that may tell; a container often sees its own group as the root."""
    found = []
    for place, group, is_first in _groups("memory"):
        name = "memory.oom_control" if is_first else "memory.events"
        found += [place / group.lstrip("/") / name, place / name]
    return tuple(path for path in found if path.exists())


def _groups(
    controller: str, groups: Path = Path(PROC, "self/cgroup"), root: Path = Path(CONTROL_GROUPS)
) -> Iterator[tuple[Path, str, bool]]:
    """Yield where groups of a controller are, this process's, and if they are of version 1."""
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            fields = line.split(":", 2)
            if len(fields) < 3:  # such as nothing that the kernel writes
                continue
            _, controllers, group = fields
            if controller in controllers.split(","):
                yield root / controller, group, True
            elif not controllers:
                yield root, group, False


#: Limits from which on a control group has none: the kernel's greatest number of bytes is near it.
_NO_LIMIT = 1 << 60


def memory_group(
    groups: Path = Path(PROC, "self/cgroup"), root: Path = Path(CONTROL_GROUPS)
) -> tuple[str, int] | None:
    """Return the control group that limits the memory of this process, and its bytes; None: none.

    That is the one with the least limit of its own group and those around it. Its name is a path as
    this process sees it: within a container often ``/``.
    """
    found = []
    for place, group, is_first in _groups("memory", groups, root):
        name = "memory.limit_in_bytes" if is_first else "memory.max"
        own = PurePosixPath(group)
        for around in (own, *own.parents):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                limit = int((place / str(around).lstrip("/") / name).read_text())
                if 0 < limit < _NO_LIMIT:
                    found.append((limit, str(around)))
    return min(found)[::-1] if found else None


class CpuGroup(NamedTuple):
    """A control group with a CPU quota."""

    #: Cores.
    quota: float
    #: A path as this process sees it, and the file that counts how long the group was throttled.
    name: str
    statistics: Path

    def throttled(self) -> float | None:
        """Return the seconds for which its quota was used up, summed over cores."""
        with contextlib.suppress(OSError, ValueError):
            for line in self.statistics.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name in _THROTTLED:
                    return int(number) * _THROTTLED[name]
        return None


#: The lines of both versions that say so, and their units in seconds.
_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}


def cpu_group(
    groups: Path = Path(PROC, "self/cgroup"), root: Path = Path(CONTROL_GROUPS)
) -> CpuGroup | None:
    """Return the group with the lowest CPU quota among this process's own and those around it."""
    limited = []
    for place, group, is_first in _groups("cpu", groups, root):
        own = PurePosixPath(group)
        for around in (own, *own.parents):
            directory = place / str(around).lstrip("/")
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_first else ("cpu.max",)
            with contextlib.suppress(OSError, ValueError):  # "max" is no quota
                words = " ".join((directory / name).read_text() for name in names).split()
                quota, period = map(int, words)
                if quota > 0 and period > 0:
                    limited.append(CpuGroup(quota / period, str(around), directory / "cpu.stat"))
    return min(limited, default=None)


class ServiceCpu:
    """Reads the CPU seconds of the threads that serve all tasks of this process.

    These are those of event loops, Dask's and dasfprof's own, and the main thread. Not among them
    are those that run tasks, and those that tasks and their libraries start.
    """

    #: Seconds between two looks for new threads.
    LOOK_INTERVAL = 1.0
    #: How the names of such threads begin; the main thread has any.
    NAMES = ("IO loop", "Profile", "Dask-Offload", "Dask-Callback", "dasfprof")

    def __init__(self) -> None:
        self._look_due = 0.0
        #: By the kernel's number of a thread: its clock, and what that said.
        self._read: dict[int, int] = {}
        self._total = 0

    def read(self) -> float | None:
        """Return what they have used since the first reading; None where the system has no such.

        What a thread used before it was found, or after the last reading before its end, is lost.
        """
        if not LINUX:
            return None
        now = time.monotonic()
        if now >= self._look_due:
            self._look_due = now + self.LOOK_INTERVAL
            found = {each.native_id for each in threading.enumerate() if self._serves(each)}
            self._read = {one: self._read.get(one, -1) for one in found if one is not None}
        for native, before in list(self._read.items()):
            try:
                # The kernel's number of the clock of a thread's CPU time, see clock_getres(2).
                spent = time.clock_gettime_ns((~native << 3) | 6)
            except OSError:  # it has ended
                del self._read[native]
                continue
            self._total += spent - before if before >= 0 else 0
            self._read[native] = spent
        return self._total * 1e-9

    def _serves(self, thread: threading.Thread) -> bool:
        return thread is threading.main_thread() or thread.name.startswith(self.NAMES)


def count_connections() -> int:
    """Return the number of this process's TCP and UDP sockets.

    On Linux the protocol of a socket is an extended attribute of its descriptor. Looking it up in
    ``/proc/net/tcp``, as psutil does, takes fifty times as long, as the kernel walks the table of
    all connections.

    Raises
    ------
    psutil.Error, OSError
        If the system does not permit it.
    """
    if not LINUX:
        return len(psutil.Process().net_connections("inet"))
    count = 0
    for descriptor in os.listdir(f"{PROC}/self/fd"):
        with contextlib.suppress(OSError):  # not a socket, or closed in the meantime
            name = os.getxattr(f"{PROC}/self/fd/{descriptor}", _PROTOCOL)
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
