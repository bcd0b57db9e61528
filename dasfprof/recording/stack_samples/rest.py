"""`REST`: lets the sampler of this process sleep while nothing is under way.

A look every 50 ms wakes a worker that does nothing twenty times a second. But the sampler must not
miss the begin of a task, nor an event loop that stops turning, and those who see the first must not
pay for it, and nobody sees the second. So a task that begins wakes it; and a timer of the kernel
does, which each turn of the loop puts off without waking anybody.
"""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.dask_internals.task_functions import has_actors, running_tasks
from dasfprof.recording.dask_internals.undocumented import on_turns, turn_interval

#: Seconds without a turn, beyond what Dask's own clock of it takes, from which a loop is blocked.
BLOCKED = 0.05

_NANOSECONDS = 1_000_000_000


class _Timer:
    """A timer that can be put off without waking who waits for it: timerfd(2).

    Raises
    ------
    OSError
        If there is none here.
    """

    def __init__(self) -> None:
        try:
            functions = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock
            self._set = functions.timerfd_settime
            self._file = functions.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        except (AttributeError, TypeError) as error:
            raise OSError("no timerfd") from error
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timerfd")
        # Not before the last turn that might still set it.
        weakref.finalize(self, os.close, self._file)

    def set(self, seconds: float) -> None:
        """Let it end so many seconds from now, whatever was set before."""
        whole, part = divmod(round(seconds * _NANOSECONDS), _NANOSECONDS)
        # Seconds and nanoseconds of the interval, which is none, and until its end.
        self._set(self._file, 0, (ctypes.c_long * 4)(0, 0, whole, part), None)

    def wait(self) -> None:
        """Wait for its end."""
        os.read(self._file, 8)


class Rest:
    """The sleep of a sampler, in its own thread, and what ends it in others."""

    def __init__(self) -> None:
        #: Whether the sampler sleeps: then a task that begins has to `end` that.
        self.lasts = False
        self._seconds = BLOCKED + turn_interval()
        self._timer: _Timer | None = None

    def begin(self) -> bool:
        """Begin; return whether that is possible. Then look once more, and `wait`."""
        try:
            self._timer = self._timer or _Timer()
        except OSError:
            return False
        self.lasts = True
        self._timer.set(self._seconds)
        return True

    def wait(self) -> None:
        """Sleep until a task begins, or the loop has not turned for too long."""
        if self._timer is not None:
            self._timer.wait()

    def end(self) -> None:
        """End it now. A loop that just puts it off makes that its end, a moment later."""
        self.lasts = False
        if self._timer is not None:
            self._timer.set(1 / _NANOSECONDS)

    def forget(self) -> None:
        """Forget the parent's timer in a forked child: they would put off each other's."""
        self.lasts, self._timer = False, None

    def watch(self, server: Any) -> Patch | None:
        """Have the turns of a server's loop put the end off; None if this Dask has no such turns.

        To be removed at the end.
        """

        def turned() -> None:
            if self.lasts and self._timer is not None:
                if running_tasks(server) or has_actors(server):
                    self.end()
                else:
                    self._timer.set(self._seconds)

        return on_turns(server, turned)


#: That of the sampler of this process.
REST = Rest()
