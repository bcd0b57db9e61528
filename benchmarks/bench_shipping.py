"""What it costs to ship the blocks of many workers to a scheduler in a process of its own.

The workers are shippers in this process, each with two files to which blocks are appended, evenly
over each second. Without shipping, the same blocks are appended. CPU is that of the scheduler's
process and, by worker, of this one; the lag is that of the scheduler's event loop, which is asked
to wake up every 10 ms.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from distributed import Client, rpc
from measure import Result, interleave, percentile, spread

import dasfprof
from dasfprof.database import FileDatabase
from dasfprof.database.frames import build_frame
from dasfprof.recording.cluster.by_value import by_value
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.targets import SchedulerSender

#: Bytes of a block: of a second of a busy worker's tasks, and of its samples.
BLOCK_BYTES = {"TracePlugin": 10_000, "ResourceMonitor": 2_000}
BLOCKS = {plugin: build_frame(os.urandom(size)) for plugin, size in BLOCK_BYTES.items()}
#: Seconds before what is measured: connections are made.
WARM_UP = 3.0


class Worker:
    """What a shipper needs of a worker and of its files, and the files.

    Parameters
    ----------
    directory
        Where the files are.
    settings
        The run.
    number
        The worker's name.
    """

    def __init__(self, directory: Path, settings: RunSettings, number: int) -> None:
        self.name = self.address = str(number)
        self.status = SimpleNamespace(name="running")
        self.scheduler: Any = None
        self.files: list[FileDatabase] = []
        for plugin in BLOCKS:
            path = directory / f"{settings.name}-{plugin}-{number}.msgpack"
            header = {"run_uuid": settings.uuid, "plugin": plugin}
            with FileDatabase(path, header=header, new=True) as database:
                database.record(dasfprof.InstantEvent("begin", time.time()))
            self.files.append(database)

    async def ship(self, settings: RunSettings, address: str) -> SchedulerSender:
        """Begin to ship."""
        self.scheduler = rpc(address)
        return SchedulerSender(settings, self, self.files)

    def write(self) -> None:
        """Append a block to each file."""
        for file, block in zip(self.files, BLOCKS.values(), strict=True):
            with file.path.open("ab", buffering=0) as opened:
                opened.write(block)
        self.files[0].writer.after_drain()


def work(workers: list[Worker], seconds: float) -> None:
    """Let each worker write once a second."""
    begin, step = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        workers[step % len(workers)].write()
        step += 1
        time.sleep(max(0.0, begin + step / len(workers) - time.perf_counter()))


@by_value
async def begin_to_measure(dask_scheduler: Any) -> None:
    """Begin to note by how much the event loop is late, in seconds."""
    import asyncio
    import time

    late: list[float] = []

    async def look() -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.01)
            late.append(time.perf_counter() - begin - 0.01)

    dask_scheduler.lag = late, asyncio.create_task(look())


@by_value
def end_measuring(dask_scheduler: Any) -> list[float]:
    """Return what was noted."""
    late, task = dask_scheduler.lag
    task.cancel()
    return list(late)


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has taken."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(ships: bool, count: int, seconds: float, client: Client, pid: int) -> dict[str, float]:
    """Run one variant; returns CPU a second of the scheduler and a worker, and the lag."""
    processes = psutil.Process(pid), psutil.Process()
    with ExitStack() as stack:
        here, there = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        with dasfprof.profile(client, directory=there) as run:
            settings = run._settings
            workers = [Worker(here, settings, number) for number in range(count)]
            shippers = []
            if ships:
                address = client.scheduler.address
                shippers = [client.sync(worker.ship, settings, address) for worker in workers]
            work(workers, WARM_UP)
            client.run_on_scheduler(begin_to_measure)
            before, begin = [cpu_seconds(process) for process in processes], time.perf_counter()
            work(workers, seconds)
            wall, after = (
                time.perf_counter() - begin,
                [cpu_seconds(process) for process in processes],
            )
            late = client.run_on_scheduler(end_measuring)
            written = sum(path.stat().st_size for path in here.glob("*.msgpack"))
            for worker, shipper in zip(workers, shippers, strict=False):
                client.sync(shipper.end)
                assert not shipper.unsent_files()
                client.sync(worker.scheduler.close_rpc)
        if ships:  # Each byte has arrived once, and workers remove what has arrived.
            received = sum(path.stat().st_size for path in there.glob("*-[TR]*.msgpack"))
            assert (received, list(here.glob("*.msgpack"))) == (written, []), (written, received)
    scheduler, worker_cpu = ((b - a) / wall for a, b in zip(before, after, strict=True))
    return {"scheduler": scheduler, "worker": worker_cpu / count, "lag": percentile(late, 0.99)}


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "scheduler.json")
        command = ["-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
        scheduler = subprocess.Popen(
            [sys.executable, *command, "--scheduler-file", str(file)], stderr=subprocess.DEVNULL
        )
        try:
            while not file.exists():
                time.sleep(0.1)
            with Client(scheduler_file=str(file)) as client:
                arguments_of_all = (options.workers, options.seconds, client, scheduler.pid)
                variants = {
                    "no shipping": partial(measure, False, *arguments_of_all),
                    "shipping": partial(measure, True, *arguments_of_all),
                }
                measured = interleave(variants, options.rounds, warm_up=0)
        finally:
            scheduler.terminate()
            scheduler.wait()
    result = Result(
        f"Shipping from {options.workers} workers, a block of 10 kB and one of 2 kB a second each",
        ["", "scheduler, % of a core", "a worker, ms of CPU a second", "scheduler's lag p99, ms"],
    )
    for name, rounds in measured.items():
        cells = [
            "{:.2f} ({:.2f} to {:.2f})".format(*spread([factor * one[key] for one in rounds]))
            for key, factor in (("scheduler", 100.0), ("worker", 1e3), ("lag", 1e3))
        ]
        result.rows.append([name, *cells])
        result.figures[name] = rounds
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
