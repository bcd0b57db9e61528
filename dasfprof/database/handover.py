"""`Appender`: appends frames so that a disk that hangs does not block the threads that record."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable

from dasfprof.database.losses import Losses, cause_of
from dasfprof.database.output import TraceOutput

# --- Pace and Wake: when a background thread works beside threads that must not wait --------------

#: CPU seconds of work between two pauses, and the length of a pause, also when another thread waits
#: for the work to end. `benchmarks/` measures their cost and how long an event loop waits.
WORK_SECONDS = 0.0005
#: So few rows take less than the interpreter's switch interval, after which another thread gets its
#: lock anyway: pauses would only make this one wake again and again.
FEW_ROWS, FEW_SECONDS = 100, 0.005
PAUSE_SECONDS = 0.001
HURRIED_PAUSE_SECONDS = 0.00005


class Pace:
    """Pauses the thread that works, so that the others get the interpreter's lock."""

    def __init__(self) -> None:
        #: Whether another thread waits for the work to end.
        self.hurried = False
        self._rested = 0.0
        self._seconds = WORK_SECONDS

    def start(self, rows: int) -> None:
        """Begin to work on some rows, in this thread."""
        self._seconds = WORK_SECONDS if rows > FEW_ROWS else FEW_SECONDS
        self._rested = time.thread_time()

    def pause(self) -> None:
        """Sleep, if the thread has worked for long enough since its last pause."""
        if time.thread_time() - self._rested > self._seconds:
            time.sleep(HURRIED_PAUSE_SECONDS if self.hurried else PAUSE_SECONDS)
            self._rested = time.thread_time()


class Wake:
    """Ends the sleep of one thread, like `threading.Event`, but from anywhere.

    That one holds a lock while it is set: a signal's handler or a finalizer that comes just then,
    and records something, would wait for its own thread for ever.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the sleep, or the next one."""
        with contextlib.suppress(RuntimeError):  # it is set
            self._unset.release()

    def is_set(self) -> bool:
        """Return whether it is set, and nobody has woken of it."""
        return not self._unset.locked()

    def wait(self, seconds: float = -1) -> None:
        """Sleep until it is set, but only so long if that is not negative; then it is not set."""
        self._unset.acquire(timeout=seconds)

    def clear(self) -> None:
        """Have it not set."""
        self._unset.acquire(blocking=False)


# --- Appender: appends frames so that a disk that hangs does not block the threads that record ----

#: Seconds to wait for the disk before a frame is given up.
PATIENCE = 5.0
#: Seconds between two checks whether the writer's thread is alive.
_LOOK = 0.25


class GivenUpError(OSError):
    """The disk does not answer. A lost frame is counted once the disk answers."""


class _Handed:
    """A frame, its number of events and its outcome."""

    def __init__(self, frame: bytes, rows: int) -> None:
        self.frame = frame
        self.rows = rows
        self.error: Exception | None = None
        self.done = threading.Event()
        #: The first item is the outcome, by the thread that wrote the frame or the one that gave
        #: up, whichever was first: appending to a list is atomic.
        self.ends: list[str] = []


class Appender:
    """Appends frames to a file, for one thread at a time.

    Parameters
    ----------
    output
        The file.
    losses
        Where frames that were given up are counted.
    """

    def __init__(self, output: TraceOutput, losses: Losses) -> None:
        self._output = output
        self._losses = losses
        self._lock = threading.Lock()
        self._began: float | None = None
        self._handed: _Handed | None = None
        #: Whether a frame that was given up is still being appended.
        self.hangs = False

    def waiting_for(self) -> float:
        """Return the seconds for which the disk has not answered. Any thread may call it."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def append(self, frame: bytes) -> None:
        """Append a frame in this thread.

        Raises
        ------
        OSError
            If the frame cannot be written.
        """
        with self._lock:
            self._began = time.monotonic()
            try:
                self._output.append(frame)
            finally:
                self._began = None

    def hand_over(
        self, frame: bytes, rows: int, wake: Callable[[], None], alive: Callable[[], bool]
    ) -> None:
        """Let the writer's thread append a frame; return when it is in the file.

        Parameters
        ----------
        wake, alive
            `wake` wakes the writer's thread, which calls `take`; `alive` returns whether it runs.

        Raises
        ------
        OSError
            If the frame cannot be written or the disk does not answer.
        """
        if self.hangs:
            raise OSError(errno.ETIMEDOUT, "the disk does not answer")
        handed = self._handed = _Handed(frame, rows)
        wake()
        given_up = time.monotonic() + PATIENCE
        while not handed.done.wait(min(_LOOK, PATIENCE)):
            if not alive() and not handed.done.is_set():
                self._handed = None
                self.append(frame)
                return
            if time.monotonic() > given_up:
                self.hangs = True
                handed.ends.append("given up")
                if handed.ends[0] == "given up":
                    raise GivenUpError(errno.ETIMEDOUT, "the disk does not answer")
                self.hangs = False
        if handed.error is not None:
            raise handed.error

    def take(self) -> bool:
        """Append the frame that was handed over, if any, and return whether there was one."""
        handed, self._handed = self._handed, None
        if handed is None:
            return False
        try:
            self.append(handed.frame)
        except Exception as error:
            handed.error = error
        handed.ends.append("appended")
        if handed.ends[0] == "given up":
            self.hangs = False
            if handed.error is not None:
                self._losses.add(cause_of(handed.error), handed.rows)
        handed.done.set()
        return True
