"""`LiveRun`: follows the files of a run and keeps its running totals."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.analysis.live import counts, workers
from dasfprof.analysis.live.counts import EndedRuns, TaskCounts, Unfinished
from dasfprof.analysis.live.state import LongTask, RunState, describe, long_tasks
from dasfprof.analysis.trace.keys import KeyTable, as_key_column
from dasfprof.analysis.trace.sent_functions import SENT, SentFunctions, functions_in
from dasfprof.database import find_runs, open_run
from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import Array, Column, DictionaryColumn
from dasfprof.database.ends import (
    FileEnd,
    RecordingEnd,
    client_is_gone,
    recording_end,
    scheduler_is_cut,
)
from dasfprof.database.file import FileDatabase
from dasfprof.database.following import FollowedFile, Writer, writer_of
from dasfprof.errors import SourceNotFoundError
from dasfprof.schema.tasks import COMPUTE, GRAPH, TASK_RUN
from dasfprof.schema.under_way import SCHEDULER_STATE

# --- RunFiles: the files of a run, those that appear while it goes on too -------------------------

Source = str | os.PathLike[str] | Sequence[Path]

#: Seconds between two looks at the processes that write.
_LOOK = 3.0
#: Seconds of silence after which a run whose processes are elsewhere counts as ended, if the
#: scheduler's file is closed.
_SILENCE = 60.0

#: Steps, which say what task runs belong to, are read first.
_ORDER = ("StepRecorder", "SchedulerPlugin", "TracePlugin", "ResourceMonitor")


class RunFiles:
    """The files of one run.

    Parameters
    ----------
    source
        As for `open_run`, or files. Of a directory with several runs the newest is taken. New files
        of the run are found in the directory of its first, unless the source is a single file.

    Raises
    ------
    SourceNotFoundError, NotATraceError, InvalidArgumentError
        As `open_run` does.
    """

    def __init__(self, source: Source) -> None:
        paths = _find(source)
        self._files: dict[Path, FollowedFile] = {path: FollowedFile(path) for path in paths}
        self.read_headers()
        #: Names in the directory that belong to other runs.
        self._others: set[str] = set()
        alone = isinstance(source, str | os.PathLike) and Path(source).is_file()
        self._directory = None if alone or not paths else paths[0].parent
        self._uuid: str | None = None
        self._looked = -_LOOK
        self._writers: dict[Path, Writer] = {}

    def __iter__(self) -> Iterator[FollowedFile]:
        return iter(sorted(self._files.values(), key=_place))

    @property
    def name(self) -> str:
        """The run's name; that of its first file where no header says it."""
        names = [str(file.header["run"]) for file in self if file.header.get("run")]
        return names[0] if names else next((path.stem for path in self._files), "run")

    def read_headers(self) -> None:
        """Read the headers that were not whole yet: the order of files is by them."""
        for file in self._files.values():
            file.read_header()

    def of(self, plugin: str) -> list[FollowedFile]:
        """Return the files of a plugin, as their headers name it."""
        return [file for file in self if file.header.get("plugin") == plugin]

    def find_new(self) -> None:
        """Look for files that the run's processes began since the last look."""
        self._uuid = self._uuid or next(
            (str(file.header["run_uuid"]) for file in self if "run_uuid" in file.header), None
        )
        if self._directory is None or self._uuid is None:
            return
        known = {path.name for path in self._files} | self._others
        for name in sorted(set(os.listdir(self._directory)) - known):
            path = self._directory / name
            if path.suffix != ".msgpack":
                continue
            file = FollowedFile(path)
            header = file.read_header()
            if header.get("run_uuid") == self._uuid:
                self._files[path] = file
            elif header:
                self._others.add(name)

    def ends(self) -> list[FileEnd]:
        """Return how each file ended so far; processes are looked at now and then."""
        now, files = time.monotonic(), [file for file in self if file.header]
        if now - self._looked >= _LOOK:
            self._looked = now
            self._writers = {file.path: writer_of(file.header) for file in files if not file.closed}
        return [
            FileEnd.of(
                file.header,
                None if file.closed else self._writers.get(file.path, Writer.ALIVE),
            )
            for file in files
        ]

    def silence(self) -> float:
        """Return for how many seconds nothing was appended to the files that are open."""
        now = time.monotonic()
        return min((now - file.grew for file in self if not file.closed), default=0.0)


def _find(source: Source) -> Sequence[Path]:
    """Return the files of a run that are there by now."""
    if not isinstance(source, str | os.PathLike):
        if not source:
            raise SourceNotFoundError("there is no file of the run on this machine yet.")
        return source
    path = Path(source)
    if not path.is_dir():
        databases = open_run(source).databases
        return [item.path for item in databases if isinstance(item, FileDatabase)]
    runs = find_runs(path)
    if not runs:
        raise SourceNotFoundError(
            f"no run in {os.fspath(path)!r} yet. Files appear there when a run begins to "
            "be recorded; pass the directory that register_default_profiler was given."
        )
    return runs[0].files


def _place(file: FollowedFile) -> tuple[int, str]:
    plugin = file.header.get("plugin")
    return (_ORDER.index(plugin) if plugin in _ORDER else -1), file.path.name


# --- LiveRun: follows the files of a run and keeps its running totals -----------------------------

_OF_SCHEDULER = {
    TASK_RUN.name: ("key", "state", "start", "stop", "graph"),
    SCHEDULER_STATE.name: ("tasks", "workers"),
    **counts.WANTED_OF_SCHEDULER,
    **workers.WANTED_OF_SCHEDULER,
}
_OF_CLIENT = {**counts.WANTED, **SENT}
#: Without the scheduler's file, the workers' files tell which task runs ended.
_OF_WORKERS_ALONE = {**workers.WANTED, COMPUTE.name: ("key", "state")}

_DOUBTED = (
    "All workers' files are closed, and the scheduler's tells of none that left: it may be cut, "
    "and the run may have ended."
)


class LiveRun:
    """A run that may still be recorded.

    Parameters
    ----------
    source
        A directory, a run's name, a file or a glob, see `dasfprof.open_run`; or the run's files.
        Of a directory with several runs the newest is taken.

    Raises
    ------
    SourceNotFoundError, NotATraceError, InvalidArgumentError
        If there is no run.
    """

    def __init__(self, source: Source) -> None:
        self._files = RunFiles(source)
        self._counts = TaskCounts()
        self._unfinished = Unfinished()
        self._steps = counts.LiveSteps()
        self._workers = workers.Workers()
        self._sent = SentFunctions()
        self._known: set[FollowedFile] = set()

    @property
    def name(self) -> str:
        """The run's name."""
        return self._files.name

    @property
    def paths(self) -> list[Path]:
        """The files that are known of the run."""
        return [file.path for file in self._files]

    @property
    def source(self) -> str:
        """The run as `open_run` and the commands take it."""
        return str(self.paths[0].parent / self.name)

    def size(self) -> int:
        """Return how many bytes of the files were read."""
        return sum(file.position for file in self._files)

    def read(self) -> RunState:
        """Read what was appended since the last call; return the run's state."""
        self._files.read_headers()
        self._files.find_new()
        files = list(self._files)
        alone = not any(file.header.get("plugin") == "SchedulerPlugin" for file in files)
        for file in files:
            plugin = file.header.get("plugin")
            if plugin == "SchedulerPlugin":
                self._take_scheduler(list(file.read(_OF_SCHEDULER)))
            elif plugin == "StepRecorder":
                batches = list(file.read(_OF_CLIENT))
                self._steps.take(batches)
                self._sent.add(functions_in(batches))
            elif plugin in ("TracePlugin", "ResourceMonitor"):
                self._take_worker(file, alone=alone)
        return self._state()

    def _take_scheduler(self, batches: list[Batch]) -> None:
        counts = []
        for batch in batches:
            if batch.name == GRAPH.name:
                self._steps.take_graphs(batch)
            elif batch.name == SCHEDULER_STATE.name and batch.rows:
                times, told = batch.fields["timestamp"].to_list(), batch.args["tasks"].to_list()
                counts.append((times[-1], told[-1]))
                self._workers.take_state(batch.args["workers"].to_list()[-1])
        self._workers.take_from_scheduler(batches)
        ended = [self._count_runs(batch) for batch in batches if batch.name == TASK_RUN.name]
        self._unfinished.take([runs for runs in ended if runs is not None], counts)

    def _take_worker(self, file: FollowedFile, *, alone: bool) -> None:
        batches = list(file.read(_OF_WORKERS_ALONE)) if alone else self._workers.read(file)
        if file not in self._known and file.header:
            self._known.add(file)
            self._workers.add_file(file)
        if batches:
            self._workers.take(file, batches)
        for batch in batches:
            if alone and batch.name == COMPUTE.name:
                self._count_runs(batch)

    def _count_runs(self, batch: Batch) -> EndedRuns | None:
        """Count the task runs of a batch that ended for good, and return them."""
        states = batch.args.get("state")
        if not isinstance(states, DictionaryColumn) or "key" not in batch.args:
            return None
        done = _is(states, "memory")
        rows = np.flatnonzero(done | _is(states, "erred"))
        if not len(rows):
            return None
        key = as_key_column(batch.args["key"])
        codes, names = KeyTable.of(key).functions()
        begins = _numbers(batch.fields["timestamp"], batch.rows)
        seconds = _numbers(batch.fields["duration"], batch.rows)
        ends = begins + seconds
        if batch.name == TASK_RUN.name:
            started, stopped = (_numbers(batch.args.get(x), batch.rows) for x in ("start", "stop"))
            seconds = stopped - started
            begins = np.where(np.isfinite(started), started, begins)
        step_codes, step_names = self._steps.find(key, batch.args.get("graph"))
        pairs, places = np.unique(step_codes[rows] * len(names) + codes[rows], return_inverse=True)
        numbers = [
            self._counts.number(step_names[pair // len(names)], names[pair % len(names)])
            for pair in pairs.tolist()
        ]
        self._counts.add(
            np.array(numbers, dtype=np.int64)[places],
            done[rows],
            begins[rows],
            ends[rows],
            seconds[rows],
        )
        return EndedRuns(names, codes[rows], ends[rows])

    def _state(self) -> RunState:
        schedulers = self._files.of("SchedulerPlugin")
        files = schedulers or [*self._files]
        now = max((file.now() for file in files), default=0.0)
        clocks = [file.clock for file in files if file.clock is not None]
        ends, left = self._files.ends(), self._workers.left()
        how = recording_end(ends, left)
        goes_on: bool | None = how is RecordingEnd.GOES_ON
        if how is RecordingEnd.UNKNOWN and self._files.silence() < _SILENCE:
            goes_on = None
        doubted = how is RecordingEnd.UNKNOWN and scheduler_is_cut(ends, left)
        notes = (_DOUBTED,) if doubted else ()
        if goes_on is False:
            now = max(clocks, default=now)
        return describe(
            self._files.name,
            now,
            max(clocks, default=now),
            goes_on,
            counts=self._counts,
            unfinished=self._unfinished,
            tasks_of_graphs=self._steps.tasks if schedulers else None,
            workers=self._workers.states(),
            long_tasks=self._long_tasks() if goes_on else [],
            elsewhere=self._steps.elsewhere(),
            closed=how is RecordingEnd.CLOSED,
            client_is_gone=client_is_gone(ends),
            notes=notes,
        )

    def _long_tasks(self) -> list[LongTask]:
        return long_tasks(self._workers.open_tasks(), self._counts, self._sent)


def _is(states: DictionaryColumn, state: str) -> Array:
    same = np.array([entry == state for entry in states.entries], dtype=bool)
    return same[states.codes]


def _numbers(column: Column | None, rows: int) -> Array:
    if column is None:
        return np.full(rows, np.nan)
    values: Any = getattr(column, "array", None)
    return np.array(column.to_list() if values is None else values, dtype=float)
