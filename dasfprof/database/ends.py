"""`End`: how runs end, and functions that find this from how each file of a run ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dasfprof.database.following import Writer

#: Names of the plugins in the headers of the files that they write.
SCHEDULER, CLIENT, TASKS, SAMPLES = (
    "SchedulerPlugin",
    "StepRecorder",
    "TracePlugin",
    "ResourceMonitor",
)


class End(str, Enum):
    """How a run ended, or that it continues: its recording, or the time with unfinished tasks."""

    CLOSED = "closed"
    """All files, or the scheduler's, are closed."""
    GOES_ON = "goes on"
    """Its processes are running and writing."""
    CUT = "cut"
    """A process ended without closing its file: it was killed."""
    LEFT = "left"
    """Clients left, or released what they waited for."""
    BROKEN_UP = "broken up"
    """All workers left together, as on Ctrl-C in a terminal, which reaches all processes."""
    SCHEDULER_GONE = "scheduler gone"
    """The scheduler's process was killed, but no client's process as far as known."""
    PROGRAM_GONE = "program gone"
    """The client's process, which contained the scheduler, was killed."""
    UNKNOWN = "unknown"
    """Files are not closed, and their processes ran on another host.

    Or a file was truncated: it suggests that the run continues, but all workers' files are closed
    and it records none that left.
    """


@dataclass(frozen=True)
class FileEnd:
    """How a file of a run ended, with the plugin and the process that wrote it."""

    plugin: str | None
    #: Whether the process that wrote the file is still running, as far as known. None if the file
    #: is closed or another segment follows.
    writer: Writer | None
    #: Identity of the process that wrote the file, and the address of its worker, if any.
    process: Any = None
    worker: str | None = None

    @classmethod
    def from_header(cls, header: dict[str, Any], writer: Writer | None) -> FileEnd:
        """Create a `FileEnd` from the header of a file. `writer` becomes its field `writer`."""
        worker = header.get("worker")
        address = worker.get("address") if isinstance(worker, dict) else None
        process = tuple(header.get(name) for name in ("host", "pid", "process_started"))
        return cls(header.get("plugin"), writer, process, address and str(address))


def scheduler_is_cut(files: Iterable[FileEnd], left: Collection[str]) -> bool:
    """Return whether all workers' files are closed, but the scheduler's file was truncated.

    `left` has the addresses of the workers that left according to the scheduler's file.
    """
    # If the files of all workers are closed, the scheduler's file should record that all of these
    # workers left. The scheduler's process may still be running. Without this check, the run would
    # then seem to continue.
    workers = [file for file in files if file.worker is not None]
    closed = all(file.writer is None for file in workers)
    return closed and any(file.worker not in left for file in workers)


def recording_end(files: Iterable[FileEnd], left: Collection[str] | None = None) -> End:
    """Return how the recording of a run ended, from all files of the run.

    `left` has the addresses of the workers that left according to the scheduler's file. If it is
    None, the function does not check whether this file was truncated.
    """
    files = list(files)
    of_scheduler = [file for file in files if file.plugin == SCHEDULER]
    # Workers may die before the run ends. Therefore only the scheduler's files count, if there are
    # any.
    writers = [file.writer for file in of_scheduler or files]
    if Writer.ALIVE in writers:
        cut = left is not None and scheduler_is_cut(files, left)
        return End.UNKNOWN if cut else End.GOES_ON
    if Writer.ENDED in writers:
        if not of_scheduler:
            return End.CUT
        clients = [file.process for file in files if file.plugin == CLIENT]
        shared = any(file.process in clients for file in of_scheduler)
        return End.PROGRAM_GONE if shared else End.SCHEDULER_GONE
    return End.UNKNOWN if Writer.UNKNOWN in writers else End.CLOSED


def client_is_gone(files: Iterable[FileEnd]) -> bool:
    """Return whether clients have files, and all of their processes ended without closing them."""
    writers = {file.writer for file in files if file.plugin == CLIENT}
    return writers == {Writer.ENDED}
