"""What this operating system offers beyond what Python offers on all of them.

Names that only some systems have are used here alone, and paths below ``/proc`` begin with `PROC`.
Where something is not offered, its function returns None, or opening its file raises OSError: the
value is NA in the trace, which lists it with the system's name (`header_facts`).
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

with contextlib.suppress(ImportError):  # Windows lacks it
    import resource

#: The system's name for people.
NAME = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
LINUX = NAME == "Linux"
#: Linux's files about processes and hosts.
PROC = "/proc"
#: Linux's files about control groups.
CONTROL_GROUPS = "/sys/fs/cgroup"

#: Facts that only Linux tells.
_ONLY_LINUX = (
    "waits for a core (they are part of Blocked)",
    "whether a thread waits for the GIL",
    "bytes of disks by task",
    "CPU of Dask's own threads",
    "pressure and sockets of hosts",
    "other processes of hosts",
    "limits and kills of control groups",
)

#: `fallocate(2)` of the C library, which Python does not offer; None if there is none.
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
    """Return the CPU seconds of the calling thread, and how often it went to sleep, or NaN."""
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
    """Return the maximum size (bytes) of a file that this process writes; not on Windows."""
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
    """Let a process yield cores to others, where the system permits it."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
