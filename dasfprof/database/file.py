"""`EventDatabase`, the interface of databases of events, and `FileDatabase`, events in one file."""

from __future__ import annotations

import logging
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.database.block_codec import Batch, fold_events, make_batches, split_names
from dasfprof.database.completion import Completion
from dasfprof.database.following import process_facts
from dasfprof.database.reader import FORMAT_VERSION, TraceFile, Window, is_dasf_trace
from dasfprof.database.runs import missing_file
from dasfprof.database.writer import Source, TraceWriter
from dasfprof.errors import CannotWriteError, InvalidArgumentError, NotATraceError, ReadOnlyError
from dasfprof.schema.events import (
    EVENT_CLASSES,
    CompleteEvent,
    DurationBeginEvent,
    DurationEndEvent,
    Event,
    InstantEvent,
)
from dasfprof.text import escape, format_size

# --- Trace files as an HTML table for a notebook --------------------------------------------------
# Names of files, workers and tasks come from the writer of the trace, so all text is escaped.

#: Maximum number of files of a run that a notebook lists.
_MOST_FILES = 20
_LONGEST = 200


def table_html(caption: str, labels: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table. Long texts are shortened."""
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell)[:_LONGEST])}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return (
        f"<div><p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def files_html(caption: str, paths: Sequence[Path]) -> str:
    """Return a table of trace files with their owners and sizes. Only headers are read."""
    if len(paths) > _MOST_FILES:
        caption = f"{caption}; the first {_MOST_FILES} files:"
    labels = ("Plugin", "Host", "Worker", "Size", "File")
    return table_html(caption, labels, [_file_row(path) for path in paths[:_MOST_FILES]])


def _file_row(path: Path) -> tuple[object, ...]:
    """Return the cells of one file, or why it cannot be read."""
    try:
        header = _header(path)
        worker = header.get("worker")
        name = worker.get("name", "") if isinstance(worker, dict) else ""
        size = format_size(path.stat().st_size)
    except Exception as error:
        return "", "", "", f"cannot be read: {type(error).__name__}", path.name
    return header.get("plugin", ""), header.get("host", ""), name, size, path.name


def _header(path: Path) -> dict[str, Any]:
    try:
        return TraceFile(path).read_header()
    except NotATraceError:
        if not is_dasf_trace(path):
            raise
        return {"plugin": "DASF"}


logger = logging.getLogger(__name__)

DEFAULT_COMMIT_THRESHOLD = 5000
DEFAULT_FLUSH_INTERVAL = 1.0
DEFAULT_MAX_PENDING = 100_000

#: Classes whose events `record` checks quickly. Other events get a full check.
_PLAIN_EVENTS = {InstantEvent, CompleteEvent, DurationBeginEvent, DurationEndEvent}
_PLAIN_NUMBERS = {float, int}


class EventDatabase(ABC):
    """A collection of events. Subclasses define `get_traces`, and `batches` if possible."""

    #: Time range that is read, or None for all.
    window: Window | None = None

    @abstractmethod
    def get_traces(self) -> Iterator[Event]:
        """Yield the events in the order in which they were recorded."""

    def record(self, event: Event) -> None:
        """Add an event. Raises `ReadOnlyError` if the database can only be read."""
        raise ReadOnlyError(f"{self!r} was opened for reading. Record into a new file instead.")

    def commit(self) -> None:  # noqa: B027  (nothing to do where nothing is pending)
        """Return when every event recorded so far can be read back."""

    def close(self) -> None:  # noqa: B027
        """Commit, and release the resources of the database."""

    def batches(self) -> Iterator[Batch]:
        """Yield the events as columns."""
        yield from make_batches(self.get_traces())

    def __enter__(self) -> EventDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileDatabase(EventDatabase):
    """Events in one file, in the format of FORMAT.md.

    An existing file is opened to read and never written. A new file is written by this object
    alone: the first event creates it, and where another writer has taken the name in the meantime,
    a number is added to it. `record` appends to memory; a background thread writes blocks. Any
    thread may record. Do not change an event or its args after recording it.

    Events that come fast are not lost: when `commit_threshold` of them are not yet in the file, the
    thread that records waits until they are. A process that ends without `close`, as by
    SIGKILL or `os._exit`, loses what it recorded in its last `flush_interval` (and while that was
    written), or `commit_threshold` events if these are fewer, and one more for each further thread
    that records. What is in the file outlives the process. If the machine goes down, more may be
    lost, as the file is not synchronised to the disk.

    Where the disk is full or gone, events are dropped and counted by that cause. A disk that does
    not answer blocks `record` once, for 5 s; from then on up to `max_pending` events are kept, and
    further ones dropped. The number of dropped events is logged and written to the file.

    After `fork` the file belongs to the parent: what the child records is not written.

    Parameters
    ----------
    path
        The file.
    commit_threshold, flush_interval
        Pending events are written when there are so many, or after so many seconds.
    max_pending
        The most pending events. Beyond them hooks on Dask's event loops, which must not wait, drop
        and count new ones; so does `record` while the disk does not answer.
    header
        Further entries of the file's header, such as the run's name.
    new
        Write a new file even if the path exists; a number is then added to its name.
    segment_size
        Bytes after which events go to another file, ``….segment0002.msgpack`` and so on; 0: never.
        This database reads back the last one; open the directory to read all.
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
        given = check_path(path)
        self._given = given
        self._reader = TraceFile(given) if given.exists() and not new else None
        # Nothing is written to a file that is read.
        facts = {} if self._reader else process_header()
        self._writer = TraceWriter(
            given,
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
        """The absolute path, with a number added to the name if another file had taken it."""
        return self._writer.path

    @property
    def paths(self) -> list[Path]:
        """The files that were written, in order."""
        return list(self._writer.paths)

    @property
    def writer(self) -> TraceWriter:
        """The writer, for plugins that add their own sources."""
        return self._writer

    def record(self, event: Event) -> None:
        """Append an event to memory; wait for the file if `commit_threshold` are not yet in it.

        Raises
        ------
        ReadOnlyError
            If the file existed or the database was closed.
        InvalidArgumentError
            If it is not an event, its name is not a str, its args are not a dict, its timestamp is
            not a number, or its duration is not a number of 0 or more.
        CannotWriteError
            If the file cannot be created.
        """
        # Checks that nearly all events pass. A function call for them would double the cost.
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
        # Events that are being written are lost with the process, too.
        if len(rows) + source.in_flight >= source.wake_at:
            self._make_room(event)

    def commit(self) -> None:
        """Write all pending events; return when they are in the file."""
        if self._reader is None:
            self._writer.commit()

    def close(self) -> None:
        """Write all pending events and the closing frame, once."""
        if self._reader is None:
            self._writer.close()

    def trace_file(self) -> TraceFile:
        """Write all pending events and open the file to read.

        Raises
        ------
        SourceNotFoundError
            If there is no file, as nothing was recorded; the message names similar files.
        """
        self.commit()
        if self._reader is None and not self.path.exists():
            raise missing_file(self.path)
        file = self._reader or TraceFile(self.path)
        return file if self.window is None else replace(file, window=self.window)

    def batches(self) -> Iterator[Batch]:
        """Yield the events as columns, of one name each, in the order of the file.

        Raises
        ------
        SourceNotFoundError
            If there is no file, as nothing was recorded; the message names similar files.
        """
        return chain.from_iterable(map(split_names, self.trace_file().batches()))

    def get_traces(self) -> Iterator[Event]:
        """Yield the events in the order in which they were recorded.

        Those of dasfprof's plugins are completed from the rest of the file; see
        `MultiEventDatabase.get_traces`, which knows of a run's other files too.

        Raises
        ------
        SourceNotFoundError
            If there is no file, as nothing was recorded; the message names similar files.
        """
        file = self.trace_file()
        return Completion([file.path]).events(file)

    def __repr__(self) -> str:
        return f"FileDatabase at {self._given.parent / self.path.name}"

    def _repr_html_(self) -> str:
        return files_html(repr(self), [self.path] if self.path.exists() else [])

    def _start(self) -> None:
        """Create the file and start the writer, or raise an error if it cannot be recorded into."""
        if self._reader is not None:
            raise ReadOnlyError(
                f"{self!r} existed when it was opened, so it is read-only: only the process that "
                "created a file writes to it. Record into a new file, or remove this one first."
            )
        if self._writer.closed:
            raise self._closed_error()
        try:
            created = self._writer.create()
        except OSError as error:
            raise CannotWriteError(
                f"cannot create the trace file {self._writer.path}: {error.strerror or error}. "
                "Choose a file in a directory that this process may write to."
            ) from error
        if created and self.path.name != self._given.name and not self._numbered:
            logger.warning(
                "another process has created %s in the meantime. Events are written to %s instead.",
                self._given,
                self.path,
            )
        self._writer.add_source(self._source)

    def _make_room(self, event: Event) -> None:
        self._writer.make_room(self._source)
        if self._writer.closed and self._writer.withdraw(self._source, event):
            raise self._closed_error()

    def _closed_error(self) -> ReadOnlyError:
        return ReadOnlyError(f"{self!r} was closed. Record into a new file instead.")


def process_header() -> dict[str, Any]:
    """Return the facts about this process for the header of every file."""
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


# --- Checks of the arguments of recording functions ----------------------------------------------

_EVENTS = tuple(EVENT_CLASSES.values())
_NUMBERS = (int, float, np.integer, np.floating)


def check_event(event: Any) -> None:
    """Check an event that user code records.

    Raises
    ------
    InvalidArgumentError
        If it is not an event, its name is not a str, its args are not a dict, its timestamp is not
        a number, or its duration is not a number of 0 or more.
    """
    if not isinstance(event, _EVENTS):
        raise InvalidArgumentError(
            f"got {type(event).__name__}: expected an InstantEvent, a CompleteEvent, a "
            "DurationBeginEvent or a DurationEndEvent."
        )
    if not isinstance(event.name, str):
        raise InvalidArgumentError(f"name={event.name!r}: the name of an event must be a str.")
    about = f"event {event.name!r}: "
    if not isinstance(event.args, dict):
        raise InvalidArgumentError(
            f"{about}args={event.args!r}: expected a dict of names and values, such as {{'loss': "
            "0.5}."
        )
    if not _is_number(event.timestamp):
        raise InvalidArgumentError(
            f"{about}timestamp={event.timestamp!r}: expected a number in Unix seconds, such as "
            "time.time()."
        )
    if isinstance(event, CompleteEvent) and not (
        _is_number(event.duration) and event.duration >= 0
    ):
        raise InvalidArgumentError(
            f"{about}duration={event.duration!r}: the duration of a complete event must be a "
            "non-negative number of seconds. Record an instant event for something without a "
            "duration."
        )


def check_limits(commit_threshold: Any, flush_interval: Any, max_pending: Any) -> None:
    """Check the limits of a new file.

    Raises
    ------
    InvalidArgumentError
        If one is not a number or out of its range.
    """
    whole = all(
        isinstance(number, int | np.integer) and not isinstance(number, bool)
        for number in (commit_threshold, max_pending)
    )
    number = _is_number(flush_interval)
    if (
        not (whole and number and commit_threshold >= 1 and flush_interval > 0)
        or max_pending < commit_threshold
    ):
        raise InvalidArgumentError(
            f"commit_threshold={commit_threshold!r}, flush_interval={flush_interval!r}, "
            f"max_pending={max_pending!r}: expected a positive integer, a positive number of "
            "seconds, and an integer that is at least commit_threshold."
        )


def check_path(path: Any) -> Path:
    """Return the path of a file to read or to write.

    Raises
    ------
    InvalidArgumentError
        If it is not a path, or the path of a directory.
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
