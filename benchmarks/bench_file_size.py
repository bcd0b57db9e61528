"""Size of trace files: bytes per task run, of workers and scheduler, and bytes of resource samples.

The benchmark also measures how many bytes the default stack samples add for tasks of 10 ms.
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

#: Limit (fraction) for the bytes that stack samples add by default.
STACK_LIMIT = 0.10
_BRIEF = "10 ms tasks"
_STACK_EVENTS = ("Task Sample", "Loop Sample", "Client Sample", "Stack")


def sizes(paths: Iterable[Path]) -> tuple[int, float, float]:
    """Return the number of task runs, bytes per task run, and sample bytes per worker second."""
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


def demo(size: str) -> list[Path]:
    """Record `dasfprof demo`, whose tasks take so long that only a few are written per flush."""
    directory = tempfile.mkdtemp()
    program = str(Path(sys.executable).with_name("dasfprof"))
    command = [program, "demo", "--size", size, "--directory", directory]
    subprocess.run(command, check=True, capture_output=True)
    return list(Path(directory).glob("*.msgpack"))


def samples_among(paths: Iterable[Path]) -> float:
    """Return the bytes of stacks and stack samples as a fraction of the other bytes of the run.

    Unlike the difference between two runs, this does not depend on their durations.
    """
    samples = total = 0
    for path in paths:
        total += path.stat().st_size
        file, seen = dasfprof.FileDatabase(path).trace_file(), set()
        for batch in file.batches():
            if file.frame not in seen and batch.name in _STACK_EVENTS:
                samples += file.frame[1] - file.frame[0]
            seen.add(file.frame)
    return samples / (total - samples)


def with_stacks(client: Any, rounds: int) -> Result:
    """Compare the file sizes of runs with default stack sampling and runs without, in turn."""
    function, count = WORKLOADS[_BRIEF]
    totals: dict[str, list[int]] = {"none": [], "by default": []}
    fractions = []
    for _ in range(rounds):
        for name, options in (("none", {"stack_frequency": 0}), ("by default", {})):
            with dasfprof.profile(client, directory=tempfile.mkdtemp(), **options) as run:
                function(client, count)
            totals[name].append(sum(path.stat().st_size for path in run.files()))
        fractions.append(samples_among(run.files()))
    result = Result(f"Stack samples, {_BRIEF}", ["stacks", "kB", "increase (limit)"])
    base = statistics.median(totals["none"])
    for name, sizes in totals.items():
        kilobytes = [size / 1e3 for size in sizes]
        more = statistics.median(sizes) / base - 1
        result.rows.append([name, f"{spread(kilobytes)[0]:.0f}", f"{more:.1%} ({STACK_LIMIT:.0%})"])
    within = f"{statistics.median(fractions):.1%} ({STACK_LIMIT:.0%})"
    result.rows.append(["by default, relative to other bytes of the run", "", within])
    result.figures = {**totals, "fractions": fractions}
    return result


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workload", choices=WORKLOADS, action="append", help="workload in addition to the demo"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds with and without stack samples"
    )
    parser.add_argument("--size", default="medium", help="size of the demo")
    options = parser.parse_args(arguments)
    columns = ["workload", "task runs", "bytes per task run", "bytes of samples per worker second"]
    result = Result("File size", columns)
    recorded = {"dasfprof demo": demo(options.size)}
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
