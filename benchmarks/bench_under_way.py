"""CPU time of snapshots of work in progress, in the thread that takes them.

Real workers, schedulers and clients run in this process. While the scheduler's snapshots are
measured, tasks come and go, so that each snapshot differs from the previous one. The CPU time of
the writer's thread is not included (see `bench_overhead`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster, Worker
from measure import Result, percentile
from native import run_apart

import dasfprof
from dasfprof.recording.under_way.loop import INTERVAL, ClientUnderWay
from dasfprof.recording.under_way.scheduler import SchedulerUnderWay
from dasfprof.recording.under_way.tasks import TasksUnderWay

DEPTH, THREADS = 30, 4
#: Limits of CPU seconds per second.
LIMITS = {
    "worker, 4 tasks that wait": 1.5e-3,
    "worker, 4 tasks that compute": 1.5e-3,
    "scheduler, many tasks of few functions": 0.5e-3,
    "scheduler, 1,000 tasks of 3,000 functions": 2e-3,
}

_go_on = threading.Event()


def deep(depth: int, wait: bool) -> int:
    """Wait or compute, `depth` calls deep, until `_go_on` is set."""
    if depth:
        return deep(depth - 1, wait) + 1
    while not _go_on.wait(None if wait else 0.002):
        sum(range(20_000))
    return 0


def _wait(_: int) -> None:
    _go_on.wait()


def _after(number: int, _: Any) -> int:
    return number


def _client(threads: int = THREADS) -> Client:
    dask.config.set({"distributed.scheduler.worker-saturation": "inf"})
    return Client(
        LocalCluster(
            n_workers=1, threads_per_worker=threads, processes=False, dashboard_address=":0"
        )
    )


@contextmanager
def _timed(owner: type, method: str) -> Iterator[list[float]]:
    """Collect the CPU seconds of each call of a method in the block."""
    seconds: list[float] = []
    original = getattr(owner, method)

    def timed(self: Any) -> None:
        begin = time.thread_time()
        original(self)
        seconds.append(time.thread_time() - begin)

    setattr(owner, method, timed)
    try:
        yield seconds
    finally:
        setattr(owner, method, original)


def worker_snapshots(seconds: float, wait: bool) -> dict[str, list[float]]:
    """Return the CPU seconds of snapshots by a worker and by its client."""
    with (
        _timed(TasksUnderWay, "sample") as tasks,
        _timed(ClientUnderWay, "sample") as of_client,
    ):
        client = _client()
        futures = client.map(deep, [DEPTH] * THREADS, [wait] * THREADS, pure=False)
        _until(lambda: _executing(client) == len(futures))
        time.sleep(1.5)
        with dasfprof.profile(client, directory=tempfile.mkdtemp()):
            time.sleep(seconds)
    return {"worker": tasks, "client": of_client}


def _executing(client: Client) -> int:
    (worker,) = client.cluster.workers.values()
    assert isinstance(worker, Worker)
    return worker.state.executing_count


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def scheduler_snapshots(seconds: float, submit: Callable[[Client], Any]) -> dict[str, list[float]]:
    """Return the CPU seconds of a scheduler's snapshots while tasks come and go."""
    with _timed(SchedulerUnderWay, "_sample") as costs:
        client = _client()
        futures = submit(client)
        with dasfprof.profile(client, directory=tempfile.mkdtemp()):
            end = time.monotonic() + seconds
            while futures and time.monotonic() < end:
                client.submit(int, 1, pure=False)  # released at once, so it may never run
                time.sleep(0.2)
    return {"scheduler": costs}


def many_tasks(number: int) -> Callable[[Client], Any]:
    """Return a function that submits `number` tasks that wait for an unfinished task."""

    def submit(client: Client) -> Any:
        first = client.submit(_wait, 0, key="first")
        waiting = [
            client.map(_after, range(number // 10), _=first, key=f"function{name}")
            for name in range(10)
        ]
        scheduler = client.cluster.scheduler
        _until(lambda: len(scheduler.tasks) > number)
        return [first, *(future for futures in waiting for future in futures)]

    return submit


def many_functions(client: Client) -> Any:
    """Submit 3,000 functions whose tasks have finished, and 1,000 unfinished tasks."""
    finished = [
        client.submit(int, i, key=f"of{'abcdefghij'[i % 10]}{_word(i)}-1") for i in range(3000)
    ]
    client.gather(finished)
    first = client.submit(_wait, 0, key="first")
    _until(lambda: _executing(client) == 1)
    return [first, *finished, *client.map(_wait, range(1000), key="waits")]


def _word(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:04d}")


#: Cases. Each has a separate process.
CASES: dict[str, Callable[[float, int], dict[str, list[float]]]] = {
    f"{THREADS} tasks that wait": lambda seconds, _: worker_snapshots(seconds, True),
    f"{THREADS} tasks that compute": lambda seconds, _: worker_snapshots(seconds, False),
    "many tasks of few functions": lambda seconds, tasks: scheduler_snapshots(
        seconds, many_tasks(tasks)
    ),
    "1,000 tasks of 3,000 functions": lambda seconds, _: scheduler_snapshots(
        seconds, many_functions
    ),
}


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--here", help="measure one case in this process, print JSON")
    options = parser.parse_args(arguments)
    if options.here:
        costs = CASES[options.here](options.seconds, options.tasks)
        print(json.dumps(costs), flush=True)
        os._exit(0)  # the cluster would need long to forget so many tasks
    columns = ["case", "us per second (limit)", "us per snapshot, median, 95 %", "snapshots"]
    result = Result("Work in progress", columns)
    size = ["--seconds", str(options.seconds), "--tasks", str(options.tasks)]
    for case in CASES:
        for process, costs in run_apart(__file__, "--here", case, *size).items():
            _add(result, f"{process}, {case}", costs, options.seconds)
    print(result.show(), flush=True)
    return [result]


def _add(result: Result, name: str, costs: list[float], seconds: float) -> None:
    limit = LIMITS.get(name)
    per_second = f"{sum(costs) / seconds * 1e6:.0f}" + (f" ({limit * 1e6:.0f})" if limit else "")
    quantiles = f"{statistics.median(costs) * 1e6:.0f}, {percentile(costs, 0.95) * 1e6:.0f}"
    result.rows.append([name, per_second, quantiles, str(len(costs))])
    result.figures[name] = {"interval": INTERVAL, "seconds": seconds, "costs": costs}


if __name__ == "__main__":
    import bench_under_way  # so that its functions are pickled by their names

    bench_under_way.main(sys.argv[1:])
