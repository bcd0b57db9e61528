"""The state of a process that does not answer, according to the operating system."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import NamedTuple

import psutil

from dasfprof.system import PROC

#: Seconds between two readings of the CPU time of its threads, and maximum number of readings. On
#: an overloaded host, a thread that computes gets little time.
_PAUSE, _MOST_READINGS = 0.4, 4
#: Thresholds: a thread with this fraction of the process's CPU time is the only one that computes,
#: if it ran or was runnable for this fraction of the time.
_ALONE = 0.8
#: Threshold (fraction of a core): a process that uses less is sleeping. Each thread that waits for
#: the GIL wakes up every 5 ms.
_SLEEPS = 0.1
#: Kernel functions in which threads of a frozen container wait.
_FREEZERS = ("do_freezer_trap", "__refrigerator")


class Thread(NamedTuple):
    """A thread: the letter of its state, CPU seconds, and the kernel function in which it waits."""

    letter: str
    cpu: float
    #: Seconds for which it waited for CPU.
    delayed: float
    waits_in: str


Threads = dict[str, Thread]


async def process_state(pid: int | None) -> str | None:
    """Return the state of a process of this host.

    Returns
    -------
    str or None
        ``stopped``; ``gone``; ``busy``: one thread computes or is runnable, and all others sleep;
        ``idle``: all threads sleep. None for all other states, and if it is unknown.
    """
    if not os.path.isdir(f"{PROC}/self/task"):
        return None
    begin = time.monotonic()
    before = _threads(pid)
    if not before:
        return "gone"
    ready = _ready(before)
    for _ in range(_MOST_READINGS):
        await asyncio.sleep(_PAUSE)
        after = _threads(pid)
        ready &= _ready(after)
        state = _judge(before, after, ready, time.monotonic() - begin)
        if state is not None:
            return state
    # If other programs leave no core to a thread, its CPU seconds mean nothing until it gets one.
    # It is runnable at each reading, while threads that wait for the GIL are mostly sleeping.
    return "busy" if len(ready) == 1 else None


def _judge(before: Threads, after: Threads, ready: set[str], seconds: float) -> str | None:
    """Return the state that readings of the threads show. `ready`: runnable at each reading."""
    if not after:
        return "gone"
    if all(thread.letter in "Tt" or thread.waits_in in _FREEZERS for thread in after.values()):
        return "stopped"
    used = {name: after[name].cpu - before[name].cpu for name in after.keys() & before.keys()}
    if not ready and sum(used.values()) <= _SLEEPS * seconds:
        return "idle"
    for name in ready:
        wanted = used[name] + after[name].delayed - before[name].delayed
        if used[name] >= _ALONE * sum(used.values()) and wanted >= _ALONE * seconds:
            return "busy"
    return None


def _ready(threads: Threads) -> set[str]:
    """Return the threads that run or are runnable."""
    return {name for name, thread in threads.items() if thread.letter == "R"}


def _threads(pid: int | None) -> Threads:
    """Return the threads of a process, or nothing if it has ended."""
    by_name: Threads = {}
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")
    except OSError:
        return by_name
    for name in threads:
        folder = f"{PROC}/{pid}/task/{name}"
        fields = _content(f"{folder}/stat").rpartition(") ")[2].split()
        if fields and fields[0] not in "ZX":  # If not, the thread has ended meanwhile.
            times = _content(f"{folder}/schedstat").split()
            if times:
                cpu, delayed = int(times[0]) / 1e9, int(times[1]) / 1e9
            else:
                cpu, delayed = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 0.0
            by_name[name] = Thread(fields[0], cpu, delayed, _content(f"{folder}/wchan"))
    return by_name


def _content(path: str) -> str:
    """Return the text of a file, or an empty text if it does not exist on this system."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


async def state_of_listener(pid: int | None, host: str, port: int) -> str | None:
    """Return the state of a process that listens on a port.

    See `process_state`. Returns None on another host, or if another process listens on the port,
    such as that of a tunnel.

    Parameters
    ----------
    pid
        The process, or None for whichever process listens.
    host, port
        The address on which it listens.
    """
    if not _is_local(host):
        return None
    try:
        sockets = psutil.net_connections("tcp")
    except (OSError, psutil.Error):
        return None
    listening = [
        item.pid
        for item in sockets
        if item.status == psutil.CONN_LISTEN and item.laddr and item.laddr.port == port
    ]
    if not listening:
        return "gone"
    if pid is None:
        pid = next(filter(None, listening), None)
    return await process_state(pid) if pid is not None and pid in listening else None


def _is_local(host: str) -> bool:
    """Return whether an address belongs to this host."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True
