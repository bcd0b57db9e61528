"""CPU time to load a trace and make its three tables, compared with DASF on the same events.

Each measurement runs in a new process, so that neither side benefits from caches of the other.
Imports are not counted. CPU time is compared because wall time depends on other programs. The
events are written with the public API in both formats.
"""

from __future__ import annotations

import argparse
import atexit
import subprocess
import sys
import tempfile
from pathlib import Path

import dasf_checkout
from measure import Result, interleave, spread
from synthetic import dasf_events

from dasfprof import FileDatabase

OURS = """
import sys, time
from dasfprof import TraceAnalyser
TraceAnalyser.per_function_bottleneck  # imports all analyses
begin = time.process_time()
analyser = TraceAnalyser(sys.argv[1], progress=False)
tables = [analyser.per_function_bottleneck(), analyser.per_task_bottleneck(),
          analyser.per_worker_task_balance()]
assert all(len(table) for table in tables)
print(time.process_time() - begin)
"""

THEIRS = """
import sys, time, os
sys.path.insert(0, os.path.dirname(sys.argv[0]))
import dasf_checkout
analysis = dasf_checkout.load(sys.argv[2], "analysis")
profiler = dasf_checkout.load(sys.argv[2], "profiler")
utils = dasf_checkout.load(sys.argv[2], "utils")
begin = time.process_time()
database = utils.MultiEventDatabase([profiler.EventProfiler(sys.argv[1])])
analyser = analysis.TraceAnalyser(database)
tables = [analyser.per_function_bottleneck(), analyser.per_task_bottleneck(),
          analyser.per_worker_task_balance()]
print(time.process_time() - begin)
"""


def timed(code: str, *arguments: str) -> float:
    """Run the code in a new process and return the CPU seconds that it prints."""
    folder = str(Path(__file__).parent)
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {folder!r})\n{code}",
        *arguments,
    ]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(run.stdout.splitlines()[-1])


def write(path: Path, count: int, dasf: Path | None) -> None:
    """Write the same events to a dasfprof file and to a DASF file next to it."""
    with FileDatabase(path, max_pending=1 << 30) as database:
        for event in dasf_events(count):
            database.record(event)
    if dasf is not None:
        profiler = dasf_checkout.load(dasf, "profiler")
        theirs = profiler.FileDatabase(str(path.with_suffix(".dasf")), flush=False)
        kinds = {"Compute": profiler.CompleteEvent}
        for event in dasf_events(count):
            fields = {name: getattr(event, name) for name in event.FIELDS}
            kind = kinds.get(event.name, profiler.InstantEvent)
            theirs.record(kind(name=event.name, **fields, args=event.args))
        theirs.close()
        atexit.unregister(theirs.close)


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, action="append")
    parser.add_argument("--dasf-core", type=Path, help="checkout of DASF to compare with")
    options = parser.parse_args(arguments)
    result = Result("Load and three tables", ["events", "dasfprof, CPU s", "DASF, CPU s", "ratio"])
    for count in options.events or (120_000, 480_000):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "trace.msgpack")
            write(path, count, options.dasf_core)
            variants = {"ours": lambda path=path: timed(OURS, str(path))}
            if options.dasf_core:
                theirs = str(path.with_suffix(".dasf"))
                variants["dasf"] = lambda t=theirs: timed(THEIRS, t, str(options.dasf_core))
            # DASF's time grows with the square of the number of samples: one round is enough.
            rounds = 1 if options.dasf_core and count > 200_000 else options.rounds
            measured = interleave(variants, rounds, warm_up=0)
            if rounds < options.rounds:
                measured["ours"] += [variants["ours"]() for _ in range(options.rounds - rounds)]
        ours = spread(measured["ours"])[0]
        row = [f"{count:,}", "{:.3f} ({:.3f} to {:.3f})".format(*spread(measured["ours"]))]
        if "dasf" in measured:
            theirs = spread(measured["dasf"])[0]
            row += [f"{theirs:.2f}", f"{theirs / ours:.0f}"]
        else:
            row += ["", ""]
        result.rows.append(row)
        result.figures[str(count)] = measured
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
