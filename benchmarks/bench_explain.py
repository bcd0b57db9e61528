"""Time of the analyses that explain a run of a million task runs, not counting reading the trace.

The trace is written with the plugins' schemas. It has workers with four threads, waves of tasks
that fill the threads and take two results of the previous wave, and a scheduler's file that names
the event that caused each assignment.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import Result
from synthetic import HOST, TOKENS, time_each

from dasfprof import FileDatabase, TraceAnalyser
from dasfprof.analysis.simulation.inputs import replay_inputs
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.database.writer import Source
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import COMPUTE, GRAPH, TASK_RUN, WORKER_ADDED

BEGIN = 1_790_000_000.0
THREADS = 4
COLUMNS = ["analysis", "seconds", "CPU seconds", "rows"]
#: Tasks per wave. Each task takes the results of two tasks of the previous wave.
WAVE = 1000
FUNCTIONS = [f"function{i}" for i in range(20)]

ANALYSES: dict[str, Callable[[TraceAnalyser], Any]] = {
    "per_task_status": lambda analyser: analyser.per_task_status(),
    "per_function_status": lambda analyser: analyser.per_function_status(),
    "time_accounting": lambda analyser: analyser.time_accounting(),
    "time_accounting(by='function')": lambda analyser: analyser.time_accounting("function"),
    "critical_path": lambda analyser: analyser.critical_path(),
    "critical_path_summary": lambda analyser: analyser.critical_path_summary(),
    "diagnose": lambda analyser: analyser.diagnose(),
    "(inputs of a replay)": lambda analyser: replay_inputs(
        analyser.run, analyser.run.slots, analyser.run.lives
    ),
    "(one replay)": lambda analyser: replay_of(analyser.run).outcome().known,
}


class Schedule:
    """Times at which each task reached each stage; tasks are assigned to threads in turn."""

    def __init__(self, count: int, workers: int) -> None:
        generator = np.random.default_rng(1)
        lanes = workers * THREADS
        turns = -(-count // lanes)
        durations = generator.uniform(0.002, 0.006, (turns, lanes))
        gaps = generator.exponential(0.0004, (turns, lanes))
        ends = np.cumsum(durations + gaps, axis=0)
        self.done = ends.ravel()[:count]
        self.stop = self.done - 0.0001
        self.executing = (ends - durations).ravel()[:count]
        self.start = self.executing + 0.0001
        waits = generator.exponential(0.003, count)
        self.ready = self.executing - np.minimum(waits, self.executing / 2)
        self.received = self.ready - np.minimum(0.0004, self.ready / 2)
        self.sent = self.received - np.minimum(0.0005, self.received / 2)
        self.arrival = self.sent * 0.9
        self.known = self.done + 0.0006
        self.worker = np.arange(count) % lanes // THREADS
        # The last task that finished before an assignment caused it.
        order = np.argsort(self.known)
        ranks = np.searchsorted(self.known[order], self.sent, side="right") - 1
        self.cause = np.where(ranks >= 0, order[np.maximum(ranks, 0)], -1)


def key_of(number: int) -> tuple[Any, ...]:
    wave, index = divmod(number, WAVE)
    return (f"{FUNCTIONS[wave % 20]}-{TOKENS[wave % 200]}", wave // 200, index)


def inputs_of(number: int) -> list[Any]:
    wave, index = divmod(number, WAVE)
    before = (wave - 1) * WAVE
    return [key_of(before + index), key_of(before + (index + 1) % WAVE)] if wave else []


def write_file(path: Path, header: dict[str, Any], label: str, facts: dict[Schema, Any]) -> None:
    """Write the file of a plugin with rows by schema."""
    with FileDatabase(path, flush_interval=3600, max_pending=1 << 30, header=header) as database:
        for schema, rows in facts.items():
            source = Source.from_schema(schema, {"process_id": HOST, "thread_id": label})
            database.writer.add_source(source)
            for first in range(0, len(rows), 50_000):
                source.rows.extend(rows[first : first + 50_000])
                database.commit()


def filled(schema: Schema, **values: Any) -> tuple[Any, ...]:
    nothing: dict[str, Any] = {"int": 0, "float": 0.0, "keys": [], "key": "", "value": {}}
    columns = schema.fields + schema.args
    return tuple(values.get(name, nothing.get(codec)) for name, codec in columns)


def compute_row(at: Schedule, n: int) -> tuple[Any, ...]:
    return filled(
        COMPUTE,
        timestamp=BEGIN + at.start[n],
        duration=at.stop[n] - at.start[n],
        key=key_of(n),
        name=FUNCTIONS[n // WAVE % 20],
        run_id=n,
        state="memory",
        size=80_000,
        dependencies=inputs_of(n),
        cpu=0.7 * (at.stop[n] - at.start[n]),
        **{x: BEGIN + getattr(at, x)[n] for x in ("received", "ready", "executing", "done")},
    )


def task_run_row(at: Schedule, n: int) -> tuple[Any, ...]:
    cause = at.cause[n]
    return filled(
        TASK_RUN,
        timestamp=BEGIN + at.sent[n],
        duration=at.known[n] - at.sent[n],
        key=key_of(n),
        run_id=n,
        worker=f"tcp://{at.worker[n]}",
        state="memory",
        waiting=BEGIN + at.arrival[n],
        start=BEGIN + at.start[n],
        stop=BEGIN + at.stop[n],
        cause=f"task-finished-{BEGIN + at.known[cause]}" if cause >= 0 else f"update-graph-{BEGIN}",
        end_cause=f"task-finished-{BEGIN + at.known[n]}",
    )


def write_run(directory: Path, count: int, workers: int) -> None:
    """Write a run: a scheduler's file and one file per worker."""
    at = Schedule(count, workers)
    base = {"run": "explain", "host": HOST, "boot_id": "boot"}
    joined = []
    for worker in range(workers):
        label, address = f"worker-{HOST}-{worker}", f"tcp://{worker}"
        facts = {"id": label, "name": worker, "address": address, "label": label}
        header = {**base, "plugin": "TracePlugin", "worker": {**facts, "nthreads": THREADS}}
        rows = [compute_row(at, n) for n in np.flatnonzero(at.worker == worker).tolist()]
        path = directory / f"explain-TracePlugin-{HOST}-{worker}.msgpack"
        write_file(path, header, label, {COMPUTE: rows})
        joined.append(filled(WORKER_ADDED, timestamp=BEGIN, worker=address, nthreads=THREADS))
    rows = [task_run_row(at, n) for n in range(count)]
    graph = filled(
        GRAPH, timestamp=BEGIN, client="c", tasks=count, stimulus=f"update-graph-{BEGIN}"
    )
    write_file(
        directory / f"explain-SchedulerPlugin-{HOST}-scheduler.msgpack",
        {**base, "plugin": "SchedulerPlugin"},
        "scheduler",
        {TASK_RUN: rows, GRAPH: [graph], WORKER_ADDED: joined},
    )


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args(arguments)
    result = Result(f"Explain {options.tasks:,} task runs", COLUMNS)
    with tempfile.TemporaryDirectory() as directory:
        write_run(Path(directory), options.tasks, options.workers)
        time_each(ANALYSES, Path(directory), options.rounds, result)
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
