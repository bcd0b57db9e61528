"""`EventProfiler`: records events by name, without event objects."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

from dasfprof.database.block_codec import Batch
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
        A file. An existing one (dasfprof's or DASF's) is only read; a new one is created with the
        first event. None: a new name, ``traces-xxxxxxxx.msgpack``.
    database_creation_kwargs
        Options of `FileDatabase` for a new file.
    database
        A database, instead of a file.

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
                "given; pass only one of them."
            )
        if database is None:
            path = database_file or f"traces-{uuid.uuid4().hex[:8]}.msgpack"
            database = open_database(path, **(database_creation_kwargs or {}))
        self.database = database

    def record_complete_event(
        self, name: str, timestamp: float, duration: float | None = None, **fields: Any
    ) -> None:
        """Record an event that began at `timestamp` (Unix time) and took `duration` seconds."""
        # The database refuses an event without a duration, and says so.
        self.database.record(CompleteEvent(name, timestamp, duration, **fields))  # type: ignore[arg-type]

    def record_instant_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record an event that happened at `timestamp` (Unix time)."""
        self.database.record(InstantEvent(name, timestamp, **fields))

    def record_duration_begin_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record the begin of a duration; a duration end event marks its end."""
        self.database.record(DurationBeginEvent(name, timestamp, **fields))

    def record_duration_end_event(self, name: str, timestamp: float, **fields: Any) -> None:
        """Record the end of a duration that a duration begin event began."""
        self.database.record(DurationEndEvent(name, timestamp, **fields))

    def get_traces(self) -> Iterator[Event]:
        """Yield the events in the order in which they were recorded."""
        return self.database.get_traces()

    def batches(self) -> Iterator[Batch]:
        """Yield the events as columns, for analysis."""
        return self.database.batches()

    def commit(self) -> None:
        """Return when every event recorded so far can be read back."""
        self.database.commit()

    def close(self) -> None:
        """Commit, and release the resources of the database."""
        self.database.close()

    def __repr__(self) -> str:
        return f"EventProfiler(database={self.database!r})"


def open_database(path: str | os.PathLike[str], **options: Any) -> EventDatabase:
    """Open a file of dasfprof or DASF; for a new path, return a new `FileDatabase`."""
    path = check_path(path)
    if path.is_file() and is_dasf_trace(path):
        return DasfDatabase(path)
    return FileDatabase(path, **options)
