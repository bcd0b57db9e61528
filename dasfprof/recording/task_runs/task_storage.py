"""`TaskStorage`: what each task run of a worker read from storage and wrote to it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals.task_functions import running_tasks
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows
from dasfprof.recording.task_runs.fsspec_calls import StorageCall, listen
from dasfprof.schema.tasks import STORAGE
from dasfprof.system import PROC

#: What a thread has moved, by the kernel's count; resolved when it is opened.
THREAD_IO = f"{PROC}/thread-self/io"
#: What stands for the protocol where the kernel counted.
DISK = "disk"
#: Bytes to read, more than the file has.
_LENGTH = 400
#: The most task runs that have not been written. With more, the event loop is not taking any.
_MOST = 10_000
#: Seconds after which the count of a thread is read again whose tasks are brief.
_STALE = 0.1
#: The columns of calls, bytes and seconds; what is 0 unless there were calls.
_READS, _WRITES = ("reads", "read_size", "reading"), ("writes", "write_size", "writing")
_NOTHING: dict[str, Any] = dict.fromkeys((*_READS, *_WRITES, "waiting", "unsized"), 0)


class _ThreadDisk:
    """One thread's bytes of disks by the kernel's count; its file is closed with it."""

    __slots__ = ("at", "descriptor", "read", "written")

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self.read = self.written = 0
        #: When it was last read, on the clock of tasks' stops.
        self.at = 0.0
        with contextlib.suppress(OSError):
            self.descriptor = os.open(THREAD_IO, os.O_RDONLY | os.O_CLOEXEC)
        self.moved()

    def moved(self, at: float = 0.0) -> tuple[int, int]:
        """Return the bytes read and written since the last call."""
        self.at = at
        if self.descriptor is None:
            return 0, 0
        words = os.pread(self.descriptor, _LENGTH, 0).split()
        read = int(words[words.index(b"read_bytes:") + 1])
        written = int(words[words.index(b"write_bytes:") + 1])
        moved = read - self.read, written - self.written
        self.read, self.written = read, written
        return moved

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.descriptor is not None:
            close(self.descriptor)


class TaskStorage:
    """Sums up by task run, and writes a row for each protocol when the run has ended.

    Parameters
    ----------
    worker
        The worker.
    rows
        Of the file of the plugin.
    guard
        Handles errors.
    """

    def __init__(self, worker: Any, rows: FileRows, guard: HookGuard) -> None:
        self._threads = running_tasks(worker)
        self._rows = rows
        self._guard = guard
        self._local = threading.local()
        #: By key and protocol, of runs that have moved anything and are not written.
        self.moved: dict[Any, dict[str, dict[str, Any]]] = {}

    def listen(self) -> Callable[[], None]:
        """Hear of calls of fsspec; return what ends it, and closes the files of threads."""
        leave = listen(self._called)

        def end() -> None:
            leave()
            self._local = threading.local()

        return end

    def _called(self, call: StorageCall) -> None:
        try:
            key = self._threads.get(threading.get_ident())
            if key is not None:
                calls, size, seconds = _WRITES if call.is_write else _READS
                facts = {calls: 1, seconds: call.seconds, "waiting": call.waiting}
                facts |= {"unsized": 1} if call.size is None else {size: call.size}
                self._add(key, call.protocol, facts)
        except Exception:
            self._guard.caught("what a task moved")

    def begin_thread(self) -> None:
        """Take note of a thread's count: it is about to run its first task."""
        self._local.disk = _ThreadDisk()

    def ended(self, key: Any, stop: float) -> None:
        """Add what the thread moved to and from disks since it was last asked.

        Called in its thread at the end of a task.
        """
        try:
            disk = getattr(self._local, "disk", None)  # none after the end
            read, written = (0, 0) if disk is None else disk.moved(stop)
            if read or written:
                self._add(key, DISK, {"read_size": read, "write_size": written})
        except Exception:
            self._guard.caught("what a task moved")

    def ended_brief(self, stop: float) -> None:
        """Leave out what brief tasks have moved, now and then: to read at each would be dear."""
        try:
            disk = getattr(self._local, "disk", None)
            if disk is not None and not 0 <= stop - disk.at < _STALE:
                disk.moved(stop)
        except Exception:
            self._guard.caught("what a task moved")

    def _add(self, key: Any, protocol: str, facts: dict[str, Any]) -> None:
        if key not in self.moved and len(self.moved) >= _MOST:
            self._rows.losses.add("too much storage")
            return
        sums = self.moved.setdefault(key, {}).setdefault(protocol, {})
        for name, value in facts.items():
            sums[name] = sums.get(name, 0) + value

    def write(self, key: Any, run_id: int | None) -> float:
        """Write what a run has moved that has ended; return for how long it waited for that.

        Called on the event loop.
        """
        waiting = 0.0
        try:
            for protocol, sums in self.moved.pop(key, {}).items():
                waiting += sums.get("waiting", 0.0)
                facts = {"key": key, "run_id": run_id, "protocol": protocol}
                self._rows.write(STORAGE, {**_NOTHING, **facts, **sums})
        except Exception:
            self._guard.caught("what a task moved")
        return waiting
