"""CPU time and memory to load a trace and make its three tables, for traces of several sizes.

Events are task runs as the worker plugin records them, in the files of four workers. The time per
event should be the same for ten million events as for one million. The first case has 120,000
events, of workers and scheduler, whose keys end in different hashes, like those of futures and
`dask.delayed`. With ``--parquet``, pyarrow also reads the exported tasks.
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

#: Number of events of the case in which each key has a different hash.
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

#: Reads four columns of the exported tasks with pyarrow, and groups durations as the tables do.
PARQUET = """
import sys, time, json, resource
import pyarrow.parquet as pq
begin = time.process_time()
columns = ["function", "key_id", "worker", "duration"]
tasks = pq.read_table(sys.argv[1], columns=columns).to_pandas()
loaded = time.process_time()
for column in columns[:3]:
    tasks.groupby(column, observed=True)["duration"].agg(["mean", "sum", "count"])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([time.process_time() - begin, loaded - begin, peak]))
"""

EXPORT = """
import dask, sys
from dasfprof import TraceAnalyser
dask.config.set({"dasfprof.analysis-memory": "1TB"})
TraceAnalyser(sys.argv[1], progress=False).export(sys.argv[2], to="parquet")
"""


def measured(code: str, *arguments: str) -> list[float]:
    """Run the code in a new process; return its CPU seconds, those to load, and peak bytes."""
    command = [sys.executable, "-c", code, *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, action="append")
    parser.add_argument(
        "--parquet", action="store_true", help="also export tasks, and read them with pyarrow"
    )
    options = parser.parse_args(arguments)
    columns = ["events", "reader", "load + tables, CPU s", "load, CPU s"]
    columns += ["CPU us per event", "peak memory, GB", "file, MB"]
    result = Result("Growth", columns)
    cases = [(count, False) for count in options.events or (100_000, 1_000_000, 10_000_000)]
    for count, hashed in [(HASHED, True), *cases]:
        with tempfile.TemporaryDirectory() as directory:
            traces, exported = Path(directory, "traces"), Path(directory, "parquet")
            traces.mkdir()
            if hashed:
                write_trace(traces, count // 2, hashed=True)
            else:
                write_runs(traces, count)
            readers = {"dasfprof": (LOAD, traces)}
            if options.parquet:
                command = [sys.executable, "-c", EXPORT, str(traces), str(exported)]
                subprocess.run(command, check=True)
                readers["pyarrow"] = PARQUET, exported / "tasks.parquet"
            for reader, (code, path) in readers.items():
                runs = [measured(code, str(path)) for _ in range(options.rounds)]
                files = path.iterdir() if path.is_dir() else [path]
                size = sum(file.stat().st_size for file in files)
                total, load, peak = (spread(values)[0] for values in zip(*runs, strict=True))
                name = f"{count:,}{', hashed' * hashed}"
                cells = (f"{total:.2f}", f"{load:.2f}", f"{total / count * 1e6:.2f}")
                result.rows.append([name, reader, *cells, f"{peak / 1e9:.2f}", f"{size / 1e6:.0f}"])
                name = f"{name.replace(',', '')} {reader}"
                result.figures[name] = {"seconds": runs, "bytes": size}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
