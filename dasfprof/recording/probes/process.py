"""Functions and classes that read this process: its usage, batch job, control groups, CPU time.

On Linux, `ProcessUsage` reads files of ``/proc/self`` through descriptors that stay open. psutil
would open and parse more than is needed, which would take more than half of the time of a sample.
On other systems, `ProcessUsage` uses psutil.
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

#: Number of bytes to read from a file of ``/proc/self``. None of these files is longer.
_LENGTH = 1024


#: Environment variables in which batch systems and clouds store the job of a process. No other
#: environment variables are recorded.
JOB_VARIABLES = (
    *("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "PBS_JOBID", "LSB_JOBID"),
    *("LSB_JOBINDEX", "JOB_ID", "SGE_TASK_ID", "OAR_JOB_ID", "AWS_BATCH_JOB_ID"),
    *("COILED_CLUSTER_ID", "COILED_INSTANCE_ID", "DASK_GATEWAY_CLUSTER_NAME", "POD_NAME"),
)
#: Maximum number of characters of a value.
_LONGEST_VALUE = 200


def job_of_process(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the values of those `JOB_VARIABLES` that are set, by name of the variable."""
    job = {name: environment.get(name, "") for name in JOB_VARIABLES}
    # A pod that does not set ``POD_NAME`` has its name in ``HOSTNAME``.
    if "KUBERNETES_SERVICE_HOST" in environment:
        job["POD_NAME"] = job["POD_NAME"] or environment.get("HOSTNAME", "")
    # Grid Engine sets ``SGE_TASK_ID`` to ``undefined`` in jobs without tasks, and LSF sets
    # ``LSB_JOBINDEX`` to 0 in jobs without an array.
    return {
        name: value[:_LONGEST_VALUE]
        for name, value in job.items()
        if value and (name, value) not in {("SGE_TASK_ID", "undefined"), ("LSB_JOBINDEX", "0")}
    }


class Usage(NamedTuple):
    """Usage of a process at one time. Values are None if the system does not provide them."""

    #: Seconds of user time and system time together, since the start of the process.
    cpu_seconds: float
    #: Resident bytes.
    memory: int
    descriptors: int
    threads: int
    #: Bytes that were read from storage and written to storage since the start of the process.
    read_bytes: int | None
    write_bytes: int | None


class ProcessUsage:
    """Reads how much CPU time, memory, and other resources this process uses."""

    #: Seconds between two counts of descriptors and threads. Counting them costs more than all
    #: other readings. In between, `read` returns the last counts.
    COUNT_INTERVAL = 1.0

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._count_due = 0.0
        self._descriptors = self._threads = 0
        if LINUX:
            self._page = os.sysconf("SC_PAGE_SIZE")
            with contextlib.suppress(OSError):  # If this is not permitted, psutil is used.
                for name in ("statm", "stat", "io"):
                    path = f"{PROC}/self/{name}"
                    self._files[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> Usage:
        """Return the current usage of this process.

        Raises
        ------
        psutil.Error, OSError
            If the system does not permit the reading.
        """
        if "stat" not in self._files:
            return _by_psutil(psutil.Process())
        now = time.monotonic()
        if now >= self._count_due:
            self._count_due = now + self.COUNT_INTERVAL
            self._descriptors = len(os.listdir(f"{PROC}/self/fd"))
            # Field 20, counted from 1. Field 2, the command's name, may contain any characters.
            # See https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html.
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
        """Close the open files of ``/proc/self``."""
        while self._files:
            os.close(self._files.popitem()[1])


class FamilyUsage(ProcessUsage):
    """Reads the usage of this process and its descendants together, such as a pool's processes."""

    #: Seconds between two searches for new descendants. A search reads the parent of every process.
    LOOK_INTERVAL = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._look_due = 0.0
        self._children: dict[int, psutil.Process] = {}
        #: CPU seconds, read bytes and written bytes of each descendant at its last reading. They
        #: still count after the descendant has ended.
        self._used: dict[psutil.Process, list[float]] = {}

    def read(self) -> Usage:
        """Return the current usage of this process and its descendants together."""
        usage, now = super().read(), time.monotonic()
        if now >= self._look_due:
            self._look_due = now + self.LOOK_INTERVAL
            children = {each.pid: each for each in psutil.Process().children(recursive=True)}
            self._children = {pid: self._children.get(pid, each) for pid, each in children.items()}
        memory, descriptors, threads = usage.memory, usage.descriptors, usage.threads
        for child in self._children.values():
            with contextlib.suppress(psutil.Error, OSError), child.oneshot():
                current = _by_psutil(child)
                # This process may not be permitted to read the descendant's bytes.
                used = current.cpu_seconds, current.read_bytes or 0, current.write_bytes or 0
                self._used[child] = [*map(max, used, self._used.get(child, used))]
                memory += current.memory
                threads += current.threads
                descriptors += current.descriptors
        seconds, read, written = map(sum, zip((0, 0, 0), *self._used.values(), strict=True))
        return Usage(
            usage.cpu_seconds + seconds,
            memory,
            descriptors,
            threads,
            None if usage.read_bytes is None else usage.read_bytes + int(read),
            None if usage.write_bytes is None else usage.write_bytes + int(written),
        )


def resident_memory() -> int | None:
    """Return the resident bytes of this process, or None if they are unknown."""
    try:
        with open(f"{PROC}/self/statm", "rb") as file:
            return int(file.read().split(None, 2)[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        with contextlib.suppress(psutil.Error):
            return int(psutil.Process().memory_info().rss)
    return None


def _groups(
    controller: str, groups: Path = Path(PROC, "self/cgroup"), root: Path = Path(CONTROL_GROUPS)
) -> Iterator[tuple[Path, str, bool]]:
    """Yield this process's control group and its parents, for a controller such as ``memory``.

    Each item has the group's directory, its name, and whether it is of version 1 of control groups.
    """
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            _, _, fields = line.partition(":")
            controllers, _, name = fields.partition(":")
            is_first = controller in controllers.split(",")
            if name and (is_first or not controllers):
                mounted = root / controller if is_first else root
                group = PurePosixPath(name)
                for parent in (group, *group.parents):
                    yield mounted / str(parent).lstrip("/"), str(parent), is_first


def oom_kills() -> int | None:
    """Return how many processes of this control group the OOM killer has ended.

    Return None if the number is unknown.
    """
    counts = (_counters(path).get("oom_kill") for path in _memory_files())
    return next((count for count in counts if count is not None), None)


def _counters(file: Path) -> dict[str, int]:
    """Return the counters in a file of a control group, or no counters if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        words = file.read_text().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return {}


@lru_cache(maxsize=1)
def _memory_files() -> tuple[Path, ...]:
    """Return the existing files that may contain the number of OOM kills."""
    names = ("memory.events", "memory.oom_control")
    # Files of parent groups are included, because a container often sees its own group as the root.
    paths = [directory / names[is_first] for directory, _, is_first in _groups("memory")]
    return tuple(path for path in paths if path.exists())


#: Threshold (bytes): a memory limit of at least this size counts as no limit. Without a limit,
#: version 1 reports a number close to the kernel's largest number.
_NO_LIMIT = 1 << 60


def memory_group(
    groups: Path = Path(PROC, "self/cgroup"), root: Path = Path(CONTROL_GROUPS)
) -> tuple[str, int] | None:
    """Return the name and the limit (bytes) of the control group with the lowest memory limit.

    It is the group of this process, or one of that group's parents. The name is often ``/`` inside
    a container. Return None if no group has a limit.
    """
    limits = []
    for directory, name, is_first in _groups("memory", groups, root):
        with contextlib.suppress(OSError, ValueError):  # "max" means that there is no limit.
            file = "memory.limit_in_bytes" if is_first else "memory.max"
            limit = int((directory / file).read_text())
            if 0 < limit < _NO_LIMIT:
                limits.append((limit, name))
    return min(limits)[::-1] if limits else None


class CpuGroup(NamedTuple):
    """A control group with a CPU quota."""

    #: Number of cores.
    quota: float
    #: Path of the group, as this process sees it.
    name: str
    #: File that counts how long the group was throttled.
    statistics: Path

    def throttled(self) -> float | None:
        """Return the seconds, summed over cores, for which the group was throttled, or None."""
        counters = _counters(self.statistics)
        seconds = [counters[name] * _THROTTLED[name] for name in _THROTTLED if name in counters]
        return seconds[0] if seconds else None


#: Names under which versions 2 and 1 of control groups report the throttled time, with the unit of
#: the number in seconds.
_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}


def cpu_group(
    groups: Path = Path(PROC, "self/cgroup"), root: Path = Path(CONTROL_GROUPS)
) -> CpuGroup | None:
    """Return the control group with the lowest CPU quota, or None if no group has a quota."""
    limited = []
    # These are this process's group and its parents.
    for directory, group, is_first in _groups("cpu", groups, root):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_first else ("cpu.max",)
        with contextlib.suppress(OSError, ValueError):  # "max" means that there is no quota.
            words = " ".join((directory / name).read_text() for name in names).split()
            quota, period = map(int, words)
            if quota > 0 and period > 0:
                limited.append(CpuGroup(quota / period, group, directory / "cpu.stat"))
    return min(limited, default=None)


class ServiceCpu:
    """Reads the CPU seconds of the threads that serve all tasks of this process.

    These are event loops, threads of Dask and dasfprof, and the main thread. Threads that run
    tasks, or that tasks or libraries start, are left out.
    """

    #: Seconds between two searches for new threads.
    LOOK_INTERVAL = 1.0
    #: Prefixes of the names of the service threads. The main thread is recognized otherwise.
    NAMES = ("IO loop", "Profile", "Dask-Offload", "Dask-Callback", "dasfprof")

    def __init__(self) -> None:
        self._look_due = 0.0
        #: Last CPU time (nanoseconds) of each service thread, by the kernel's thread id. -1 means
        #: that the thread was not read yet.
        self._read: dict[int, int] = {}
        self._total = 0

    def read(self) -> float | None:
        """Return the CPU seconds of the service threads since the first call, or None if unknown.

        The CPU time of a thread before its first reading and after its last reading is missing.
        """
        if not LINUX:
            return None
        now = time.monotonic()
        if now >= self._look_due:
            self._look_due = now + self.LOOK_INTERVAL
            serving = {each.native_id for each in threading.enumerate() if self._serves(each)}
            self._read = {native: self._read.get(native, -1) for native in serving if native}
        for native, before in list(self._read.items()):
            try:
                # The kernel's number of the clock of a thread's CPU time, see clock_getres(2).
                spent = time.clock_gettime_ns((~native << 3) | 6)
            except OSError:  # The thread has ended.
                del self._read[native]
                continue
            self._total += spent - before if before >= 0 else 0
            self._read[native] = spent
        return self._total * 1e-9

    def _serves(self, thread: threading.Thread) -> bool:
        return thread is threading.main_thread() or thread.name.startswith(self.NAMES)


def _by_psutil(process: psutil.Process) -> Usage:
    times = process.cpu_times()
    read = written = None
    # psutil counts no descriptors on Windows, and no I/O on macOS.
    with contextlib.suppress(AttributeError, psutil.Error):
        counters = process.io_counters()
        read, written = counters.read_bytes, counters.write_bytes
    descriptors = process.num_fds() if hasattr(process, "num_fds") else 0
    memory, threads = process.memory_info().rss, process.num_threads()
    return Usage(times.user + times.system, memory, descriptors, threads, read, written)
