"""`RunFiles`: the files of a run, those that appear while it goes on too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dasfprof.database import find_runs, open_run
from dasfprof.database.file import FileDatabase
from dasfprof.database.following import FollowedFile
from dasfprof.database.writing_process import Writer, writer_of
from dasfprof.errors import SourceNotFoundError

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

    def goes_on(self) -> bool | None:
        """Return whether a process still writes; None if that cannot be told from here.

        The client's own file does not count where there are others: its process may live on
        without the cluster.
        """
        files = [file for file in self if file.header.get("plugin") != "StepRecorder"] or [*self]
        open_files = [file for file in files if file.header and not file.closed]
        if not open_files:
            return False
        now = time.monotonic()
        writers = self._writers_of(open_files)
        if Writer.ALIVE in writers:
            return True
        if Writer.UNKNOWN not in writers:
            return False
        silent = min(now - file.grew for file in open_files)
        of_scheduler = self.of("SchedulerPlugin")
        closed = any(file.closed and not file.continues for file in of_scheduler)
        return False if closed and silent > _SILENCE else None

    def _writers_of(self, files: Sequence[FollowedFile]) -> set[Writer]:
        """Return what is known of the processes that write some files that are open."""
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            self._looked = now
            self._writers = {
                file.path: writer_of(file.header)
                for file in self
                if file.header and not file.closed
            }
        return {self._writers.get(file.path, Writer.ALIVE) for file in files}

    def client_is_gone(self) -> bool:
        """Return whether the processes of all clients ended without closing their files."""
        clients = [file for file in self.of("StepRecorder") if not file.continues]
        if not clients or any(file.closed for file in clients):
            return False
        return self._writers_of(clients) == {Writer.ENDED}

    def closed(self) -> bool:
        """Return whether the run's files were closed: the scheduler's, if there are any."""
        files = [file for file in self.of("SchedulerPlugin") or self if file.header]
        return all(file.closed for file in files)

    def workers_closed(self) -> bool:
        """Return whether all workers' files were closed, while the scheduler's was not."""
        workers = self.of("TracePlugin")
        ended = all(file.closed and not file.continues for file in workers)
        return bool(workers) and ended and not self.closed()


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
