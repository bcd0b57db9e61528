"""Files of plugins, with rows of the recorder's schemas."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dasfprof.database import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.schema.events import Schema
from traces.events import T

#: Process that writes the file of a plugin, for plugins that do not run on workers.
_OWNERS = {"SchedulerPlugin": "scheduler", "StepRecorder": "client"}


@dataclasses.dataclass
class Plugin:
    """File of a plugin, and the facts in its header."""

    directory: Path
    plugin: str = "TracePlugin"
    host: str = "node1"
    name: Any = 0
    address: str = "tcp://10.0.0.1:4000"
    threads: int = 2
    run: str = "run"
    run_uuid: str = "1"
    run_created: float = 0.0
    #: Versions of packages by name.
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Settings of Dask and of the recording by name.
    settings: dict[str, str] = dataclasses.field(default_factory=dict)

    #: Memory sizes of the worker by name.
    memory_sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    #: Environment variables that limit threads of libraries, or None if not recorded.
    thread_limits: dict[str, str] | None = None
    #: Other facts about the worker, such as limits of its process.
    limits: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: Cores of the host, or 0 if unknown.
    cores: int = 0
    #: Whether the header says that slow deserialization and serialization are recorded.
    serialising: bool = False
    #: Whether the header says that releases of results are recorded.
    releases: bool = False
    #: PID of the process, or 0 if not recorded.
    pid: int = 0

    @property
    def label(self) -> str:
        return _OWNERS.get(self.plugin, f"worker-{self.host}-{self.name}")

    def write(self, *facts: tuple[Schema, Sequence[tuple[Any, ...]]], close: bool = True) -> Path:
        """Write rows of schemas. Without `close`, the file ends like that of a killed process."""
        self.directory.mkdir(exist_ok=True)
        header: dict[str, Any] = {"plugin": self.plugin, "run": self.run, "run_uuid": self.run_uuid}
        header |= {"host": self.host, "boot_id": f"boot of {self.host}"}
        optional = (
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
    """Return a row of a schema; missing values are the smallest ones that their codecs allow."""
    nothing: dict[str, Any] = {"int": 0, "float": 0.0, "keys": [], "key": "", "value": {}}
    columns = schema.fields + schema.args
    assert values.keys() <= {name for name, _ in columns}
    return tuple(values.get(name, nothing.get(codec)) for name, codec in columns)


def rows(
    schema: Schema, samples: Iterable[tuple[float, dict[str, Any]]], **usual: Any
) -> list[tuple[Any, ...]]:
    """Return rows of a schema from times (seconds from `T`) and their values."""
    return [row(schema, **{"timestamp": T + at, **usual, **values}) for at, values in samples]
