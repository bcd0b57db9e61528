"""Tasks that do not end, each for another reason. Workers import this module."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from distributed import Event, Lock, MultiLock, Queue, Semaphore, Variable, get_client


def waits_for_event() -> None:
    Event("never-set").wait()


def takes_from_queue() -> Any:
    return Queue("never-fed").get()


def puts_into_queue() -> None:
    queue = Queue("never-read", maxsize=1)
    queue.put(1)
    queue.put(2)


def reads_variable() -> Any:
    return Variable("never-assigned").get()


def holds_lock() -> None:
    with Lock("held"):
        time.sleep(10_000)


def wants_lock() -> None:
    Lock("held").acquire()


def holds_semaphore() -> None:
    with Semaphore(max_leases=1, name="one-lease"):
        Event("never-set-either").wait()


def wants_semaphore() -> None:
    Semaphore(max_leases=1, name="one-lease").acquire()


def holds_multi_lock() -> None:
    with MultiLock(["first", "second"]):
        time.sleep(10_000)


def wants_multi_lock() -> None:
    MultiLock(["second", "third"]).acquire()


def takes_both(first: str, second: str) -> None:
    """Take two locks; where another takes them in the other order, neither goes on."""
    one, other = Lock(first), Lock(second)
    one.acquire()
    Event(f"{first} is held").set()
    Event(f"{second} is held").wait()
    other.acquire()


def waits_for_thread_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def reads_socket() -> bytes:
    ours, _theirs = socket.socketpair()
    return ours.recv(1)


def runs_subprocess() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # ends with this process
        process.wait()


def sleeps(*_: Any) -> None:
    time.sleep(10_000)


def loops() -> None:
    os.nice(5)  # not more: the other threads of its process wait for it
    number = 0
    while True:
        number += 1


def pauses_without_gil() -> None:
    ctypes.CDLL(None).pause()


def pauses_with_gil() -> None:
    ctypes.PyDLL(None).pause()


def computes_with_gil() -> None:
    os.nice(19)  # this thread alone: tests beside it need the core
    re.match(r"(a+)+$", "a" * 60 + "b")


def is_frozen() -> None:
    time.sleep(10_000)


async def awaits() -> None:
    await asyncio.sleep(10_000)


def gathers_children(parent: int) -> Any:
    client = get_client()
    return client.gather([client.submit(sum, (parent, n), pure=False) for n in range(2)])


#: Ends `waits_for_release` in the same process.
RELEASE = threading.Event()


def waits_for_release() -> None:
    RELEASE.wait()


def forget(key: str, dask_worker: Any) -> None:
    """Make a worker lose a task that waits for a thread, as if a message had been lost."""
    from distributed.worker_state_machine import FreeKeysEvent

    dask_worker.handle_stimulus(FreeKeysEvent(keys=[key], stimulus_id="planted"))


def loaded_modules() -> list[str]:
    return [name for name in sys.modules if name.startswith("dasfprof")]


def fails() -> None:
    raise ValueError("a planted error")


def honest(seconds: float) -> float:
    """Compute and sleep in turn."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100_000))
        time.sleep(0.005)
    return seconds


def honest_lock(seconds: float) -> None:
    with Lock("honest"):
        time.sleep(seconds)
