"""`Pace` and `Wake`: when a background thread works beside threads that must not wait."""

from __future__ import annotations

import contextlib
import threading
import time

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
