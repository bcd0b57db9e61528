"""Functions that depend on the operating system.

Only this module uses Python names that some systems lack. All paths below ``/proc`` begin with
`PROC`. If a system lacks a feature, the function returns None, or opening the file raises an
OSError. The trace then has no value for the feature. The header of the trace contains the system's
name and lists the values that the system lacks (`header_facts`).
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

with contextlib.suppress(ImportError):  # Windows lacks this module.
    import resource

#: Display name of the operating system.
NAME = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
LINUX = NAME == "Linux"
#: Directory in which Linux reports facts about processes and the host.
PROC = "/proc"
#: Directory in which Linux reports facts about control groups.
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

#: The function `fallocate(2)` of the C library, which Python does not offer. None if the system
#: lacks it.
fallocate: Any = ctypes.CDLL(None, use_errno=True).fallocate if LINUX else None


def header_facts() -> dict[str, Any]:
    """Return the system's name and the values that it lacks, as entries of a trace file's header.

    On Linux, which lacks none of these values, the result is empty.
    """
    return {} if LINUX else {"system": NAME, "system_lacks": _ONLY_LINUX}


def check_recording() -> None:
    """Raise a `RegistrationError` if dasfprof cannot record on this operating system."""
    if NAME == "Windows":
        raise RegistrationError(
            "dasfprof does not record on Windows. Record on Linux or macOS (also in WSL or a "
            "container); reading and analysing traces works on Windows."
        )


def thread_usage() -> tuple[float, float]:
    """Return the CPU seconds of the calling thread, and how often the thread slept.

    The second value is NaN if it is unknown.
    """
    if not hasattr(resource, "RUSAGE_THREAD"):
        return time.thread_time(), math.nan
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime, used.ru_nvcsw


def thread_cpu(ident: int) -> float | None:
    """Return the CPU seconds of a thread, or None if they are unknown.

    The thread must be alive. With the identity of a thread that has ended, the call may crash.
    """
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return None


def children_cpu() -> float:
    """Return the total CPU seconds of all child processes that have ended, or 0 if unknown."""
    try:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    except NameError:  # Windows
        return 0.0
    return used.ru_utime + used.ru_stime


def file_size_limit() -> float:
    """Return the maximum size (bytes) of a file that this process may write.

    This function does not work on Windows.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return math.inf if limit == resource.RLIM_INFINITY else limit


def descriptor_limit() -> int | None:
    """Return the maximum number of open files of this process, or None if there is no limit."""
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except NameError:  # Windows
        return None
    return None if limit == resource.RLIM_INFINITY else limit


def lower_priority(pid: int, niceness: int) -> None:
    """Lower the priority of a process, if the system permits it."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
