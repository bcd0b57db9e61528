"""Files as the plugins of a run write them: rows of the recorder's schemas."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dasfprof.database import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.schema.events import Schema
from traces.events import T

#: Who writes the files of the plugins that are not a worker's.
_OWNERS = {"SchedulerPlugin": "scheduler", "StepRecorder": "client"}


@dataclasses.dataclass
class Plugin:
    """Writes a file as one of the plugins does, from rows of the schemas of `facts`."""

    directory: Path
    plugin: str = "TracePlugin"
    host: str = "node1"
    name: Any = 0
    address: str = "tcp://10.0.0.1:4000"
    threads: int = 2
    run: str = "run"
    run_uuid: str = "1"
    run_created: float = 0.0
    #: Of packages, by name.
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Of Dask and of the recording, by name.
    settings: dict[str, str] = dataclasses.field(default_factory=dict)

    #: Sizes of its worker's memory, by name.
    memory_sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    #: Variables of its process that limit threads of libraries; None: it does not tell.
    thread_limits: dict[str, str] | None = None
    #: More facts about its worker, such as limits of its process.
    limits: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: That its host has; 0: unknown.
    cores: int = 0
    #: Whether it says that it records calls of actors.
    actor_calls: bool = False
    #: Whether it says that it records what takes long to unpickle and to serialise.
    serialising: bool = False
    #: Whether it says that it records when results are let go.
    releases: bool = False
    #: Of its process; 0: it does not tell.
    pid: int = 0

    @property
    def label(self) -> str:
        return _OWNERS.get(self.plugin, f"worker-{self.host}-{self.name}")

    def write(self, *facts: tuple[Schema, Sequence[tuple[Any, ...]]], close: bool = True) -> Path:
        """Write rows of schemas; without `close` the file ends as a killed process leaves it."""
        self.directory.mkdir(exist_ok=True)
        header: dict[str, Any] = {"plugin": self.plugin, "run": self.run, "run_uuid": self.run_uuid}
        header |= {"host": self.host, "boot_id": f"boot of {self.host}"}
        optional = (
            "actor_calls",
            "serialising",
            "releases",
            "pid",
            "cores",
            "versions",
            "settings",
        )
        known = {name: getattr(self, name) for name in (*optional, "run_created")}
        header |= {name: value for name, value in known.items() if value}
        if self.plugin not in _OWNERS:
            header["worker"] = {
                "id": f"id of {self.address}",
                "name": self.name,
                "address": self.address,
                "label": self.label,
                "nthreads": self.threads,
                **self.memory_sizes,
                **self.limits,
            }
            if self.thread_limits is not None:
                header["worker"]["thread_limits"] = self.thread_limits
        owner = _OWNERS.get(self.plugin, f"{self.name}-{self.address[-4:]}")
        path = self.directory / f"{self.run}-{self.plugin}-{self.host}-{owner}.msgpack"
        assert not path.exists(), "an existing file is opened to read"
        database = FileDatabase(path, header=header)
        for schema, rows in facts:
            source = Source.from_schema(schema, {"process_id": self.host, "thread_id": self.label})
            database.writer.add_source(source)
            source.rows.extend(rows)
        database.commit()
        size = path.stat().st_size if path.exists() else 0
        database.close()
        if not close:
            os.truncate(path, size)
        return path


def row(schema: Schema, **values: Any) -> tuple[Any, ...]:
    """Give a row of a schema; what is not given is the least that its codec allows."""
    nothing: dict[str, Any] = {"int": 0, "float": 0.0, "keys": [], "key": "", "value": {}}
    columns = schema.fields + schema.args
    assert values.keys() <= {name for name, _ in columns}
    return tuple(values.get(name, nothing.get(codec)) for name, codec in columns)


def rows(
    schema: Schema, samples: Iterable[tuple[float, dict[str, Any]]], **usual: Any
) -> list[tuple[Any, ...]]:
    """Give a row of a schema for each time, in seconds from `T`, and its values."""
    return [row(schema, **{"timestamp": T + at, **usual, **values}) for at, values in samples]
