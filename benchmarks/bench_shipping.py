"""Cost of forwarding the blocks of many workers to a scheduler in a separate process.

The workers are file senders in this process. Each has two files to which blocks are appended; the
workers' blocks are spread evenly over each second. The variant without forwarding appends the same
blocks. The CPU time is that of the scheduler's process and, divided by the number of workers, of
this process. The lag is the delay of wake-ups on the scheduler's event loop every 10 ms.
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

#: Bytes of a block with the tasks of a busy worker in one second, and of a block with its samples.
BLOCK_BYTES = {"TracePlugin": 10_000, "ResourceMonitor": 2_000}
BLOCKS = {plugin: build_frame(os.urandom(size)) for plugin, size in BLOCK_BYTES.items()}
#: Seconds before the measurement, in which connections are opened.
WARM_UP = 3.0


class Worker:
    """Stand-in for a worker, with the attributes and the files that a file sender needs.

    Parameters
    ----------
    directory
        Directory of the files.
    settings
        Settings of the run.
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
        """Start to forward the files."""
        self.scheduler = rpc(address)
        return SchedulerSender(settings, self, self.files)

    def write(self) -> None:
        """Append a block to each file."""
        for file, block in zip(self.files, BLOCKS.values(), strict=True):
            with file.path.open("ab", buffering=0) as opened:
                opened.write(block)
        self.files[0].writer.after_drain()


def work(workers: list[Worker], seconds: float) -> None:
    """Let each worker write once per second."""
    begin, step = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        workers[step % len(workers)].write()
        step += 1
        time.sleep(max(0.0, begin + step / len(workers) - time.perf_counter()))


@by_value
async def begin_to_measure(dask_scheduler: Any) -> None:
    """Start to measure the delay of wake-ups on the event loop, in seconds."""
    import asyncio
    import time

    late: list[float] = []

    async def wake_up() -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.01)
            late.append(time.perf_counter() - begin - 0.01)

    dask_scheduler.lag = late, asyncio.create_task(wake_up())


@by_value
def end_measuring(dask_scheduler: Any) -> list[float]:
    """Stop the measurement, and return the delays in seconds."""
    late, task = dask_scheduler.lag
    task.cancel()
    return list(late)


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(ships: bool, count: int, seconds: float, client: Client, pid: int) -> dict[str, float]:
    """Run a variant; return CPU seconds per second of scheduler and worker, and the lag."""
    processes = psutil.Process(pid), psutil.Process()
    with ExitStack() as stack:
        local, collected = (
            Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)
        )
        with dasfprof.profile(client, directory=collected) as run:
            settings = run._settings
            workers = [Worker(local, settings, number) for number in range(count)]
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
            written = sum(path.stat().st_size for path in local.glob("*.msgpack"))
            for worker, shipper in zip(workers, shippers, strict=False):
                client.sync(shipper.end)
                assert not shipper.unsent_files()
                client.sync(worker.scheduler.close_rpc)
        if ships:  # Each byte has arrived once, and workers remove files that have arrived.
            received = sum(path.stat().st_size for path in collected.glob("*-[TR]*.msgpack"))
            assert (received, list(local.glob("*.msgpack"))) == (written, []), (written, received)
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
                    "no forwarding": partial(measure, False, *arguments_of_all),
                    "forwarding": partial(measure, True, *arguments_of_all),
                }
                results = interleave(variants, options.rounds, warm_up=0)
        finally:
            scheduler.terminate()
            scheduler.wait()
    result = Result(
        f"Forwarding from {options.workers} workers, blocks of 10 kB and 2 kB per second each",
        [
            "variant",
            "scheduler, % of a core",
            "CPU per worker, ms per second",
            "scheduler's lag p99, ms",
        ],
    )
    for name, rounds in results.items():
        cells = [
            "{:.2f} ({:.2f} to {:.2f})".format(
                *spread([factor * measured[key] for measured in rounds])
            )
            for key, factor in (("scheduler", 100.0), ("worker", 1e3), ("lag", 1e3))
        ]
        result.rows.append([name, *cells])
        result.figures[name] = rounds
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
