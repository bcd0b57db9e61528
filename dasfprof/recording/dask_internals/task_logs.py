"""Functions that pass the log records of task runs to listeners."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch, SharedListeners
from dasfprof.recording.dask_internals.task_functions import running_tasks
from dasfprof.recording.guard import HookGuard

# In worker processes, `logging.Logger.callHandlers` is wrapped, which receives each record that is
# not filtered. A further handler would change the behaviour of programs: `logging.basicConfig` does
# nothing if there is a handler, and records go to stderr only if there is no handler.

#: Called with the key and the run id of the task, the record, and whether the record is the first
#: error of the task run. The key is None if Dask logs an exception outside of tasks.
Listener = Callable[[Any, int, logging.LogRecord, bool], object]

_OURS = "dasfprof."
#: Start of the names of Dask's loggers, and starts for processes that are not workers.
_DASK = "distributed."
_OF_OTHERS = ("distributed.scheduler", "distributed.nanny", "distributed.client")
#: Maximum number of records per task run, not counting the first error of the task run.
MOST_OF_A_RUN = 20


@dataclass(slots=True)
class _Run:
    """A task run that logs, with its number of records up to now."""

    identity: tuple[Any, int]
    records: int = 0
    has_erred: bool = False


@dataclass(eq=False)
class _RecordHandler:
    """Passes the log records of a worker's task runs to a listener, if their level suffices."""

    worker: Any
    level: int
    listener: Listener
    left_out: Callable[[], object]
    guard: HookGuard
    #: By thread: the last task run that has logged.
    _last: dict[int, _Run] = field(default_factory=dict)

    def handle(self, record: logging.LogRecord) -> None:
        """Call the listener with a record of this thread, if the record belongs to a task run."""
        with self.guard.catching("a log record of a task"):
            raised = bool(record.exc_info and record.exc_info[0])
            is_error = raised or record.levelno >= logging.ERROR
            logger = str(record.name)
            if (record.levelno < self.level and not is_error) or logger.startswith(_OURS):
                return
            thread = threading.get_ident()
            key = running_tasks(self.worker).get(thread)
            if key is None:  # The thread runs no task, or a coroutine task.
                of_dask = logger.startswith(_DASK) and not logger.startswith(_OF_OTHERS)
                if of_dask and record.exc_info and record.levelno >= logging.ERROR:
                    self.listener(None, -1, record, True)
                return
            identity = key, getattr(self.worker.state.tasks.get(key), "run_id", -1)
            run = self._last.get(thread)
            if run is None or run.identity != identity:
                run = self._last[thread] = _Run(identity)
            if is_error and not run.has_erred:
                run.has_erred = True
                self.listener(*identity, record, True)
            elif record.levelno >= self.level:
                run.records += 1
                if run.records > MOST_OF_A_RUN:
                    self.left_out()
                else:
                    self.listener(*identity, record, False)


def _observed(original: Any, patch: Patch) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if patch.active and len(args) > 1:
            for handler in _handlers.all:
                handler.handle(args[1])
        return original(*args, **kwargs)

    return call


_handlers: SharedListeners[_RecordHandler] = SharedListeners(
    lambda: [(logging.Logger, "callHandlers", _observed)]
)


def listen(
    worker: Any, level: int, listener: Listener, left_out: Callable[[], object], guard: HookGuard
) -> Callable[[], None]:
    """Call a listener with the log records of each task run, in the task's thread.

    Parameters
    ----------
    level
        Minimum level of records. The first error of each task run is passed on at any level.
    listener
        Receives the records.
    left_out
        Called for each record that is left out because the task run has already logged
        `MOST_OF_A_RUN` records.

    Returns
    -------
    Callable
        Stops the calls of the listener.
    """
    return _handlers.add(_RecordHandler(worker, level, listener, left_out, guard))
