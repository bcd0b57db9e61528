"""CPU time to read a part of a long run, and to list the runs of a year.

The long run has segments of `dasfprof.segment-size`. One hundredth of its time is read, and then
all of it. The year has four runs per day, with five files each that have a header and a block.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Result, spread
from synthetic import write_runs

from dasfprof.database import frames, values
from dasfprof.database.file import process_header

READ = """
import sys, time, json, resource
from dasfprof import TraceAnalyser, open_run
begin = time.process_time()
between = tuple(map(float, sys.argv[2:])) or None
rows = len(TraceAnalyser(open_run(sys.argv[1], between=between), progress=False).trace.tasks)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([time.process_time() - begin, peak, rows]))
"""

LIST = """
import sys, time, json
from pathlib import Path
from dasfprof.database import find_runs
begin = time.process_time()
runs = find_runs(Path(sys.argv[1]))
print(json.dumps([time.process_time() - begin, 0, len(runs)]))
"""

FILES = ("TracePlugin-0", "TracePlugin-1", "ResourceMonitor-0", "SchedulerPlugin", "StepRecorder")


def write_year(directory: Path, runs: int) -> None:
    """Write the files of runs that start every six hours."""
    facts = {**process_header(), "kind": "header", "clock": [0.0, 0.0], "dropped": 0, "errors": 0}
    block = frames.build_frame(values.pack({"kind": "events", "rows": 0, "padding": bytes(20_000)}))
    for number in range(runs):
        created = 1.76e9 + number * 21_600.0
        run = {"run": f"job-{created:.0f}", "run_uuid": f"{number:032x}", "run_created": created}
        for index, file in enumerate(FILES):
            header = {**facts, **run, "plugin": file.split("-")[0], "created": created + index}
            path = directory / f"job-{created:.0f}-{file}.msgpack"
            path.write_bytes(frames.build_frame(values.pack(header)) + block)


def measured(rounds: int, code: str, *arguments: str) -> list[list[float]]:
    """Run the code in `rounds` new processes, and return the JSON that each prints."""
    command = [sys.executable, "-c", code, *arguments]
    return [
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        for _ in range(rounds)
    ]


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--segment-size", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=1460)
    options = parser.parse_args(arguments)
    result = Result("Long runs", ["read", "CPU s", "peak memory, GB", "task runs, or runs"])
    with tempfile.TemporaryDirectory() as directory:
        write_runs(Path(directory), options.events, segment_size=options.segment_size)
        # Each task run of a worker starts a millisecond after the previous one.
        middle, span = 1_790_000_000.0 + options.events * 0.0005, options.events * 0.00001
        figures = {
            "all of a long run": measured(options.rounds, READ, directory),
            "a hundredth of it": measured(
                options.rounds, READ, directory, str(middle), str(middle + span)
            ),
        }
    with tempfile.TemporaryDirectory() as directory:
        write_year(Path(directory), options.runs)
        figures["list a year"] = measured(options.rounds, LIST, directory)
    for name, rounds in figures.items():
        cpu, peak = (spread([values[i] for values in rounds])[0] for i in range(2))
        memory = f"{peak / 1e9:.2f}" if peak else ""
        result.rows.append([name, f"{cpu:.2f}", memory, f"{rounds[0][2]:,}"])
    result.figures = figures
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
