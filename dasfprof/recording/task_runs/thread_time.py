"""Readers of the CPU waits of tasks' threads, and of garbage collection times in these threads."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
from collections.abc import Callable
from time import thread_time
from typing import Any

from dasfprof.recording.dask_internals import task_functions
from dasfprof.recording.dask_internals.task_functions import RUN_TASK, TaskCallable, running_tasks
from dasfprof.recording.guard import HookGuard
from dasfprof.system import PROC

#
# Linux counts the time for which each thread was runnable without a CPU. This is the second number
# in ``/proc/thread-self/schedstat``, in nanoseconds. The thread that runs the task reads the file
# through a descriptor that stays open, because opening the file costs ten times as much. The
# writer's thread parses the text.
#
# For brief tasks, reading the file would be most of the cost of recording, and the waits of brief
# tasks are short. So the wait of a task shorter than `BRIEF` counts as 0. After a brief task, the
# file is not read when the next task of the thread starts, but only when that task ends. If that
# task is not brief, its wait counts from the last reading. The thread has worked for at most
# `STALE` seconds between that reading and the start of the task. After a task that is not brief,
# the file is also read when the next task starts.

#: Path of the file. A thread that opens this path gets the file with its counts.
SCHEDSTAT = f"{PROC}/thread-self/schedstat"

#: Number of bytes to read. It is more than the length of three numbers of 64 bits.
_LENGTH = 80

#: Threshold (seconds): a task is brief if it takes less time.
BRIEF = 0.001

#: Threshold (seconds) since the last reading: the file of a thread with brief tasks is read again.
STALE = 0.005

#: Maximum number of readings that the event loop has not yet handled. At this number, no further
#: readings are made.
_MOST = 10_000

#: The reading of a brief task is only Dask's correction of the clock, the third item below. The
#: reading of a task that is not brief has five items: the file's text at the start of the task or
#: before; the text at the end of the task, or None if there is no such file; the correction
#: (seconds) that Dask adds to the task's start and stop, or None if this version of Dask has no
#: correction; whether the first text was read at the start of the task; and the CPU seconds of the
#: thread between the two texts.
Reading = tuple[bytes | None, bytes | None, float | None, bool, float] | float


def availability() -> str:
    """Return ``available`` if CPU waits can be recorded, or else the reason why they cannot."""
    observed = task_functions.availability()
    if observed != "available":
        return observed
    try:
        with open(SCHEDSTAT, "rb") as file:
            text = file.read(_LENGTH)
    except OSError as error:
        return f"{SCHEDSTAT}: {error.strerror}"
    if run_queue_seconds((text, text, None, True, 0.0)) is None:
        return f"{SCHEDSTAT}: the kernel does not count it"
    return "available"


def run_queue_seconds(
    reading: Reading | None, duration: float = float("inf"), cpu: float | None = None
) -> float | None:
    """Return how many seconds the thread of a task waited for CPU, or None if unknown.

    The result is 0 for a brief task.

    Parameters
    ----------
    reading
        The `Reading` of the task run, or None if there is none.
    duration, cpu
        The task's duration and CPU time in seconds. Their difference limits the result if the
        thread's file was not read at the start of the task.
    """
    if type(reading) is not tuple:
        return None if reading is None else 0.0
    before, after, _, was_read, _ = reading
    if before is None or after is None:
        return None
    try:
        (_, first, *_), (ran, last, *_) = before.split(), after.split()
        # A kernel that does not count the waits reports zero for the time on CPU, too.
        waited = (int(last) - int(first)) * 1e-9 if int(ran) else None
    except ValueError:  # The text is not in the format of Linux.
        return None
    if waited is None or was_read:
        return waited
    return min(waited, max(0.0, duration - (cpu or 0.0)))


def cpu_seconds(reading: Reading | None, start: float | None, stop: float | None) -> float | None:
    """Return the CPU seconds of a task's thread.

    Return None if the CPU seconds, or the times of the task, are unknown.
    """
    if type(reading) is not tuple or reading[1] is None or start is None or stop is None:
        return None
    # If the thread's file was not read at the start of the task, the reading includes up to `STALE`
    # seconds before the start.
    return min(reading[4], max(stop - start, 0.0))


def correction_of(reading: Reading | None) -> float | None:
    """Return Dask's correction of the clock (seconds) in a reading, or None if it has none."""
    return reading[2] if isinstance(reading, tuple) else reading


class KernelFile:
    """A file in which the kernel counts for the thread that opens it. The file stays open.

    It is closed when the last reference to the object is gone.

    Parameters
    ----------
    path
        The path of the file, or None to open no file.
    """

    __slots__ = ("descriptor",)

    def __init__(self, path: str | None) -> None:
        #: None if there is no such file.
        self.descriptor: int | None = None
        if path is not None:
            with contextlib.suppress(OSError):
                self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.descriptor is not None:
            close(self.descriptor)


class ThreadFile(KernelFile):
    """The file with the CPU waits of the calling thread, and the text that was last read from it.

    If `is_open` is false, the object has no file.
    """

    __slots__ = ("cpu", "last", "read_at", "was_brief")

    def __init__(self, is_open: bool = True) -> None:
        super().__init__(SCHEDSTAT if is_open else None)
        self.last: bytes | None = None
        #: The thread's CPU seconds at the last reading.
        self.cpu = thread_time()
        #: Dask's stop time of the task after which the file was last read.
        self.read_at = 0.0
        #: Whether the thread's last task was brief.
        self.was_brief = False

    def read(self) -> bytes | None:
        """Read the file and return its text, or None if there is no file."""
        if self.descriptor is None:
            return None
        self.last = os.pread(self.descriptor, _LENGTH, 0)
        self.cpu = thread_time()
        return self.last

    def reading(
        self, before: bytes | None, start: float, stop: float, correction: float | None
    ) -> Reading:
        """Return the `Reading` of a task run that has ended in this thread.

        `before` is the text at the start of the task run, or None if the file was not read then.
        If `read_at` is `stop` afterwards, the file was read.
        """
        if stop - start >= BRIEF or correction is None or self.descriptor is None:
            begin, cpu = before or self.last, self.cpu
            end = self.read()
            self.was_brief, self.read_at = False, stop
            return begin, end, correction, before is not None, self.cpu - cpu
        self.was_brief = True
        if not 0 <= stop - self.read_at < STALE:
            self.read()
            self.read_at = stop
        return correction


class RunQueue:
    """Observes the CPU waits of the threads that run a worker's tasks.

    Parameters
    ----------
    storage
        A `TaskStorage`, or None. Its methods `begin_thread` and `ended` are called in the threads.
    """

    def __init__(self, guard: HookGuard, storage: Any = None) -> None:
        #: Readings of tasks that have ended, by key. The event loop removes a reading when it
        #: handles the outcome of the task. A worker has only one task run per key at a time.
        self.readings: dict[Any, Reading] = {}
        self._has_schedstat = availability() == "available"
        self._guard, self._storage = guard, storage
        #: Has the `ThreadFile` of each thread.
        self._local = threading.local()
        self._stopped = False

    def wrap(self, run: TaskCallable) -> TaskCallable:
        """Wrap a function that runs a task. The wrapper also stores a `Reading` of the task run."""

        @functools.wraps(run)
        def run_measured(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            before = file = None
            try:
                try:
                    file = self._local.file
                except AttributeError:
                    file = self._local.file = self._open()
                if not file.was_brief:
                    before = file.read()
            except Exception:
                self._guard.caught(RUN_TASK)
            try:
                outcome = run(task, *args, **kwargs)
                try:
                    if file is not None and len(self.readings) < _MOST:
                        start, stop = outcome["start"], outcome["stop"]
                        correction = args[1] if len(args) > 1 else None
                        self.readings[task.key] = file.reading(before, start, stop, correction)
                        if self._storage is not None and file.read_at == stop:
                            self._storage.ended(task.key, stop, stop - start < BRIEF)
                except Exception:
                    self._guard.caught(RUN_TASK)
                return outcome
            finally:
                file = None  # The traceback of a task's error keeps this frame alive.

        return run_measured

    def stop(self) -> None:
        """Stop reading, and close the files. Files of running tasks are closed when these end."""
        self._stopped = True
        self._local = threading.local()
        self.readings.clear()

    def _open(self) -> ThreadFile:
        """Open and return the file of this thread, once per thread."""
        if self._storage is not None:
            self._storage.begin_thread()
        return ThreadFile(self._has_schedstat and not self._stopped)


#
# The interpreter calls `gc.callbacks` before and after each collection, in the thread whose new
# object triggered the collection. The callback must not acquire a lock, because the thread may
# already hold that lock. The callback counts CPU time, because other threads may get the GIL or the
# CPU during the collection. Collections of the youngest generation are left out, as in Dask. They
# are frequent, and reading the clock would take a large part of their time. They take at most 8 %
# of the time of programs that create small objects.


class Collections:
    """Counts the CPU seconds of garbage collections by task. Only one collection runs at a time."""

    def __init__(self, worker: Any, guard: HookGuard) -> None:
        #: CPU seconds by key. The recorder of task runs removes the key of a task run that has
        #: ended.
        self.seconds: dict[Any, float] = {}
        self._threads = running_tasks(worker)
        self._guard = guard
        self._begin: float | None = None
        gc.callbacks.append(self.called)

    def called(self, phase: str, info: dict[str, int]) -> None:
        """Record the start or the end of a collection. The interpreter calls this method."""
        try:
            if info["generation"] == 0:
                return
            if phase == "start":
                self._begin = thread_time()
            elif self._begin is not None:
                spent, self._begin = thread_time() - self._begin, None
                key, seconds = self._threads.get(threading.get_ident()), self.seconds
                if key is not None and (key in seconds or len(seconds) < _MOST):
                    seconds[key] = seconds.get(key, 0.0) + spent
        except Exception:
            self._guard.caught("garbage collections")

    def stop(self) -> None:
        """Stop counting the CPU seconds of garbage collections."""
        with contextlib.suppress(ValueError):  # Other code has cleared the list.
            gc.callbacks.remove(self.called)
