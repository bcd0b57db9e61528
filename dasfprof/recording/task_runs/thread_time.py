"""What threads of tasks waited for a core, and what the garbage collector took in them."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
from collections.abc import Callable
from time import thread_time
from typing import Any, Protocol

from dasfprof.recording.dask_internals import task_functions
from dasfprof.recording.dask_internals.task_functions import RUN_TASK, Run, running_tasks
from dasfprof.recording.guard import HookGuard
from dasfprof.system import PROC

# --- RunQueue: how long the threads of tasks waited for a core ------------------------------------
#
# Linux counts for each thread the time that it was runnable without a core: the second number in
# ``/proc/thread-self/schedstat``, in nanoseconds. The thread that runs the task reads the file by a
# descriptor that stays open, as opening it again would cost ten times as much. The writer's thread
# parses the text.
#
# For brief tasks, reading would be most of the cost of recording, for waits no longer than the
# tasks. So tasks shorter than `BRIEF` get no wait, and the next task of their thread is read at its
# end only: if it is not brief, its wait counts from the thread's last reading, which is at most
# `STALE` seconds of the thread's work older. After a task that is not brief, the next one is also
# read at its begin.

#: Resolved when it is opened: the descriptor stays that of the thread that opened it.
SCHEDSTAT = f"{PROC}/thread-self/schedstat"

#: Bytes to read, more than the length of three numbers of 64 bits.
_LENGTH = 80

#: Tasks shorter than this are brief, seconds.
BRIEF = 0.001

#: Seconds after which a thread whose tasks are brief is read again.
STALE = 0.005

#: The most readings that wait for the event loop. With more, it is not taking any.
_MOST = 10_000

#: For a task that is not brief: the text read at its begin or before, the text read at its end
#: (None: there is no such file), the correction of the clock that Dask adds to the task's start and
#: stop in seconds (None: this Dask has none), whether the first text was read at its begin, and the
#: thread's CPU seconds between the two. For a brief task the correction only.
Reading = tuple[bytes | None, bytes | None, float | None, bool, float] | float


def availability() -> str:
    """Return ``available`` if waits for a core can be recorded, else the reason."""
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
    """Return the seconds for which the thread of a task waited for a core.

    None if nothing was read or if the kernel does not count: then the time on a core is zero, too.
    For a brief task, 0 seconds.

    Parameters
    ----------
    reading
        The reading of the task.
    duration, cpu
        The task's duration and CPU time, seconds. Their difference limits the wait if the first
        reading was taken before the task began.
    """
    if type(reading) is not tuple:
        return None if reading is None else 0.0
    before, after, _, was_read, _ = reading
    if before is None or after is None:
        return None
    try:
        (_, first, *_), (ran, last, *_) = before.split(), after.split()
        waited = (int(last) - int(first)) * 1e-9 if int(ran) else None
    except ValueError:  # not in the format of Linux
        return None
    if waited is None or was_read:
        return waited
    return min(waited, max(0.0, duration - (cpu or 0.0)))


def cpu_seconds(reading: Reading | None, start: float | None, stop: float | None) -> float | None:
    """Return the CPU seconds of a task's thread; None if they were not read.

    Of a task whose begin was not read, those of up to `STALE` seconds before it are among them.
    """
    if type(reading) is not tuple or reading[1] is None or start is None or stop is None:
        return None
    return min(reading[4], max(stop - start, 0.0))


def correction_of(reading: Reading | None) -> float | None:
    """Return the correction of the clock in a reading."""
    return reading[2] if isinstance(reading, tuple) else reading


class ThreadFile:
    """One thread's file, closed with the last reference to it, and the last text."""

    __slots__ = ("cpu", "descriptor", "last", "read_at", "was_brief")

    def __init__(self, descriptor: int | None) -> None:
        #: None: there is no such file, or the recording has ended.
        self.descriptor = descriptor
        self.last: bytes | None = None
        #: The thread's CPU seconds then.
        self.cpu = thread_time()
        #: The stop of the task after which the file was last read, on the clock of tasks' stops.
        self.read_at = 0.0
        #: Whether the thread's last task was brief.
        self.was_brief = False

    def read(self) -> bytes | None:
        """Return the file's text; None if there is none."""
        if self.descriptor is None:
            return None
        self.last = os.pread(self.descriptor, _LENGTH, 0)
        self.cpu = thread_time()
        return self.last

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.descriptor is not None:
            close(self.descriptor)


class Storage(Protocol):
    """Is told of threads and tasks in these threads; must not raise."""

    def begin_thread(self) -> None:
        """Note that a thread is about to run its first task."""

    def ended(self, key: Any, stop: float) -> None:
        """Note that a task has ended."""

    def ended_brief(self, stop: float) -> None:
        """Note now and then that a brief task has ended."""


class RunQueue:
    """Observes how long the threads that run a worker's tasks wait for a core.

    Parameters
    ----------
    guard
        Handles the errors.
    storage
        Is told, in their threads, of threads that are about to run their first task, of the ends
        of tasks, and of some of those of brief ones.
    """

    def __init__(self, guard: HookGuard, storage: Storage | None = None) -> None:
        #: By key, of the tasks that have ended and whose outcome the event loop does not know: it
        #: takes them out. A worker runs a key once at a time.
        self.readings: dict[Any, Reading] = {}
        self._has_schedstat = availability() == "available"
        self._guard, self._storage = guard, storage
        #: Owns the file of each thread.
        self._local = threading.local()
        self._stopped = False

    def wrap(self, run: Run) -> Run:
        """Return a function that runs another, whose first argument is a task, between readings."""

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
                if file is not None and len(self.readings) < _MOST:
                    self._ended(file, before, task.key, outcome, args)
                return outcome
            finally:
                file = None  # the traceback of a task's error keeps this frame

        return run_measured

    def _ended(
        self, file: ThreadFile, before: bytes | None, key: Any, outcome: Any, args: tuple[Any, ...]
    ) -> None:
        try:
            stop, correction = outcome["stop"], args[1] if len(args) > 1 else None
            is_brief = stop - outcome["start"] < BRIEF
            if not is_brief or correction is None or not self._has_schedstat:
                begin, cpu, was_read = before or file.last, file.cpu, before is not None
                end = file.read()
                self.readings[key] = begin, end, correction, was_read, file.cpu - cpu
                file.was_brief, file.read_at = False, stop
                if self._storage is not None and not is_brief:
                    self._storage.ended(key, stop)
            else:
                self.readings[key] = correction
                file.was_brief = True
                if not 0 <= stop - file.read_at < STALE:
                    file.read()
                    file.read_at = stop
                    if self._storage is not None:
                        self._storage.ended_brief(stop)
        except Exception:
            self._guard.caught(RUN_TASK)

    def stop(self) -> None:
        """Stop reading. Files are closed, those of running tasks when the tasks end."""
        self._stopped = True
        self._local = threading.local()
        self.readings.clear()

    def _open(self) -> ThreadFile:
        """Return this thread's file, opened once; without it the thread has no readings."""
        if self._storage is not None:
            self._storage.begin_thread()
        return open_own(self._has_schedstat and not self._stopped)


def open_own(is_there: bool = True) -> ThreadFile:
    """Return the file of the thread that calls; one that says nothing where there is none."""
    descriptor = None
    if is_there:
        with contextlib.suppress(OSError):
            descriptor = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
    return ThreadFile(descriptor)


# --- CPU seconds of Python's garbage collector in the threads of tasks ----------------------------
#
# The interpreter calls `gc.callbacks` before and after each collection, in the thread that happens
# to have made one object too many: nothing is called as long as nothing is collected. What is
# called must neither wait nor take a lock, which that thread may hold. It is CPU that is counted:
# between its two calls other threads may get the interpreter's lock, or the core. Collections of
# the youngest generation are left out, as Dask does: they are many, and to read the clock would
# take a part of them. Of what programs of small objects compute they take 8 % at most.


def collections_of(
    worker: Any, guard: HookGuard, undo: list[Callable[[], object]]
) -> dict[Any, float]:
    """Return the CPU seconds of collections by the key of the task in whose thread they ran.

    Parameters
    ----------
    worker
        The worker.
    guard
        Handles errors.
    undo
        Gets what ends it.

    Returns
    -------
    dict
        Grows with collections; whoever notes the end of a task run takes its seconds out.
    """
    found = _Collections(worker, guard)
    gc.callbacks.append(found.called)
    undo.append(found.stop)
    return found.seconds


class _Collections:
    """Hears of each collection of this process; one goes on at a time."""

    def __init__(self, worker: Any, guard: HookGuard) -> None:
        self.seconds: dict[Any, float] = {}
        self._threads = running_tasks(worker)
        self._guard = guard
        self._begin: float | None = None

    def called(self, phase: str, info: dict[str, int]) -> None:
        """Take note of the begin or the end of a collection."""
        try:
            if info["generation"] == 0:
                return
            if phase == "start":
                self._begin = thread_time()
            elif self._begin is not None:
                lasted, self._begin = thread_time() - self._begin, None
                key, seconds = self._threads.get(threading.get_ident()), self.seconds
                if key is not None and (key in seconds or len(seconds) < _MOST):
                    seconds[key] = seconds.get(key, 0.0) + lasted
        except Exception:
            self._guard.caught("garbage collections")

    def stop(self) -> None:
        """Hear no more."""
        with contextlib.suppress(ValueError):  # somebody has cleared the list
            gc.callbacks.remove(self.called)
