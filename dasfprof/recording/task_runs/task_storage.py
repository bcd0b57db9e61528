"""`TaskStorage`: records the storage requests and disk bytes of each task run of a worker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals.task_functions import running_tasks
from dasfprof.recording.rows import FileRows
from dasfprof.recording.task_runs.run_storage import RunStorage
from dasfprof.recording.task_runs.storage_calls import listen
from dasfprof.recording.task_runs.thread_time import KernelFile
from dasfprof.schema.tasks import STORAGE
from dasfprof.system import PROC

#: Path of the file with the kernel's counts of a thread's I/O. A thread that opens this path gets
#: the file with its counts.
THREAD_IO = f"{PROC}/thread-self/io"
#: Number of bytes to read. It is more than the file has.
_LENGTH = 400
#: Maximum number of task runs with storage that the event loop has not yet written.
_MOST = 10_000
#: Threshold (seconds) since the last reading: the counts of a thread with brief tasks are read
#: again.
_STALE = 0.1


class _ThreadDisk(KernelFile):
    """Reads the disk bytes of the calling thread from the kernel's file."""

    __slots__ = ("at", "read", "written")

    def __init__(self) -> None:
        super().__init__(THREAD_IO)
        self.read = self.written = 0
        #: Time of the last reading, on the clock of Dask's stop times.
        self.at = 0.0
        self.moved()

    def moved(self, at: float = 0.0) -> tuple[int, int]:
        """Return how many bytes the thread has read and written since the last call.

        `at` is the current time, on the clock with which Dask measures when tasks stop.
        """
        self.at = at
        if self.descriptor is None:
            return 0, 0
        words = os.pread(self.descriptor, _LENGTH, 0).split()
        read = int(words[words.index(b"read_bytes:") + 1])
        written = int(words[words.index(b"write_bytes:") + 1])
        moved = read - self.read, written - self.written
        self.read, self.written = read, written
        return moved


class TaskStorage:
    """Adds up requests and bytes by task run, and writes a row per store when it has ended.

    Parameters
    ----------
    rows
        Writes rows into the plugin's file.
    """

    def __init__(self, worker: Any, rows: FileRows) -> None:
        self._threads = running_tasks(worker)
        self._rows, self._guard = rows, rows.guard
        #: Has the `_ThreadDisk` and the `ThreadFile` of each thread.
        self._local = threading.local()
        #: By key: the `RunStorage` of each task run that has not been written.
        self.moved: dict[Any, RunStorage] = {}

    def listen(self) -> Callable[[], None]:
        """Start counting requests, and return the function that stops the counting."""
        leave = listen(self._in_thread)

        def end() -> None:
            leave()
            # This closes the files of threads.
            self._local = threading.local()

        return end

    def _in_thread(self, thread: int) -> RunStorage | None:
        """Return the `RunStorage` of the task run in a thread, or None if it runs no task."""
        key = self._threads.get(thread)
        return None if key is None else self._of(key)

    def _of(self, key: Any) -> RunStorage | None:
        run = self.moved.get(key)
        if run is None and len(self.moved) < _MOST:
            run = self.moved.setdefault(key, RunStorage(self._guard, self._local))
        if run is None:
            self._rows.writer.losses.add("too much storage")
        return run

    def begin_thread(self) -> None:
        """Start reading the disk bytes of the calling thread, which will run its first task."""
        self._local.disk = _ThreadDisk()

    def ended(self, key: Any, stop: float, is_brief: bool) -> None:
        """Add the calling thread's disk bytes since the last reading to an ended task run.

        The disk bytes of brief task runs are not recorded.
        """
        try:
            disk = getattr(self._local, "disk", None)  # None after the counting has stopped.
            # Reading the disk bytes after each brief task would be expensive. Without any reading,
            # a later task would get the bytes of many brief tasks.
            if disk is None or (is_brief and 0 <= stop - disk.at < _STALE):
                return
            read, written = disk.moved(stop)
            run = self._of(key) if (read or written) and not is_brief else None
            if run is not None:
                run.moved_by_disk(read, written)
        except Exception:
            self._guard.caught("what a task moved")

    def write(self, key: Any, run_id: int | None) -> float:
        """Write the storage rows of an ended task run, and return its seconds of waiting.

        Called on the event loop.
        """
        waiting = 0.0
        try:
            run = self.moved.pop(key, None)
            for row in run.close() if run is not None else ():
                waiting += row["waiting"]
                self._rows.write(STORAGE, {"key": key, "run_id": run_id, **row})
        except Exception:
            self._guard.caught("what a task moved")
        return waiting
