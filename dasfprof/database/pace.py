"""`Pace`: the pauses of a thread that works beside threads that must not wait."""

from __future__ import annotations

import signal
import time

#: CPU seconds of work between two pauses, and the length of a pause, also when another thread waits
#: for the work to end. `benchmarks/` measures their cost and how long an event loop waits.
WORK_SECONDS = 0.0005
PAUSE_SECONDS = 0.001
HURRIED_PAUSE_SECONDS = 0.00005


class Pace:
    """Pauses the thread that works, so that the others get the interpreter's lock."""

    def __init__(self) -> None:
        #: Whether another thread waits for the work to end.
        self.hurried = False
        self._rested = 0.0

    def start(self) -> None:
        """Begin to work, in this thread."""
        self._rested = time.thread_time()

    def pause(self) -> None:
        """Sleep, if the thread has worked for long enough since its last pause."""
        if time.thread_time() - self._rested > WORK_SECONDS:
            time.sleep(HURRIED_PAUSE_SECONDS if self.hurried else PAUSE_SECONDS)
            self._rested = time.thread_time()


def comes_from_a_signal(error: BaseException) -> bool:
    """Return whether a signal's handler raised an error, and not what it interrupted."""
    if not isinstance(error, Exception):
        return True
    handlers = {
        getattr(signal.getsignal(number), "__code__", 0) for number in range(1, signal.NSIG)
    }
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False
