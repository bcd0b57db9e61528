"""Databases of events: the interface, and the one that lives in a file."""

from __future__ import annotations

import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dasfprof.database.batch import Batch
from dasfprof.database.completion import Completion
from dasfprof.database.display import files_html
from dasfprof.database.reader import FORMAT_VERSION, TraceFile
from dasfprof.database.schemas import fold_events, make_batches
from dasfprof.database.writer import Source, TraceWriter
from dasfprof.database.writing_process import process_facts
from dasfprof.errors import InvalidArgumentError, ReadOnlyError
from dasfprof.schema.events import EVENT_CLASSES, Event

DEFAULT_COMMIT_THRESHOLD = 5000
DEFAULT_FLUSH_INTERVAL = 1.0
DEFAULT_MAX_PENDING = 100_000

_EVENTS = tuple(EVENT_CLASSES.values())


class EventDatabase(ABC):
    """A collection of events. Subclasses give `get_traces`; those that can, columns as well."""

    @abstractmethod
    def get_traces(self) -> Iterator[Event]:
        """Give the events in the order in which they were recorded."""

    def record(self, event: Event) -> None:
        """Add an event; a database that can only be read raises `ReadOnlyError`."""
        raise ReadOnlyError(f"{self!r} was opened to read; record into a new file instead.")

    def commit(self) -> None:  # noqa: B027  (nothing to do where nothing is pending)
        """Return when every event recorded so far can be read back."""

    def close(self) -> None:  # noqa: B027
        """Commit, and release what the database holds."""

    def batches(self) -> Iterator[Batch]:
        """Give the events as columns."""
        yield from make_batches(self.get_traces())

    def __enter__(self) -> EventDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileDatabase(EventDatabase):
    """Events in one file, in the format of FORMAT.md.

    A path that exists is opened to read and never written. A new path is written by this object
    alone: `record` appends to memory and returns; a background thread writes blocks. The file
    appears with the first block. Any thread may record; do not change an event, or what its args
    hold, after recording it.

    After `fork` the file stays the parent's: what the child records is not written.

    Parameters
    ----------
    path
        The file.
    commit_threshold, flush_interval
        Events, and seconds, after which pending events are written, whichever is first.
    max_pending
        Events pending beyond which new ones are dropped and counted: memory stays bounded where
        the disk is full or too slow.
    header
        More facts for the file's header, such as the run's name.
    new
        Write a new file even where the path exists; its name then gets a number.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "traces.msgpack",
        commit_threshold: int = DEFAULT_COMMIT_THRESHOLD,
        flush_interval: float = DEFAULT_FLUSH_INTERVAL,
        *,
        max_pending: int = DEFAULT_MAX_PENDING,
        header: dict[str, Any] | None = None,
        new: bool = False,
    ) -> None:
        valid = commit_threshold >= 1 and flush_interval > 0 and max_pending >= commit_threshold
        if not valid:
            raise InvalidArgumentError(
                f"commit_threshold={commit_threshold!r}, flush_interval={flush_interval!r}, "
                f"max_pending={max_pending!r}: the first must be at least 1, the second positive, "
                "the third no less than the first."
            )
        given = Path(path)
        self._given = given
        self._reader = TraceFile(given) if given.exists() and not new else None
        self._writer = TraceWriter(
            given,
            {**process_header(), **(header or {})},
            commit_threshold=commit_threshold,
            flush_interval=flush_interval,
            max_pending=max_pending,
        )
        self._source = Source(fold_events)

    @property
    def path(self) -> Path:
        """The file, absolute; its name gets a number if another file had taken it."""
        return self._writer.path

    @property
    def writer(self) -> TraceWriter:
        """The writing side, for plugins that add sources of their own."""
        return self._writer

    def record(self, event: Event) -> None:
        """Append an event to memory.

        Raises
        ------
        ReadOnlyError
            If the file existed, or the database was closed.
        InvalidArgumentError
            If it is no event, its name is no text or its args are no dict.
        """
        if not isinstance(event, _EVENTS):
            raise InvalidArgumentError(
                f"got {type(event).__name__}; record an InstantEvent, a CompleteEvent, a "
                "DurationBeginEvent or a DurationEndEvent."
            )
        if not isinstance(event.name, str) or not isinstance(event.args, dict):
            raise InvalidArgumentError(
                f"an event's name is a str and its args are a dict, not {event.name!r} and "
                f"{type(event.args).__name__}."
            )
        rows = self._source.rows
        if not rows:
            self._start(event)
        rows.append(event)
        if len(rows) >= self._writer.commit_threshold:
            self._writer.threshold_reached(self._source)

    def commit(self) -> None:
        """Write all pending events; returns when they are in the file."""
        if self._reader is None:
            self._writer.commit()

    def close(self) -> None:
        """Write all pending events and the closing frame, once."""
        if self._reader is None:
            self._writer.close()

    def trace_file(self) -> TraceFile:
        """Open the file to read, with everything that was recorded so far in it."""
        self.commit()
        return self._reader or TraceFile(self.path)

    def batches(self) -> Iterator[Batch]:
        """Give the events as columns, in the order of the file."""
        yield from self.trace_file().batches()

    def get_traces(self) -> Iterator[Event]:
        """Give the events in the order in which they were recorded.

        Those of dasfprof's plugins are completed from the rest of the file; see
        `MultiEventDatabase.get_traces`, which knows of a run's other files too.
        """
        file = self.trace_file()
        yield from Completion([file.path]).events(file)

    def __repr__(self) -> str:
        return f"FileDatabase at {self._given.parent / self.path.name}"

    def _repr_html_(self) -> str:
        return files_html(repr(self), [self.path] if self.path.exists() else [])

    def _start(self, event: Event) -> None:
        if self._reader is not None:
            super().record(event)
        if self._writer.closed:
            raise ReadOnlyError(f"{self!r} was closed; record into a new file instead.")
        self._writer.add_source(self._source)


def process_header() -> dict[str, Any]:
    """Give the facts about this process that every file's header carries."""
    packages = ("dasfprof", "dask", "distributed", "msgpack", "numpy", "psutil")
    return {
        "version": FORMAT_VERSION,
        **process_facts(),
        "created": time.time(),
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in packages}},
    }


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
