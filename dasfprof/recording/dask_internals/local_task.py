"""What is found out about a task of Dask's own schedulers, in the thread or process that runs it.

These schedulers hand batches of tasks to a pool: a function, `dask.local.batch_execute_tasks`, with
what each task needs, among it how its inputs are unpickled, its result is pickled and its exception
is packed. Unpickling ends where the task's function begins, and pickling begins where it has ended:
so these three are wrapped, and the task itself is not touched. What a process tells is sent back
beside its results.

A process may have no dasfprof: so what is sent there is source text, which then runs the batch as
it is.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import thread_time, time
from types import TracebackType
from typing import Any

from dask.sizeof import sizeof

from dasfprof.recording.cluster.by_value import by_value
from dasfprof.recording.task_runs.results import ResultDescriber

logger = logging.getLogger(__name__)

#: Runs a batch: one item a task, of six values.
RunBatch = Callable[[list[Any]], list[Any]]

_KEY, _PACKED, _DUMPS, _LOADS, _ID, _PACK_ERROR = range(6)

_describe = ResultDescriber()


@dataclass
class TaskFacts:
    """How a task ran. Unix seconds of the clock of where it ran."""

    key: Any
    #: The thread's identity; of another process its number.
    thread: int
    #: When the pool began with it, its function began and ended, and the pool was done with it.
    taken: float
    start: float | None = None
    stop: float | None = None
    ended: float = 0.0
    #: CPU seconds of its thread between start and stop.
    cpu: float | None = None
    inputs: tuple[Any, ...] = ()
    type: str | None = None
    dtype: Any = None
    shape: Any = None
    #: Bytes of the result, as Dask sizes it.
    size: int = 0
    exception: str | None = None
    traceback: str | None = None


class _Observed:
    """One run of a task. Its methods stand in for what the scheduler gave.

    Parameters
    ----------
    args
        What the scheduler gave for the task.
    thread
        See `TaskFacts`.
    observer
        Is told of the begin; None: nobody.
    """

    def __init__(self, args: Any, thread: int, observer: Any) -> None:
        self._args = args
        self._observer = observer
        self._cpu = 0.0
        self.facts = TaskFacts(args[_KEY], thread, time())

    def args(self) -> tuple[Any, ...]:
        """Return what the scheduler gave, with these methods in place of its functions."""
        given = self._args
        return (
            *(given[_KEY], given[_PACKED], self._dumps),
            *(self._loads, given[_ID], self._pack_error, *given[6:]),
        )

    def _loads(self, packed: Any) -> Any:
        loaded = self._args[_LOADS](packed)
        try:
            task, data = loaded
            self.facts.inputs = tuple(data)
            if self._observer is not None:
                self._observer.note_begin(self.facts, task)
        except Exception:
            logger.debug("the begin of a task could not be noted", exc_info=True)
        self._cpu, self.facts.start = thread_time(), time()
        return loaded

    def _dumps(self, value: Any) -> Any:
        if self._ends():
            try:
                result = value[0]
                facts = self.facts
                facts.type, facts.dtype, facts.shape = _describe(result)
                facts.size = int(sizeof(result))
            except Exception:
                logger.debug("a result could not be described", exc_info=True)
        return self._args[_DUMPS](value)

    def _pack_error(self, error: BaseException, dumps: Any) -> Any:
        self.failed(error)
        return self._args[_PACK_ERROR](error, self._args[_DUMPS])

    def _ends(self) -> bool:
        """Take the times of the end, the first time."""
        facts = self.facts
        if facts.start is None or facts.stop is not None:
            return False
        facts.stop, facts.cpu = time(), max(thread_time() - self._cpu, 0.0)
        return True

    def failed(self, error: BaseException) -> None:
        """Note that the task raised, or that its result could not be pickled."""
        self._ends()
        facts = self.facts
        if facts.exception is None:
            facts.exception, facts.size = text_of(error), 0
            facts.type = facts.dtype = facts.shape = None
            try:
                facts.traceback = "".join(traceback.format_tb(error.__traceback__))
            except Exception:
                logger.debug("a traceback could not be noted", exc_info=True)


def text_of(error: BaseException) -> str:
    """Return an exception as text, as Dask has it."""
    try:
        return repr(error)[:10_000]
    except Exception:
        return type(error).__name__


# --- Which thread is in a task: a compute within belongs to that task's time ----------------------

_own = threading.local()


def in_task() -> bool:
    """Return whether this thread runs an observed task."""
    return getattr(_own, "depth", 0) > 0


@contextmanager
def _inside() -> Iterator[None]:
    _own.depth = getattr(_own, "depth", 0) + 1
    try:
        yield
    finally:
        _own.depth -= 1


def run_here(function: RunBatch, batch: list[Any], observer: Any) -> list[Any]:
    """Run a batch in a thread of this process; an observer hears of each task at once."""
    results: list[Any] = []
    with _inside():
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


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Leave the frames of this module out of a traceback, once these have ended."""
    kept: TracebackType | None = None
    frames = []
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") != __name__:
            frames.append(trace)
        trace = trace.tb_next
    for each in reversed(frames):
        each.tb_next = kept
        kept = each
    return kept


def run_and_tell(function: RunBatch, batch: list[Any]) -> tuple[list[Any], list[TaskFacts]]:
    """Run a batch in another process; return its results, and how each task ran."""
    results: list[Any] = []
    told: list[TaskFacts] = []
    with _inside():
        for args in batch:
            observed = _Observed(args, os.getpid(), None)
            results += function([observed.args()])
            observed.facts.ended = time()
            observed.facts.dtype = (
                None if observed.facts.dtype is None else str(observed.facts.dtype)
            )
            told.append(observed.facts)
    return results, told


@by_value
def run_elsewhere(function: Any, batch: Any) -> Any:
    """Run a batch in a process of a pool; tells nothing of it where there is no dasfprof."""
    try:
        from dasfprof.recording.dask_internals.local_task import run_and_tell
    except Exception:
        return function(batch), None
    return run_and_tell(function, batch)
