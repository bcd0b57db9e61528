"""What task runs log: a task that catches its own error counts as done.

The standard library's `logging.Logger.callHandlers`, which each record reaches that is not
filtered, is wrapped in the processes of workers. A handler of ours would change what programs see:
`logging.basicConfig` does nothing where there is one, and records without any go to stderr.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch, SharedListeners
from dasfprof.recording.guard import HookGuard

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
            is_error = _is_error(record)
            if record.levelno < self._level and not is_error:
                return
            if str(record.name).startswith(_OURS):
                return
            thread = threading.get_ident()
            identity = self.run_of(thread)
            if identity is None:
                if record.exc_info and record.name.startswith(_DASK):
                    self._hear_dask(record)
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

    def _hear_dask(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and not record.name.startswith(_OF_OTHERS):
            self._listener(None, -1, record, True)


def _is_error(record: logging.LogRecord) -> bool:
    """Return whether a record tells of an error: by its level, or by an exception."""
    return record.levelno >= logging.ERROR or bool(record.exc_info and record.exc_info[0])


def _listen(original: Any, patch: Patch) -> Any:
    def call_handlers(*args: Any, **kwargs: Any) -> Any:
        if patch.active and len(args) > 1:
            for ear in _ears.all:
                ear.hear(args[1])
        return original(*args, **kwargs)

    return call_handlers


_ears: SharedListeners[Ear] = SharedListeners(
    lambda: [Patch(logging.Logger, "callHandlers", _listen)]
)


def listen(
    worker: Any,
    level: int,
    listener: Listener,
    left_out: Callable[[], object],
    guard: HookGuard,
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
