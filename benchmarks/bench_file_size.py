"""Bytes on disk for each recorded task run, of workers and scheduler together; samples apart.

And how many more of them samples of stacks are, by default, for a pipeline of tasks of 10 ms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import dask
from bench_overhead import WORKLOADS
from distributed import Client, LocalCluster
from measure import Result, spread

import dasfprof

#: The most bytes that samples of stacks may add by default.
MORE = 0.10
_BRIEF = "10 ms tasks"
_OF_STACKS = ("Task Sample", "Loop Sample", "Client Sample", "Stack")


def sizes(paths: Iterable[Path]) -> tuple[int, float, float]:
    """Give task runs, bytes for each of them, and bytes of samples for a second of a worker."""
    files = list(paths)
    database = dasfprof.MultiEventDatabase(files)
    runs = sum(batch.rows for _, batch in database.batches() if batch.name == "Compute")
    samples = [path for path in files if "ResourceMonitor" in path.name]
    seconds = 0.0
    for path in samples:
        usage = (b for _, b in dasfprof.MultiEventDatabase([path]).batches())
        times = [
            t for b in usage if b.name == "Resource Usage" for t in b.fields["timestamp"].array
        ]
        seconds += max(times) - min(times)
    tasks = sum(path.stat().st_size for path in files if path not in samples)
    return runs, tasks / runs, sum(path.stat().st_size for path in samples) / seconds


def workload(client: Any, function: Callable[[Any, int], None], count: int) -> list[Path]:
    """Record a workload of `bench_overhead`."""
    with dasfprof.profile(client, directory=tempfile.mkdtemp()) as run:
        function(client, count)
    return run.files()


def demo() -> list[Path]:
    """Record `dasfprof demo`, of which tasks take long enough to be flushed a few at a time."""
    directory = tempfile.mkdtemp()
    program = str(Path(sys.executable).with_name("dasfprof"))
    command = [program, "demo", "--directory", directory]
    subprocess.run(command, check=True, capture_output=True)
    return list(Path(directory).glob("*.msgpack"))


def samples_among(paths: Iterable[Path]) -> float:
    """Give the bytes of samples of stacks, and of these, as a part of all others of a run.

    Unlike the difference of two runs it does not depend on how long each took.
    """
    samples = whole = 0
    for path in paths:
        whole += path.stat().st_size
        file, seen = dasfprof.FileDatabase(path).trace_file(), set()
        for batch in file.batches():
            if file.frame not in seen and batch.name in _OF_STACKS:
                samples += file.frame[1] - file.frame[0]
            seen.add(file.frame)
    return samples / (whole - samples)


def with_stacks(client: Any, rounds: int) -> Result:
    """Compare bytes with stacks sampled as by default, and with none, in turn."""
    function, count = WORKLOADS[_BRIEF]
    found: dict[str, list[int]] = {"none": [], "by default": []}
    among = []
    for _ in range(rounds):
        for name, options in (("none", {"stack_frequency": 0}), ("by default", {})):
            with dasfprof.profile(client, directory=tempfile.mkdtemp(), **options) as run:
                function(client, count)
            found[name].append(sum(path.stat().st_size for path in run.files()))
        among.append(samples_among(run.files()))
    result = Result(f"Samples of stacks, {_BRIEF}", ["stacks", "kB", "more"])
    base = statistics.median(found["none"])
    for name, sizes in found.items():
        kilobytes = [size / 1e3 for size in sizes]
        more = statistics.median(sizes) / base - 1
        result.rows.append([name, f"{spread(kilobytes)[0]:.0f}", f"{more:.1%} ({MORE:.0%})"])
    within = f"{statistics.median(among):.1%} ({MORE:.0%})"
    result.rows.append(["by default, samples of the rest of their run", "", within])
    result.figures = {**found, "among": among}
    return result


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="besides the demo")
    parser.add_argument("--rounds", type=int, default=3, help="with samples of stacks and without")
    options = parser.parse_args(arguments)
    columns = ["workload", "task runs", "bytes a task run", "samples, bytes a second of a worker"]
    result = Result("File size", columns)
    recorded = {"dasfprof demo": demo()}
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": "inf"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for name in options.workload or WORKLOADS:
            recorded[name] = workload(client, *WORKLOADS[name])
        stacks = with_stacks(client, options.rounds)
    for name, files in recorded.items():
        runs, of_tasks, of_samples = sizes(files)
        result.rows.append([name, f"{runs:,}", f"{of_tasks:.0f}", f"{of_samples:.0f}"])
        result.figures[name] = {"task_runs": runs, "bytes": of_tasks, "samples": of_samples}
    print(result.show(), stacks.show(), sep="\n\n", flush=True)
    return [result, stacks]


if __name__ == "__main__":
    main()
