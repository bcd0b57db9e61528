"""`EventDatabase`, the interface of event databases, and `FileDatabase`, a database in one file."""

from __future__ import annotations

import logging
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.database.blocks import Batch, fold_events, make_batches, split_names
from dasfprof.database.completion import Completion
from dasfprof.database.following import process_facts
from dasfprof.database.reader import FORMAT_VERSION, TimeRange, TraceFile
from dasfprof.database.runs import missing_file
from dasfprof.database.writer import Source, TraceWriter
from dasfprof.errors import CannotWriteError, InvalidArgumentError, ReadOnlyError
from dasfprof.schema.events import (
    EVENT_CLASSES,
    CompleteEvent,
    DurationBeginEvent,
    DurationEndEvent,
    Event,
    InstantEvent,
)

logger = logging.getLogger(__name__)

DEFAULT_COMMIT_THRESHOLD = 5000
DEFAULT_FLUSH_INTERVAL = 1.0
DEFAULT_MAX_PENDING = 100_000

#: Classes of events for which `record` has a fast check. Events of other classes get a full check.
_PLAIN_EVENTS = {InstantEvent, CompleteEvent, DurationBeginEvent, DurationEndEvent}
_PLAIN_NUMBERS = {float, int}


class EventDatabase(ABC):
    """A collection of events. Subclasses must define `get_traces`, and may define `batches`."""

    #: Time range of the events that are read, or None to read all events.
    window: TimeRange | None = None

    @abstractmethod
    def get_traces(self) -> Iterator[Event]:
        """Yield the events in the order in which they were recorded."""

    def record(self, event: Event) -> None:
        """Add an event. Raise `ReadOnlyError` if the database can only be read."""
        raise ReadOnlyError(f"{self!r} was opened for reading. Record into a new file instead.")

    def commit(self) -> None:  # noqa: B027  (read-only databases have nothing pending)
        """Wait until every event that was recorded so far can be read back."""

    def close(self) -> None:  # noqa: B027
        """Commit, and release the resources of the database."""

    def batches(self) -> Iterator[Batch]:
        """Yield the events as batches, which store them as columns."""
        yield from make_batches(self.get_traces())

    def __enter__(self) -> EventDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileDatabase(EventDatabase):
    """A database of events in one file. FORMAT.md describes the format of the file.

    An existing file is opened for reading and never written. A new file is created when the first
    event is recorded, and only this object writes to it. If another process has created a file with
    the same name in the meantime, a number is added to the name. `record` appends events to memory,
    and a background thread writes them to the file in blocks. Any thread may record events. Do not
    change an event or its args after recording it.

    Events are not lost if they come fast: while `commit_threshold` events are not yet in the file,
    `record` waits. A process that ends without `close`, for example by SIGKILL or `os._exit`, loses
    the events of its last `flush_interval`, and the events that it recorded while these were being
    written. It loses at most `commit_threshold` events, and one more for each further thread that
    records. If the machine goes down, more events may be lost, because the file is not synchronized
    to the disk.

    If the disk is full or was removed, events are dropped and counted by cause. A disk that does
    not answer blocks `record` once, for 5 s. After that, up to `max_pending` events are stored in
    memory, and further events are dropped. The number of dropped events is logged and written to
    the file.

    After `fork`, the file belongs to the parent, and events that the child records are not written.

    Parameters
    ----------
    path
        The path of the file.
    commit_threshold, flush_interval
        Number of pending events, and number of seconds, after which events are written.
    max_pending
        Maximum number of pending events. Hooks on Dask's event loops must not wait, so they drop
        and count further events. `record` does the same while the disk does not answer.
    header
        Further entries of the file's header, such as the run's name.
    new
        Whether to write a new file even if the path exists. A number is then added to its name.
    segment_size
        Size in bytes after which events are written to another file, named
        ``….segment0002.msgpack`` and so on. 0 means a single file. This database reads back only
        the last file. Open the directory to read all files.
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
        segment_size: int = 0,
    ) -> None:
        check_limits(commit_threshold, flush_interval, max_pending)
        self._requested_path = check_path(path)
        exists = self._requested_path.exists()
        self._reader = TraceFile(self._requested_path) if exists and not new else None
        # A file that is read needs no header facts, because nothing is written to it.
        facts = {} if self._reader else process_header()
        #: The writer of the file. Plugins add their sources to it.
        self.writer = TraceWriter(
            self._requested_path,
            {**facts, **(header or {})},
            commit_threshold=commit_threshold,
            flush_interval=flush_interval,
            max_pending=max_pending,
            segment_size=segment_size,
        )
        self._source = Source(fold_events)
        self._numbered = new

    @property
    def path(self) -> Path:
        """The absolute path of the file. The name has a number if the requested name was in use."""
        return self.writer.path

    @property
    def paths(self) -> list[Path]:
        """The paths of all files (segments) that this object has written, in order."""
        return list(self.writer.paths)

    def record(self, event: Event) -> None:
        """Add an event to the buffer in memory.

        If at least `commit_threshold` events are waiting to be written, this blocks until there is
        room.

        Raises
        ------
        ReadOnlyError
            If the file existed or the database was closed.
        InvalidArgumentError
            If `event` is not an event, its name is not a str, its args are not a dict, its
            timestamp is not a number, or its duration is not a number of 0 or more.
        CannotWriteError
            If the file cannot be created.
        """
        # Nearly all events pass these checks. They are inline, because a function call would double
        # their cost.
        if not (
            type(event) in _PLAIN_EVENTS
            and type(event.timestamp) in _PLAIN_NUMBERS
            and type(event.name) is str
            and type(event.args) is dict
            and (
                not isinstance(event, CompleteEvent)
                or (type(event.duration) in _PLAIN_NUMBERS and event.duration >= 0)
            )
        ):
            check_event(event)
        source = self._source
        rows = source.rows
        if not rows:
            self._start()
        rows.append(event)
        # Events that are being written count as pending: they would also be lost with the process.
        if len(rows) + source.in_flight >= source.wake_at:
            self.writer.make_room(source)
            if self.writer.closed:
                raise self._closed_error()

    def commit(self) -> None:
        """Write all pending events, and wait until they are in the file."""
        if self._reader is None:
            self.writer.commit()

    def close(self) -> None:
        """Write all pending events and the closing frame. Further calls do nothing."""
        if self._reader is None:
            self.writer.close()

    def trace_file(self) -> TraceFile:
        """Write all pending events, and open the file for reading.

        Raises
        ------
        SourceNotFoundError
            If there is no file, because nothing was recorded.
        """
        self.commit()
        if self._reader is None and not self.path.exists():
            raise missing_file(self.path)
        file = self._reader or TraceFile(self.path)
        return file if self.window is None else replace(file, window=self.window)

    def batches(self) -> Iterator[Batch]:
        """Yield the events as batches in the order of the file.

        All events of a batch have the same name.

        Raises
        ------
        SourceNotFoundError
            If there is no file, because nothing was recorded.
        """
        return chain.from_iterable(map(split_names, self.trace_file().batches()))

    def get_traces(self) -> Iterator[Event]:
        """Yield the events in the order in which they were recorded.

        Events of dasfprof's plugins are completed from other events of this file.
        `MultiEventDatabase.get_traces` also uses the other files of a run.

        Raises
        ------
        SourceNotFoundError
            If there is no file, because nothing was recorded.
        """
        file = self.trace_file()
        return Completion([file.path]).events(file)

    def __repr__(self) -> str:
        return f"FileDatabase at {self._requested_path.parent / self.path.name}"

    def _start(self) -> None:
        """Create the file and start its writer. Raise an error if this database cannot record."""
        if self._reader is not None:
            raise ReadOnlyError(
                f"{self!r} existed when it was opened, so it is read-only: only the process that "
                "created a file writes to it. Record into a new file, or remove this one first."
            )
        if self.writer.closed:
            raise self._closed_error()
        try:
            created = self.writer.create()
        except OSError as error:
            raise CannotWriteError(
                f"cannot create the trace file {self.path}: {error.strerror or error}. "
                "Choose a file in a directory that this process may write to."
            ) from error
        if created and self.path.name != self._requested_path.name and not self._numbered:
            logger.warning(
                "another process has created %s in the meantime. Events are written to %s instead.",
                self._requested_path,
                self.path,
            )
        self.writer.add_source(self._source)

    def _closed_error(self) -> ReadOnlyError:
        return ReadOnlyError(f"{self!r} was closed. Record into a new file instead.")


def process_header() -> dict[str, Any]:
    """Return the facts about this process that are in the headers of all its files."""
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


_EVENTS = tuple(EVENT_CLASSES.values())
_NUMBERS = (int, float, np.integer, np.floating)


def check_event(event: Any) -> None:
    """Check an event that user code records.

    Raises
    ------
    InvalidArgumentError
        If `event` is not an event, its name is not a str, its args are not a dict, its timestamp
        is not a number, or its duration is not a number of 0 or more.
    """
    duration = event.duration if isinstance(event, CompleteEvent) else 0
    if not (
        isinstance(event, _EVENTS)
        and isinstance(event.name, str)
        and isinstance(event.args, dict)
        and _is_number(event.timestamp)
        and _is_number(duration)
        and duration >= 0
    ):
        raise InvalidArgumentError(
            f"got {event!r}: expected an event such as InstantEvent or CompleteEvent. Its name is "
            "a str, args is a dict, timestamp is a number of Unix seconds, and duration is a "
            "non-negative number of seconds."
        )


def check_limits(commit_threshold: Any, flush_interval: Any, max_pending: Any) -> None:
    """Check the limits of a new file.

    Raises
    ------
    InvalidArgumentError
        If one of the limits is not a number or is out of range.
    """
    has_valid_types = _is_number(flush_interval) and all(
        isinstance(number, int | np.integer) and not isinstance(number, bool)
        for number in (commit_threshold, max_pending)
    )
    if not (has_valid_types and 1 <= commit_threshold <= max_pending and flush_interval > 0):
        raise InvalidArgumentError(
            f"commit_threshold={commit_threshold!r}, flush_interval={flush_interval!r}, "
            f"max_pending={max_pending!r}: expected a positive integer, a positive number of "
            "seconds, and an integer that is at least commit_threshold."
        )


def check_path(path: Any) -> Path:
    """Check an argument that names a file to read or to write, and return it as a `Path`.

    Raises
    ------
    InvalidArgumentError
        If the argument is not a path, or is the path of a directory.
    """
    try:
        checked = Path(path)
    except TypeError as error:
        raise InvalidArgumentError(
            f"got {path!r} as a file name. Pass a str or a path, such as 'traces.msgpack'."
        ) from error
    if "\0" in str(checked):
        raise InvalidArgumentError(
            f"{path!r} contains a null character, which file names cannot have."
        )
    if checked.is_dir():
        raise InvalidArgumentError(
            f"{path!r} is a directory. Pass a file in it, or open the run that it contains with "
            "dasfprof.open_run."
        )
    return checked


def _is_number(number: Any) -> bool:
    return isinstance(number, _NUMBERS) and not isinstance(number, bool)
