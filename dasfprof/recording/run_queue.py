"""How long the threads of tasks waited for a core: `RunQueue`.

Linux counts for each thread the time for which it was runnable and had no core: the second number
of ``/proc/thread-self/schedstat``, nanoseconds. The thread that runs the task reads it, through a
descriptor that it keeps: opening the file anew would cost ten times as much. Making numbers of
what was read is left to the writer's thread.

Where tasks are brief, reading would be the most that recording them costs, for waits that are no
longer than the tasks. So of tasks under `BRIEF` no wait is told, and the next task of their thread
is read as it ends alone: if it takes longer, its wait is counted from the thread's last reading,
which is at most `STALE` of the thread's work older. After a task that took longer, the next one is
read as it begins too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
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

#: Seconds after which a thread whose tasks are brief is read again.
STALE = 0.005

#: Readings kept for the event loop. More than it may have to take at a time: it takes none.
_MOST = 10_000

#: Of a task that took longer than `BRIEF`: what was read as it began or before, and as it ended
#: (None: there is no such file), the correction of the clock that Dask adds to the task's start and
#: stop, seconds (None: this Dask tells none), and whether the first was read as it began. Of a
#: brief one the correction alone.
Reading = tuple[bytes | None, bytes | None, float | None, bool] | float


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
    if run_queue_seconds((text, text, None, True)) is None:
        return f"{SCHEDSTAT}: the kernel does not count it"
    return "available"


def run_queue_seconds(
    reading: Reading | None, duration: float = float("inf"), cpu: float | None = None
) -> float | None:
    """Give the seconds for which the thread of a task waited for a core.

    None where nothing was read, or where the kernel does not count: then it writes zeros, for the
    time on a core too. A brief task has waited for 0 seconds.

    Parameters
    ----------
    reading
        Of the task.
    duration, cpu
        Of the task, seconds: waits from before it began are left out as far as it cannot have
        waited so long.
    """
    if type(reading) is not tuple:
        return None if reading is None else 0.0
    before, after, _, was_read = reading
    if before is None or after is None:
        return None
    try:
        (_, first, *_), (ran, last, *_) = before.split(), after.split()
        waited = (int(last) - int(first)) * 1e-9 if int(ran) else None
    except ValueError:  # not what Linux writes
        return None
    if waited is None or was_read:
        return waited
    return min(waited, max(0.0, duration - (cpu or 0.0)))


def correction_of(reading: Reading | None) -> float | None:
    """Give the correction of the clock in a reading."""
    return reading[2] if isinstance(reading, tuple) else reading


class _OwnFile:
    """One thread's file: its descriptor, closed with the thread, and what was read last.

    The descriptor is in the list while nobody reads. To take it out is to own it: so the thread
    that reads and the one that stops the recording never have it at a time, and one of them closes
    it.
    """

    __slots__ = ("__weakref__", "descriptors", "last", "read_at", "was_brief")

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors
        self.last: bytes | None = None
        #: When a task had ended as it was read, on the clock of the tasks' stops.
        self.read_at = 0.0
        #: Whether the thread's last task was.
        self.was_brief = False
        weakref.finalize(self, _close, descriptors).atexit = False

    def read(self) -> bytes | None:
        """Read; None where there is no such file, or where the recording has ended."""
        try:
            descriptor = self.descriptors.pop()
        except IndexError:
            return None
        try:
            self.last = os.pread(descriptor, _LENGTH, 0)
        finally:
            self.descriptors.append(descriptor)
        return self.last


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
        self.readings: dict[Any, Reading] = {}
        self._told = availability() == "available"
        self._guard = guard
        self._local = threading.local()
        self._lock = threading.Lock()
        self._files: weakref.WeakSet[_OwnFile] = weakref.WeakSet()
        self._stopped = False

    def wrap(self, run: Run) -> Run:
        """Put readings around a function whose first argument is the task."""
        local, readings, told = self._local, self.readings, self._told

        @functools.wraps(run)
        def run_measured(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            before = file = None
            try:
                try:
                    file = local.file
                except AttributeError:
                    file = local.file = self._open()
                if not file.was_brief:
                    before = file.read()
            except Exception:
                self._guard.caught(RUN_TASK)
            outcome = run(task, *args, **kwargs)
            try:
                if file is None or len(readings) >= _MOST:
                    return outcome
                stop, correction = outcome["stop"], args[1] if len(args) > 1 else None
                if stop - outcome["start"] >= BRIEF or correction is None or not told:
                    begin, was_read = before or file.last, before is not None
                    readings[task.key] = begin, file.read(), correction, was_read
                    file.was_brief, file.read_at = False, stop
                else:
                    readings[task.key] = correction
                    file.was_brief = True
                    if not 0 <= stop - file.read_at < STALE:
                        file.read()
                        file.read_at = stop
                if self._stopped:
                    _close(file.descriptors)
            except Exception:
                self._guard.caught(RUN_TASK)
            return outcome

        return run_measured

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

    def _open(self) -> _OwnFile:
        """Open this thread's file, once; without it the thread's tasks have no readings."""
        descriptors: list[int] = []
        with self._lock:
            if self._told and not self._stopped:
                with contextlib.suppress(OSError):
                    descriptors.append(os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC))
            file = _OwnFile(descriptors)
            self._files.add(file)
        return file
