"""Tasks that hang, in addition to those of `hung_programs`. Workers import this module."""

import asyncio
import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from typing import Any

from distributed import Event, Lock, MultiLock, Queue, Semaphore


def puts_into_queue() -> None:
    queue = Queue("never-read", maxsize=1)
    queue.put(1)
    queue.put(2)


def holds_semaphore() -> None:
    with Semaphore(max_leases=1, name="one-lease"):
        Event("never-set-either").wait()


def holds_multi_lock() -> None:
    with MultiLock(["first", "second"]):
        time.sleep(10_000)


def wants_multi_lock() -> None:
    MultiLock(["second", "third"]).acquire()


def loops() -> None:
    os.nice(5)  # not more, because other threads of its process wait for it
    number = 0
    while True:
        number += 1


def takes_both(first: str, second: str) -> None:
    """Acquire two locks, which this frame shows; another task acquires them in reverse order."""
    one, other = Lock(first), Lock(second)
    one.acquire()
    Event(f"{first} is held").set()
    Event(f"{second} is held").wait()
    other.acquire()


def runs_subprocess() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # ends with this process
        process.wait()


def pauses_without_gil() -> None:
    ctypes.CDLL(None).pause()


def computes_with_gil() -> None:
    os.nice(19)  # this thread alone, because other tests need the core
    re.match(r"(a+)+$", "a" * 60 + "b")


def is_frozen() -> None:
    time.sleep(10_000)


async def awaits() -> None:
    await asyncio.sleep(10_000)


#: Ends `waits_for_release` in the same process.
RELEASE = threading.Event()


def waits_for_release() -> None:
    RELEASE.wait()


def forget(key: str, dask_worker: Any) -> None:
    """Let a worker forget a task that waits for a thread, as if a message had been lost."""
    from distributed.worker_state_machine import FreeKeysEvent

    dask_worker.handle_stimulus(FreeKeysEvent(keys=[key], stimulus_id="planted"))


def loaded_modules() -> list[str]:
    return [name for name in sys.modules if name.startswith("dasfprof")]


def honest(seconds: float) -> float:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100_000))
        time.sleep(0.005)
    return seconds


def honest_lock(seconds: float) -> None:
    with Lock("honest"):
        time.sleep(seconds)
