"""How long the threads of tasks waited for a core: `RunQueue`.

Linux counts for each thread the time for which it was runnable and had no core: the second number
of ``/proc/thread-self/schedstat``, nanoseconds. It is read as a task begins and as it ends, by the
thread that runs it, through a descriptor that the thread keeps: opening the file anew would cost
ten times as much. Making numbers of what was read is left to the writer's thread.

Where tasks are brief, reading would be the most that recording them costs, for waits that are no
longer than the tasks. So tasks whose last namesake was brief are not read: if they prove brief as
well, no wait is told; else the wait is counted from the thread's last reading, which may be of an
earlier task, and the next namesake is read again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from time import perf_counter
from typing import Any

from dasfprof.recording.dask_internals import task_functions
from dasfprof.recording.dask_internals.task_functions import RUN_TASK, Run
from dasfprof.recording.guard import HookGuard

#: The name is resolved as the file is opened: it stays that of the thread which opened it.
SCHEDSTAT = "/proc/thread-self/schedstat"

#: More than three numbers of 64 bits.
_LENGTH = 80

#: Seconds below which a task is brief.
BRIEF = 0.001

#: Names of brief tasks that are kept.
_MOST_NAMES = 1000

#: Stands for both readings of a task that was brief, as its namesake was.
_NOT_READ = b"brief"

#: Readings kept for the event loop. More than it may have to take at a time: it takes none.
_MOST = 10_000

#: What was read as a task began and as it ended (None: there is no such file), and the correction
#: of the clock that Dask adds to the task's start and stop, seconds (None: this Dask tells none).
Readings = tuple[bytes | None, bytes | None, float | None]

NO_READINGS: Readings = (None, None, None)


def availability() -> str:
    """Tell whether the run queue of tasks is recorded; if not, why."""
    observed = task_functions.availability()
    if observed != "available":
        return observed
    try:
        with open(SCHEDSTAT, "rb") as file:
            text = file.read(_LENGTH)
    except OSError as error:
        return f"{SCHEDSTAT}: {error.strerror}"
    if run_queue_seconds(text, text) is None:
        return f"{SCHEDSTAT}: the kernel does not count it"
    return "available"


def run_queue_seconds(before: bytes | None, after: bytes | None) -> float | None:
    """Give the seconds between two readings for which a thread waited for a core.

    None where nothing was read, or where the kernel does not count: then it writes zeros, for the
    time on a core too. A brief task that was not read has waited for 0 seconds.
    """
    if before is None or after is None:
        return None
    if after is _NOT_READ:
        return 0.0
    try:
        (_, first, *_), (ran, last, *_) = before.split(), after.split()
        return (int(last) - int(first)) * 1e-9 if int(ran) else None
    except ValueError:  # not what Linux writes
        return None


class _OwnFile:
    """The descriptor of one thread's file, closed with the thread.

    It is in the list while no task runs. To take it out is to own it: so the thread that reads and
    the one that stops the recording never have it at a time, and one of them closes it.
    """

    __slots__ = ("__weakref__", "descriptors")

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors
        weakref.finalize(self, _close, descriptors).atexit = False


def _close(descriptors: list[int]) -> None:
    try:
        descriptor = descriptors.pop()
    except IndexError:  # somebody else did, or there is no such file
        return
    os.close(descriptor)


class RunQueue:
    """Notes what the threads that run a worker's tasks wait for a core: an observer of tasks.

    Parameters
    ----------
    guard
        Takes its errors.
    """

    def __init__(self, guard: HookGuard) -> None:
        #: By key, of the tasks that ended and whose outcome the event loop does not know yet: it
        #: takes them out. A worker runs a key once at a time.
        self.readings: dict[Any, Readings] = {}
        self._told = availability() == "available"
        #: Names of tasks that were brief when last seen.
        self._brief: set[str | None] = set()
        self._guard = guard
        self._local = threading.local()
        self._lock = threading.Lock()
        self._files: weakref.WeakSet[_OwnFile] = weakref.WeakSet()
        self._stopped = False

    def wrap(self, run: Run) -> Run:
        """Put a reading before and after a function whose first argument is the task."""
        local, readings, brief, pread = self._local, self.readings, self._brief, os.pread

        # All in one function: calls would cost as much again as everything but the reading.
        @functools.wraps(run)
        def run_measured(task: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: PLR0912
            name = descriptor = before = after = None
            began = perf_counter()
            try:
                try:
                    descriptors = local.descriptors
                except AttributeError:
                    descriptors = self._open()
                descriptor = descriptors.pop()
                name = _name(task.key)
                if name in brief:
                    before = local.last
                if before is None:  # the thread may be new
                    before = pread(descriptor, _LENGTH, 0)
            except IndexError:  # there is no such file, or the recording ends
                pass
            except Exception:
                self._guard.caught(RUN_TASK)
            try:
                return run(task, *args, **kwargs)
            finally:
                try:
                    is_brief = perf_counter() - began < BRIEF
                    if descriptor is not None:
                        if is_brief and name in brief:
                            before = after = _NOT_READ
                        else:
                            after = local.last = pread(descriptor, _LENGTH, 0)
                            self._note_length(name, is_brief)
                    if len(readings) < _MOST and not self._stopped:
                        readings[task.key] = before, after, args[1] if len(args) > 1 else None
                except Exception:
                    self._guard.caught(RUN_TASK)
                if descriptor is not None:
                    descriptors.append(descriptor)
                    if self._stopped:
                        _close(descriptors)

        return run_measured

    def _note_length(self, name: str | None, is_brief: bool) -> None:
        """Keep whether the next task of this name is to be read; None is never to be left out."""
        if not is_brief:
            self._brief.discard(name)
        elif name is not None:
            if len(self._brief) >= _MOST_NAMES:  # of graphs that are gone
                self._brief.clear()
            self._brief.add(name)

    def wrap_coroutine(self, run: Run) -> Run:
        """Leave coroutines alone: many at a time share the thread of the event loop."""
        return run

    def stop(self) -> None:
        """Read no more. Descriptors are closed; those of tasks that run, as these end."""
        with self._lock:
            self._stopped = True
            files = list(self._files)
        for file in files:
            _close(file.descriptors)
        self.readings.clear()

    def _open(self) -> list[int]:
        """Open this thread's file, once; without it the thread's tasks have no readings."""
        local = self._local
        descriptors: list[int] = []
        with self._lock:
            if self._told and not self._stopped:
                with contextlib.suppress(OSError):
                    descriptors.append(os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC))
                local.file = _OwnFile(descriptors)
                self._files.add(local.file)
        local.descriptors, local.last = descriptors, None
        return descriptors


def _name(key: Any) -> str | None:
    """Give what keys of like tasks have in common; None where that is not plain."""
    if type(key) is tuple and key:
        key = key[0]
        return key if type(key) is str else None
    return key.rpartition("-")[0] if type(key) is str else None
