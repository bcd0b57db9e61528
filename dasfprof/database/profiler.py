"""`EventProfiler`: record events by name, without making event objects."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

from dasfprof.database.batch import Batch
from dasfprof.database.dasf import DasfDatabase
from dasfprof.database.file import EventDatabase, FileDatabase
from dasfprof.database.reader import is_dasf_trace
from dasfprof.database.validation import check_path
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.events import (
    CompleteEvent,
    DurationBeginEvent,
    DurationEndEvent,
    Event,
    InstantEvent,
)


class EventProfiler:
    """Records events into a database, or reads them back.

    Parameters
    ----------
    database_file
        A file. One that exists (dasfprof's or DASF's) is read and never written; else it is
        created with the first event. None makes a new name, ``traces-xxxxxxxx.msgpack``.
    database_creation_kwargs
        Options of `FileDatabase` for a new file.
    database
        A database to use instead of a file.

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
                f"both database_file={database_file!r} and database={database!r} were "
                "given; give one of them."
            )
        if database is None:
            path = database_file or f"traces-{uuid.uuid4().hex[:8]}.msgpack"
            database = open_database(path, **(database_creation_kwargs or {}))
        self.database = database

    def record_complete_event(
        self, name: str, timestamp: float, duration: Any = None, **fields: Any
    ) -> None:
        """Record something that began at `timestamp` (Unix) and took `duration` seconds."""
        self.database.record(CompleteEvent(name, timestamp, duration, **fields))

    def record_instant_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record something that happened at `timestamp` (Unix)."""
        self.database.record(InstantEvent(name, timestamp, **fields))

    def record_duration_begin_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record the begin of something that a duration end event will end."""
        self.database.record(DurationBeginEvent(name, timestamp, **fields))

    def record_duration_end_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record the end of what a duration begin event began."""
        self.database.record(DurationEndEvent(name, timestamp, **fields))

    def get_traces(self) -> Iterator[Event]:
        """Give the events in the order in which they were recorded."""
        return self.database.get_traces()

    def batches(self) -> Iterator[Batch]:
        """Give the events as columns, for analysis."""
        return self.database.batches()

    def commit(self) -> None:
        """Return when every event recorded so far can be read back."""
        self.database.commit()

    def close(self) -> None:
        """Commit, and release what the database holds."""
        self.database.close()

    def __repr__(self) -> str:
        return f"EventProfiler(database={self.database!r})"


def open_database(path: str | os.PathLike[str], **options: Any) -> EventDatabase:
    """Open one file, dasfprof's or DASF's; a new path becomes a new `FileDatabase`."""
    path = check_path(path)
    if path.is_file() and is_dasf_trace(path):
        return DasfDatabase(path)
    return FileDatabase(path, **options)
