"""Programs whose lines take known times: each task tells its own, by a stopwatch around each line.

A program is a function that gets a `Watch` and goes on until it says so. Its lines that are marked
take the time; what is between them is a few microseconds.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import socket
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MARK = "# planted:"


@dataclass
class Watch:
    """A stopwatch for each mark, in seconds of the wall clock and of the thread's CPU."""

    end: float
    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    _began: tuple[float, float] = (0.0, 0.0)

    def goes_on(self) -> bool:
        self._began = time.perf_counter(), time.thread_time()
        return self._began[0] < self.end

    def took(self, mark: str) -> None:
        now = time.perf_counter(), time.thread_time()
        self.seconds[mark] = self.seconds.get(mark, 0.0) + now[0] - self._began[0]
        self.cpu[mark] = self.cpu.get(mark, 0.0) + now[1] - self._began[1]
        self._began = now


def python_loop(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def python_lines(watch: Watch) -> None:
    while watch.goes_on():
        python_loop(40_000)  # planted: a
        watch.took("a")
        python_loop(120_000)  # planted: b
        watch.took("b")


def python_and_c(watch: Watch) -> None:
    text = "word " * 3000
    while watch.goes_on():
        python_loop(60_000)  # planted: python
        watch.took("python")
        sum(range(400_000))  # planted: sum
        watch.took("sum")
        text.replace("w", "vv").count("v")  # planted: text
        watch.took("text")


def numpy_and_python(watch: Watch) -> None:
    import numpy as np

    matrix = np.random.default_rng(0).random((400, 400))
    while watch.goes_on():
        matrix @ matrix  # planted: product
        watch.took("product")
        np.sort(matrix, axis=None)  # planted: sort
        watch.took("sort")
        python_loop(100_000)  # planted: python
        watch.took("python")


def norm(watch: Watch) -> None:
    import numpy as np

    matrix = np.random.default_rng(0).random((300, 300))
    while watch.goes_on():
        np.linalg.norm(matrix, 2)  # planted: norm
        watch.took("norm")
        python_loop(30_000)  # planted: python
        watch.took("python")


def pandas_groups(watch: Watch) -> None:
    import numpy as np
    import pandas as pd

    numbers = np.random.default_rng(0).integers(0, 1000, 100_000)
    frame = pd.DataFrame({"key": numbers, "value": numbers * 1.5})
    while watch.goes_on():
        frame.groupby("key")["value"].mean()  # planted: groupby
        watch.took("groupby")
        frame.sort_values("value")  # planted: sort
        watch.took("sort")


def sleeps(watch: Watch) -> None:
    while watch.goes_on():
        time.sleep(0.06)  # planted: sleep
        watch.took("sleep")
        python_loop(200_000)  # planted: python
        watch.took("python")


def lock(watch: Watch) -> None:
    mine = threading.Lock()
    mine.acquire()
    while watch.goes_on():
        mine.acquire(timeout=0.05)  # planted: lock
        watch.took("lock")
        python_loop(100_000)  # planted: python
        watch.took("python")


def socket_reads(watch: Watch) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.settimeout(0.04)
        while watch.goes_on():
            with contextlib.suppress(TimeoutError):
                there.recv(1)  # planted: recv
            watch.took("recv")
            json.loads(json.dumps(list(range(20_000))))  # planted: json
            watch.took("json")


def compression(watch: Watch) -> None:
    data = bytes(range(256)) * 2000
    while watch.goes_on():
        zlib.compress(data, 9)  # planted: compress
        watch.took("compress")
        sorted(range(100_000), key=lambda n: -n)  # planted: sorted
        watch.took("sorted")


def files(watch: Watch) -> None:
    with tempfile.TemporaryFile() as file:
        while watch.goes_on():
            file.write(b"x" * 2_000_000)  # planted: write
            watch.took("write")
            file.seek(0)
            python_loop(60_000)  # planted: python
            watch.took("python")


def recursion(watch: Watch) -> None:
    def down(depth: int) -> int:
        return down(depth - 1) + 1 if depth else python_loop(50_000)

    while watch.goes_on():
        down(150)  # planted: deep
        watch.took("deep")
        python_loop(50_000)  # planted: flat
        watch.took("flat")


def generators(watch: Watch) -> None:
    def numbers() -> Any:
        for number in range(60_000):
            yield number * number

    while watch.goes_on():
        sum(numbers())  # planted: generator
        watch.took("generator")
        sum([number * number for number in range(60_000)])  # planted: list
        watch.took("list")


def made_code(watch: Watch) -> None:
    space: dict[str, Any] = {}
    exec("def made():\n    total = 0\n    for n in range(80000): total += n\n", space)
    while watch.goes_on():
        space["made"]()  # planted: made
        watch.took("made")
        python_loop(80_000)  # planted: loop
        watch.took("loop")


def uneven(watch: Watch) -> None:
    while watch.goes_on():
        python_loop(10_000)  # planted: one
        watch.took("one")
        python_loop(20_000)  # planted: two
        watch.took("two")
        python_loop(40_000)  # planted: four
        watch.took("four")
        sum(range(160_000))  # planted: sum
        watch.took("sum")
        time.sleep(0.003)  # planted: sleep
        watch.took("sleep")


PROGRAMS: dict[str, Callable[[Watch], None]] = {
    each.__name__: each
    for each in (
        python_lines,
        python_and_c,
        numpy_and_python,
        norm,
        pandas_groups,
        sleeps,
        lock,
        socket_reads,
        compression,
        files,
        recursion,
        generators,
        made_code,
        uneven,
    )
}
#: Those of the normal suite.
FEW = ("python_and_c", "sleeps")


def planted(name: str, seconds: float) -> dict[str, tuple[float, float]]:
    """Run a program; give seconds and CPU seconds of each mark."""
    watch = Watch(time.perf_counter() + seconds)
    PROGRAMS[name](watch)
    return {mark: (watch.seconds[mark], watch.cpu[mark]) for mark in watch.seconds}


def marks(name: str) -> dict[int, str]:
    """Give the mark of each line of a program."""
    lines, first = inspect.getsourcelines(PROGRAMS[name])
    return {
        first + number: line.partition(MARK)[2].strip()
        for number, line in enumerate(lines)
        if MARK in line
    }
