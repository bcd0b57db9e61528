"""Cost of sampling stacks: CPU time of the sampler's thread, throughput, bytes, and reading.

CPU times are those of one thread, so that other programs hardly affect them. Throughput is compared
in rounds that alternate between sampling and no sampling.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster
from measure import Result, percentile
from native import run_apart

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.database import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows
from dasfprof.recording.stack_samples import sampler
from dasfprof.recording.stack_samples.sampled_threads import SamplingMode, StackReader, Subject
from dasfprof.schema.profiles import TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import STACK

DEPTH = 30
#: Limits: fraction of a core for the sampler with 4 busy threads, loss of throughput (fraction)
#: with 16 threads of Python code, bytes per sample, and seconds to read a million samples.
CORE, THROUGHPUT, BYTES, READ = 0.005, 0.04, 3.0, 0.5
#: Threads in the measurement of throughput.
BUSY = 16
#: Distinct stacks in the file that is read.
STACKS = 5000

_stop = threading.Event()


def deep(depth: int) -> int:
    """Compute in Python code, `depth` calls deep, until `_stop` is set."""
    if depth:
        return deep(depth - 1) + 1
    total = 0
    while not _stop.is_set():
        for number in range(1000):
            total += number * number
    return total & 1


def _client(threads: int) -> Client:
    # Dask's profiler would also take time in this process.
    dask.config.set({"distributed.worker.profile.enabled": False})
    return Client(
        LocalCluster(
            n_workers=1, threads_per_worker=threads, processes=False, dashboard_address=None
        )
    )


def sample_costs(threads: int, seconds: float) -> dict[str, Any]:
    """Return the CPU seconds of each sample while tasks compute."""
    costs: list[float] = []
    original = sampler.Sampler._sample

    def timed(self: Any) -> None:
        begin = time.thread_time()
        original(self)
        costs.append(time.thread_time() - begin)

    sampler.Sampler._sample = timed  # type: ignore[method-assign]
    client = _client(max(threads, 1))
    futures = client.map(deep, [DEPTH] * threads, pure=False)
    (worker,) = client.cluster.workers.values()
    while len(futures) > worker.state.executing_count:
        time.sleep(0.05)
    options = {"stack_frequency": 20, "response_timeout": 120}
    with dasfprof.profile(client, directory=tempfile.mkdtemp(), **options):
        begin = time.monotonic()
        costs.clear()
        time.sleep(seconds)
        taken, spent = list(costs), time.monotonic() - begin
    _stop.set()
    return {"samples": taken, "seconds": spent}


class _Threads(Subject):
    """Subject of sampling without Dask: all given threads of this process."""

    loop = None

    def __init__(self, threads: list[threading.Thread]) -> None:
        writer: Any = None
        rows = FileRows(writer, {}, HookGuard(), lambda _: None)
        super().__init__(lambda _: None, StackReader(rows))
        self._threads = {thread.ident: thread for thread in threads}

    def threads(self) -> Any:
        return self._threads

    def mode(self, *_: Any) -> SamplingMode:
        return SamplingMode.ALWAYS

    def _about(self, *_: Any) -> tuple[Any, ...]:
        return ()


def throughput(rounds: int, seconds: float) -> list[float]:
    """Return the fraction of throughput that 16 threads of Python code lose in each round."""
    done = [0] * BUSY

    def work(index: int) -> None:
        while not _stop.is_set():
            sum(number * number for number in range(100))
            done[index] += 1

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(BUSY)]
    for thread in threads:
        thread.start()
    subject: Any = _Threads(threads)

    def rate() -> float:
        before, begin = sum(done), time.process_time()
        time.sleep(seconds)
        return (sum(done) - before) / (time.process_time() - begin)

    lost = []
    for number in range(rounds):
        rates = {}
        for sampled in (True, False) if number % 2 else (False, True):
            stop = sampler.sample(subject, 20, HookGuard()) if sampled else None
            rates[sampled] = rate()
            if stop is not None:
                stop()
        lost.append(1 - rates[True] / rates[False])
    _stop.set()
    return lost


def write_samples(directory: Path, count: int, each: int) -> Path:
    """Write `count` samples of 4 threads at 20 Hz as the sampler does, `each` samples per block."""
    random = np.random.default_rng(0)
    header = {"plugin": "TracePlugin"}
    database = FileDatabase(directory / "run-TracePlugin-0.msgpack", header=header)
    stacks, samples, runs = (Source.from_schema(kind) for kind in (STACK, TASK_SAMPLE, COMPUTE))
    for source in (stacks, samples, runs):
        database.writer.add_source(source)
    for number in range(STACKS):
        frame = [f"function_{number % 300}", f"/home/me/pipeline/module_{number % 20}.py", number]
        parent = int(number * random.random()) if number else -1
        stacks.rows.append((1.7e9, number, [frame], parent))
    database.commit()
    fields = [name for name, _ in COMPUTE.fields + COMPUTE.args]
    for thread in range(4):
        run = {"timestamp": 1.7e9, "duration": 1e6, "key": f"step-{thread}", "state": "memory"}
        run |= {"thread": str(140_000_000_000_000 + thread), "dependencies": (), "run_id": 1}
        nothing = {name: 0 for name, codec in COMPUTE.args if codec == "int"}
        runs.rows.append(tuple({**nothing, **run}.get(name) for name in fields))
    database.commit()
    stack = (random.zipf(1.3, count) % STACKS).tolist()
    cpu, late = random.integers(0, 52, count).tolist(), random.integers(-20, 20, count).tolist()
    activity = random.choice(["running", "lock", "waiting"], count).tolist()
    due = 1.7e9
    for row in range(count):
        if row % 4 == 0:
            interval = (51 + late[row]) / 1024
            due += interval
        thread = 140_000_000_000_000 + row % 4
        facts = activity[row], interval, cpu[row] / 1024, 0.0
        samples.rows.append((round(due * 1024) / 1024, thread, stack[row], *facts))
        if row % each == each - 1:
            database.commit()
    database.close()
    return Path(database.path)


def reading(count: int) -> dict[str, float]:
    """Return the bytes per sample, and the seconds to read the file and to analyse it."""
    directory = Path(tempfile.mkdtemp())
    empty = write_samples(Path(tempfile.mkdtemp()), 0, 1000).stat().st_size
    second = write_samples(Path(tempfile.mkdtemp()), 8000, 80).stat().st_size
    size = write_samples(directory, count, 1000).stat().st_size
    begin = time.process_time()
    analyser = TraceAnalyser(directory, progress=False)
    read = time.process_time()
    analyser.hot_lines()
    lines = time.process_time()
    analyser.call_tree()
    return {
        "bytes": (size - empty) / count,
        "bytes, one block per second": (second - empty) / 8000,
        "read": read - begin,
        "hot_lines": lines - read,
        "call_tree": time.process_time() - lines,
    }


#: Number of computing threads by case. Each case has a separate process.
CASES = {"no task": 0, "1 thread": 1, "4 threads": 4, "16 threads": 16}


def _costs(seconds: float) -> Result:
    columns = ["case", "% of a core (limit)", "us per sample, median, 95 %", "samples per second"]
    result = Result("Sampling stacks, 30 frames deep: the sampler's thread", columns)
    for case in CASES:
        costs = run_apart(__file__, "--here", case, "--seconds", str(seconds))
        samples, spent = costs["samples"] or [math.nan], costs["seconds"]
        limit = f" ({CORE * 100:.2f})" if case == "4 threads" else ""
        times = f"{statistics.median(samples) * 1e6:.0f}, {percentile(samples, 0.95) * 1e6:.0f}"
        share = f"{sum(samples) / spent * 100:.3f}{limit}"
        result.rows.append([case, share, times, f"{len(samples) / spent:.1f}"])
        result.figures[case] = costs
    return result


def _other_costs(options: argparse.Namespace) -> Result:
    result = Result("Sampling stacks: other costs", ["figure", "measured (limit)"])
    size = ["--rounds", str(options.rounds), "--samples", str(options.samples)]
    lost = run_apart(__file__, "--here", "throughput", *size)
    middle = f"{statistics.median(lost) * 100:.1f} ({THROUGHPUT * 100:.0f})"
    result.rows.append([f"loss of {BUSY} threads' work per CPU second, %", middle])
    costs = run_apart(__file__, "--here", "reading", *size)
    result.rows.append(["bytes per sample, 1,000 per block", f"{costs['bytes']:.1f} ({BYTES:.0f})"])
    small = f"{costs['bytes, one block per second']:.1f}"
    result.rows.append(["bytes per sample, one block per second", small])
    many = options.samples / 1e6
    for name, limit in {"read": f" ({READ * many:g})", "hot_lines": "", "call_tree": ""}.items():
        result.rows.append([f"s, {name}, {options.samples:,} samples", f"{costs[name]:.2f}{limit}"])
    result.figures = {"lost": lost, **costs}
    return result


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="duration of each case of the sampler's thread"
    )
    parser.add_argument("--rounds", type=int, default=20, help="rounds of throughput")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples to write and read")
    parser.add_argument("--here", help="measure one case in this process, print JSON")
    options = parser.parse_args(arguments)
    if options.here:
        if options.here == "throughput":
            print(json.dumps(throughput(options.rounds, 1.0)), flush=True)
        elif options.here == "reading":
            print(json.dumps(reading(options.samples)), flush=True)
        else:
            print(json.dumps(sample_costs(CASES[options.here], options.seconds)), flush=True)
        os._exit(0)  # threads that compute do not end by themselves
    results = [_costs(options.seconds), _other_costs(options)]
    for result in results:
        print(result.show(), flush=True)
    return results


if __name__ == "__main__":
    import bench_sampling  # so that its functions are pickled by their names

    bench_sampling.main(sys.argv[1:])
