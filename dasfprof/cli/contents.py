"""Contents of the files of a run: headers, events, lost events, and missing files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.database import DasfDatabase, EventDatabase, FileDatabase
from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import Array, Column, NumberColumn
from dasfprof.database.ends import SAMPLES, SCHEDULER, TASKS, FileEnd, scheduler_is_cut
from dasfprof.database.following import Writer, writer_of
from dasfprof.database.losses import describe_losses
from dasfprof.database.reader import TraceFile
from dasfprof.database.rotated_files import Segments, absent_files
from dasfprof.schema import FORMER_EVENTS, KINDS
from dasfprof.text import count_of, name_first

CLOSED = "closed cleanly"
CLIENT_GONE = "closed because its client was gone"
CONTINUED = "continued in the next segment"
BEHIND = "not closed although the workers' files are: truncated, or not yet written"
NO_END = "in DASF's format, which does not mark the end"

#: Events about the GPUs of a worker, about errors when they are read, and NVTX ranges of tasks.
_GPU_EVENTS = ("GPU Devices", "GPU Failure", "NVTX")
#: Maximum number of these events per file. If there are more, not all of them are shown.
_MAX_GPU_EVENTS = 20
#: Limit of plausible times in seconds.
_LATEST = 1e15


@dataclass
class FileContents:
    """Contents of one file, and the events that were lost."""

    path: Path
    size: int
    state: str
    header: dict[str, Any] = field(default_factory=dict)
    #: Whether the process that wrote the file continued in a further segment.
    continues: bool = False
    #: Number of events by event name.
    events: Counter[str] = field(default_factory=Counter)
    #: Time of the first event and of the last event, or None if there are no events. They are Unix
    #: seconds, or seconds since the host's start in files of DASF.
    first: float | None = None
    last: float | None = None
    #: Number of events that a later version of a plugin recorded and that this version cannot read.
    unknown: Counter[str] = field(default_factory=Counter)
    #: Descriptions of losses in the file.
    losses: list[str] = field(default_factory=list)
    #: Addresses of workers that joined, according to the scheduler.
    joined: set[str] = field(default_factory=set)
    #: Addresses of workers that left, according to the scheduler.
    left: set[str] = field(default_factory=set)
    #: Number of task runs that ended, by address of the worker, according to the scheduler.
    task_runs: Counter[str] = field(default_factory=Counter)
    #: Number of events that were written but are not in any existing file.
    gone: int = 0
    #: Names and arguments of the events about GPUs.
    gpu_events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

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
        """Return an entry of the header, or of a map in the header, or None if there is none."""
        value: Any = self.header
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def owner(self) -> str:
        """Name of the worker, or ``scheduler``. Empty if the header names neither."""
        label = self.fact("worker", "label")
        return str(label) if label else "scheduler" if self.fact("scheduler") else ""

    def add(self, batches: Iterable[Batch]) -> None:
        """Count the events of some batches."""
        for batch in batches:
            if not batch.rows:
                continue
            known = {batch.name: batch.rows}
            for name, rows in (Counter(batch.names) if "name" in batch.fields else known).items():
                self.events[name] += rows
                if (batch.phase, name) not in KINDS and name not in FORMER_EVENTS:
                    self.unknown[name] += rows
            times = _numbers(batch.fields["timestamp"])
            if len(times):
                first, last = float(times.min()), float(times.max())
                self.first = first if self.first is None else min(self.first, first)
                self.last = last if self.last is None else max(self.last, last)
            who = batch.args["worker"].to_list() if "worker" in batch.args else []
            if batch.name == "Worker Added":
                self.joined.update(map(str, who))
            if batch.name == "Worker Removed":
                self.left.update(map(str, who))
            if batch.name == "Task Run" and who and "start" in batch.args:
                ran = zip(who, batch.args["start"].to_list(), strict=True)
                self.task_runs.update(str(worker) for worker, start in ran if _is_time(start))
            if batch.name in _GPU_EVENTS and len(self.gpu_events) < _MAX_GPU_EVENTS:
                events = [(event.name, event.args) for _, event in batch.events()]
                self.gpu_events += events[:_MAX_GPU_EVENTS]


def read_all_contents(databases: Iterable[EventDatabase]) -> list[FileContents]:
    """Read the files of a run. The events of a missing segment count as lost in the next segment.

    Raises
    ------
    TraceError
        If a file is not a trace file.
    """
    contents, segments = [], Segments()
    for database in databases:
        if isinstance(database, FileDatabase):
            file = database.trace_file()
            contents.append(_read_file(file))
            segments.add(file)
        else:
            contents.append(read_contents(database))
    followed = segments.followed()
    for content in contents:
        if not content.is_closed and content.path.name in followed:
            content.continues, content.state = True, CONTINUED
    _doubt_scheduler(contents)
    for missing in segments.missing():
        content = next(content for content in contents if content.path.name == missing.file)
        content.losses.append(missing.text)
        content.gone += missing.events or 0
    return contents


def _doubt_scheduler(contents: list[FileContents]) -> None:
    """Mark the scheduler's file as truncated if it does not record that workers left.

    Only workers that closed their files count.
    """
    ends = [
        FileEnd.from_header(
            content.header, None if content.is_closed or content.is_dasf else Writer(content.state)
        )
        for content in contents
    ]
    if scheduler_is_cut(ends, set().union(*(content.left for content in contents))):
        for content in contents:
            if content.goes_on and content.fact("plugin") == SCHEDULER:
                content.state = BEHIND


def _by_address(contents: list[FileContents]) -> dict[str, list[FileContents]]:
    """Return the files of each worker, by the worker's address."""
    files: dict[str, list[FileContents]] = defaultdict(list)
    for file in contents:
        if address := file.fact("worker", "address"):
            files[str(address)].append(file)
    return files


def read_contents(database: EventDatabase) -> FileContents:
    """Read a file completely.

    Raises
    ------
    TraceError
        If it is not a trace file.
    """
    if isinstance(database, FileDatabase):
        return _read_file(database.trace_file())
    assert isinstance(database, DasfDatabase)
    return _read_dasf(database)


def _numbers(column: Column) -> Array:
    """Return the finite numbers in a column. User code may have recorded any values in it."""
    if isinstance(column, NumberColumn):
        array: Array = np.asarray(column.array, dtype=float)
    else:
        items = [item for item in column.to_list() if type(item) in (int, float)]
        array = np.array([item for item in items if abs(item) < _LATEST], dtype=float)
    return array[np.isfinite(array)]


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LATEST


def _read_file(file: TraceFile) -> FileContents:
    contents = FileContents(file.path, file.path.stat().st_size, CLOSED)
    contents.add(file.batches())
    contents.header = file.header
    # User code wrote this file, with another plugin.
    if file.header and "plugin" not in file.header:
        contents.unknown.clear()
    if file.end is not None and file.end.get("continues") is True:
        contents.continues, contents.state = True, CONTINUED
    if file.ended_by_itself:
        contents.state = CLIENT_GONE
    if file.end is None:
        contents.state = writer_of(file.header).value
    damage = file.damage
    counts = (
        (file.errors, "errors during recording"),
        (damage.corrupt_bytes, f"corrupt bytes in {damage.corrupt_stretches} places"),
        (damage.cut_bytes, "bytes of an unfinished block at the end"),
        (len(damage.unreadable), "blocks of unknown kind"),
    )
    if file.dropped:
        contents.losses.append(describe_losses(file.dropped, file.dropped_by))
    contents.losses += [f"{count:,} {what}" for count, what in counts if count]
    if not file.header:
        contents.losses.append("the header")
    return contents


def _read_dasf(database: DasfDatabase) -> FileContents:
    contents = FileContents(database.path, database.path.stat().st_size, NO_END)
    contents.add(database.batches())
    contents.unknown.clear()
    if database.lost_bytes:
        contents.losses.append(f"{database.lost_bytes:,} bytes at the end without a complete event")
    return contents


def absences(contents: list[FileContents]) -> Iterator[str]:
    """Yield descriptions of files of a run that are missing although other files mention them."""
    plugins = {file.fact("plugin") for file in contents}
    if plugins & {TASKS, SAMPLES} and SCHEDULER not in plugins:
        yield "of the scheduler, which is in another place or was deleted"
    workers = _by_address(contents)
    known = set[str]().union(*(file.joined | file.task_runs.keys() for file in contents))
    absent = sorted(known - workers.keys())
    if absent:
        ran = sum(_task_runs(contents)[address] for address in absent)
        yield (
            f"of {_named(absent)}, which was not recorded, or whose file is on its own disk or "
            f"was deleted{_of_runs(ran)}"
        )
    yield from _absent_files(contents)


def lost_task_runs(contents: list[FileContents]) -> tuple[int, int]:
    """Return how many task runs ended according to the scheduler, and how many of these are lost.

    Lost task runs are in no existing file. If all files of a worker are closed or still being
    written, none of its task runs count as lost: the worker may have recorded more of them than the
    scheduler.
    """
    seen, workers = _task_runs(contents), _by_address(contents)
    lost = 0
    for address, count in seen.items():
        files = [file for file in workers.get(address, []) if file.fact("plugin") == TASKS]
        is_complete = all(file.goes_on or (file.is_closed and not file.losses) for file in files)
        if not files or not is_complete:
            lost += max(count - sum(file.events["Compute"] for file in files), 0)
    return seen.total(), lost


def _absent_files(contents: list[FileContents]) -> Iterator[str]:
    """Yield descriptions of missing files that the worker's other files mention."""
    by_plugin: dict[str, list[str]] = defaultdict(list)
    seen = _task_runs(contents)
    for worker, address, plugin in absent_files(file.header for file in contents):
        by_plugin[plugin].append(worker)
        if plugin == TASKS:
            seen[""] += seen[address]
    for plugin, names in sorted(by_plugin.items()):
        ran = _of_runs(seen[""]) if plugin == TASKS else ""
        yield (
            f"of {plugin} of {_named(sorted(names))}, which is in another place or was deleted{ran}"
        )


def _task_runs(contents: list[FileContents]) -> Counter[str]:
    return sum((file.task_runs for file in contents), Counter[str]())


def _named(workers: list[str]) -> str:
    return f"{count_of(len(workers), 'worker')}: {name_first(workers)}"


def _of_runs(count: int) -> str:
    return f". The scheduler saw {count_of(count, 'task run')} end there" if count else ""
