"""Runs of one pipeline on a noisy machine, in which one thing may be changed.

The pipeline is ``load`` (24 chunks), ``clean`` (24), ``sum`` (6, of 4 chunks each) and ``total``.
Two workers with two threads run these tasks in order. The speed of the machine varies from run to
run and from task to task, and some tasks take three times as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from traces.plans import Plan, Task

#: Seconds of each function's tasks.
SECONDS = {"load": 0.2, "clean": 0.1, "sum": 0.05, "total": 0.05}
CHUNKS, IN_A_SUM = 24, 4
#: Bandwidth between workers, in MB/s.
_NETWORK = 100.0
VERSIONS = {"dask": "2026.8.0", "dasfprof": "0.1.0"}


@dataclass(frozen=True)
class Noisy:
    """Changes of the pipeline, and the noise of its machine."""

    #: Factors of seconds by function.
    times: Mapping[str, float] = field(default_factory=dict)
    #: New names of functions by old name.
    names: Mapping[str, str] = field(default_factory=dict)
    workers: int = 2
    chunks: int = CHUNKS
    #: Whether each `clean` waits for the previous one.
    serial: bool = False
    #: Seconds for which each task holds its thread before its function starts.
    overhead: float = 0.002
    #: Size (MB) of a chunk that is transferred between workers, or 0 without transfers.
    megabytes: float = 0.0
    #: Seconds for which the client delays the sums after all chunks are clean.
    gap: float = 0.0
    #: Standard deviations of the speed, from run to run and from task to task.
    of_runs: float = 0.015
    of_tasks: float = 0.08
    #: Fraction of tasks that take three times as long.
    held_up: float = 0.01

    def plan(self, seed: int, *, threads: int = 2) -> Plan:
        """Plan a run in which each task runs on the thread that can start it first."""
        random = np.random.default_rng(seed)
        speed = float(np.exp(random.normal(0, self.of_runs)))
        free = np.zeros(self.workers * threads)
        made: dict[str, Task] = {}
        moved: list[tuple[int, float, float, int, list[str]]] = []
        size = int((self.megabytes or 1.0) * 1e6 * CHUNKS / self.chunks)
        arrival, second = 0.0, None
        for key, function, inputs in self._graph():
            if self.gap and second is None and function == "sum":
                arrival = second = max(task.stop for task in made.values()) + self.gap * speed
            runnable = max((made[name].stop for name in inputs), default=0.01)
            runnable = max(runnable, arrival)
            noise = float(np.exp(random.normal(0, self.of_tasks)))
            noise *= 3.0 if random.random() < self.held_up else 1.0
            seconds = SECONDS[function] * self.times.get(function, 1.0) * speed * noise
            lane = int(np.argmin(np.maximum(free, runnable)))
            worker, thread = divmod(lane, threads)
            ready = runnable
            for name in inputs:
                if self.megabytes and made[name].worker != worker:
                    since, ready = ready, ready + made[name].size / 1e6 / _NETWORK * speed
                    moved.append((worker, since, ready, made[name].size, [name]))
            executing = max(float(free[lane]), ready) + 0.001
            start = executing + self.overhead * speed
            free[lane] = stop = start + seconds * CHUNKS / self._count(function)
            facts: dict[str, Any] = dict.fromkeys(("runnable", "sent", "received"), runnable)
            facts |= {"arrival": arrival, "ready": ready, "executing": executing}
            facts |= {"thread": thread, "size": size, "dependencies": inputs}
            made[key] = Task(key, worker, start, stop, **facts)
        return Plan(
            list(made.values()),
            self.workers,
            threads,
            transfers=moved,
            graphs=[0.0] if second is None else [0.0, second],
            run=f"pipeline-{1_790_000_000 + seed}",
            run_uuid=f"{self!r} {seed}",
            versions=VERSIONS,
        )

    def write(self, directory: Path, seed: int) -> Path:
        directory.parent.mkdir(parents=True, exist_ok=True)
        self.plan(seed).write_files(directory)
        return directory

    def _count(self, function: str) -> int:
        return self.chunks if function in ("load", "clean") else CHUNKS

    def _graph(self) -> list[tuple[str, str, list[str]]]:
        """Return keys, functions and inputs of all tasks, dependencies first."""

        def name(function: str, number: int) -> str:
            return f"{self.names.get(function, function)}-{number}"

        graph = [(name("load", n), "load", []) for n in range(self.chunks)]
        for n in range(self.chunks):
            before = [name("clean", n - 1)] if self.serial and n else []
            graph.append((name("clean", n), "clean", [name("load", n), *before]))
        for n in range(self.chunks // IN_A_SUM):
            chunks = range(n * IN_A_SUM, (n + 1) * IN_A_SUM)
            graph.append((name("sum", n), "sum", [name("clean", chunk) for chunk in chunks]))
        sums = [name("sum", n) for n in range(self.chunks // IN_A_SUM)]
        return [*graph, (name("total", 0), "total", sums)]
