"""Functions that ask the operating system for the state of a process that does not answer."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import NamedTuple

import psutil

from dasfprof.system import PROC

#: Seconds between two readings of the CPU time of the process's threads, and maximum number of
#: further readings. Several readings are needed, because on an overloaded host, a thread that
#: computes gets little CPU time.
_PAUSE, _MOST_READINGS = 0.4, 4
#: Threshold (fraction) of two conditions: a thread is the only thread that computes if it used at
#: least this fraction of the process's CPU time, and ran or was runnable for at least this fraction
#: of the time.
_ALONE = 0.8
#: Threshold (fraction of a core): a process is idle if it uses at most this fraction. It may use
#: some CPU time, because each thread that waits for the GIL wakes up every 5 ms.
_SLEEPS = 0.1
#: Kernel functions in which the threads of a frozen container wait.
_FREEZERS = ("do_freezer_trap", "__refrigerator")


class Thread(NamedTuple):
    """A thread, with the letter of its state and the kernel function in which it waits."""

    letter: str
    cpu: float
    #: Seconds for which the thread waited for CPU.
    delayed: float
    waits_in: str


Threads = dict[str, Thread]


async def process_state(pid: int | None) -> str | None:
    """Return the state of a process on this host.

    Returns
    -------
    str or None
        ``stopped``, ``gone``, ``busy`` (one thread computes or is runnable, and all other threads
        sleep) or ``idle`` (all threads sleep). None for any other state, and if the state is
        unknown.
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
    # If other programs use all cores, the CPU seconds of a thread show nothing until the thread
    # gets a core. But a thread that computes is runnable at each reading, and threads that wait for
    # the GIL are mostly sleeping.
    return "busy" if len(ready) == 1 else None


def _judge(before: Threads, after: Threads, ready: set[str], seconds: float) -> str | None:
    """Return the state that two readings of the threads show, or None if it is not clear.

    `ready` has the ids of the threads that were runnable at all readings so far.
    """
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
    """Return the ids of the threads that run or are runnable."""
    return {name for name, thread in threads.items() if thread.letter == "R"}


def _threads(pid: int | None) -> Threads:
    """Return the threads of a process by id, or an empty dict if the process has ended."""
    by_name: Threads = {}
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")
    except OSError:
        return by_name
    for name in threads:
        folder = f"{PROC}/{pid}/task/{name}"
        fields = _content(f"{folder}/stat").rpartition(") ")[2].split()
        if fields and fields[0] not in "ZX":  # Leave out threads that have ended.
            times = _content(f"{folder}/schedstat").split()
            if times:
                cpu, delayed = int(times[0]) / 1e9, int(times[1]) / 1e9
            else:
                cpu, delayed = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 0.0
            by_name[name] = Thread(fields[0], cpu, delayed, _content(f"{folder}/wchan"))
    return by_name


def _content(path: str) -> str:
    """Return the text of a file, or an empty text if the file cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


async def state_of_listener(pid: int | None, host: str, port: int) -> str | None:
    """Return the state (see `process_state`) of a process that listens on a port.

    It is ``gone`` if no process listens on the port. It is None if the address belongs to another
    host, or if another process listens.

    Parameters
    ----------
    pid
        The pid of the process. If None, it is the process that listens on the port.
    host, port
        The address on which the process listens.
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
