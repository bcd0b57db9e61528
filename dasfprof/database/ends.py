"""How the recording of a run ended, by how each of its files did. All who tell of it ask here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dasfprof.database.following import Writer

#: Plugins as the headers of their files name them.
SCHEDULER, CLIENT, TASKS, SAMPLES = (
    "SchedulerPlugin",
    "StepRecorder",
    "TracePlugin",
    "ResourceMonitor",
)


class RecordingEnd(str, Enum):
    """How the recording of a run ended."""

    CLOSED = "closed"
    """All files, or the scheduler's, are finished."""
    GOES_ON = "goes on"
    """Its processes run and write."""
    CUT = "cut"
    """A process ended without finishing its file: it was killed."""
    SCHEDULER_GONE = "scheduler gone"
    """So did the scheduler's, as far as is known no client's process."""
    PROGRAM_GONE = "program gone"
    """So did the client's, which had the scheduler in it."""
    UNKNOWN = "unknown"
    """Files are not finished, and their processes ran on another host; or one was cut, as it says
    that the run goes on, where all workers' files are closed and it tells of none that left."""


@dataclass(frozen=True)
class FileEnd:
    """How a file ended."""

    plugin: str | None
    #: What is known of the process that wrote it; None: it is finished, or another segment follows.
    writer: Writer | None
    #: Which process that is, and the address of its worker.
    process: Any = None
    worker: str | None = None

    @classmethod
    def of(cls, header: dict[str, Any], writer: Writer | None) -> FileEnd:
        """Return that of a file with such a header."""
        worker = header.get("worker")
        address = worker.get("address") if isinstance(worker, dict) else None
        process = tuple(header.get(name) for name in ("host", "pid", "process_started"))
        return cls(header.get("plugin"), writer, process, address and str(address))


def scheduler_is_cut(files: Iterable[FileEnd], left: Collection[str]) -> bool:
    """Return whether the scheduler's file misses the end of workers, whose own files have it.

    Its process may live on, so that the file alone looks as if the run went on.
    """
    workers = [file for file in files if file.worker is not None]
    closed = all(file.writer is None for file in workers)
    return closed and any(file.worker not in left for file in workers)


def recording_end(files: Iterable[FileEnd], left: Collection[str] | None = None) -> RecordingEnd:
    """Find how recording ended.

    Parameters
    ----------
    files
        All files. The scheduler's decide where there are any: workers may die before the run ends.
    left
        The workers that the scheduler tells to have left; None: nobody asks whether it was cut.
    """
    files = list(files)
    of_scheduler = [file for file in files if file.plugin == SCHEDULER]
    writers = [file.writer for file in of_scheduler or files]
    if Writer.ALIVE in writers:
        cut = left is not None and scheduler_is_cut(files, left)
        return RecordingEnd.UNKNOWN if cut else RecordingEnd.GOES_ON
    if Writer.ENDED in writers:
        if not of_scheduler:
            return RecordingEnd.CUT
        clients = [file.process for file in files if file.plugin == CLIENT]
        shared = any(file.process in clients for file in of_scheduler)
        return RecordingEnd.PROGRAM_GONE if shared else RecordingEnd.SCHEDULER_GONE
    return RecordingEnd.UNKNOWN if Writer.UNKNOWN in writers else RecordingEnd.CLOSED


def client_is_gone(files: Iterable[FileEnd]) -> bool:
    """Return whether the processes of all clients ended without closing their files."""
    writers = {file.writer for file in files if file.plugin == CLIENT}
    return writers == {Writer.ENDED}
