"""Files of single events, as user code and DASF's profiler write them."""

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack

from dasfprof.database import FileDatabase
from dasfprof.schema.events import CompleteEvent, Event, InstantEvent

#: Unix time at which synthetic runs start.
T = 1_790_000_000.0


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
    """Return a "Compute" event with DASF's args; `timestamp` is the start."""
    args = {
        "key": key,
        "name": "tGPUs-42237764",  # DASF's names lack letters, so no code may depend on them
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
    """Return a "Managed Memory" event with DASF's args."""
    args = {"key": "x-1", "state": "memory", "size": 8, "tasks": tasks}
    return InstantEvent("Managed Memory", time, process_id=host, thread_id=worker, args=args)


def usage(
    timestamp: float, *, host: str = "c096", worker: str | None = None, **args: Any
) -> InstantEvent:
    """Return a "Resource Usage" event. DASF's events do not belong to a worker."""
    args = {"cpu": 40.2, "memory": 2744729600, "num_fds": 189, **args}
    return InstantEvent("Resource Usage", timestamp, process_id=host, thread_id=worker, args=args)


def write_trace(path: Path, *events: Event, **header: Any) -> Path:
    """Write events to a file with `FileDatabase.record`, and return the file's path."""
    with FileDatabase(path, header=header) as database:
        for event in events:
            database.record(event)
        database.writer.create()  # even if there are no events
    return path


def record(directory: Path, events: Sequence[Event]) -> Path:
    """Write events as the only file of a directory, and return the directory."""
    directory.mkdir(exist_ok=True)
    write_trace(directory / "run-TracePlugin-c096.msgpack", *events)
    return directory


def write_as_dasf(directory: Path, events: Sequence[Event]) -> Path:
    """Write events as DASF's `FileDatabase` did: length and map. A task's timestamp is its end."""
    directory.mkdir(exist_ok=True)
    with (directory / "run-TracePlugin-c096.msgpack").open("wb") as file:
        for event in events:
            fields = dataclasses.asdict(event)
            if isinstance(event, CompleteEvent):
                fields["timestamp"] += event.duration
            packed = msgpack.packb(fields)
            file.write(struct.pack(">Q", len(packed)) + packed)
    return directory
