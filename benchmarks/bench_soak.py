"""A soak: very many tasks through small clusters, with the profiler and without it.

Two clusters live side by side and take turns, a batch each, so that what the machine does meets
both alike. Memory is compared between the second quarter of the run and the last one, because
Dask's own grows as well. A task on each worker's event loop wakes 50 times a second: how late it
is tells how long the loop stood. Threads and descriptors are counted once recording has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import ExitStack
from typing import Any

import dask
import psutil
from bench_overhead import no_op_tasks
from distributed import Client, LocalCluster
from measure import Result, percentile, spread

import dasfprof
from dasfprof.database import open_run

BATCH = 10_000
#: Seconds between two wakes of the task that watches a loop.
WAKE = 0.02
COLUMNS = [
    "",
    "loops late by, ms: 99 %, 99.9 %, at most",
    "growth of the largest worker, MB per 100,000 tasks",
    "threads, descriptors of a worker at the end",
    "recorded",
]


async def watch_loop(dask_worker: Any = None) -> None:
    """Note from now on how late this worker's event loop is, seconds, while tasks are sent."""

    async def watch() -> None:
        while True:
            due = time.perf_counter() + WAKE
            await asyncio.sleep(WAKE)
            dask_worker.lags.append(time.perf_counter() - due)

    dask_worker.lags = []
    dask_worker.watching = asyncio.create_task(watch())


def stop_watching(dask_worker: Any = None) -> None:
    """End the task that notes how late the loop is."""
    dask_worker.watching.cancel()


def taken_lags(dask_worker: Any = None) -> list[float]:
    """Take what was noted since the last call."""
    lags, dask_worker.lags = dask_worker.lags, []
    return lags


def resident() -> int:
    """Resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def held() -> tuple[int, int]:
    """Threads and file descriptors of this process."""
    process = psutil.Process()
    return process.num_threads(), process.num_fds()


class Soaked:
    """A cluster in the soak, and what is measured of it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.lags: list[float] = []
        self.workers: list[int] = []
        self.tasks = 0
        client.run(watch_loop)

    def work(self) -> None:
        """Compute a batch, and note how late the loops were meanwhile and what memory is held."""
        self.client.run(taken_lags)
        no_op_tasks(self.client, BATCH)
        self.tasks += BATCH
        for lags in self.client.run(taken_lags).values():
            self.lags += lags
        self.workers.append(max(self.client.run(resident).values()))

    def cells(self) -> list[str]:
        """End the watch, and return the measurements as texts."""
        self.client.run(stop_watching)
        lags = [1000 * lag for lag in self.lags]
        late = [percentile(lags, share) for share in (0.99, 0.999, 1.0)]
        threads, descriptors = zip(*self.client.run(held).values(), strict=True)
        return [
            ", ".join(f"{lag:.0f}" for lag in late),
            f"{growth(self.workers):.2f}",
            f"{max(threads)}, {max(descriptors)}",
        ]


def growth(values: list[int]) -> float:
    """Return the growth from the second quarter of a run to its last, MB per 100,000 tasks."""
    quarter = max(1, len(values) // 4)
    late, early = values[-quarter:], values[quarter : 2 * quarter] or values[:quarter]
    batches = max(1, len(values) - len(late) / 2 - 1.5 * len(early))
    return (spread(late)[0] - spread(early)[0]) / 1e6 / batches / BATCH * 100_000


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="of both clusters together")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--stack-frequency", type=float, default=0, help="looks at stacks a second")
    options = parser.parse_args(arguments)
    result = Result("Soak", COLUMNS)
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": "inf"}),
        tempfile.TemporaryDirectory() as directory,
        ExitStack() as stack,
    ):
        clusters = {}
        for name in ("without", "dasfprof"):
            cluster = LocalCluster(
                n_workers=options.workers, threads_per_worker=1, dashboard_address=":0"
            )
            stack.enter_context(cluster)
            clusters[name] = Soaked(stack.enter_context(Client(cluster)))
        profiled = clusters["dasfprof"]
        with dasfprof.profile(
            profiled.client, directory=directory, stack_frequency=options.stack_frequency
        ):
            end = time.monotonic() + 60 * options.minutes
            while not profiled.tasks or time.monotonic() < end:
                for soaked in clusters.values():
                    soaked.work()
        batches = open_run(directory).batches()
        runs = sum(batch.rows for _, batch in batches if batch.name == "Compute")
        for name, soaked in clusters.items():
            recorded = f"{runs:,} of {soaked.tasks:,}" if soaked is profiled else ""
            result.rows.append([name, *soaked.cells(), recorded])
            result.figures[name] = {
                "tasks": soaked.tasks,
                "lags": [percentile(soaked.lags, share) for share in (0.5, 0.99, 0.999, 1.0)],
                "largest worker, bytes": soaked.workers,
            }
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
