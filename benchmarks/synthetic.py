"""Synthetic traces of any size, made through the public API or through the plugins' schemas."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sized
from pathlib import Path

from measure import Result, spread

from dasfprof import CompleteEvent, FileDatabase, InstantEvent, TraceAnalyser
from dasfprof.database.writer import Source
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import COMPUTE

HOST = "node"
WORKERS = 4
FUNCTIONS = [f"function{i}" for i in range(20)]
TOKENS = [f"{i:032x}" for i in range(200)]


def dasf_events(count: int) -> Iterator[CompleteEvent | InstantEvent]:
    """Return events with DASF's names and args: "Compute", "Managed Memory", and a few samples."""
    generator = random.Random(1)
    now = time.time()
    keys: list[str] = []
    for number in range(count // 2):
        worker = f"worker-{HOST}-{number % WORKERS}"
        key = str((f"{FUNCTIONS[number % 20]}-{TOKENS[number % 200]}", number // 200, 0))
        start = now + number * 0.001
        yield CompleteEvent(
            "Compute",
            start,
            generator.uniform(0.0005, 0.004),
            process_id=HOST,
            thread_id=worker,
            args={
                "key": key,
                "name": FUNCTIONS[number % 20],
                "state": "memory",
                "size": 80_000,
                "shape": [100, 100],
                "dtype": "float64",
                "type": "<class 'numpy.ndarray'>",
                "dependencies": keys[-2:],
                "dependents": [],
            },
        )
        yield InstantEvent(
            "Managed Memory",
            start,
            process_id=HOST,
            thread_id=worker,
            args={"key": key, "state": "memory", "size": 1_000_000, "tasks": number % 50},
        )
        keys = [*keys[-1:], key]
        if number % 100 == 0:
            yield InstantEvent(
                "Resource Usage",
                start,
                process_id=HOST,
                thread_id=None,
                args={
                    "cpu": 50.0,
                    "memory": 1 << 30,
                    "time": start,
                    "num_fds": 50,
                    "gpu_utilization": number % 100,
                    "gpu_memory_used": 1 << 30,
                },
            )


def row(schema: Schema, **values: object) -> tuple[object, ...]:
    """Return a row of a schema; missing values are the smallest ones that their codecs accept."""
    nothing = {"int": 0, "float": 0.0, "keys": [], "key": "", "value": {}}
    return tuple(
        values.get(name, nothing.get(codec)) for name, codec in schema.fields + schema.args
    )


def compute_rows(count: int, first: int = 0) -> list[tuple[object, ...]]:
    """Return task runs as `WorkerTaskPlugin` records them."""
    now = 1_790_000_000.0 + first * 0.001
    rows = []
    for number in range(first, first + count):
        start = now + (number - first) * 0.001
        token = TOKENS[number % 200]
        function = FUNCTIONS[number % 20]
        key = (f"{function}-{token}", number // 200, 0)
        dependencies = [(f"{function}-{token}", number // 200 - 1, 0)] if number >= 200 else []
        rows.append(
            row(
                COMPUTE,
                timestamp=start,
                duration=0.0009,
                key=key,
                name=function,
                run_id=number,
                state="memory",
                size=80_000,
                type="numpy.ndarray",
                dtype="float64",
                shape=(100, 100),
                dependencies=dependencies,
                input_size=80_000 * len(dependencies),
                thread=140_000_000_000 + number % 2,
                cpu=0.0008,
                received=start - 0.002,
                ready=start - 0.001,
                executing=start - 0.0005,
                done=start + 0.001,
                deserialize=0.0,
                disk_read=0.0,
            )
        )
    return rows


def write_runs(
    directory: Path, count: int, workers: int = WORKERS, *, segment_size: int = 0
) -> int:
    """Write task runs as files of several workers, and return their size in bytes."""
    for worker in range(workers):
        label = f"worker-{HOST}-{worker}"
        facts = {"id": label, "name": worker, "address": f"tcp://{worker}", "label": label}
        database = FileDatabase(
            directory / f"synthetic-TracePlugin-{HOST}-{worker}.msgpack",
            flush_interval=3600,
            max_pending=1 << 30,
            segment_size=segment_size,
            header={
                "plugin": "TracePlugin",
                "run": "synthetic",
                "worker": {**facts, "nthreads": 2},
            },
        )
        source = Source.from_schema(COMPUTE, {"process_id": HOST, "thread_id": label})
        database.writer.add_source(source)
        share = count // workers
        for first in range(0, share, 100_000):
            source.rows.extend(compute_rows(min(100_000, share - first), worker * share + first))
            database.commit()
        database.close()
    return sum(path.stat().st_size for path in directory.glob("*.msgpack"))


def time_each(
    analyses: dict[str, Callable[[TraceAnalyser], Sized]],
    directory: Path,
    rounds: int,
    result: Result,
) -> None:
    """Read the run in a directory, run each analysis several times, and add the times to a result.

    Parameters
    ----------
    analyses
        Functions of an analyser, which return tables, by name.
    """
    begin = time.perf_counter(), time.process_time()
    analyser = TraceAnalyser(directory, progress=False)
    read = [time.perf_counter() - begin[0], time.process_time() - begin[1]]
    shown = [f"{seconds:.2f}" for seconds in read]
    result.rows.append(["(reading the trace)", *shown, f"{len(analyser.trace.tasks):,}"])
    result.figures["read"] = read
    for name, analyse in analyses.items():
        wall, cpu = [], []
        for _ in range(rounds):
            gc.collect()
            begin = time.perf_counter(), time.process_time()
            table = analyse(analyser)
            wall.append(time.perf_counter() - begin[0])
            cpu.append(time.process_time() - begin[1])
        shown = ["{:.2f} ({:.2f} to {:.2f})".format(*spread(seconds)) for seconds in (wall, cpu)]
        result.rows.append([name, *shown, f"{len(table):,}"])
        result.figures[name] = {"wall": wall, "cpu": cpu}
