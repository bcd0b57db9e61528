"""Appending frames, so that a disk that does not answer holds up nobody who records."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable

from dasfprof.database.losses import Losses, cause_of
from dasfprof.database.output import TraceOutput

#: Seconds after which a disk that has not answered is given up, for the time being.
PATIENCE = 5.0
#: Seconds between two looks whether the writer's thread is still there.
_LOOK = 0.25


class GivenUpError(OSError):
    """The disk does not answer; whether the frame is lost is counted when it does."""


class _Handed:
    """A frame, the number of events in it, and what became of it."""

    def __init__(self, frame: bytes, rows: int) -> None:
        self.frame = frame
        self.rows = rows
        self.error: Exception | None = None
        self.done = threading.Event()
        #: Who came first, the thread that appended or the one that gave up: appending to a list
        #: is atomic.
        self.ends: list[str] = []


class Appender:
    """Appends frames to a file, for one thread after the other.

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
        #: Whether a frame was given up that is still being appended.
        self.hangs = False

    def waiting_for(self) -> float:
        """Give the seconds for which the disk has not answered; any thread may ask."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def append(self, frame: bytes) -> None:
        """Append a frame in this thread.

        Raises
        ------
        OSError
            If it cannot be written.
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
        """Have the writer's thread append a frame; return when it is in the file.

        Parameters
        ----------
        wake, alive
            Wakes the writer's thread, which then calls `take`; tells whether it is still there.

        Raises
        ------
        OSError
            If it cannot be written, or the disk does not answer.
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
        """Append what was handed over, in the writer's thread; tells whether there was anything."""
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
