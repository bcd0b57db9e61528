"""CPU time of `dasfprof watch` in a terminal while a run is written, as a fraction of a core.

A process appends task runs and resource samples to the files of a scheduler and of workers at a
constant rate, like a real run, while `watch` follows these files.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
from measure import Result
from synthetic import HOST, compute_rows, row

from dasfprof import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.schema.events import Schema
from dasfprof.schema.resources import MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, GRAPH, TASK_RUN
from dasfprof.schema.under_way import SCHEDULER_STATE

#: Task runs per second: more than Dask's scheduler can handle.
RATE = 5000
SAMPLES = 10
#: Seconds until `watch` has started.
WARM_UP = 8.0
#: Minimum number of task runs: the run must last some seconds longer than the start of `watch`.
MINIMUM_TASKS = int(RATE * (WARM_UP + 2))
TERMINAL = {"COLUMNS": "120", "LINES": "50", "TERM": "xterm-256color"}


class Writer:
    """Files of a run, which are written as the plugins do."""

    def __init__(self, directory: Path, tasks: int, workers: int) -> None:
        self._tasks, self._workers = tasks, workers
        self._sources: dict[tuple[str, Schema], Source] = {}
        self._databases: list[FileDatabase] = []
        scheduler = (TASK_RUN, GRAPH, SCHEDULER_STATE)
        self._open(directory, "SchedulerPlugin", "scheduler", scheduler)
        for worker in range(workers):
            self._open(directory, "TracePlugin", f"{worker}", (COMPUTE,))
            self._open(directory, "ResourceMonitor", f"{worker}", (MANAGED_MEMORY, RESOURCE_USAGE))

    def _open(self, directory: Path, plugin: str, owner: str, kinds: tuple[Schema, ...]) -> None:
        header: dict[str, object] = {"plugin": plugin, "run": "synthetic", "run_uuid": "1"}
        if plugin != "SchedulerPlugin":
            label = f"worker-{HOST}-{owner}"
            facts = {"id": label, "name": owner, "address": f"tcp://{owner}", "label": label}
            header["worker"] = {**facts, "nthreads": 2, "memory_limit": 4e9}
        path = directory / f"synthetic-{plugin}-{HOST}-{owner}.msgpack"
        database = FileDatabase(path, header=header, max_pending=1 << 30)
        for kind in kinds:
            source = self._sources[f"{plugin}-{owner}", kind] = Source.from_schema(kind)
            database.writer.start(source)
        self._databases.append(database)

    def write(self) -> None:
        """Append the events of a second in each second until all tasks have finished."""
        begin = time.time()
        facts = {"timestamp": begin, "tasks": self._tasks, "stimulus": "graph-1"}
        self._sources["SchedulerPlugin-scheduler", GRAPH].rows.append(row(GRAPH, **facts))
        for second, first in enumerate(range(0, self._tasks, RATE), 1):
            now = begin + second
            time.sleep(max(now - time.time(), 0.0))
            count = min(RATE, self._tasks - first)
            runs = compute_rows(count, first)
            fields = COMPUTE.fields + COMPUTE.args
            index_of = {name: index for index, (name, _) in enumerate(fields)}
            ended = [
                row(
                    TASK_RUN,
                    timestamp=now - 1 + number / count,
                    duration=0.0015,
                    key=run[index_of["key"]],
                    state="memory",
                    start=now - 1 + number / count,
                    stop=now - 1 + number / count + 0.0009,
                    graph="graph-1",
                )
                for number, run in enumerate(runs)
            ]
            self._sources["SchedulerPlugin-scheduler", TASK_RUN].rows.extend(ended)
            state = {"function0": {"waiting": self._tasks - first - count, "processing": 8}}
            values = {"timestamp": now, "occasion": "interval", "tasks": state, "workers": []}
            self._sources["SchedulerPlugin-scheduler", SCHEDULER_STATE].rows.append(
                row(SCHEDULER_STATE, **values)
            )
            for worker in range(self._workers):
                self._sources[f"TracePlugin-{worker}", COMPUTE].rows.extend(
                    runs[worker :: self._workers]
                )
                for kind, value in ((MANAGED_MEMORY, "executing"), (RESOURCE_USAGE, "memory")):
                    self._sources[f"ResourceMonitor-{worker}", kind].rows.extend(
                        row(kind, **{"timestamp": now - 1 + n / SAMPLES, value: 2})
                        for n in range(SAMPLES)
                    )
        print("written", flush=True)
        sys.stdin.read()  # the summary of a finished run is not measured
        for database in self._databases:
            database.close()


def measure(directory: Path, tasks: int, workers: int) -> tuple[float, float, int]:
    """Return the seconds of the run, and the CPU seconds and resident bytes of `watch`."""
    arguments = ["--write", str(directory), "--tasks", str(tasks), "--workers", str(workers)]
    command = [sys.executable, __file__, *arguments]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    while not list(directory.glob("*-SchedulerPlugin-*.msgpack")):
        time.sleep(0.05)
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "dasfprof", "watch", str(directory)]
    watch = subprocess.Popen(command, stdout=its, env={**os.environ, **TERMINAL})
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
    process = psutil.Process(watch.pid)
    time.sleep(WARM_UP)
    began, before = time.monotonic(), cpu_seconds(process)
    ended = False
    while not ended:
        ended = bool(select.select([writer.stdout], [], [], 0.2)[0])
        used, memory = cpu_seconds(process), process.memory_info().rss
        seconds = time.monotonic() - began
    watch.terminate()  # background programs of shells ignore SIGINT
    watch.wait()
    writer.communicate()
    return seconds, used - before, memory


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children, one of which is the diagnosis."""
    return float(sum(process.cpu_times()[:4])) + sum(
        sum(child.cpu_times()[:2]) for child in process.children()
    )


def drain(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass


def counted(directory: Path) -> int:
    command = [sys.executable, "-m", "dasfprof", "watch", "--once", "--json", str(directory)]
    return int(
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["done"]
    )


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--write", type=Path, help="only write a run into this directory")
    options = parser.parse_args(arguments)
    if options.tasks < MINIMUM_TASKS and not options.write:
        parser.error(
            f"--tasks: at least {MINIMUM_TASKS:,}; `watch` starts too late for shorter runs"
        )
    if options.write:
        Writer(options.write, options.tasks, options.workers).write()
        return []
    columns = [
        "task runs",
        "workers",
        "seconds",
        "CPU, fraction of a core",
        "memory, MB",
        "task runs counted",
    ]
    result = Result("Watch", columns)
    with tempfile.TemporaryDirectory() as directory:
        seconds, cpu, memory = measure(Path(directory), options.tasks, options.workers)
        runs = counted(Path(directory))
    result.rows.append(
        [
            f"{options.tasks:,}",
            str(options.workers),
            f"{seconds:.0f}",
            f"{cpu / seconds:.1%}",
            f"{memory / 1e6:.0f}",
            f"{runs:,}",
        ]
    )
    result.figures = {"tasks": options.tasks, "share": cpu / seconds, "memory": memory}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
