"""Trace files for tests without a cluster, written in each of the ways in which traces come about.

`planned_runs` writes whole runs by it; `made_traces` makes tables in memory, without files.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack

from dasfprof.database import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.schema.declaration import Schema
from dasfprof.schema.events import CompleteEvent, Event, InstantEvent


def compute(
    key: Any,
    start: float,
    duration: float,
    worker: str | None,
    *,
    host: str = "c096",
    size: int = 0,
    dependencies: Sequence[Any] = (),
    state: str = "memory",
) -> CompleteEvent:
    """Give a "Compute" event with DASF's args; `timestamp` is the start."""
    args = {
        "key": key,
        "name": "tGPUs-42237764",  # DASF's own names have lost letters; nothing may rest on them
        "state": state,
        "size": size,
        "shape": [1, 2],
        "dtype": "float32",
        "type": "<class 'numpy.ndarray'>",
        "dependencies": list(dependencies),
        "dependents": [],
    }
    return CompleteEvent("Compute", start, duration, process_id=host, thread_id=worker, args=args)


def managed(time: float, worker: str, tasks: int, *, host: str = "c096") -> InstantEvent:
    """Give a "Managed Memory" event with DASF's args."""
    args = {"key": "x-1", "state": "memory", "size": 8, "tasks": tasks}
    return InstantEvent("Managed Memory", time, process_id=host, thread_id=worker, args=args)


def usage(
    timestamp: float, *, host: str = "c096", worker: str | None = None, **args: Any
) -> InstantEvent:
    """Give a "Resource Usage" event; DASF's belong to no worker."""
    args = {"cpu": 40.2, "memory": 2744729600, "num_fds": 189, **args}
    return InstantEvent("Resource Usage", timestamp, process_id=host, thread_id=worker, args=args)


def write_trace(path: Path, *events: Event, **header: Any) -> Path:
    """Write events to a file, one by one through `FileDatabase.record`; return the file's path."""
    with FileDatabase(path, header=header) as database:
        for event in events:
            database.record(event)
        database.writer.create()  # where there are no events, too
    return path


def record(directory: Path, events: Sequence[Event]) -> Path:
    """Write events as the one file of a directory; return the directory."""
    directory.mkdir(exist_ok=True)
    write_trace(directory / "run-TracePlugin-c096.msgpack", *events)
    return directory


def write_as_dasf(directory: Path, events: Sequence[Event]) -> Path:
    """Write events as DASF's `FileDatabase` did: length, map; a task's timestamp is its end."""
    directory.mkdir(exist_ok=True)
    with (directory / "run-TracePlugin-c096.msgpack").open("wb") as file:
        for event in events:
            fields = dataclasses.asdict(event)
            if isinstance(event, CompleteEvent):
                fields["timestamp"] += event.duration
            packed = msgpack.packb(fields)
            file.write(struct.pack(">Q", len(packed)) + packed)
    return directory


@dataclasses.dataclass
class Plugin:
    """Writes a file as one of the plugins does, from rows of the schemas of `facts`."""

    directory: Path
    plugin: str = "TracePlugin"
    host: str = "node1"
    name: Any = 0
    address: str = "tcp://10.0.0.1:4000"

    @property
    def label(self) -> str:
        return f"worker-{self.host}-{self.name}"

    def write(self, *facts: tuple[Schema, Sequence[tuple[Any, ...]]], close: bool = True) -> Path:
        """Write rows of schemas; without `close` the file ends as a killed process leaves it."""
        self.directory.mkdir(exist_ok=True)
        scheduler = self.plugin == "SchedulerPlugin"
        header: dict[str, Any] = {"plugin": self.plugin, "run": "run", "run_uuid": "1"}
        header |= {"host": self.host, "boot_id": f"boot of {self.host}"}
        if not scheduler:
            header["worker"] = {
                "id": f"id of {self.address}",
                "name": self.name,
                "address": self.address,
                "label": self.label,
                "nthreads": 2,
            }
        owner = "scheduler" if scheduler else f"{self.name}-{self.address[-4:]}"
        path = self.directory / f"run-{self.plugin}-{self.host}-{owner}.msgpack"
        database = FileDatabase(path, header=header)
        label = "scheduler" if scheduler else self.label
        constants = {"process_id": self.host, "thread_id": label}
        for schema, rows in facts:
            source = Source.of(schema, constants)
            database.writer.add_source(source)
            source.rows.extend(rows)
        database.commit()
        size = path.stat().st_size if path.exists() else 0
        database.close()
        if not close:
            with path.open("r+b") as file:
                file.truncate(size)
        return path


def row(schema: Schema, **values: Any) -> tuple[Any, ...]:
    """Give a row of a schema; what is not given is the least that its codec allows."""
    nothing: dict[str, Any] = {"int": 0, "float": 0.0, "keys": [], "key": "", "value": {}}
    columns = schema.fields + schema.args
    assert values.keys() <= {name for name, _ in columns}
    return tuple(values.get(name, nothing.get(codec)) for name, codec in columns)
