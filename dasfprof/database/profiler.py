"""`EventProfiler`: records events without event objects.

`open_database` opens a file by its name. A name in the form of DASF's names, which contain a plugin
and a host, opens the files of all workers on that host. `DasfDatabase` reads a file that DASF
itself wrote.
"""

from __future__ import annotations

import glob
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dasfprof.database import values
from dasfprof.database.blocks import Batch
from dasfprof.database.file import EventDatabase, FileDatabase, check_path
from dasfprof.database.reader import DASF_LENGTH_BYTES, intact_header, is_dasf_trace
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.events import (
    EVENT_CLASSES,
    CompleteEvent,
    DurationBeginEvent,
    DurationEndEvent,
    Event,
    EventPhases,
    InstantEvent,
)
from dasfprof.text import count_of, file_part

#: Pattern of the part of a file's name that follows the run's name, for files of workers.
_PLUGIN = re.compile(r"-(TracePlugin|ResourceMonitor)-")


class EventProfiler:
    """Records events into a database, or reads them back.

    Parameters
    ----------
    database_file
        The path of a file. An existing file of dasfprof or DASF is opened for reading. A new file
        is created when the first event is recorded. The default is a new file with a name such as
        ``traces-xxxxxxxx.msgpack``. A name in DASF's form, ``NAME-PLUGIN-HOST.msgpack``, opens the
        files of all workers of a host: ``NAME-PLUGIN-HOST-0.msgpack`` and so on.
    database_creation_kwargs
        Options of `FileDatabase` for a new file.
    database
        A database that replaces the file.

    Raises
    ------
    InvalidArgumentError
        If both a file and a database are given.
    """

    def __init__(
        self,
        database_file: str | os.PathLike[str] | None = None,
        database_creation_kwargs: dict[str, Any] | None = None,
        database: EventDatabase | None = None,
    ) -> None:
        if database is not None and database_file is not None:
            raise InvalidArgumentError(
                f"both database_file={database_file!r} and database={database!r} were given. "
                "Pass only one of them."
            )
        if database is None:
            path = database_file or f"traces-{uuid.uuid4().hex[:8]}.msgpack"
            database = open_database(path, **(database_creation_kwargs or {}))
        self.database = database

    def record_complete_event(
        self, name: str, timestamp: float, duration: float | None = None, **fields: Any
    ) -> None:
        """Record an event that started at `timestamp` (Unix time) and took `duration` seconds."""
        # The database rejects an event without a duration, with a message.
        self.database.record(CompleteEvent(name, timestamp, duration, **fields))  # type: ignore[arg-type]

    def record_instant_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record an event that happened at `timestamp` (Unix time)."""
        self.database.record(InstantEvent(name, timestamp, **fields))

    def record_duration_begin_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record the start of a duration. A duration end event marks its end."""
        self.database.record(DurationBeginEvent(name, timestamp, **fields))

    def record_duration_end_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record the end of a duration that a duration begin event started."""
        self.database.record(DurationEndEvent(name, timestamp, **fields))

    def get_traces(self) -> Iterator[Event]:
        """Yield the events in the order in which they were recorded."""
        return self.database.get_traces()

    def batches(self) -> Iterator[Batch]:
        """Yield the events as batches, which store them as columns."""
        return self.database.batches()

    def commit(self) -> None:
        """Wait until every event that was recorded so far can be read."""
        self.database.commit()

    def close(self) -> None:
        """Commit, and release the resources of the database."""
        self.database.close()

    def __repr__(self) -> str:
        return f"EventProfiler(database={self.database!r})"


def open_database(path: str | os.PathLike[str], **options: Any) -> EventDatabase:
    """Open an existing file of dasfprof or DASF, or the files of a host.

    If no such file exists, return a `FileDatabase` for a new file.
    """
    path = check_path(path)
    if path.is_file():
        return DasfDatabase(path) if is_dasf_trace(path) else FileDatabase(path, **options)
    files = _files_of_host(path)
    return HostDatabase(path, files) if files else FileDatabase(path, **options)


class HostDatabase(EventDatabase):
    """A read-only database of the events that one plugin recorded on all workers of a host.

    Parameters
    ----------
    path
        The common name of the files, without the names of the workers.
    files
        The files, one per worker.
    """

    def __init__(self, path: Path, files: list[Path]) -> None:
        self.path = path
        self.databases: list[EventDatabase] = [FileDatabase(file) for file in files]

    def get_traces(self) -> Iterator[Event]:
        """Yield the events, file by file."""
        for database in self.databases:
            yield from database.get_traces()

    def batches(self) -> Iterator[Batch]:
        """Yield the events as batches, file by file."""
        for database in self.databases:
            yield from database.batches()

    def __repr__(self) -> str:
        return f"HostDatabase at {self.path} ({count_of(len(self.databases), 'file')})"


def _files_of_host(path: Path) -> list[Path]:
    """Return the files of all workers, for a path whose name contains a plugin and a host.

    Return an empty list if the name has another form or no file matches.
    """
    plugin = _PLUGIN.search(path.name)
    if plugin is None:
        return []
    host = file_part(path.stem[plugin.end() :])
    files = path.parent.glob(f"{glob.escape(path.stem[: plugin.end()] + host)}-*{path.suffix}")
    headers = {file: intact_header(file) or {} for file in sorted(files)}
    return [
        file
        for file, header in headers.items()
        if header.get("plugin") == plugin[1] and file_part(header.get("host", "")) == host
    ]


# DASF stored the *end* of a task as the timestamp of its `Compute` event, on the host's monotonic
# clock. The reader replaces the end with the start, on the same clock. The analysis converts it to
# Unix time if there are `Resource Usage` events, which contain the time on both clocks.


class DasfDatabase(EventDatabase):
    """A read-only database of the events in a file that DASF wrote.

    Parameters
    ----------
    path
        The path of the file.

    Attributes
    ----------
    lost_bytes
        Number of bytes that belong to no valid event. It is set at the end of `get_traces`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost_bytes = 0

    def get_traces(self) -> Iterator[Event]:
        """Yield the valid events in the order of the file."""
        size = self.path.stat().st_size
        position = lost = 0
        with self.path.open("rb") as file:
            while head := file.read(DASF_LENGTH_BYTES):
                length = int.from_bytes(head, "big")
                # If a length is impossible, the start of the next event is unknown, because the
                # file contains no markers.
                if len(head) < DASF_LENGTH_BYTES or length > size - position - DASF_LENGTH_BYTES:
                    break
                event = _event(file.read(length))
                if event is None:
                    lost += DASF_LENGTH_BYTES + length
                else:
                    yield event
                position += DASF_LENGTH_BYTES + length
        self.lost_bytes = lost + size - position

    def __repr__(self) -> str:
        return f"DasfDatabase at {self.path}"


def _event(data: bytes) -> Event | None:
    try:
        fields: dict[str, Any] = values.unpack(data)
        # DASF assigns the phase of a start to the end of a duration, but it records neither.
        kind = EVENT_CLASSES[fields.get("phase", EventPhases.INSTANT)]
        event = kind(**fields)
        if isinstance(event, CompleteEvent):
            event.timestamp -= event.duration
    except values.DAMAGE_ERRORS:
        return None
    valid = isinstance(event.name, str) and isinstance(event.args, dict)
    return event if valid and isinstance(event.timestamp, int | float) else None
