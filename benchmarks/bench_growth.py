"""CPU time and memory of loading a trace and making its three tables, as it grows.

Events are task runs as the worker plugin records them, in the files of four workers. The time per
event at ten million is compared with that at one million. First come 120,000 events whose keys end
in hashes of their own, as those of futures and `dask.delayed` do: task runs as the workers and the
scheduler record them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_report import write_trace
from measure import Result, spread
from synthetic import write_runs

#: Events with hashes of their own.
HASHED = 120_000

LOAD = """
import dask, sys, time, json, resource
from dasfprof import TraceAnalyser
dask.config.set({"dasfprof.analysis-memory": "1TB"})  # all of it in memory
begin = time.process_time()
analyser = TraceAnalyser(sys.argv[1], progress=False)
analyser.trace
loaded = time.process_time()
analyser.per_function_bottleneck(), analyser.per_task_bottleneck()
analyser.per_worker_task_balance()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([time.process_time() - begin, loaded - begin, peak]))
"""


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, action="append")
    options = parser.parse_args(arguments)
    columns = [
        "events",
        "load + tables, CPU s",
        "load, CPU s",
        "CPU us an event",
        "peak memory, GB",
        "file, MB",
    ]
    result = Result("Growth", columns)
    cases = [(count, False) for count in options.events or (100_000, 1_000_000, 10_000_000)]
    for count, hashed in [(HASHED, True), *cases]:
        with tempfile.TemporaryDirectory() as directory:
            if hashed:
                write_trace(Path(directory), count // 2, hashed=True)
            else:
                write_runs(Path(directory), count)
            size = sum(path.stat().st_size for path in Path(directory).iterdir())
            command = [sys.executable, "-c", LOAD, directory]
            runs = [
                json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
                for _ in range(options.rounds)
            ]
        total, load, peak = (spread([run[i] for run in runs])[0] for i in range(3))
        cells = (f"{total:.2f}", f"{load:.2f}", f"{total / count * 1e6:.2f}", f"{peak / 1e9:.2f}")
        name = f"{count:,}{', hashed' * hashed}"
        result.rows.append([name, *cells, f"{size / 1e6:.0f}"])
        result.figures[name.replace(",", "")] = {"seconds": runs, "bytes": size}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
