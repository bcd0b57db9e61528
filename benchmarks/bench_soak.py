"""Soak test: very many tasks on small clusters, with and without the profiler.

Two clusters exist at the same time and compute batches in turn, so that other programs affect both
equally. Growth of memory is measured from the second quarter of the run to the last one, and
compared because Dask's memory grows too. A coroutine on each worker's event loop wakes 50 times per
second; its delay shows how long the loop was blocked. Threads and descriptors are counted after
recording has ended.

``--runs 200`` instead lets 200 clients, one after the other, connect to a cluster that was started
with Dask's commands and whose scheduler has the preload. Each client records a separate run.
Another cluster, without dasfprof, has the same clients, which send as many messages. Each worker
has a separate disk where users may mount disks. What processes hold after the first clients is
compared with what they hold at the end. Memory is resident memory, after Python's collector and
malloc_trim have freed what they can. About two thirds of the additional growth with dasfprof are
free parts of pages that Python and malloc keep, so blocks that Python uses are counted as well. On
both clusters, Dask's profile of its event loops is off, its logs have at most 100 entries, events
of clients that left are removed after a second, and malloc has two arenas, because all of these
grow for a while and then stay.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import dask
import psutil
from bench_overhead import no_op_tasks
from distributed import Client, LocalCluster
from measure import Result, percentile, spread

import dasfprof
from dasfprof.database import open_run

BATCH = 10_000
#: Seconds between two wake-ups of the coroutine that watches an event loop.
WAKE = 0.02
COLUMNS = [
    "",
    "event loop delay, ms: 99 %, 99.9 %, maximum",
    "growth of the largest worker, MB per 100,000 tasks",
    "threads, descriptors of a worker at the end",
    "recorded",
]


async def watch_loop(dask_worker: Any = None) -> None:
    """Start to measure the delay of this worker's event loop, in seconds."""

    async def watch() -> None:
        while True:
            due = time.perf_counter() + WAKE
            await asyncio.sleep(WAKE)
            dask_worker.lags.append(time.perf_counter() - due)

    dask_worker.lags = []
    dask_worker.watching = asyncio.create_task(watch())


def stop_watching(dask_worker: Any = None) -> None:
    """Stop measuring the delay of the event loop."""
    dask_worker.watching.cancel()


def taken_lags(dask_worker: Any = None) -> list[float]:
    """Return and clear the delays since the last call."""
    lags, dask_worker.lags = dask_worker.lags, []
    return lags


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def held() -> tuple[int, int]:
    """Return the numbers of threads and file descriptors of this process."""
    process = psutil.Process()
    return process.num_threads(), process.num_fds()


class Soaked:
    """Cluster in the soak test, and its measurements."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.lags: list[float] = []
        self.workers: list[int] = []
        self.tasks = 0
        client.run(watch_loop)

    def work(self) -> None:
        """Compute a batch, and record delays of the event loops and resident memory."""
        self.client.run(taken_lags)
        no_op_tasks(self.client, BATCH)
        self.tasks += BATCH
        for lags in self.client.run(taken_lags).values():
            self.lags += lags
        self.workers.append(max(self.client.run(resident).values()))

    def cells(self) -> list[str]:
        """Stop measuring, and return the measurements as texts."""
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


#: Clients until what processes hold is first looked at: libraries are loaded, connections made.
WARM_UP = 20
#: Limits of the preload's runs.
LENGTH, KEEP = "20s", 1_000_000
#: Calls of the scheduler and of all workers for each client that records.
CALLS = 14, 2
#: Mounts an empty disk at a path, and runs a program.
MOUNT = 'mount -t tmpfs none "$0" && exec "$@"'


def trimmed() -> tuple[int, int, int, int]:
    """Free what can be freed, and return what this process holds.

    The result has resident bytes, threads, descriptors, and blocks of memory that Python uses.
    """
    import ctypes
    import gc

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return (resident(), *held(), sys.getallocatedblocks())


class Shared:
    """A scheduler and two workers of Dask's own commands.

    Parameters
    ----------
    directory
        An empty directory.
    recorded
        Whether the scheduler has the preload, and clients record their runs.
    """

    def __init__(self, directory: Path, recorded: bool) -> None:
        self.directory, self.recorded = directory, recorded
        self.traces, self.file = directory / "traces", directory / "scheduler.json"
        self.traces.mkdir(parents=True)
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            "DASK_DASFPROF__DIRECTORY": str(self.traces / "preload"),
            "DASK_DISTRIBUTED__ADMIN__LOG_LENGTH": "100",
            "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "100",
            "DASK_DISTRIBUTED__SCHEDULER__EVENTS_CLEANUP_DELAY": "1s",
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
            "MALLOC_ARENA_MAX": "2",
        }
        limits = ("--run-length", LENGTH, "--keep-size", str(KEEP))
        options = ("--preload", "dasfprof.preload", *limits) if recorded else ()
        self._processes = [self._start("scheduler", "--port=0", *options)]
        while not self.file.exists():
            time.sleep(0.1)
        apart = ("unshare", "--mount", "sh", "-c", MOUNT, str(self.traces))
        can_mount = subprocess.run([*apart, "true"], capture_output=True, check=False)
        for _ in range(2):
            options = ("--nthreads=1", "--no-nanny")
            prefix = () if can_mount.returncode else apart
            self._processes.append(self._start("worker", *options, prefix=prefix))

    def _start(self, role: str, *options: str, prefix: tuple[str, ...] = ()) -> Any:
        command = (sys.executable, "-m", f"distributed.cli.dask_{role}", "--no-dashboard")
        arguments = ("--scheduler-file", str(self.file), *options)
        log = (self.directory / f"{role}.log").open("ab")
        return subprocess.Popen(
            [*prefix, *command, *arguments], env=self._environment, stdout=log, stderr=log
        )

    def one_client(self, number: int) -> None:
        """Connect, compute some tasks, record them if runs are recorded, and disconnect."""
        with Client(scheduler_file=str(self.file), timeout=60) as client:
            client.wait_for_workers(2)
            directory = self.traces / "user"
            recording: Any = nullcontext()
            if self.recorded:
                recording = dasfprof.profile(client, name=f"run{number}-", directory=directory)
            else:
                for _ in range(CALLS[0]):
                    client.run_on_scheduler(held)
                for _ in range(CALLS[1]):
                    client.run(held)
            with recording:
                tasks = client.map(abs, range(-100, 0), pure=False)
                assert client.gather(tasks) == [*range(100, 0, -1)]
            for path in directory.glob("*"):  # They are their user's, who has seen them.
                path.unlink()

    def held(self) -> list[tuple[int, int, int, int]]:
        """Return what the scheduler and the workers hold (see `trimmed`)."""
        with Client(scheduler_file=str(self.file), timeout=60) as client:
            return [client.run_on_scheduler(trimmed), *client.run(trimmed).values()]

    def files(self) -> tuple[int, int, int]:
        """Return files of users' runs on workers, and files and bytes of the preload's runs."""
        roots = [f"/proc/{process.pid}/root" for process in self._processes[1:]]
        user = [path for root in roots for path in Path(f"{root}{self.traces}/user").glob("*")]
        sizes = [path.stat().st_size for path in self.traces.glob("preload/*.msgpack")]
        return len(user), len(sizes), sum(sizes)

    def close(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
            process.wait()


def many_runs(runs: int) -> Result:
    """Let many clients record their runs on one cluster, one after the other."""
    columns = ["", "scheduler's memory, MB", "its blocks in use, thousands"]
    columns += ["its threads, descriptors", "a worker's threads"]
    columns += ["its descriptors", "users' files on workers", "the preload's files, MB"]
    result = Result(f"{runs} runs on one cluster", columns)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        clusters = {}
        for name in ("without", "dasfprof"):
            clusters[name] = Shared(Path(directory, name), name == "dasfprof")
            stack.callback(clusters[name].close)
        before = {}
        for number in range(runs + WARM_UP):
            if number == WARM_UP:
                before = {name: cluster.held() for name, cluster in clusters.items()}
            for cluster in clusters.values():
                cluster.one_client(number)
        for name, cluster in clusters.items():
            after = cluster.held()
            pairs = list(zip(before[name], after, strict=True))
            (first, last), *workers = pairs
            left, files, size = cluster.files()
            result.rows.append(
                [
                    name,
                    f"{first[0] / 1e6:.1f} -> {last[0] / 1e6:.1f}",
                    f"{first[3] / 1e3:.0f} -> {last[3] / 1e3:.0f}",
                    f"{first[1]} -> {last[1]}, {first[2]} -> {last[2]}",
                    ", ".join(f"{a[1]} -> {b[1]}" for a, b in workers),
                    ", ".join(f"{a[2]} -> {b[2]}" for a, b in workers),
                    str(left),
                    f"{files}, {size / 1e6:.2f}",
                ]
            )
            result.figures[name] = {"before": before[name], "after": after}
            result.figures[name] |= {"files": [left, files, size]}
        print(result.show(), flush=True)
    return result


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=30, help="duration for both clusters together"
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--stack-frequency", type=float, default=0, help="looks at stacks a second")
    parser.add_argument("--runs", type=int, help="many short runs on one cluster instead")
    options = parser.parse_args(arguments)
    if options.runs:
        return [many_runs(options.runs)]
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
