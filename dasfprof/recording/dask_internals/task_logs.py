"""What task runs log and print."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch, SharedListeners
from dasfprof.recording.guard import HookGuard

# --- What task runs log: a task that catches its own error counts as done -------------------------
#
# The standard library's `logging.Logger.callHandlers`, which each record reaches that is not
# filtered, is wrapped in the processes of workers. A handler of ours would change what programs
# see: `logging.basicConfig` does nothing where there is one, and records without any go to stderr.

#: Called with each record: the key and run id of the task, the record, and whether it is the task
#: run's first error. The key is None where Dask logs an exception outside of tasks.
Listener = Callable[[Any, int, logging.LogRecord, bool], object]

_OURS = "dasfprof."
#: Loggers of Dask, and of those the ones of other processes than a worker.
_DASK = "distributed."
_OF_OTHERS = ("distributed.scheduler", "distributed.nanny", "distributed.client")
#: The most records of a task run that a listener gets, its first error not counted.
MOST_OF_A_RUN = 20


class _Run:
    """A task run, and what it has logged."""

    __slots__ = ("has_erred", "identity", "records")

    def __init__(self, identity: tuple[Any, int]) -> None:
        self.identity = identity
        self.records = 0
        self.has_erred = False


class Ear:
    """Calls a listener with what each task run of a worker logs, from a level on."""

    def __init__(
        self,
        worker: Any,
        level: int,
        listener: Listener,
        left_out: Callable[[], object],
        guard: HookGuard,
    ) -> None:
        self._threads = worker.active_threads
        self._tasks = worker.state.tasks
        self._level, self._listener, self._left_out = level, listener, left_out
        self._guard = guard
        #: By thread: the last run that logged.
        self._last: dict[int, _Run] = {}

    def run_of(self, thread: int) -> tuple[Any, int] | None:
        """Return key and run id of the task that a thread runs; None: of none, or a coroutine."""
        key = self._threads.get(thread)
        return None if key is None else (key, getattr(self._tasks.get(key), "run_id", -1))

    def hear(self, record: logging.LogRecord) -> None:
        """Call the listener with a record of this thread, if it is of a task run."""
        try:
            is_error = record.levelno >= logging.ERROR or bool(
                record.exc_info and record.exc_info[0]
            )
            if record.levelno < self._level and not is_error:
                return
            logger = str(record.name)
            if logger.startswith(_OURS):
                return
            thread = threading.get_ident()
            identity = self.run_of(thread)
            if identity is None:
                of_dask = logger.startswith(_DASK) and not logger.startswith(_OF_OTHERS)
                if of_dask and record.exc_info and record.levelno >= logging.ERROR:
                    self._listener(None, -1, record, True)
                return
            run = self._last.get(thread)
            if run is None or run.identity != identity:
                run = self._last[thread] = _Run(identity)
            if is_error and not run.has_erred:
                run.has_erred = True
                self._listener(*identity, record, True)
            elif record.levelno >= self._level:
                run.records += 1
                if run.records > MOST_OF_A_RUN:
                    self._left_out()
                else:
                    self._listener(*identity, record, False)
        except Exception:
            self._guard.caught("what a task logged")


def _hearing(owner: Any, name: str, place: int) -> SharedListeners[Any]:
    """Return listeners, each of which hears an argument of all calls of a function."""

    def wrap(original: Any, patch: Patch) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if patch.active and len(args) > place:
                for listener in listeners.all:
                    listener.hear(args[place])
            return original(*args, **kwargs)

        return call

    listeners: SharedListeners[Any] = SharedListeners(lambda: [(owner(), name, wrap)])
    return listeners


_ears = _hearing(lambda: logging.Logger, "callHandlers", 1)


def listen(
    worker: Any, level: int, listener: Listener, left_out: Callable[[], object], guard: HookGuard
) -> Callable[[], None]:
    """Call a listener, in the task's thread, with what each task run logs.

    Parameters
    ----------
    worker
        The worker.
    level
        The least level of a record; the first error of each task run is heard in any case.
    listener
        Gets the records.
    left_out
        Called for each record beyond `MOST_OF_A_RUN` of a task run.
    guard
        Handles errors.

    Returns
    -------
    Callable
        Ends it.
    """
    return _ears.add(Ear(worker, level, listener, left_out, guard))


# --- What task runs print: text that their threads write to the standard output, line by line -----
#
# `sys.stdout.write` of the moment is wrapped in the processes of workers. A program that puts
# another stream in its place later, such as `contextlib.redirect_stdout`, is not heard, nor is a
# last line that has no end.

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


_listeners = _hearing(lambda: sys.stdout, "write", 0)  # the stream of that moment


def listen_to_prints(
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
