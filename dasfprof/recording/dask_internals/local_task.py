"""Observation of a task of Dask's local schedulers, in the thread or process that runs the task.

Local schedulers pass batches of tasks to a pool. A batch consists of the function
`dask.local.batch_execute_tasks` and, for each task, a tuple. The tuple has the task's data and
three functions, which unpickle the task's inputs, pickle its result, and pack its exception. The
task's function starts when unpickling ends, and pickling starts when the task's function has ended.
So these three functions are wrapped, and the task is unchanged. Other processes return the facts
together with the results.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import thread_time, time
from typing import Any

from dask.sizeof import sizeof

from dasfprof.recording.task_runs.results import ResultDescriber

logger = logging.getLogger(__name__)

#: A function that runs a batch. The batch has a tuple of six values for each task.
RunBatch = Callable[[list[Any]], list[Any]]

#: Positions of functions in a task's tuple, which is: key, inputs, dumps, loads, id, pack_error.
_DUMPS, _LOADS, _PACK_ERROR = 2, 3, 5

_describe = ResultDescriber()


@dataclass
class TaskFacts:
    """Facts about a task run. Times are Unix times by the clock of the process that ran it."""

    key: Any
    #: Identity of the thread that ran the task. If another process ran the task, its pid.
    thread: int
    #: Times at which the pool started to handle the task, at which the task's function started and
    #: ended, and at which the pool had handled the task.
    taken: float
    start: float | None = None
    stop: float | None = None
    ended: float = 0.0
    #: CPU seconds of the task's thread between start and stop.
    cpu: float | None = None
    inputs: tuple[Any, ...] = ()
    type: str | None = None
    dtype: Any = None
    shape: Any = None
    #: Bytes of the result according to Dask's `sizeof`.
    size: int = 0
    exception: str | None = None
    traceback: str | None = None


class _Observed:
    """Observes one task run by wrapping the functions in the task's tuple.

    Parameters
    ----------
    args
        The task's tuple in the batch.
    thread
        See `TaskFacts`.
    observer
        Its method `note_begin` is called when the task starts. None in a process of a pool.
    """

    def __init__(self, args: Any, thread: int, observer: Any) -> None:
        self._args = args
        self._observer = observer
        self._cpu = 0.0
        self.facts = TaskFacts(args[0], thread, time())

    def args(self) -> tuple[Any, ...]:
        """Return the task's tuple, with methods of this object instead of the wrapped functions."""
        key, packed, _, _, identity, _, *more = self._args
        return (key, packed, self._dumps, self._loads, identity, self._pack_error, *more)

    def _loads(self, packed: Any) -> Any:
        loaded = self._args[_LOADS](packed)
        try:
            task, data = loaded
            self.facts.inputs = tuple(data)
            if self._observer is not None:
                self._observer.note_begin(self.facts, task)
        except Exception:
            logger.debug("the start of a task could not be recorded", exc_info=True)
        self._cpu, self.facts.start = thread_time(), time()
        return loaded

    def _dumps(self, value: Any) -> Any:
        if self._ends():
            try:
                facts, result = self.facts, value[0]
                facts.type, facts.dtype, facts.shape = _describe(result)
                facts.size = int(sizeof(result))
            except Exception:
                logger.debug("a result could not be described", exc_info=True)
        return self._args[_DUMPS](value)

    def _pack_error(self, error: BaseException, dumps: Any) -> Any:
        self.failed(error)
        return self._args[_PACK_ERROR](error, self._args[_DUMPS])

    def _ends(self) -> bool:
        """Record when the task's function ends.

        Return False if the function has not started, or if its end was recorded before.
        """
        facts = self.facts
        if facts.start is None or facts.stop is not None:
            return False
        facts.stop, facts.cpu = time(), max(thread_time() - self._cpu, 0.0)
        return True

    def failed(self, error: BaseException) -> None:
        """Record that the task raised an exception, or that its result could not be pickled."""
        self._ends()
        facts = self.facts
        if facts.exception is None:
            facts.exception, facts.size = text_of(error), 0
            facts.type = facts.dtype = facts.shape = None
            try:
                facts.traceback = "".join(traceback.format_tb(error.__traceback__))
            except Exception:
                logger.debug("a traceback could not be recorded", exc_info=True)


def text_of(error: BaseException) -> str:
    """Return the text of an exception, in the form in which Dask stores it."""
    try:
        return repr(error)[:10_000]
    except Exception:
        return type(error).__name__


_in_task: ContextVar[bool] = ContextVar("dasfprof_in_task", default=False)
#: Function that returns whether this thread is running an observed task.
in_task: Callable[[], bool] = _in_task.get


@contextmanager
def _inside_task() -> Iterator[None]:
    token = _in_task.set(True)
    try:
        yield
    finally:
        _in_task.reset(token)


def run_here(function: RunBatch, batch: list[Any], observer: Any) -> list[Any]:
    """Run a batch in a thread of this process, and report the start and end of each task."""
    results: list[Any] = []
    with _inside_task():
        for args in batch:
            observed = _Observed(args, threading.get_ident(), observer)
            try:
                results += function([observed.args()])
            except BaseException as error:
                observed.failed(error)
                raise
            finally:
                observed.facts.ended = time()
                observer.note_end(observed.facts)
    return results


def run_in_pool(function: RunBatch, batch: list[Any]) -> tuple[list[Any], list[TaskFacts]]:
    """Run a batch in this process of a pool. Return the results and the facts about each task."""
    results: list[Any] = []
    runs: list[TaskFacts] = []
    with _inside_task():
        for args in batch:
            observed = _Observed(args, os.getpid(), None)
            results += function([observed.args()])
            facts = observed.facts
            facts.ended = time()
            facts.dtype = None if facts.dtype is None else str(facts.dtype)
            runs.append(facts)
    return results, runs
