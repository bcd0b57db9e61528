"""What task runs print: text that their threads write to the standard output, line by line.

`sys.stdout.write` of the moment is wrapped in the processes of workers. A program that puts
another stream in its place later, such as `contextlib.redirect_stdout`, is not heard, nor is a last
line that has no end.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch, SharedListeners
from dasfprof.recording.dask_internals.task_logs import Ear, Listener
from dasfprof.recording.guard import HookGuard

#: The name of the level of these records, and that of their logger.
LEVEL, LOGGER = "PRINT", "stdout"
#: Characters of a line that has no end yet; what comes then is left out.
_LONGEST = 1000


class _Lines:
    """Makes a record of each line that a task's thread writes."""

    def __init__(self, ear: Ear, guard: HookGuard) -> None:
        self._ear, self._guard = ear, guard
        #: By thread: the run that has begun a line, and what it wrote of it.
        self._begun: dict[int, tuple[tuple[Any, int], str]] = {}

    def hear(self, text: str) -> None:
        try:
            thread = threading.get_ident()
            run = self._ear.run_of(thread)
            if run is None or type(text) is not str:
                return
            before, begun = self._begun.pop(thread, (run, ""))
            *lines, rest = ((begun if before == run else "") + text[: _LONGEST * 20]).split("\n")
            for line in lines:
                if line.strip():
                    self._ear.hear(_record(line))
            if rest:
                self._begun[thread] = run, rest[:_LONGEST]
        except Exception:
            self._guard.caught("what a task prints")


def _record(line: str) -> logging.LogRecord:
    frame = sys._getframe(3)  # of who wrote: below are this function, `hear` and `write`
    code = frame.f_code
    record = logging.LogRecord(
        *(LOGGER, logging.INFO, code.co_filename, frame.f_lineno, line, (), None),
        func=code.co_qualname if hasattr(code, "co_qualname") else code.co_name,
    )
    record.levelname = LEVEL
    return record


def _listen(original: Any, patch: Patch) -> Any:
    def write(*args: Any, **kwargs: Any) -> Any:
        if patch.active and args:
            for lines in _listeners.all:
                lines.hear(args[0])
        return original(*args, **kwargs)

    return write


def _place() -> list[Patch]:
    try:
        return [Patch(sys.stdout, "write", _listen)]
    except (AttributeError, TypeError):  # there is no output, or none that can be wrapped
        return []


_listeners: SharedListeners[_Lines] = SharedListeners(_place)


def listen(
    worker: Any, listener: Listener, left_out: Callable[[], object], guard: HookGuard
) -> Callable[[], None]:
    """Call a listener, in the task's thread, with a record of each line that a task run prints.

    Parameters
    ----------
    worker
        The worker.
    listener
        Gets the records.
    left_out
        Called for each line beyond `MOST_OF_A_RUN` of a task run.
    guard
        Handles errors.

    Returns
    -------
    Callable
        Ends it.
    """
    return _listeners.add(_Lines(Ear(worker, logging.INFO, listener, left_out, guard), guard))
