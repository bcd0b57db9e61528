"""Functions of specific operating systems.

Only this module uses names that some systems lack, and paths below ``/proc`` begin with `PROC`. If
a system lacks a feature, the function returns None, or opening the file raises an OSError. The
value is NA in the trace, whose header lists such values with the system's name (`header_facts`).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import time
from typing import Any

from dasfprof.errors import RegistrationError

with contextlib.suppress(ImportError):  # Windows lacks it.
    import resource

#: Display name of the operating system.
NAME = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
LINUX = NAME == "Linux"
#: Directory of Linux's files about processes and hosts.
PROC = "/proc"
#: Directory of Linux's files about control groups.
CONTROL_GROUPS = "/sys/fs/cgroup"

#: Facts that only Linux reports.
_ONLY_LINUX = (
    "waits for a core (they are part of Blocked)",
    "whether a thread waits for the GIL",
    "bytes of disks by task",
    "CPU of Dask's own threads",
    "sockets of hosts",
    "other processes of hosts",
    "limits and kills of control groups",
)

#: `fallocate(2)` of the C library, which Python lacks, or None if the system lacks it.
fallocate: Any = ctypes.CDLL(None, use_errno=True).fallocate if LINUX else None


def header_facts() -> dict[str, Any]:
    """Return the header's entries about facts that a trace of this system lacks."""
    return {} if LINUX else {"system": NAME, "system_lacks": _ONLY_LINUX}


def check_recording() -> None:
    """Raise RegistrationError if processes of this system cannot be recorded."""
    if NAME == "Windows":
        raise RegistrationError(
            "dasfprof does not record on Windows. Record on Linux or macOS (also in WSL or a "
            "container); reading and analysing traces works on Windows."
        )


def thread_usage() -> tuple[float, float]:
    """Return the CPU seconds of the calling thread, and how often it slept, or NaN if unknown."""
    if not hasattr(resource, "RUSAGE_THREAD"):
        return time.thread_time(), math.nan
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime, used.ru_nvcsw


def thread_cpu(ident: int) -> float | None:
    """Return the CPU seconds of a thread that is alive, or None if they are unknown.

    The identity of a thread that has ended must not be passed: the call may crash.
    """
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return None


def children_cpu() -> float:
    """Return the CPU seconds of child processes that have ended, or 0 if they are unknown."""
    try:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    except NameError:  # Windows
        return 0.0
    return used.ru_utime + used.ru_stime


def file_size_limit() -> float:
    """Return the maximum size (bytes) of a file that this process may write. Not on Windows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return math.inf if limit == resource.RLIM_INFINITY else limit


def descriptor_limit() -> int | None:
    """Return the maximum number of open files of this process, or None if there is none."""
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except NameError:  # Windows
        return None
    return None if limit == resource.RLIM_INFINITY else limit


def lower_priority(pid: int, niceness: int) -> None:
    """Lower the priority of a process, if the system permits it."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
