"""Longest stall of an event loop while the writer's thread flushes a batch.

An asyncio loop in this process ticks as fast as possible and appends batches of 5000 events, as
hooks do. The stall of a batch is the longest time between two ticks while the writer works. The
same loop without a writer shows the stalls that the machine causes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from pathlib import Path

from measure import Result, interleave, percentile, spread
from synthetic import compute_rows

from dasfprof import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.schema.tasks import COMPUTE

ROWS = 5000
WATCH_SECONDS = 0.15


async def _longest_gap() -> float:
    """Tick for `WATCH_SECONDS`, and return the longest time between two ticks in seconds."""
    longest, last = 0.0, time.perf_counter()
    end = last + WATCH_SECONDS
    while last < end:
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(arguments)
    rows = compute_rows(ROWS)
    with tempfile.TemporaryDirectory() as directory:
        database = FileDatabase(Path(directory, "loop.msgpack"), flush_interval=3600)
        source = Source.from_schema(COMPUTE, {"process_id": "h", "thread_id": "w"})
        database.writer.add_source(source)

        def flushing() -> float:
            source.rows.extend(rows)
            database.writer.threshold_reached(source)
            return asyncio.run(_longest_gap())

        def quiet() -> float:
            return asyncio.run(_longest_gap())

        gc.collect()
        gc.freeze()  # garbage collections would also stall the loop
        measured = interleave({"no writer": quiet, "flush of 5000": flushing}, options.rounds)
        database.close()
    result = Result(
        "Event loop", ["variant", "longest stall, ms: median (quartiles)", "90th percentile"]
    )
    for name, values in measured.items():
        stalls = [value * 1000 for value in values]
        cell = "{:.2f} ({:.2f} to {:.2f})".format(*spread(stalls))
        result.rows.append([name, cell, f"{percentile(stalls, 0.9):.2f}"])
    result.figures = {"seconds": measured}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
