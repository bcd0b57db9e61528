"""`LiveRun`: follows the files of a run and returns its state."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dasfprof.analysis.live.progress import LONG_SECONDS, Progress
from dasfprof.analysis.live.state import RunState
from dasfprof.analysis.trace.sent_functions import SENT, SentFunctions, functions_in
from dasfprof.analysis.trace.under_way import joined_frames
from dasfprof.analysis.under_way.state import ClusterState, TaskUnderWay, WorkerNow, stack_of
from dasfprof.database import find_runs, open_run
from dasfprof.database.blocks import Batch
from dasfprof.database.ends import (
    SCHEDULER,
    End,
    FileEnd,
    client_is_gone,
    recording_end,
    scheduler_is_cut,
)
from dasfprof.database.file import FileDatabase
from dasfprof.database.following import FollowedFile, Writer, writer_of
from dasfprof.errors import SourceNotFoundError
from dasfprof.schema.tasks import WORKER_REMOVED
from dasfprof.schema.under_way import SCHEDULER_STATE, STACK, TASK_UNDER_WAY

Source = str | os.PathLike[str] | Sequence[Path]

#: Seconds between two checks whether the recording processes are alive.
_CHECK_INTERVAL = 3.0
#: If processes of a run are on other hosts, the scheduler's file is closed, and no events arrive
#: for this many seconds, the run counts as ended.
_SILENCE = 60.0

#: A task in progress is recorded again every 60 s. After this many seconds without a new record, it
#: is no longer in progress.
_FORGOTTEN = 90.0
_MAX_STACKS = 10_000

_DOUBTED = (
    "All workers' files are closed, but the scheduler's file records no worker that left. The "
    "file may be truncated, and the run may have ended."
)
_NO_COUNTS = "Progress is unknown, because the scheduler's counts are not in these files."

#: Columns to read, by kind of event.
_WANTED = {
    SCHEDULER_STATE.name: ("tasks", "finished", "workers"),
    WORKER_REMOVED.name: ("worker",),
    STACK.name: ("number", "frames", "parent"),
    TASK_UNDER_WAY.name: ("key", "state", "since", "stack", "waits_in", "waits_for"),
    **SENT,
}


class RunFiles:
    """The files of one run.

    Parameters
    ----------
    source
        Anything that `open_run` accepts, or a list of files. If a directory contains several runs,
        the newest run is followed. New files of the run are looked for in the directory of its
        first file, unless the source is a single file.

    Raises
    ------
    SourceNotFoundError, NotATraceError, InvalidArgumentError
        If there is no run. See `open_run`.
    """

    def __init__(self, source: Source) -> None:
        paths = _find(source)
        self._files: dict[Path, FollowedFile] = {path: FollowedFile(path) for path in paths}
        #: Files in the directory that belong to other runs.
        self._others: set[Path] = set()
        alone = isinstance(source, str | os.PathLike) and Path(source).is_file()
        self._directory = None if alone or not paths else paths[0].parent
        self._uuid: str | None = None
        self._checked = -_CHECK_INTERVAL
        self._writers: dict[Path, Writer] = {}
        self.update()

    def __iter__(self) -> Iterator[FollowedFile]:
        return iter(sorted(self._files.values(), key=lambda file: file.path))

    @property
    def name(self) -> str:
        """The name of the run, or that of the first file if no header contains it."""
        names = [str(file.header["run"]) for file in self if file.header.get("run")]
        return names[0] if names else next((path.stem for path in self._files), "run")

    def update(self) -> None:
        """Read headers that were incomplete until now, and find new files of the run."""
        for file in self._files.values():
            file.read_header()
        self._uuid = self._uuid or next(
            (str(file.header["run_uuid"]) for file in self if "run_uuid" in file.header), None
        )
        if self._directory is None or self._uuid is None:
            return
        known = self._files.keys() | self._others
        for path in sorted(set(self._directory.glob("*.msgpack")) - known):
            file = FollowedFile(path)
            header = file.read_header()
            if header.get("run_uuid") == self._uuid:
                self._files[path] = file
            elif header:
                self._others.add(path)

    def ends(self) -> list[FileEnd]:
        """Return whether and how each file has ended."""
        now, files = time.monotonic(), [file for file in self if file.header]
        # Whether the processes that write the files are alive is only checked at intervals.
        if now - self._checked >= _CHECK_INTERVAL:
            self._checked = now
            self._writers = {file.path: writer_of(file.header) for file in files if not file.closed}
        return [
            FileEnd.from_header(
                file.header, None if file.closed else self._writers.get(file.path, Writer.ALIVE)
            )
            for file in files
        ]

    def silence(self) -> float:
        """Return the seconds since any of the open files last grew."""
        now = time.monotonic()
        return min((now - file.grew for file in self if not file.closed), default=0.0)


def _find(source: Source) -> Sequence[Path]:
    """Return the files of a run that exist at this time."""
    if not isinstance(source, str | os.PathLike):
        if not source:
            raise SourceNotFoundError("there is no file of the run on this host yet.")
        return source
    path = Path(source)
    if not path.is_dir():
        databases = open_run(source).databases
        return [item.path for item in databases if isinstance(item, FileDatabase)]
    runs = find_runs(path)
    if not runs:
        raise SourceNotFoundError(
            f"there is no run in {os.fspath(path)!r} yet. Files are created there when recording "
            "starts. Pass the directory that register_default_profiler was given."
        )
    return runs[0].files


class LiveRun:
    """A run that may still be in progress.

    Parameters
    ----------
    source
        A directory, a run's name, a file or a glob (see `dasfprof.open_run`), or the run's files.
        If a directory contains several runs, the newest run is followed.

    Raises
    ------
    SourceNotFoundError, NotATraceError, InvalidArgumentError
        If there is no run.
    """

    def __init__(self, source: Source) -> None:
        self._files = RunFiles(source)
        self._progress = Progress()
        self._sent = SentFunctions()
        #: Time of the scheduler's last row. Then the workers in this row, by address.
        self._time = 0.0
        self._workers: dict[str, Mapping[str, Any]] = {}
        #: Addresses of workers that have left.
        self._left: set[str] = set()
        #: For each worker, by address: the tasks that it last recorded as in progress.
        self._tasks: defaultdict[str, WorkerTasks] = defaultdict(WorkerTasks)

    @property
    def name(self) -> str:
        """The run's name."""
        return self._files.name

    @property
    def paths(self) -> list[Path]:
        """The files of the run that are known so far."""
        return [file.path for file in self._files]

    @property
    def source(self) -> str:
        """The run, in the form in which `open_run` and the commands accept it."""
        return str(self.paths[0].parent / self.name)

    def size(self) -> int:
        """Return the number of bytes that were read from the files."""
        return sum(file.position for file in self._files)

    def read(self) -> RunState:
        """Read events that were appended since the last call, and return the run's state."""
        self._files.update()
        for file in self._files:
            batches = [batch for batch in file.read(_WANTED) if batch.rows]
            self._sent.add(functions_in(batches))
            for batch in batches:
                if batch.name == SCHEDULER_STATE.name:
                    self._read_counts(batch)
                elif batch.name == WORKER_REMOVED.name:
                    self._left.update(map(str, batch.args["worker"].to_list()))
            address = _worker_of(file).get("address")
            if address is not None and batches:
                self._tasks[str(address)].append(batches)
        return self._state()

    def _read_counts(self, batch: Batch) -> None:
        times = batch.fields["timestamp"].to_list()
        for row in zip(times, _column(batch, "tasks"), _column(batch, "finished"), strict=True):
            self._progress.append(*row)
        self._time = times[-1]
        rows = [row for row in _column(batch, "workers")[-1] or () if isinstance(row, Mapping)]
        self._workers = {str(row.get("worker")): row for row in rows}

    def _state(self) -> RunState:
        files = [*self._files]
        files = [file for file in files if file.header.get("plugin") == SCHEDULER] or files
        now = max((file.now() for file in files), default=0.0)
        ends = self._files.ends()
        how = recording_end(ends, self._left)
        goes_on: bool | None = how is End.GOES_ON
        if how is End.UNKNOWN and self._files.silence() < _SILENCE:
            goes_on = None
        doubted = how is End.UNKNOWN and scheduler_is_cut(ends, self._left)
        if goes_on is False:
            now = max((file.clock for file in files if file.clock is not None), default=now)
        progress, functions = self._progress, self._progress.functions()
        known = progress.is_known
        counts = {
            name: sum(getattr(row, name) for row in functions) if known else None
            for name in ("done", "failed", "on_workers", "waiting", "total")
        }
        quiet = progress.quiet(now) if goes_on else None
        left, unknown = progress.time_left(now) if goes_on else (None, 0)
        workers = self._worker_states()
        unfinished = sum(row.on_workers + row.waiting for row in functions) if known else None
        tasks = tuple(self._tasks_under_way(now)) if goes_on else ()
        return RunState(
            self.name,
            ClusterState(now, unfinished, tasks=tasks, workers=tuple(workers)),
            progress.began,
            goes_on,
            tuple(functions),
            **counts,
            rate=sum(row.rate for row in functions),
            seconds_left=left if quiet is None else None,
            unknown_tasks=unknown,
            threads=sum(worker.threads for worker in workers) if known else None,
            busy=sum(worker.busy or 0 for worker in workers) if known else None,
            quiet_for=quiet,
            closed=how is End.CLOSED,
            client_is_gone=client_is_gone(ends),
            notes=(_DOUBTED,) * doubted + (_NO_COUNTS,) * (not known),
        )

    def _worker_states(self) -> list[WorkerNow]:
        """Return each worker that has not left, sorted by host and name."""
        hosts = {
            str(_worker_of(file).get("address")): str(file.header.get("host"))
            for file in self._files
        }
        workers = [
            WorkerNow.from_row(
                row,
                self._time,
                host=hosts.get(address, address.partition("://")[2].rpartition(":")[0]),
            )
            for address, row in self._workers.items()
            if address not in self._left
        ]
        return sorted(workers, key=_by_name)

    def _tasks_under_way(self, now: float) -> Iterator[TaskUnderWay]:
        """Yield the tasks that have run for over `LONG_SECONDS`."""
        for address, row in self._workers.items():
            tasks = self._tasks[address] if address not in self._left else WorkerTasks()
            # The worker's record shows what a task does. The scheduler's record shows whether it is
            # still unfinished.
            for key in set(map(str, row.get("keys") or ())) & tasks.rows.keys():
                task = tasks.rows[key]
                if now - task["since"] > LONG_SECONDS:
                    frames, _ = joined_frames(tasks.stacks, task["stack"])
                    stack = stack_of(self._sent.in_frames(frames))
                    yield TaskUnderWay.from_row(task, now, str(row.get("name")), stack)


class WorkerTasks:
    """The tasks that one worker last recorded as in progress."""

    def __init__(self) -> None:
        #: Tasks by the text of their keys.
        self.rows: dict[str, dict[str, Any]] = {}
        #: Parent and further frames of each stack. See `joined_frames`.
        self.stacks: dict[int, tuple[Any, Any]] = {}

    def append(self, batches: Sequence[Batch]) -> None:
        """Add events that were appended to the file of the worker."""
        for batch in batches:
            if batch.name == STACK.name:
                columns = (_column(batch, name) for name in _WANTED[STACK.name])
                for number, frames, parent in zip(*columns, strict=True):
                    self.stacks[number] = parent, frames
            elif batch.name == TASK_UNDER_WAY.name:
                names = _WANTED[TASK_UNDER_WAY.name]
                times = batch.fields["timestamp"].to_list()
                columns = (_column(batch, name) for name in names)
                for time_, *row in zip(times, *columns, strict=True):
                    task = dict(zip(names, row, strict=True))
                    task["seen"] = time_
                    task["since"] = time_ if task["since"] is None else task["since"]
                    self.rows[str(task["key"])] = task
        newest = max((task["seen"] for task in self.rows.values()), default=0.0)
        self.rows = {
            key: task for key, task in self.rows.items() if newest - task["seen"] < _FORGOTTEN
        }
        if len(self.stacks) > _MAX_STACKS:
            self.stacks.clear()


def _worker_of(file: FollowedFile) -> Mapping[str, Any]:
    """Return the worker's description in its file's header, or an empty mapping for other files."""
    worker = file.header.get("worker")
    return worker if isinstance(worker, Mapping) else {}


def _column(batch: Batch, name: str) -> list[Any]:
    column = batch.args.get(name)
    return [None] * batch.rows if column is None else column.to_list()


def _by_name(worker: WorkerNow) -> tuple[str, int, str]:
    number = int(worker.name) if worker.name.isdecimal() else -1
    return worker.host, number, worker.name
