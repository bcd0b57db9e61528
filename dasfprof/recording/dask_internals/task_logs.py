"""Observers of the log records and printed lines of task runs."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch, SharedListeners
from dasfprof.recording.guard import HookGuard

# --- Log records ----------------------------------------------------------------------------------
#
# `logging.Logger.callHandlers`, which receives each record that is not filtered, is wrapped in the
# processes of workers. A handler would change what programs see: `logging.basicConfig` does nothing
# if there is one, and records go to stderr only if there is none.

#: Called with the key and run id of the task, the record, and whether it is the task run's first
#: error. The key is None if Dask logs an exception outside of tasks.
Listener = Callable[[Any, int, logging.LogRecord, bool], object]

_OURS = "dasfprof."
#: Loggers of Dask, and those of processes that are not workers.
_DASK = "distributed."
_OF_OTHERS = ("distributed.scheduler", "distributed.nanny", "distributed.client")
#: Maximum number of records of a task run, not counting its first error.
MOST_OF_A_RUN = 20


class _Run:
    """A task run, with the number of its records so far."""

    __slots__ = ("has_erred", "identity", "records")

    def __init__(self, identity: tuple[Any, int]) -> None:
        self.identity = identity
        self.records = 0
        self.has_erred = False


class _RecordHandler:
    """Passes the log records of a worker's task runs to a listener, from a minimum level."""

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
        #: The last run that logged, by thread.
        self._last: dict[int, _Run] = {}

    def run_of(self, thread: int) -> tuple[Any, int] | None:
        """Return key and run id of the task that a thread runs, or None, also for coroutines."""
        key = self._threads.get(thread)
        return None if key is None else (key, getattr(self._tasks.get(key), "run_id", -1))

    def handle(self, record: logging.LogRecord) -> None:
        """Call the listener with a record of this thread if it belongs to a task run."""
        with self._guard.catching("a log record of a task"):
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


def _handlers_of(owner: Any, name: str, position: int) -> SharedListeners[Any]:
    """Return listeners that handle one argument of all calls of a function."""

    def wrap(original: Any, patch: Patch) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if patch.active and len(args) > position:
                for listener in listeners.all:
                    listener.handle(args[position])
            return original(*args, **kwargs)

        return call

    listeners: SharedListeners[Any] = SharedListeners(lambda: [(owner(), name, wrap)])
    return listeners


_of_records = _handlers_of(lambda: logging.Logger, "callHandlers", 1)


def listen(
    worker: Any, level: int, listener: Listener, left_out: Callable[[], object], guard: HookGuard
) -> Callable[[], None]:
    """Call a listener with the log records of each task run, in the task's thread.

    Parameters
    ----------
    worker
        The worker.
    level
        Minimum level of a record. The first error of each task run is always included.
    listener
        Receives the records.
    left_out
        Called for each record beyond `MOST_OF_A_RUN` of a task run.
    guard
        Handles errors.

    Returns
    -------
    Callable
        Stops it.
    """
    return _of_records.add(_RecordHandler(worker, level, listener, left_out, guard))


# --- Printed lines --------------------------------------------------------------------------------
#
# `sys.stdout.write` is wrapped in the processes of workers. If a program replaces the stream later,
# as `contextlib.redirect_stdout` does, its lines are not recorded. Neither is a last line without
# an end.

#: The name of the level of these records, and that of their logger.
LEVEL, LOGGER = "PRINT", "stdout"
#: Maximum number of characters of a line without an end. Further ones are left out.
_LONGEST = 1000


class _TextHandler:
    """Makes a record of each line that a task's thread writes."""

    def __init__(self, records: _RecordHandler, guard: HookGuard) -> None:
        self._records, self._guard = records, guard
        #: By thread: the run that has started a line, and the start of the line.
        self._started: dict[int, tuple[tuple[Any, int], str]] = {}

    def handle(self, text: str) -> None:
        """Pass on the lines that end in a text."""
        with self._guard.catching("a printed line of a task"):
            thread = threading.get_ident()
            run = self._records.run_of(thread)
            if run is None or type(text) is not str:
                return
            before, start = self._started.pop(thread, (run, ""))
            *lines, start = ((start if before == run else "") + text[: _LONGEST * 20]).split("\n")
            for line in lines:
                if line.strip():
                    self._records.handle(_record(line))
            if start:
                self._started[thread] = run, start[:_LONGEST]


def _record(line: str) -> logging.LogRecord:
    frame = sys._getframe(3)  # Skip this function, `handle` and `write`.
    code = frame.f_code
    record = logging.LogRecord(
        *(LOGGER, logging.INFO, code.co_filename, frame.f_lineno, line, (), None),
        func=code.co_qualname if hasattr(code, "co_qualname") else code.co_name,
    )
    record.levelname = LEVEL
    return record


_of_texts = _handlers_of(lambda: sys.stdout, "write", 0)


def listen_to_prints(
    worker: Any, listener: Listener, left_out: Callable[[], object], guard: HookGuard
) -> Callable[[], None]:
    """Call a listener with a record of each line that a task run prints, in the task's thread.

    See `listen` for the parameters.
    """
    records = _RecordHandler(worker, logging.INFO, listener, left_out, guard)
    return _of_texts.add(_TextHandler(records, guard))
