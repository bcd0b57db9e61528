"""Programs whose lines take known times: each task measures them with a stopwatch per line.

A program is a function that takes a `Watch` and runs until `Watch.goes_on` is false. Marked lines
take nearly all of the time. The lines with the same mark are those for which `hot_lines` may report
the time of that mark: the innermost lines in this file.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import queue
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "# planted:"


@dataclass
class Watch:
    """Stopwatch of wall time per mark and, with `counts`, of CPU time.

    Wall time needs no system call, at which another program could get the core.
    """

    end: float
    counts: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    computing: dict[str, float] = field(default_factory=dict)
    _began: float = 0.0
    _had_computed: float = 0.0

    def goes_on(self) -> bool:
        if self.counts:
            self._had_computed = time.thread_time()
        self._began = time.perf_counter()
        return self._began < self.end

    def took(self, mark: str) -> None:
        if self.counts:
            computed = time.thread_time()
            self.computing[mark] = self.computing.get(mark, 0.0) + computed - self._had_computed
            self._had_computed = computed
        now = time.perf_counter()
        self.seconds[mark] = self.seconds.get(mark, 0.0) + now - self._began
        self._began = now


def python_lines(watch: Watch) -> None:
    while watch.goes_on():
        max(number * number for number in range(40_000))  # planted: a
        watch.took("a")
        max(number * number for number in range(120_000))  # planted: b
        watch.took("b")


def python_and_c(watch: Watch) -> None:
    text = "word " * 3000
    while watch.goes_on():
        max(number * number for number in range(60_000))  # planted: python
        watch.took("python")
        sum(range(400_000))  # planted: sum
        watch.took("sum")
        text.replace("w", "vv").count("v")  # planted: text
        watch.took("text")


def long_c_calls(watch: Watch) -> None:
    """Make calls that hold the GIL for longer than the interval between samples."""
    endless = re.compile("(a+)+b")
    while watch.goes_on():
        endless.match("a" * 20)  # planted: pattern
        watch.took("pattern")
        max(range(500_000), key=int.__neg__)  # planted: max
        watch.took("max")


def recursion(watch: Watch) -> None:
    def down(depth: int) -> int:
        return down(depth - 1) if depth else sum([n * n for n in range(50_000)])  # planted: deep

    while watch.goes_on():
        down(150)
        watch.took("deep")
        max(number * number for number in range(25_000))  # planted: flat
        watch.took("flat")


def generators(watch: Watch) -> None:
    def numbers() -> Iterator[int]:
        for number in range(90_000):  # planted: generator
            yield number * number  # planted: generator

    while watch.goes_on():
        sum(numbers())  # planted: generator
        watch.took("generator")
        sum([number * number for number in range(40_000)])  # planted: list
        watch.took("list")


def imports(watch: Watch) -> None:
    names = ["_pydecimal", "mailbox", "tarfile", "ftplib", "plistlib", "pydoc_data.topics"]
    while watch.goes_on():
        for name in names:
            sys.modules.pop(name, None)
        watch.took("removing")
        [importlib.import_module(name) for name in names]  # planted: import
        watch.took("import")
        max(number * number for number in range(40_000))  # planted: list
        watch.took("list")


def uneven(watch: Watch) -> None:
    while watch.goes_on():
        max(number * number for number in range(10_000))  # planted: one
        watch.took("one")
        max(number * number for number in range(20_000))  # planted: two
        watch.took("two")
        max(number * number for number in range(60_000))  # planted: six
        watch.took("six")
        sum(range(160_000))  # planted: sum
        watch.took("sum")
        time.sleep(0.003)  # planted: sleep
        watch.took("sleep")


def numpy_and_python(watch: Watch) -> None:
    import numpy as np

    matrix = np.random.default_rng(0).random((400, 400))
    while watch.goes_on():
        matrix @ matrix  # planted: product
        watch.took("product")
        np.sort(matrix, axis=None)  # planted: sort
        watch.took("sort")
        max(number * number for number in range(100_000))  # planted: python
        watch.took("python")


def sleeps(watch: Watch) -> None:
    while watch.goes_on():
        time.sleep(0.06)  # planted: sleep
        watch.took("sleep")
        max(number * number for number in range(200_000))  # planted: python
        watch.took("python")


def lock(watch: Watch) -> None:
    mine = threading.Lock()
    mine.acquire()
    while watch.goes_on():
        mine.acquire(timeout=0.05)  # planted: lock
        watch.took("lock")
        max(number * number for number in range(100_000))  # planted: python
        watch.took("python")


def fed_by_a_thread(watch: Watch) -> None:
    """Wait for results that another thread of the same task computes."""
    items: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def feed() -> None:
        while wanted.get():
            items.put(len(zlib.compress(bytes(range(256)) * 6000, 9)))

    feeder = threading.Thread(target=feed)
    feeder.start()
    while watch.goes_on():
        wanted.put(True)
        items.get()  # planted: get
        watch.took("get")
        max(number * number for number in range(60_000))  # planted: python
        watch.took("python")
    wanted.put(False)
    feeder.join()


def sockets(watch: Watch) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.settimeout(0.04)
        while watch.goes_on():
            with contextlib.suppress(TimeoutError):
                there.recv(1)  # planted: recv
            watch.took("recv")
            json.loads(json.dumps(list(range(20_000))))  # planted: json
            watch.took("json")


#: Seconds of each task run.
TURN = 0.08


@functools.cache
def numbers() -> Any:
    import numpy as np

    return np.random.default_rng(0).random((250, 250))


taken = threading.Lock()

#: Functions that a burst repeats.
BURSTS: dict[str, Callable[[], Any]] = {
    "pure_python": lambda: max(number * number for number in range(20_000)),
    "products": lambda: numbers() @ numbers(),
    "json_text": lambda: json.loads(json.dumps(list(range(5000)))),
    "zipped": lambda: zlib.compress(bytes(range(256)) * 600, 9),
    "processes": lambda: subprocess.run(["sleep", "0.05"], check=True),
    "locks": lambda: taken.acquire(timeout=0.02) and time.sleep(0.02),
}


#: Bursts that wait, each for something that only they use.
WAITING = ("processes", "locks")


def burst(name: str, _: Any = None) -> TaskTimes:
    begin, computed, queued = time.perf_counter(), time.thread_time(), run_queue()
    while time.perf_counter() < begin + TURN:
        BURSTS[name]()
    return times_since(begin, computed, queued)


def nap(_: Any = None) -> TaskTimes:
    begin, computed, queued = time.perf_counter(), time.thread_time(), run_queue()
    time.sleep(TURN)
    return times_since(begin, computed, queued)


PROGRAMS: dict[str, Callable[[Watch], None]] = {
    each.__name__: each
    for each in (
        *(python_lines, python_and_c, long_c_calls, recursion, generators, imports, uneven),
        *(numpy_and_python, sleeps, lock, fed_by_a_thread, sockets),
    )
}
#: Programs that run in the normal suite.
FEW = ("python_and_c", "sleeps")
#: Programs that also run in several threads at a time.
TOGETHER = ("python_and_c", "python_lines", "numpy_and_python")


@dataclass(frozen=True)
class TaskTimes:
    #: Wall time of each mark, and CPU time of each mark if it was counted.
    seconds: dict[str, float]
    computing_at: dict[str, float]
    #: Wall time, CPU time and CPU wait of the task. CPU wait is None if it is unknown.
    wall: float
    computing: float
    run_queue: float | None


def planted(name: str, seconds: float, counts: bool = False) -> TaskTimes:
    begin, computed, queued = time.perf_counter(), time.thread_time(), run_queue()
    watch = Watch(begin + seconds, counts)
    PROGRAMS[name](watch)
    return times_since(begin, computed, queued, watch.seconds, watch.computing)


def times_since(
    begin: float,
    computed: float,
    queued: float | None,
    seconds: dict[str, float] | None = None,
    computing: dict[str, float] | None = None,
) -> TaskTimes:
    """Return the seconds of this thread since the given readings of its clocks."""
    now = run_queue()
    return TaskTimes(
        seconds or {},
        computing or {},
        time.perf_counter() - begin,
        time.thread_time() - computed,
        None if now is None or queued is None else now - queued,
    )


def run_queue() -> float | None:
    """Return the CPU wait of this thread in seconds, or None if it is unknown."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def marks() -> dict[int, str]:
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    return {
        number: line.partition(MARK)[2].strip()
        for number, line in enumerate(lines, 1)
        if MARK in line and not line.startswith("MARK")
    }
