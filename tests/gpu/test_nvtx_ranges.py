"""NVTX ranges of real worker processes with threads, in a stand-in for Nsight.

Each task writes its process, thread and name to a file when it starts, so the ranges are compared
with an independent record.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from clusters import new_client, wait_until
from distributed import Client, wait
from stand_ins import NvtxLog, Range

import dasfprof


class Attempts:
    """File to which tasks write when they start."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, name: str) -> None:
        import os

        line = f"{os.getpid()} {threading.get_ident()} {name}\n".encode()
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line)
        os.close(file)

    def are(self, ranges: list[Range]) -> bool:
        """Return whether there is one range per started task, on its thread."""
        rows = (line.split() for line in self.path.read_text().splitlines())
        ran = Counter((int(process), int(thread), name) for process, thread, name in rows)
        return ran == Counter((span.process, span.thread, span.message) for span in ranges)


@pytest.fixture(scope="module")
def client(nvtx_log: NvtxLog) -> Iterator[Client]:
    with new_client(n_workers=2, threads_per_worker=2) as client:
        yield client


@pytest.fixture
def began(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "attempts.txt")


@pytest.fixture
def run(client: Client, nvtx_log: NvtxLog, tmp_path: Path) -> Iterator[Any]:
    """Record each test with NVTX."""
    with dasfprof.profile(client, directory=tmp_path / "traces", enable_nvtx=True) as run:
        yield run


@pytest.fixture
def new_ranges(run: Any, nvtx_log: NvtxLog) -> Callable[[], list[Range]]:
    nvtx_log.clear()

    def since() -> list[Range]:
        run.stop()
        return nvtx_log.ranges()

    return since


def closed_by_their_own_threads(ranges: list[Range]) -> bool:
    return all(span.closed_by == span.thread and len(set(span.depths)) == 1 for span in ranges)


def test_each_task_run_is_one_range_on_its_thread(
    client: Client, run: Any, began: Attempts, new_ranges: Callable[[], list[Range]]
) -> None:
    def load(i: int) -> int:
        began("load")
        return i

    def process(i: int) -> int:
        began("process")
        return i + 1

    loaded = client.map(load, range(40))
    assert client.submit(sum, client.map(process, loaded), key="total-1").result() == 820
    runs = client.run_on_scheduler(
        lambda dask_scheduler: {
            str(task.key): task.run_id for task in dask_scheduler.tasks.values()
        }
    )
    ranges = new_ranges()
    assert began.are([span for span in ranges if span.message != "total"])
    assert closed_by_their_own_threads(ranges)
    assert {span.depths for span in ranges} == {(0, 0)}
    assert {span.domain for span in ranges} == {"dasfprof"}
    payloads = {int(span.payload) for span in ranges if span.message == "load"}
    assert payloads == {runs[future.key] for future in loaded}
    colors = {(span.message, span.color) for span in ranges}
    assert len(colors) == len({color for _, color in colors}) == 3
    events = [event for event in run.database().get_traces() if event.name == "NVTX"]
    assert [event.args["availability"] for event in events] == ["available"] * 2


def test_tasks_that_fail_are_ranges_too(
    client: Client, began: Attempts, new_ranges: Callable[[], list[Range]]
) -> None:
    def fail(kind: type[BaseException]) -> None:
        began("fail")
        raise kind("on purpose")

    class Odd(BaseException):
        pass

    failed = [client.submit(fail, kind, pure=False) for kind in (ValueError, Odd)]
    failed.append(client.submit(fail, ZeroDivisionError, pure=False, retries=2))
    wait(failed)
    assert [future.status for future in failed] == ["error"] * 3
    ranges = new_ranges()
    assert began.are(ranges)
    assert len(ranges) == 5
    assert len({span.payload for span in ranges}) == 5
    assert closed_by_their_own_threads(ranges)


def test_tasks_that_call_tasks_leave_the_pool_and_nest_right(
    client: Client, began: Attempts, new_ranges: Callable[[], list[Range]]
) -> None:
    def inner(i: int) -> int:
        began("inner")
        return i

    def outer(i: int) -> int:
        from distributed import get_client, rejoin, secede, worker_client

        began("outer")
        if i % 2:
            with worker_client() as own:
                return int(own.submit(inner, i, pure=False).result())
        secede()
        value = int(get_client().submit(inner, i, pure=False).result())
        rejoin()
        return value

    def nested(i: int) -> int:
        began("nested")
        delayed = [dask.delayed(lambda n: n)(n) for n in range(i)]
        return int(dask.delayed(sum)(delayed).compute(scheduler="sync"))

    assert client.gather(client.map(outer, range(8), pure=False)) == list(range(8))
    assert client.submit(nested, 4, pure=False).result() == 6
    ranges = new_ranges()
    assert began.are(ranges)
    assert closed_by_their_own_threads(ranges)


def test_a_cancelled_task_closes_its_range_when_its_thread_comes_back(
    client: Client, began: Attempts, new_ranges: Callable[[], list[Range]], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def hold() -> None:
        import time

        began("hold")
        deadline = time.monotonic() + 120
        while not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def free(dask_worker: Any) -> bool:
        return not dask_worker.state.executing and not dask_worker.active_threads

    future = client.submit(hold, pure=False)
    wait_until(lambda: began.path.exists())
    future.cancel()
    gate.touch()
    wait_until(lambda: all(client.run(free).values()))
    ranges = new_ranges()
    assert began.are(ranges)
    assert len(ranges) == 1
    assert closed_by_their_own_threads(ranges)
