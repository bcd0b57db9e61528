"""Recorded CPU seconds of garbage collection in tasks equal those that the tasks measure."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters import new_client

import dasfprof
from dasfprof import TraceAnalyser

CALLBACK = "Collections"


@contextmanager
def counted() -> Iterator[list[float]]:
    """Measure the CPU seconds of this thread's collections, except of the youngest generation."""
    spans: list[float] = []

    def called(phase: str, info: dict[str, int]) -> None:
        if info["generation"] > 0:
            spans.append(time.thread_time() * (1 if phase == "stop" else -1))

    gc.callbacks.append(called)
    yield spans
    gc.callbacks.remove(called)


def collects(objects: int) -> tuple[float, float]:
    """Return the seconds of garbage collection and of the whole task."""
    begin = time.thread_time()
    with counted() as spans:
        held = [[number] for number in range(objects)]
        for _ in range(5):
            gc.collect()
        for _ in range(3):
            held += [[number] for number in range(objects // 10)]
    return sum(spans), time.thread_time() - begin


def collects_generation(number: int) -> float:
    """Return the seconds of collections of younger generations, which only the task starts."""
    gc.disable()
    with counted() as spans:
        for _ in range(20):
            held = [[number] for number in range(20_000)]
            gc.collect(number)
        assert held
    gc.enable()
    return sum(spans)


def computes(_: int) -> int:
    gc.disable()
    total = sum(range(2_000_000))
    gc.enable()
    return total


async def waits() -> None:
    gc.collect()


def callbacks() -> int:
    return sum(CALLBACK in getattr(each, "__qualname__", "") for each in gc.callbacks)


def test_seconds_of_functions(tmp_path: Path) -> None:
    with new_client(n_workers=1, threads_per_worker=1) as client:
        with dasfprof.profile(client, directory=tmp_path):
            told = client.gather(client.map(collects, [100_000, 200_000]))
            client.gather(client.map(computes, range(3)))
            client.submit(waits, key="waits-1").result()
            assert client.submit(collects_generation, 0, key="youngest-1").result() == 0.0
            middle = client.submit(collects_generation, 1, key="middle-1").result()
            assert set(client.run(callbacks).values()) == {1}
        assert set(client.run(callbacks).values()) == {0}
    analyser = TraceAnalyser(tmp_path, progress=False)
    tasks = analyser.trace.tasks
    collecting = tasks["collecting"][(tasks["function"] == "collects").to_numpy()]
    expected = sorted(seconds for seconds, _ in told)
    assert sorted(collecting) == pytest.approx(expected, rel=0.25)
    assert all(counted > 0.3 * whole for counted, whole in told)
    table = analyser.per_function_bottleneck().set_index("Function")["Garbage Collection (s)"]
    assert table["collects"] == pytest.approx(sum(expected), rel=0.25)
    assert table["computes"] == table["youngest"] == 0.0
    assert table["middle"] == pytest.approx(middle, rel=0.25)
    assert table.isna()["waits"]  # a coroutine, since several share a thread


def spins(seconds: float) -> int:
    begin, number = time.thread_time(), 0
    while time.thread_time() - begin < seconds:
        number += 1
    return number


def test_each_thread_has_its_own(tmp_path: Path) -> None:
    """While one task collects garbage, another one in the same process computes."""
    with (
        new_client(n_workers=1, threads_per_worker=2) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):
        client.gather([client.submit(collects, 200_000), client.submit(spins, 0.3)])
    table = TraceAnalyser(tmp_path, progress=False).per_function_bottleneck()
    seconds = table.set_index("Function")["Garbage Collection (s)"]
    assert seconds["collects"] > 0.05
    assert seconds["spins"] < 0.1 * seconds["collects"]
