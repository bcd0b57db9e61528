"""Contents of the files of a run: headers, numbers of events, and how each file ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.database import DasfDatabase, EventDatabase, FileDatabase
from dasfprof.database.blocks import Batch
from dasfprof.database.columns import Array, Column, NumberColumn
from dasfprof.database.following import Writer, writer_of
from dasfprof.database.rotated_files import Segments

CLOSED = "closed cleanly"
CLIENT_GONE = "closed because its client was gone"
CONTINUED = "continued in the next segment"
NO_END = "in DASF's format, which does not mark the end"

#: Limit of plausible times in seconds.
_LATEST = 1e15


@dataclass
class FileContents:
    """The header of one file, the numbers of its events, and the state of the file."""

    path: Path
    size: int
    state: str
    header: dict[str, Any] = field(default_factory=dict)
    #: Number of events by event name.
    events: Counter[str] = field(default_factory=Counter)
    #: Time of the first event and of the last event, or None if there are no events. They are Unix
    #: seconds, or seconds since the host's start in files of DASF.
    first: float | None = None
    last: float | None = None

    @property
    def is_dasf(self) -> bool:
        """Whether DASF wrote the file."""
        return self.state == NO_END

    @property
    def is_closed(self) -> bool:
        """Whether the process that wrote the file closed it."""
        return self.state in (CLOSED, CLIENT_GONE, CONTINUED)

    @property
    def goes_on(self) -> bool:
        """Whether a process on this host is still writing the file."""
        return self.state == Writer.ALIVE.value

    def fact(self, *names: str) -> Any:
        """Return an entry of the header, or None if it does not exist.

        Pass several `names` for an entry of a nested map, such as ``fact("worker", "label")``.
        """
        value: Any = self.header
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def owner(self) -> str:
        """Name of the worker, or ``scheduler``. Empty if the header names neither."""
        label = self.fact("worker", "label")
        return str(label) if label else "scheduler" if self.fact("scheduler") else ""

    def add(self, batches: Iterable[Batch]) -> None:
        """Count the events of batches, and update the times of the first and the last event."""
        for batch in batches:
            self.events.update(batch.names if "name" in batch.fields else {batch.name: batch.rows})
            times = _numbers(batch.fields["timestamp"])
            if len(times):
                first, last = float(times.min()), float(times.max())
                self.first = first if self.first is None else min(self.first, first)
                self.last = last if self.last is None else max(self.last, last)


def read_all_contents(databases: Iterable[EventDatabase]) -> list[FileContents]:
    """Read the files of a run, and return their contents.

    Raises
    ------
    TraceError
        If a file is not a trace file.
    """
    contents, segments = [], Segments()
    for database in databases:
        contents.append(read_contents(database))
        if isinstance(database, FileDatabase):
            segments.add(database.trace_file())
    followed = segments.followed()
    for file in contents:
        if not file.is_closed and file.path.name in followed:
            file.state = CONTINUED
    return contents


def read_contents(database: EventDatabase) -> FileContents:
    """Read a file completely, and return its contents.

    Raises
    ------
    TraceError
        If the file is not a trace file.
    """
    assert isinstance(database, FileDatabase | DasfDatabase)
    contents = FileContents(database.path, database.path.stat().st_size, NO_END)
    if isinstance(database, DasfDatabase):
        contents.add(database.batches())
        return contents
    file = database.trace_file()
    contents.add(file.batches())
    contents.header, contents.state = file.header, CLOSED
    if file.end is None:
        contents.state = writer_of(file.header).value
    elif file.ended_by_itself:
        contents.state = CLIENT_GONE
    elif file.end.get("continues") is True:
        contents.state = CONTINUED
    return contents


def _numbers(column: Column) -> Array:
    """Return the finite numbers in a column."""
    if isinstance(column, NumberColumn):
        array: Array = np.asarray(column.array, dtype=float)
    else:
        # User code may have recorded any values.
        items = [item for item in column.to_list() if type(item) in (int, float)]
        array = np.array([item for item in items if abs(item) < _LATEST], dtype=float)
    return array[np.isfinite(array)]
