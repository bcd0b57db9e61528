"""`MultiEventDatabase` reads several databases as one. `open_run` opens all files of a run."""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dasfprof.database.blocks import Batch
from dasfprof.database.completion import Completion
from dasfprof.database.file import EventDatabase, FileDatabase
from dasfprof.database.profiler import EventProfiler, HostDatabase, open_database
from dasfprof.database.reader import (
    NO_TRACE,
    Time,
    has_frame,
    intact_header,
    is_dasf_trace,
    is_trace,
    make_window,
)
from dasfprof.database.runs import TraceFiles, choose_run
from dasfprof.database.storage import is_url, open_stored
from dasfprof.errors import InvalidArgumentError, NotATraceError, SourceNotFoundError, TraceError
from dasfprof.schema.events import Event
from dasfprof.text import count_of

#: Pattern of the part of a file's name that follows the run's name.
_PLUGINS = re.compile(
    r"-(TracePlugin|SchedulerPlugin|ResourceMonitor|StepRecorder|GPUAnnotationPlugin)(-|\.msgpack$)"
)

#: Pattern of the end of the name of a file that the scheduler received from a worker.
_RECEIVED = re.compile(r"\.received(-\d+)?\.msgpack$")

Source = str | os.PathLike[str]


class MultiEventDatabase:
    """The events of several databases, one after another.

    Parameters
    ----------
    databases
        `EventProfiler` or `EventDatabase` objects, or paths of trace files.
    """

    def __init__(self, databases: Iterable[EventProfiler | EventDatabase | Source]) -> None:
        if isinstance(databases, str | os.PathLike):
            raise InvalidArgumentError(
                f"got the path {os.fspath(databases)!r}, but MultiEventDatabase takes a list of "
                "databases. Use dasfprof.open_run(path) to find the files of a run."
            )
        self.databases: list[EventDatabase] = []
        for database in map(_database, databases):
            if isinstance(database, HostDatabase):
                self.databases += database.databases
            else:
                self.databases.append(database)

    def get_traces(self) -> Iterator[Event]:
        """Yield all events, database by database.

        Events of dasfprof's plugins are completed with facts from all databases. Code that
        processes events one by one needs this, such as analyses for DASF's events. Two facts are
        added:

        - A "Resource Usage" event has NaN for each number that the process did not read at that
          time.
        - A "Compute" event has ``dependents``: the keys of the tasks that depend on its key.

        A "Managed Memory" event has no ``key``, because dasfprof samples managed memory at
        intervals. DASF's events have a key, because DASF records managed memory when a task ends.
        `batches` yields the columns as they were recorded, without these additions.
        """
        files = [item.trace_file() for item in self.databases if isinstance(item, FileDatabase)]
        completion = Completion(file.path for file in files)
        for database in self.databases:
            if isinstance(database, FileDatabase):
                yield from completion.events(database.trace_file())
            else:
                yield from database.get_traces()

    def __iter__(self) -> Iterator[Event]:
        return self.get_traces()

    def batches(self) -> Iterator[tuple[EventDatabase, Batch]]:
        """Yield all events as batches, each with the database that contains it."""
        for database in self.databases:
            for batch in database.batches():
                yield database, batch

    def __repr__(self) -> str:
        return f"MultiEventDatabase with {count_of(len(self.databases), 'database')}"


def open_run(source: Source, *, between: Sequence[Time] | None = None) -> MultiEventDatabase:
    """Open the trace files of a run to read them.

    Parameters
    ----------
    source
        A file, a directory, a glob, or the name of a run. The name may be abbreviated to a prefix,
        and a directory may precede it (``traces/Tutorial_5``). If a run's name equals the given
        name, longer names are ignored. If a directory contains several runs, or several runs have
        the given name, the newest run is opened, with a `UserWarning`. The directory may be a URL
        to which a run was uploaded (``s3://bucket/traces/Tutorial_5``). The files of that run are
        copied to a temporary directory of this process.
    between
        Two times: Unix seconds, datetimes, or texts such as ``"2026-03-01 12:00"``. Texts and
        datetimes without a time zone are in UTC. Only task runs, transfers and samples that overlap
        this time range are read. Their times come from the clocks of the recording hosts. Files
        that DASF wrote are read completely.

    Raises
    ------
    SourceNotFoundError
        If no file is found.
    NotATraceError
        If a file is neither a dasfprof nor a DASF trace, or if no file has an intact block.
    InvalidArgumentError
        If the prefix matches runs with different names, or if `between` does not contain two times.
    TraceError, MissingExtraError
        If a directory or URL cannot be read, or if the URL needs a package that is not installed.
    """
    window = make_window(between)
    text = os.fspath(source)
    path = Path(text)
    if is_url(source):
        files = open_stored(text)
    elif path.is_file():
        if not is_trace(path):
            raise NotATraceError(
                f"{text} is empty: its process has not written to it yet, or the disk was full. "
                "In that case, the log of the process has the number of lost events."
                if not path.stat().st_size
                else f"{text} is {NO_TRACE}"
            )
        files = [path]
    elif path.is_dir():
        _check_access(path)
        files = choose_run(find_runs(path), "", text, text).files
    elif glob.has_magic(text) and (matches := _headers(path.parent, map(Path, glob.glob(text)))):
        files = [file for file, _ in without_copies(matches)]
    else:
        _check_access(path.parent)
        runs = find_runs(path.parent)
        files = choose_run(runs, path.name, str(path.parent), text).files
    if not any(map(has_frame, files)):
        raise NotATraceError(
            f"{text} cannot be read: none of its {count_of(len(files), 'file')} has an intact "
            "block. Their processes have not written yet, or were killed while they wrote the "
            "first block."
        )
    run = MultiEventDatabase(files)
    for database in run.databases:
        database.window = window
    return run


def _check_access(directory: Path) -> None:
    try:
        os.scandir(directory).close()
    except PermissionError as error:
        raise TraceError(f"{directory} cannot be read: permission denied.") from error
    except OSError:
        pass


def find_runs(directory: Path, among: Iterable[Path] | None = None) -> list[TraceFiles]:
    """Return the runs that have files in a directory, newest first.

    If `among` is given, only these files are considered.
    """
    headers = without_copies(_headers(directory, among))
    runs: dict[tuple[str, str], TraceFiles] = {}
    # If the header is damaged, only the file's name shows its run.
    for path, header in sorted(headers, key=lambda pair: not pair[1]):
        name, run_uuid = header.get("run"), header.get("run_uuid")
        if not (isinstance(name, str) and name):
            name = _PLUGINS.split(path.name)[0].removesuffix(".msgpack")
        identity = name, run_uuid if isinstance(run_uuid, str) else ""
        if not header:
            same_name = [known for known in runs if known[0] == name]
            identity = max(same_name, key=lambda known: runs[known].created, default=identity)
        run = runs.setdefault(identity, TraceFiles(name))
        run.files.append(path)
        created = seconds_or_none(header.get("run_created", header.get("created"))) or 0.0
        run.created = min(run.created or created, created or run.created)
    return sorted(runs.values(), key=lambda run: run.created, reverse=True)


def files_of_run(directory: Path, run_uuid: str) -> list[Path]:
    """Return the files in a directory whose headers contain the id of a run, sorted by name.

    If there are several copies of a file, only the longest copy is returned.
    """
    return [path for path, _ in without_copies(headers_of_run(directory, run_uuid))]


def headers_of_run(directory: Path, run_uuid: str) -> list[tuple[Path, dict[str, Any]]]:
    """Return all files in a directory whose headers contain the id of a run, with the headers.

    Unlike `files_of_run`, this returns all copies of a file.
    """
    headers = _headers(directory)
    return [(path, header) for path, header in headers if header.get("run_uuid") == run_uuid]


def without_copies(
    headers: Iterable[tuple[Path, dict[str, Any]]],
) -> list[tuple[Path, dict[str, Any]]]:
    """Return the given files with their headers, but only the longest copy of each file."""
    # A worker's original file and the scheduler's copy may be in the same directory. Files only
    # grow, so the longest copy contains the contents of all others.
    longest: dict[Any, tuple[Path, dict[str, Any]]] = {}
    for path, header in headers:
        identity = identity_of(header) or path
        known = longest.get(identity)
        if known is None or known[0].stat().st_size < path.stat().st_size:
            longest[identity] = path, header
    return sorted(longest.values(), key=lambda pair: pair[0])


def received_path(path: Path) -> Path:
    """Return the path of the scheduler's copy of a worker's file."""
    return path.with_name(f"{path.stem}.received.msgpack")


def was_received(path: Path) -> bool:
    """Return whether a file is the scheduler's copy of a worker's file, judging by its name."""
    return _RECEIVED.search(path.name) is not None


def identity_of(header: dict[str, Any]) -> str:
    """Return an identifier that all copies of a plugin's file share, from the file's header.

    Return an empty text if the header lacks the necessary facts.
    """
    facts = [header.get(name) for name in ("run_uuid", "host", "boot_id", "pid", "plugin")]
    created = header.get("created")
    if not isinstance(created, float) or not all(facts):
        return ""
    others = (header.get(name) for name in ("process_started", "worker"))
    return " ".join(str(fact) for fact in (*facts, created, *others))


def _headers(
    directory: Path, among: Iterable[Path] | None = None
) -> list[tuple[Path, dict[str, Any]]]:
    """Return the traces in a directory, or among the files `among`, each with its header.

    See `_header` for files without an intact header.
    """
    files = directory.glob("*.msgpack") if among is None else among
    headers = ((path, _header(path)) for path in sorted(files) if path.is_file())
    return [(path, header) for path, header in headers if header is not None]


def _header(path: Path) -> dict[str, Any] | None:
    """Return the header of a trace, or None if the file is not a trace or cannot be read.

    A damaged header is an empty map. For a file that DASF wrote, the header has only a
    ``run_uuid``. If the file cannot be read, warn.
    """
    header = intact_header(path)
    try:
        if header is None and is_trace(path):
            header = {"run_uuid": "DASF"} if is_dasf_trace(path) else {}
    except FileNotFoundError:  # The file has just been removed.
        return None
    except OSError as error:
        why = error.strerror or error
        warnings.warn(f"{path} is skipped because it cannot be read: {why}.", stacklevel=2)
    return header


def seconds_or_none(value: Any) -> float | None:
    """Return a time from a header, or None if the value is not a time."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e12 else None


def _database(item: EventProfiler | EventDatabase | Source) -> EventDatabase:
    if isinstance(item, EventProfiler):
        return item.database
    if isinstance(item, EventDatabase):
        return item
    if not isinstance(item, str | os.PathLike):
        raise InvalidArgumentError(
            f"got {type(item).__name__}: expected databases, profilers or paths of trace files."
        )
    if not Path(item).is_file():
        raise SourceNotFoundError(f"there is no trace file {os.fspath(item)!r}.")
    return open_database(item)
