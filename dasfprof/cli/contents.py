"""What the files of a run hold: headers, events, losses; and what they tell of files not here."""

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
from dasfprof.schema import KINDS
from dasfprof.text import count_of, name_first

CLOSED = "closed cleanly"
CLIENT_GONE = "closed as its client was gone"
CONTINUED = "goes on in the next segment"
BEHIND = "not closed, though workers' files are: cut, or not written yet"
NO_END = "DASF's format, which has no end"

#: Tell what GPUs a worker may use, why one cannot be read, and whether tasks were NVTX ranges.
_GPU_EVENTS = ("GPU Devices", "GPU Failure", "NVTX")
#: A file has a few of them; one that claims more is not shown whole.
_MAX_GPU_EVENTS = 20
#: Seconds beyond any clock.
_LATEST = 1e15


@dataclass
class FileContents:
    """What one file holds, and what was lost."""

    path: Path
    size: int
    state: str
    header: dict[str, Any] = field(default_factory=dict)
    #: Whether another segment of its writer follows.
    continues: bool = False
    #: Number of events of each name.
    events: Counter[str] = field(default_factory=Counter)
    #: Unix seconds; seconds since the host's start in DASF's files. None without events.
    first: float | None = None
    last: float | None = None
    #: Number of events that a plugin of a later version recorded and this one does not know.
    unknown: Counter[str] = field(default_factory=Counter)
    #: What was lost, in words.
    losses: list[str] = field(default_factory=list)
    #: Addresses of workers that the scheduler says to have joined.
    joined: set[str] = field(default_factory=set)
    #: And of those that it says to have left.
    left: set[str] = field(default_factory=set)
    #: Task runs that the scheduler saw end, by the worker's address.
    task_runs: Counter[str] = field(default_factory=Counter)
    #: Events that had been written beside those of this file and are in none that is here.
    gone: int = 0
    #: Names and args of the events that tell of GPUs.
    gpu_events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def is_dasf(self) -> bool:
        """Whether DASF wrote the file."""
        return self.state == NO_END

    @property
    def is_closed(self) -> bool:
        """Whether its writer finished it."""
        return self.state in (CLOSED, CLIENT_GONE, CONTINUED)

    @property
    def goes_on(self) -> bool:
        """Whether a process of this machine still writes the file."""
        return self.state == Writer.ALIVE.value

    def fact(self, *names: str) -> Any:
        """Return an entry of the header, or of a map in it; None if there is none."""
        found: Any = self.header
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def owner(self) -> str:
        """Return the worker's name or ``scheduler``; empty if the header has neither."""
        label = self.fact("worker", "label")
        return str(label) if label else "scheduler" if self.fact("scheduler") else ""

    def add(self, batches: Iterable[Batch]) -> None:
        """Count events."""
        for batch in batches:
            if not batch.rows:
                continue
            known = {batch.name: batch.rows}
            for name, rows in (Counter(batch.names) if "name" in batch.fields else known).items():
                self.events[name] += rows
                if (batch.phase, name) not in KINDS:
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
                told = [(event.name, event.args) for _, event in batch.events()]
                self.gpu_events += told[:_MAX_GPU_EVENTS]


def read_all_contents(databases: Iterable[EventDatabase]) -> list[FileContents]:
    """Read the files of a run; what is missing of one is among what was lost of its neighbour.

    Raises
    ------
    TraceError
        If one is no file of a trace.
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
    for one in contents:
        if not one.is_closed and one.path.name in followed:
            one.continues, one.state = True, CONTINUED
    _doubt_scheduler(contents)
    for missing in segments.missing():
        one = next(one for one in contents if one.path.name == missing.file)
        one.losses.append(missing.text)
        one.gone += missing.events or 0
    return contents


def _doubt_scheduler(contents: list[FileContents]) -> None:
    """Mark a scheduler's file as cut that misses the end of workers, whose own files have it."""
    ends = [
        FileEnd.of(one.header, None if one.is_closed or one.is_dasf else Writer(one.state))
        for one in contents
    ]
    if scheduler_is_cut(ends, set().union(*(one.left for one in contents))):
        for one in contents:
            if one.goes_on and one.fact("plugin") == SCHEDULER:
                one.state = BEHIND


def _by_address(contents: list[FileContents]) -> dict[str, list[FileContents]]:
    """Return the files of each worker by its address."""
    found: dict[str, list[FileContents]] = defaultdict(list)
    for file in contents:
        if address := file.fact("worker", "address"):
            found[str(address)].append(file)
    return found


def read_contents(database: EventDatabase) -> FileContents:
    """Read a whole file.

    Raises
    ------
    TraceError
        If it is not a file of a trace.
    """
    if isinstance(database, FileDatabase):
        return _read_file(database.trace_file())
    assert isinstance(database, DasfDatabase)
    return _read_dasf(database)


def _numbers(column: Column) -> Array:
    """Return the finite numbers of a column; user code may have recorded anything there."""
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
    if file.header and "plugin" not in file.header:  # a file of user code, which names its own
        contents.unknown.clear()
    if file.end is not None and file.end.get("continues") is True:
        contents.continues, contents.state = True, CONTINUED
    if file.ended_by_itself:
        contents.state = CLIENT_GONE
    if file.end is None:
        contents.state = writer_of(file.header).value
    damage = file.damage
    told = (
        (file.errors, "errors caught while recording"),
        (damage.corrupt_bytes, f"corrupt bytes in {damage.corrupt_stretches} places"),
        (damage.cut_bytes, "bytes of an unfinished block at the end"),
        (len(damage.unreadable), "blocks not understood"),
    )
    if file.dropped:
        contents.losses.append(describe_losses(file.dropped, file.dropped_by))
    contents.losses += [f"{count:,} {what}" for count, what in told if count]
    if not file.header:
        contents.losses.append("the header")
    return contents


def _read_dasf(database: DasfDatabase) -> FileContents:
    contents = FileContents(database.path, database.path.stat().st_size, NO_END)
    contents.add(database.batches())
    contents.unknown.clear()
    if database.lost_bytes:
        contents.losses.append(f"{database.lost_bytes:,} bytes at the end that hold no whole event")
    return contents


def absences(contents: list[FileContents]) -> Iterator[str]:
    """Yield which files of a run are not among some, as these tell, in words."""
    plugins = {file.fact("plugin") for file in contents}
    if plugins & {TASKS, SAMPLES} and SCHEDULER not in plugins:
        yield "of the scheduler: it is elsewhere, or gone"
    workers = _by_address(contents)
    known = set[str]().union(*(file.joined | file.task_runs.keys() for file in contents))
    absent = sorted(known - workers.keys())
    if absent:
        ran = sum(_task_runs(contents)[address] for address in absent)
        yield (
            f"of {_named(absent)}; it was not recorded, or its file stayed on its own disk, or is "
            f"gone{_of_runs(ran)}"
        )
    yield from _absent_files(contents)


def lost_task_runs(contents: list[FileContents]) -> tuple[int, int]:
    """Return how many task runs the scheduler saw end, and how many of them are in no file here.

    Of workers whose files are whole, or still written, none is: these record more than the
    scheduler sees.
    """
    seen, workers = _task_runs(contents), _by_address(contents)
    lost = 0
    for address, count in seen.items():
        files = [file for file in workers.get(address, []) if file.fact("plugin") == TASKS]
        is_whole = all(file.goes_on or (file.is_closed and not file.losses) for file in files)
        if not files or not is_whole:
            lost += max(count - sum(file.events["Compute"] for file in files), 0)
    return seen.total(), lost


def _absent_files(contents: list[FileContents]) -> Iterator[str]:
    """Yield the files that others of the same worker name."""
    by_plugin: dict[str, list[str]] = defaultdict(list)
    seen = _task_runs(contents)
    for worker, address, plugin in absent_files(file.header for file in contents):
        by_plugin[plugin].append(worker)
        if plugin == TASKS:
            seen[""] += seen[address]
    for plugin, names in sorted(by_plugin.items()):
        ran = _of_runs(seen[""]) if plugin == TASKS else ""
        yield f"of {plugin} of {_named(sorted(names))}: it is elsewhere, or gone{ran}"


def _task_runs(contents: list[FileContents]) -> Counter[str]:
    return sum((file.task_runs for file in contents), Counter[str]())


def _named(workers: list[str]) -> str:
    return f"{count_of(len(workers), 'worker')}: {name_first(workers)}"


def _of_runs(count: int) -> str:
    return f"; the scheduler saw {count_of(count, 'task run')} end there" if count else ""
