"""CPU time, additional memory, and written bytes of each export format.

The task runs are those of `bench_report`. Each format has a separate process. The additional memory
is the peak of resident memory during the export minus the resident memory after reading the trace.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from bench_report import write_trace
from measure import Result, spread

from dasfprof import TraceAnalyser, export

FORMATS = {"perfetto": "run.json.gz", "parquet": "parquet", "csv": "csv"}
#: Maximum number of tasks to export as CSV: spreadsheets cannot open more rows, and the tables
#: include predictions, which would take minutes.
CSV_LIMIT = 100_000
#: Seconds between two samples of the memory.
SAMPLE_INTERVAL = 0.005


def measure(source: str, to: Any, target: Path) -> dict[str, float]:
    """Export a run in this process, and return its CPU seconds, seconds, and bytes."""
    analyser = TraceAnalyser(source, progress=False)
    export(TraceAnalyser(str(Path(source, "small")), progress=False), target, to=to)  # imports
    process, peak, done = psutil.Process(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(SAMPLE_INTERVAL):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    before, cpu, begin = process.memory_info().rss, time.process_time(), time.perf_counter()
    watcher.start()
    export(analyser, target, to=to)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - begin
    done.set()
    watcher.join()
    files = target.iterdir() if target.is_dir() else [target]
    size = sum(file.stat().st_size for file in files)
    return {"cpu": cpu, "wall": wall, "memory": peak - before, "trace": before, "size": size}


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, action="append")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        source, to, target = options.measure
        print(json.dumps(measure(source, to, Path(target))))
        return []
    columns = ["tasks", "format", "CPU, s", "additional memory, MB", "written, MB"]
    result = Result("Export", columns)
    for count in options.tasks or (10_000, 100_000, 1_000_000):
        with tempfile.TemporaryDirectory() as directory:
            run, small = Path(directory, "run"), Path(directory, "run", "small")
            small.mkdir(parents=True)
            write_trace(small, 1000)
            write_trace(run, count)
            for to, name in FORMATS.items():
                if to == "csv" and count > CSV_LIMIT:
                    continue
                command = [sys.executable, __file__, "--measure", str(run), to]
                rounds = [
                    json.loads(subprocess.check_output([*command, str(Path(directory, name))]))
                    for _ in range(options.rounds)
                ]
                result.figures[f"{count} {to}"] = rounds
                cells = [
                    f"{spread([measured[figure] for measured in rounds])[0] / unit:.{digits}f}"
                    for figure, unit, digits in (
                        ("cpu", 1, 2),
                        ("memory", 1e6, 0),
                        ("size", 1e6, 2),
                    )
                ]
                result.rows.append([f"{count:,}", to, *cells])
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
