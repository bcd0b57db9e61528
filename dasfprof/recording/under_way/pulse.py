"""`Pulse`: calls functions once a second or more often, in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from dasfprof.recording.guard import HookGuard

#: Seconds between two looks.
INTERVAL = 1.0

#: Seconds that the end of recording waits for the current look.
_LAST_LOOK = 2.0


class Pulse:
    """Calls functions again and again in a daemon thread of its own, from `start` until `stop`.

    The thread does nothing else: what a disk or a driver blocks must not keep it from looking.

    Parameters
    ----------
    name
        Of the thread.
    looks
        The functions. If one raises, the others are called all the same.
    guard
        Handles their errors.
    interval
        Seconds between two calls.
    """

    def __init__(
        self,
        name: str,
        looks: Sequence[Callable[[], object]],
        guard: HookGuard,
        interval: float = INTERVAL,
    ) -> None:
        self._looks = looks
        self._interval = interval
        self._guard = guard
        self._pid = os.getpid()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dasfprof-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking. A forked child has no such thread."""
        if os.getpid() == self._pid:
            self._stopping.set()
            if self._thread is not threading.current_thread():
                self._thread.join(_LAST_LOOK)

    def _run(self) -> None:
        due = monotonic() + self._interval
        while not self._stopping.wait(max(0.0, due - monotonic())):
            for look in self._looks:
                try:
                    look()
                except Exception:
                    self._guard.caught("a look at what is under way")
            due = max(due + self._interval, monotonic())
