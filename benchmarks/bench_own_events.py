"""Cost of recording user events in a loop, and number of lost events: dasfprof and DASF.

Each round runs each profiler once in a new process, which records as fast as possible and closes
the file. CPU time is that of all threads, and both times include closing. DASF calls fsync after
every thousand events; in the variant "DASF without fsync", that call does nothing. Each profiler
then reads its events back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from measure import Result, interleave, spread

EVENTS = 200_000


def make_profiler(kind: str, checkout: str | None, path: Path) -> Any:
    """Return the profiler of a variant."""
    if kind == "dasfprof":
        from dasfprof import EventProfiler

        return EventProfiler(path)
    import dasf_checkout

    module = dasf_checkout.load(str(checkout), "profiler")
    if kind == "DASF without fsync":
        module.os.fsync = lambda _: None
    return module.EventProfiler(str(path))


def record(kind: str, checkout: str | None, count: int) -> dict[str, float]:
    """Record events; return the seconds per event, and the number of lost events."""
    with tempfile.TemporaryDirectory() as directory:
        profiler = make_profiler(kind, checkout, Path(directory, "own.msgpack"))
        wall, cpu = time.perf_counter(), time.process_time()
        for number in range(count):
            profiler.record_complete_event("epoch", 1.7e9 + number, 0.5, args={"number": number})
        # DASF's profiler has no method to close its file.
        (profiler if kind == "dasfprof" else profiler.database).close()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        begin = time.process_time()
        lost = count - sum(1 for _ in profiler.get_traces())
        read = time.process_time() - begin
    return {"wall": wall / count, "cpu": cpu / count, "read": read / count, "lost": lost}


def in_a_process(kind: str, checkout: str | None, count: int) -> dict[str, float]:
    """Record in a new process."""
    program = (
        f"import bench_own_events as b, json; print(json.dumps(b.record{kind, checkout, count}))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--dasf-core", help="checkout of DASF to compare with")
    options = parser.parse_args(arguments)
    kinds = ["dasfprof"] + ["DASF", "DASF without fsync"] * bool(options.dasf_core)
    variants = {
        kind: partial(in_a_process, kind, options.dasf_core, options.events) for kind in kinds
    }
    measured = interleave(variants, options.rounds, warm_up=0)
    columns = ["profiler", "CPU us per event: median (quartiles)", "wall us per event"]
    columns += ["CPU us per event read", "lost"]
    result = Result(f"User events, {options.events:,} in a loop", columns)
    for kind, rounds in measured.items():
        cells = [
            "{:.2f} ({:.2f} to {:.2f})".format(*spread([1e6 * figures[time] for figures in rounds]))
            for time in ("cpu", "wall", "read")
        ]
        lost = max(figures["lost"] for figures in rounds)
        result.rows.append([kind, *cells, f"{lost:,.0f}"])
    result.figures = measured
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
