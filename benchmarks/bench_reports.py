"""Time of each analysis for a run of a million task runs, not counting reading the trace.

The trace is written with the plugins' schemas: 16 workers with 4 threads on 4 hosts, their samples,
half a million transfers, failed attempts, different durations, and a scheduler's file.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import Result
from synthetic import FUNCTIONS, TOKENS, time_each

from dasfprof import FileDatabase, TraceAnalyser
from dasfprof.database.writer import Source
from dasfprof.recording.probes.host import DISK_USAGE
from dasfprof.schema.events import Schema
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, RESULT_RELEASED, TASK_RUN, TRANSFER

BEGIN = 1_790_000_000.0
WORKERS, HOSTS, THREADS = 16, 4, 4
#: Task runs written between two commits.
BATCH = 50_000
COLUMNS = ["analysis", "seconds", "CPU seconds", "rows"]

#: Seconds since the start of the run for `memory_at`, different in each call.
MOMENTS = itertools.count(1.0, 0.7)

ANALYSES: dict[str, Callable[[TraceAnalyser], Any]] = {
    "processed_tasks": lambda analyser: analyser.processed_tasks(),
    "processed_tasks(by='function')": lambda analyser: analyser.processed_tasks(by="function"),
    "process_summary": lambda analyser: analyser.process_summary(),
    "node_summary": lambda analyser: analyser.node_summary(),
    "task_counts": lambda analyser: analyser.task_counts(),
    "degradation": lambda analyser: analyser.degradation(),
    "node_resource_usage": lambda analyser: analyser.node_resource_usage(),
    "processes_resource_usage": lambda analyser: analyser.processes_resource_usage(),
    "node_disk_usage": lambda analyser: analyser.node_disk_usage(),
    "imbalance": lambda analyser: analyser.imbalance(),
    "stragglers": lambda analyser: analyser.stragglers(),
    "transfers": lambda analyser: analyser.transfers(),
    "transfers('function')": lambda analyser: analyser.transfers("function"),
    "cluster_sizing": lambda analyser: analyser.cluster_sizing(),
    "chunk_sizing": lambda analyser: analyser.chunk_sizing(),
    "memory_at (at any time)": lambda analyser: analyser.memory_at(next(MOMENTS)),
}


def filled(schema: Schema, **values: Any) -> tuple[Any, ...]:
    nothing: dict[str, Any] = {"int": 0, "float": 0.0, "keys": [], "key": "", "value": {}}
    columns = schema.fields + schema.args
    return tuple(values.get(name, nothing.get(codec)) for name, codec in columns)


class Run:
    """Synthetic run in which tasks are assigned to threads in turn."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.random = np.random.default_rng(1)
        turns = -(-count // (WORKERS * THREADS))
        shape = turns, WORKERS * THREADS
        seconds = 0.02 * self.random.lognormal(0, 0.4, shape)
        # Every function has stragglers, so that the search for causes looks at all functions.
        seconds.flat[self.random.integers(0, count, 200)] += 5.0
        done = np.cumsum(seconds + 0.001, axis=0)
        self.done = BEGIN + done.ravel()[:count]
        self.seconds = seconds.ravel()[:count]
        self.erred = self.random.random(count) < 0.02

    def key(self, number: int) -> tuple[Any, ...]:
        return (f"{FUNCTIONS[number % 20]}-{TOKENS[number % 200]}", number // 200, 0)

    def inputs(self, number: int) -> list[Any]:
        return [self.key(number - 200)] if number >= 200 else []

    def of_worker(self, worker: int) -> Iterator[int]:
        for first in range(worker * THREADS, self.count, WORKERS * THREADS):
            yield from range(first, min(first + THREADS, self.count))

    def computed(self, worker: int) -> Iterator[tuple[Any, ...]]:
        for n in self.of_worker(worker):
            done, seconds = float(self.done[n]), float(self.seconds[n])
            begun = done - seconds
            yield filled(
                COMPUTE,
                timestamp=begun + 0.0002,
                duration=seconds - 0.0004,
                key=self.key(n),
                name=FUNCTIONS[n % 20],
                run_id=n,
                state="erred" if self.erred[n] else "memory",
                exception=f"ValueError('no {n}')" if self.erred[n] else None,
                size=80_000,
                dependencies=self.inputs(n),
                input_size=80_000,
                thread=140_000_000_000 + n % THREADS,
                cpu=0.7 * seconds,
                received=begun - 0.002,
                ready=begun - 0.001,
                executing=begun,
                done=done,
                deserialize=0.0,
                disk_read=0.0,
            )

    def moved(self, worker: int) -> Iterator[tuple[Any, ...]]:
        for n in self.of_worker(worker):
            if n % 2 and n >= 200:
                yield filled(
                    TRANSFER,
                    timestamp=float(self.done[n]) - 0.05,
                    duration=0.01,
                    source=f"tcp://10.0.0.{(worker + 1 + n) % WORKERS}:1",
                    keys=self.inputs(n),
                    size=80_000,
                    state="success",
                    network=0.008,
                )

    def scheduled(self) -> Iterator[tuple[Any, ...]]:
        for n in range(self.count):
            done, seconds = float(self.done[n]), float(self.seconds[n])
            yield filled(
                TASK_RUN,
                timestamp=done - seconds - 0.003,
                duration=seconds + 0.004,
                key=self.key(n),
                run_id=n,
                worker=f"tcp://10.0.0.{n % (WORKERS * THREADS) // THREADS}:1",
                state="erred" if self.erred[n] else "memory",
                waiting=BEGIN,
                start=done - seconds,
                stop=done,
            )

    def released(self) -> Iterator[tuple[Any, ...]]:
        """Return releases of results: each result is needed again 200 tasks later."""
        for n in np.flatnonzero(~self.erred).tolist():
            last = self.done[min(n + 200, self.count - 1)]
            yield filled(RESULT_RELEASED, timestamp=float(max(last, self.done[n])), run_id=n)

    def sampled(self, worker: int) -> Iterator[tuple[Any, ...]]:
        for tick in np.arange(BEGIN, float(self.done.max()), 0.1).tolist():
            host = {"host_cpu": 50.0, "host_memory_total": 1e11} if worker < HOSTS else {}
            yield filled(RESOURCE_USAGE, timestamp=tick, cpu=90.0, memory=10**9, **host)

    def disks(self, worker: int) -> Iterator[tuple[Any, ...]]:
        if worker < HOSTS:
            for tick in np.arange(BEGIN, float(self.done.max()), 5.0).tolist():
                for disk in range(4):
                    yield filled(DISK_USAGE, timestamp=tick, device=f"sd{disk}", total=1e12)


def write_file(
    path: Path, header: dict[str, Any], label: str, facts: dict[Schema, Iterable[Any]]
) -> None:
    with FileDatabase(path, flush_interval=3600, max_pending=1 << 30, header=header) as database:
        for schema, rows in facts.items():
            source = Source.from_schema(schema, {"process_id": header["host"], "thread_id": label})
            database.writer.add_source(source)
            for row in rows:
                source.rows.append(row)
                if len(source.rows) >= BATCH:
                    database.commit()
            database.commit()


def write_run(directory: Path, count: int) -> None:
    run = Run(count)
    for worker in range(WORKERS):
        host = f"node{worker % HOSTS}"
        label = f"worker-{host}-{worker}"
        facts = {"id": label, "name": worker, "address": f"tcp://10.0.0.{worker}:1", "label": label}
        header = {"run": "reports", "host": host, "boot_id": host}
        header |= {"worker": {**facts, "nthreads": THREADS}}
        for plugin, rows in (
            ("TracePlugin", {COMPUTE: run.computed(worker), TRANSFER: run.moved(worker)}),
            (
                "ResourceMonitor",
                {RESOURCE_USAGE: run.sampled(worker), DISK_USAGE: run.disks(worker)},
            ),
        ):
            path = directory / f"reports-{plugin}-{host}-{worker}.msgpack"
            write_file(path, {**header, "plugin": plugin}, label, rows)
    header = {"run": "reports", "host": "node0", "boot_id": "node0", "plugin": "SchedulerPlugin"}
    header["releases"] = True
    path = directory / "reports-SchedulerPlugin-node0-scheduler.msgpack"
    facts = {TASK_RUN: run.scheduled(), RESULT_RELEASED: run.released()}
    write_file(path, header, "scheduler", facts)


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    result = Result(f"Reports of {options.tasks:,} task runs", COLUMNS)
    with tempfile.TemporaryDirectory() as directory:
        write_run(Path(directory), options.tasks)
        time_each(ANALYSES, Path(directory), options.rounds, result)
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
