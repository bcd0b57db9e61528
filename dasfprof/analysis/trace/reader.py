"""Reads the columns of all events in the files of a trace, from which a `Trace` is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import gaps
from dasfprof.analysis.trace.columns import FactColumns, to_times
from dasfprof.analysis.trace.gaps import Note, NoteKind
from dasfprof.analysis.trace.keys import KeyCollector
from dasfprof.analysis.trace.progress import track
from dasfprof.analysis.trace.under_way import StackNumbers
from dasfprof.analysis.trace.workers import WorkerRegister
from dasfprof.database import DasfDatabase, EventDatabase, FileDatabase
from dasfprof.database.blocks import Batch, split_names
from dasfprof.database.columns import Array, repeated
from dasfprof.database.ends import SCHEDULER, FileEnd
from dasfprof.database.following import Writer, writer_of
from dasfprof.database.losses import describe_losses, describe_unknown_events
from dasfprof.database.reader import TraceFile
from dasfprof.database.rotated_files import Segments, absent_files, writer_identity
from dasfprof.schema import FORMER_EVENTS, KINDS
from dasfprof.schema.events import EventPhases
from dasfprof.schema.profiles import CALL_PROFILE
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.steps import LINE_LAYER, STEP_LAYER
from dasfprof.text import clean, count_of

#: Kind of an event of user code, by its phase.
_KINDS = {
    EventPhases.COMPLETE: "span",
    EventPhases.INSTANT: "instant",
    EventPhases.DURATION_BEGIN: "begin",
    EventPhases.DURATION_END: "end",
}
#: Maximum seconds between an event of user code and the other events of a run. Beyond it, the event
#: does not extend the time range of the run.
_FAR = 86_400.0
#: Text about events that are further away than `_FAR`.
FAR_AWAY = (
    "more than a day from the run, perhaps by another clock. They are listed in tables, but not "
    "shown in pictures."
)
_COLUMNS = ("name", "kind", "time", "duration", "process", "thread", "args")


class UserEvents:
    """Collects the events of user code, file by file."""

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []
        #: Number of the file to which events belong that are added next.
        self.file = 0

    def add(self, batch: Batch) -> None:
        """Add the events of a batch."""
        durations = np.zeros(batch.rows)
        if "duration" in batch.fields:
            durations = to_times(batch.fields["duration"]).astype(float)
        names = list(batch.args)
        rows = zip(*(column.to_list() for column in batch.args.values()), strict=True)
        args = [dict(zip(names, row, strict=True)) for row in rows] if names else []
        part = {
            "name": batch.names,
            "kind": _KINDS[batch.phase],
            "time": to_times(batch.fields["timestamp"]).astype(float),
            "duration": np.where(durations >= 0, durations, np.nan),
            "process": _texts(batch, "process_id"),
            "thread": _texts(batch, "thread_id"),
            "args": pd.Series(args or [{}] * batch.rows, dtype=object),
            "file": self.file,
            "sequence": batch.sequence,
        }
        self._parts.append(pd.DataFrame(part))

    def table(self) -> pd.DataFrame:
        """Return all events, sorted by file and then by order of recording (see `Trace.events`)."""
        if not self._parts:
            empty = pd.DataFrame({name: [] for name in _COLUMNS}, dtype=object)
            return empty.astype({"time": float, "duration": float})
        events = pd.concat(self._parts, ignore_index=True)
        events = events.sort_values(["file", "sequence"], ignore_index=True)
        return _joined(events[list(_COLUMNS)])


def widened(begin: float, end: float, events: pd.DataFrame) -> tuple[float, float, int]:
    """Return the time range of a run, extended to contain its events of user code.

    Parameters
    ----------
    begin, end
        Time range of all other events. If it is NaN, no event of user code counts as too far away.
    events
        See `UserEvents.table`.

    Returns
    -------
    begin, end, left_out
        The extended time range, and the number of events that are too far away to extend it.
    """
    starts = events["time"].to_numpy(dtype=float)
    stops = starts + np.nan_to_num(events["duration"].to_numpy(dtype=float))
    timed = np.isfinite(starts)
    far = timed & ((starts < begin - _FAR) | (stops > end + _FAR))
    first = np.fmin.reduce(starts[timed & ~far], initial=begin)
    last = np.fmax.reduce(stops[timed & ~far], initial=end)
    return float(first), float(last), int(far.sum())


def _texts(batch: Batch, field: str) -> pd.Series[Any]:
    column = batch.fields.get(field)
    values = [""] * batch.rows if column is None else column.to_list()
    return pd.Series(["" if value is None else str(value) for value in values], dtype=object)


def _joined(events: pd.DataFrame) -> pd.DataFrame:
    """Return events in which the start and the end of a time range are joined into one "span"."""
    kinds = events["kind"].to_numpy(dtype=object)
    bounds = np.flatnonzero((kinds == "begin") | (kinds == "end"))
    if not len(bounds):
        return events
    times = events["time"].to_numpy()
    open_rows: dict[tuple[Any, ...], list[int]] = {}
    ends = np.full(len(events), -1, dtype=np.int64)
    # The event that starts a time range is joined with the event that ends it. The two have the
    # same name, process and thread.
    where = zip(*(events[name].iloc[bounds] for name in ("name", "process", "thread")), strict=True)
    for row, place in zip(bounds.tolist(), where, strict=True):
        if kinds[row] == "begin":
            open_rows.setdefault(place, []).append(row)
        elif open_rows.get(place) and times[row] >= times[open_rows[place][-1]]:
            ends[open_rows[place].pop()] = row
    begun: Array = np.flatnonzero(ends >= 0)
    events = events.copy()
    events["duration"] = events["duration"].where(~np.isin(kinds, ["begin", "end"]))
    events.loc[begun, "duration"] = times[ends[begun]] - times[begun]
    events.loc[begun, "kind"] = "span"
    args = events["args"].to_numpy(dtype=object).copy()
    for row in begun.tolist():
        args[row] = {**args[row], **args[ends[row]]}
    events["args"] = pd.Series(args, index=events.index, dtype=object)
    remaining = np.ones(len(events), dtype=bool)
    remaining[ends[begun]] = False
    return events[remaining].reset_index(drop=True)


#: Columns of samples that always exist, even if no event contains them.
_ALWAYS_READ = ("time", "gpu_index", "gpu_utilization", "gpu_memory_used")

#: Events that do not belong to a worker: stacks, and events of clients.
_OF_NOBODY = frozenset(
    (
        *("Step", "Step End", "Step Layer", "Graph Sent", "Function Sent", "Sent Value"),
        *("Client Calls", "Client Under Way", "Client Sample", "Stack"),
        *("Line", "Line Layer", "Line Graph"),
    )
)
#: Known events that are in no table of a trace. "NVTX" states whether tasks were shown as NVTX
#: ranges.
_IN_NO_TABLE = FORMER_EVENTS | {"NVTX"}
_KNOWN = {name for _, name in KINDS}.union(_OF_NOBODY)


@dataclass
class _ReadFile:
    """Name, header, writer and end of a trace file whose events were read."""

    name: str
    header: dict[str, Any]
    #: Id of the worker that wrote the file, or None.
    owner: int | None
    #: Whether the file has a closing frame, or its process continued in another file.
    is_closed: bool
    #: State of the process that writes the file of a plugin. None if the file is closed.
    writer: Writer | None


class TraceReader:
    """Reads the events of databases, and collects them by kind."""

    def __init__(self, databases: list[EventDatabase], *, progress: bool) -> None:
        self.collector = KeyCollector()
        self.register = WorkerRegister()
        #: Collects stimulus ids. Their numbers are independent of those of tasks' keys.
        self.stimulus_collector = KeyCollector()
        #: Columns of stimulus ids, by kind of event.
        self.stimuli = {
            kind.name: FactColumns(self.stimulus_collector, forms)
            for kind in KINDS.values()
            if (forms := kind.forms(stimuli=True))
        }
        #: Collects the names of layers that pipeline steps and source lines built. Their numbers
        #: are independent of those of tasks' keys.
        self.layer_collector = KeyCollector()
        self.layers = {
            kind.name: FactColumns(self.layer_collector, kind.forms())
            for kind in (STEP_LAYER, LINE_LAYER)
        }
        #: Data notes about what is missing or damaged.
        self.notes: list[Note] = []
        #: Events of user code: events of unknown kinds in files that no plugin wrote.
        self.user_events = UserEvents()
        #: Number of events of each unknown kind in the current file, by name.
        self._unknown: Counter[str] = Counter()
        self._files: list[_ReadFile] = []
        #: Hosts with DASF's files, whose clock starts at boot.
        self.dasf_hosts: set[str] = set()
        self._kinds = {
            key: FactColumns(
                self.collector,
                # There are about forty columns of samples, and a trace may contain only a few of
                # them. Columns without values are not created.
                {name: form for name, form in kind.forms().items() if name in _ALWAYS_READ}
                if kind is RESOURCE_USAGE
                else kind.forms(),
                keep_others=kind is RESOURCE_USAGE,
            )
            for key, kind in KINDS.items()
        }
        #: Directory of each worker's files, which may contain call profiles.
        self.profile_directories: dict[int, Path] = {}
        self._stacks = StackNumbers()
        self._segments = Segments()
        #: Names of scheduler files that a running process seems to be writing.
        self.scheduler_goes_on: list[str] = []
        #: Time range that was read, or None if the files were read completely.
        self.window = next(
            (database.window for database in databases if database.window is not None), None
        )
        #: Columns of events, by kind.
        self.facts = {name: columns for (_, name), columns in self._kinds.items()}
        bar = track(databases, "Reading traces", shown=progress, total=len(databases), unit="file")
        for database in bar:
            if isinstance(database, FileDatabase):
                self._read_file(database.trace_file())
            elif isinstance(database, DasfDatabase):
                self._read_dasf(database)
            else:
                for batch in database.batches():
                    self._add(batch, None, of_user=True)
            self.user_events.file += 1
        self._note_unclosed()
        self._note_missing_files()

    def _add(self, batch: Batch, owner: int | None, *, of_user: bool) -> None:
        if batch.phase == EventPhases.INSTANT:
            batch = self._stacks.renumbered(batch)
        if batch.phase == EventPhases.INSTANT and batch.name in _OF_NOBODY:
            nobody = repeated(np.int32(-1), batch.rows)
            self.layers.get(batch.name, self.facts[batch.name]).add(batch, nobody)
            return
        columns = self._kinds.get((batch.phase, batch.name))
        if columns is None:
            if of_user and batch.rows:
                self.user_events.add(batch)
            elif batch.rows:
                self._unknown.update(name for name in batch.names if name not in _IN_NO_TABLE)
            return
        workers = self.register.ids_of(batch, owner)
        columns.add(batch, workers)
        if batch.name in self.stimuli:
            self.stimuli[batch.name].add(batch, workers)

    def _by_kind(self, batch: Batch) -> Iterable[Batch]:
        """Split a batch into batches of events with the same name."""
        # A batch without any known name is not split, because splitting is slow.
        if "name" not in batch.fields or _KNOWN.isdisjoint(batch.names):
            return [batch]
        return split_names(batch)

    def _read_file(self, file: TraceFile) -> None:
        owner: int | None = None
        header: dict[str, Any] = {}
        self._unknown.clear()
        for batch in chain.from_iterable(map(self._by_kind, file.batches())):
            if file.header and not header:
                header, owner = file.header, self.register.add_header(file.header)
                self._stacks.begin_file(writer_identity(header))
            if batch.name == CALL_PROFILE.name and owner is not None:
                self.profile_directories[owner] = file.path.parent
            self._add(batch, owner, of_user=bool(header) and "plugin" not in header)
        if file.header and not header:  # The file has no events.
            header, owner = file.header, self.register.add_header(file.header)
        is_closed = file.end is not None
        writer = writer_of(header) if "plugin" in header and not is_closed else None
        self._files.append(_ReadFile(file.path.name, header, owner, is_closed, writer))
        self._segments.add(file, owner)
        self._note_losses(file, header)
        if file.ended_by_itself and header.get("plugin") == SCHEDULER:
            self.notes.append(gaps.of_client_gone(file.end or {}))
        if self._unknown:
            self._note(
                "unknown-events", file.path.name, describe_unknown_events(self._unknown) + "."
            )
        self._note_missing(header)

    def _read_dasf(self, database: DasfDatabase) -> None:
        for batch in database.batches():
            ids = self.register.ids_of(batch, None)
            self.dasf_hosts |= {self.register.workers[number].host for number in set(ids.tolist())}
            self._add(batch, None, of_user=True)
        if database.lost_bytes:
            lost = f"the last {database.lost_bytes} bytes are not a complete event."
            self._note("damaged-file", database.path.name, lost)

    @property
    def headers(self) -> list[dict[str, Any]]:
        """The headers of all files, which may be empty for damaged files."""
        return [file.header for file in self._files]

    @property
    def processes(self) -> set[tuple[str, int]]:
        """Host and process id of each process that wrote a file of a plugin."""
        return {
            (str(header.get("host", "")), header["pid"])
            for header in self.headers
            if "plugin" in header and isinstance(header.get("pid"), int)
        }

    def file_ends(self) -> list[FileEnd]:
        """Return how each file of a plugin ended."""
        files = [file for file in self._files if "plugin" in file.header]
        return [FileEnd.from_header(file.header, file.writer) for file in files]

    def _note_unclosed(self) -> None:
        """Add notes about files that were not closed, unless a later file of the process exists."""
        followed = self._segments.followed()
        for file in self._files:
            if file.name in followed:
                file.is_closed, file.writer = True, None
            if file.owner is not None:
                self.register.workers[file.owner].closed.append(file.is_closed)
            if file.writer is Writer.ALIVE:
                if file.header["plugin"] == SCHEDULER:
                    self.scheduler_goes_on.append(file.name)
            elif file.writer is not None:
                lost = f"{file.writer.value}. What its process had not yet written is missing."
                self._note("not-closed", file.name, lost)

    def _note_missing_files(self) -> None:
        absent = list(self._segments.missing(self.window))
        gone = sum(missing.events or 0 for missing in absent)
        if gone:
            text = (
                f"{count_of(gone, 'event')} that had been written are missing. "
                f"{count_of(len(absent), 'file')} can no longer be found or read completely, and "
                "the contents are unknown."
            )
            self.notes.append(Note("lost-events", "", text))
        for missing in absent:
            self._note("segment-missing", missing.file, missing.text)
            if missing.owner is not None:
                self.register.workers[missing.owner].closed.append(False)
        for worker, plugin in absent_files(self.headers):
            text = (
                f"{worker}: its process also has a file of {plugin}, which was not found: it was "
                "deleted, or is in another place."
            )
            self.notes.append(Note("file-missing", worker, text))

    def _note_missing(self, header: dict[str, Any]) -> None:
        """Add notes about what the recorded version of Dask or the system does not provide."""
        missing, notes = header.get("missing"), list[Note]()
        for path, loss in missing.items() if isinstance(missing, dict) else ():
            text = f"The recorded version of Dask has no {path}, which the recorder uses: {loss}."
            notes.append(Note("missing-hook", str(path), text))
        lacking = header.get("system_lacks")
        if isinstance(lacking, list | tuple) and lacking:
            name = clean(header.get("system"))
            facts = "; ".join(map(clean, lacking))
            text = f"It was recorded on {name}, which does not report these values: {facts}."
            notes.append(Note("system", name, text))
        self.notes += [note for note in notes if note not in self.notes]

    def _note_losses(self, file: TraceFile, header: dict[str, Any]) -> None:
        name, damage = file.path.name, file.damage
        if not header:
            lost = "its header is lost, so it is unknown which process wrote it."
            self._note("header-lost", name, lost)
        writer = writer_of(header) if file.end is None else None
        if writer is Writer.ALIVE:  # The end of the file is still being written.
            damage.cut_bytes = 0
        if damage.corrupt_bytes or damage.cut_bytes or damage.unreadable:
            self._note(
                "damaged-file",
                name,
                f"{damage.corrupt_bytes} corrupt bytes, {damage.cut_bytes} bytes at the "
                f"truncated end, and {len(damage.unreadable)} unreadable blocks were left out.",
            )
        if file.dropped:
            self._note(
                "dropped-facts",
                name,
                f"dropped during recording: {describe_losses(file.dropped, file.dropped_by)}.",
            )
        if file.errors:
            caught = f"{count_of(file.errors, 'error')} during recording."
            self._note("caught-errors", name, caught)

    def _note(self, kind: NoteKind, file: str, what: str) -> None:
        self.notes.append(Note(kind, file, f"{file}: {what}"))
