"""Which process wrote a file, and whether it is still there: what its header tells of it."""

from __future__ import annotations

import os
import socket
from enum import Enum
from pathlib import Path
from typing import Any

import psutil


class Writer(str, Enum):
    """What is known of the process that wrote a file without a closing frame."""

    ALIVE = "still being written"
    """The process is there: it may write more."""
    ENDED = "ended without closing"
    """The process is gone; nothing tells how it ended."""
    UNKNOWN = "still being written elsewhere, or ended without closing"
    """It ran on another host, or in another container, or the header does not tell."""


def process_facts() -> dict[str, Any]:
    """Give what tells this process apart from all others of any host."""
    pid = os.getpid()
    facts = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": pid}
    return {**facts, "pid_namespace": _pid_namespace(), "process_started": _started(pid)}


def writer_of(header: dict[str, Any]) -> Writer:
    """Look for the process that wrote a file, by the file's header."""
    pid, started = header.get("pid"), header.get("process_started")
    if type(pid) is not int or pid <= 0 or header.get("boot_id") != boot_id():
        return Writer.UNKNOWN
    # In a container other processes have its numbers.
    if started is None or header.get("pid_namespace") != _pid_namespace():
        return Writer.UNKNOWN
    return Writer.ALIVE if _started(pid) == started else Writer.ENDED


def boot_id() -> str:
    """Name this boot of this machine: processes with equal ids share one clock."""
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
    """Give when a process began, on a clock of its host; None if there is none, or a dead one.

    On Linux in ticks since the host's start, which no change of the wall clock touches.
    """
    try:
        # The name, which may hold anything, stands in parentheses.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else float(rest[18])
    except (OSError, ValueError, IndexError):
        pass
    try:
        return None if Path("/proc/self/stat").exists() else psutil.Process(pid).create_time()
    except (psutil.Error, OverflowError):
        return None
