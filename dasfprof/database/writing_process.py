"""The process that wrote a file, by the file's header, and whether it still runs."""

from __future__ import annotations

import os
import socket
from enum import Enum
from pathlib import Path
from typing import Any

import psutil


class Writer(str, Enum):
    """What is known about the process that wrote a file without a closing frame."""

    ALIVE = "still being written"
    """The process runs and may write more."""
    ENDED = "ended without closing"
    """The process has ended; how is not known."""
    UNKNOWN = "still being written elsewhere, or ended without closing"
    """It ran on another host or in another container, or the header does not say."""


def process_facts() -> dict[str, Any]:
    """Return the facts that identify this process among those of all hosts."""
    pid = os.getpid()
    facts = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": pid}
    return {**facts, "pid_namespace": _pid_namespace(), "process_started": _started(pid)}


def writer_of(header: dict[str, Any]) -> Writer:
    """Return what is known about the process that wrote a file, by the file's header."""
    pid, started = header.get("pid"), header.get("process_started")
    if type(pid) is not int or pid <= 0 or header.get("boot_id") != boot_id():
        return Writer.UNKNOWN
    # Another container may use the same process ids.
    if started is None or header.get("pid_namespace") != _pid_namespace():
        return Writer.UNKNOWN
    return Writer.ALIVE if _started(pid) == started else Writer.ENDED


def boot_id() -> str:
    """Return the id of this boot of this machine: processes with equal ids share one clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> float | None:
    """Return when a process began, on a clock of its host; None if it does not run.

    On Linux in ticks since boot, which changes of the wall clock do not affect.
    """
    try:
        # The name is in parentheses and may hold any characters.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else float(rest[18])
    except (OSError, ValueError, IndexError):
        pass
    try:
        return None if Path("/proc/self/stat").exists() else psutil.Process(pid).create_time()
    except (psutil.Error, OverflowError):
        return None
