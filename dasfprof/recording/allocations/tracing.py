"""`Tracing`: tracemalloc of this process, and the task runs that go on under it."""

from __future__ import annotations

import os
import threading
import tracemalloc
from dataclasses import dataclass, field

from dasfprof.recording.allocations.moments import Moment

#: Frames of each allocation that are kept, from the innermost on. Each makes it dearer.
FRAMES = 12


@dataclass(eq=False)
class TracedRun:
    """A task run that goes on."""

    #: Whether no other one has run in the process since it began.
    alone: bool = True
    #: Bytes from which a moment is worth a look.
    least: float = 0.0
    #: The fullest moment that was seen, and the most bytes that were live at any, until then.
    fullest: Moment = field(default_factory=Moment)
    peak: int = 0


class Tracing:
    """Starts tracemalloc with its first user, and stops it with the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._runs: set[TracedRun] = set()

    def start(self) -> None:
        """Trace from now on.

        Raises
        ------
        RuntimeError
            If the program traces allocations itself.
        """
        with self._lock:
            if not self._users:
                if tracemalloc.is_tracing():
                    raise RuntimeError("the program uses tracemalloc itself")
                tracemalloc.start(FRAMES)
            self._users += 1

    def stop(self) -> None:
        """Undo `start`, at the end of the task runs that go on."""
        with self._lock:
            self._users -= 1
            self._stop_if_unused()

    def begin(self, least: float) -> TracedRun:
        """Note that a task run begins; if it is alone, what was allocated before is forgotten."""
        with self._lock:
            run = TracedRun(alone=not self._runs, least=least)
            for other in self._runs:
                other.alone = False
            self._runs.add(run)
            if run.alone:
                tracemalloc.clear_traces()
            return run

    def end(self, run: TracedRun) -> None:
        """Note that a task run has ended."""
        with self._lock:
            self._runs.discard(run)
            self._stop_if_unused()

    def _stop_if_unused(self) -> None:
        # Before Python 3.12.9 and 3.13.2 a thread that allocates just then may crash.
        if self._users <= 0 and not self._runs:
            tracemalloc.stop()

    def run_alone(self) -> TracedRun | None:
        """Return the task run that goes on, if there is but one and has been since it began."""
        runs = tuple(self._runs)
        return runs[0] if len(runs) == 1 and runs[0].alone else None

    def forget(self) -> None:
        """Trace nothing in a forked child, where no task of the parent's runs."""
        self._lock, self._runs = threading.Lock(), set()
        if self._users:
            self._users = 0
            tracemalloc.stop()


tracing = Tracing()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=tracing.forget)
