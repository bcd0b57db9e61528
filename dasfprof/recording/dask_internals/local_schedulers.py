"""Observers of Dask's local schedulers: ``scheduler="threads"``, ``"sync"`` and ``"processes"``.

Dask's callbacks would not suffice. The computing thread calls them when it submits a task and when
it receives the result. These are not the times at which the task started and ended. If two threads
compute at the same time, callbacks are called for only one of the computations. So `get_async`,
which all three schedulers call, is wrapped, and receives another `submit` function. The graph,
callbacks and results stay the same.

A computation within a task is not observed, because its time is part of the task's time.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import ThreadPool
from time import time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.local_task import (
    TaskFacts,
    in_task,
    run_here,
    run_in_pool,
    text_of,
)
from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedListeners
from dasfprof.recording.guard import logging_errors

THREADS, PROCESSES, SYNC = "threads", "processes", "sync"
#: By the module that calls `get_async`: the name of the scheduler.
SCHEDULERS = {"dask.threaded": THREADS, "dask.multiprocessing": PROCESSES, "dask.local": SYNC}


@dataclass(slots=True)
class LocalTaskRun:
    """A task run, with times from the process that called the scheduler.

    The attribute `facts` comes from the process that ran the task.
    """

    facts: TaskFacts
    #: Unix times: the computation started; the last input of the task was ready; the pool received
    #: the task; and the outcome of the task was known.
    graph_known: float
    ready: float
    sent: float
    done: float = 0.0
    #: Keys of the inputs that are results of tasks, and the sum of the bytes of these inputs.
    inputs: tuple[Any, ...] = ()
    input_size: int = 0
    #: The task's specification, or None if the task ran in another process.
    task: Any = None


class Compute:
    """One computation: a call of a local scheduler.

    Parameters
    ----------
    scheduler
        ``threads``, ``processes`` or ``sync``, depending on the module of Dask that started the
        computation. For ``sync``, the attribute `scheduler` names the kind of the pool instead.
    submit
        The function that passes a batch of tasks to the pool.
    slots
        Maximum number of batches that run at the same time.
    wanted
        Number of requested results.
    listeners
        See `observe_computes`.
    """

    def __init__(
        self, scheduler: str, submit: Any, slots: int, wanted: int, listeners: tuple[Any, ...]
    ) -> None:
        pool = _kind_of_pool(submit)
        self.scheduler = pool if scheduler == SYNC else scheduler
        self.slots, self.wanted = slots, wanted
        self.began = time()
        #: Names of the program's current step and of the steps around it. Set by the listener.
        self.step: tuple[str, ...] | None = None
        #: Whether tasks run in threads of this process.
        self.is_here = pool != PROCESSES
        self._submit = submit
        #: Listeners can be added when the computation starts.
        self.listeners = listeners
        #: For finished tasks, by key: the time at which this process learned of the end, and the
        #: bytes of the result.
        self._ended: dict[Any, tuple[float, int]] = {}
        #: For tasks in the pool, by key: the time at which the pool received the task.
        self._sent: dict[Any, float] = {}
        self._runs: dict[Any, LocalTaskRun] = {}

    def submit(self, function: Any, batch: Any, *more: Any) -> Any:
        """Pass a batch of tasks to the pool, and return the future that the scheduler expects."""
        observed = False
        with logging_errors("a batch of tasks"):
            keys = [args[0] for args in batch if len(args) >= 6]
            self._sent.update(dict.fromkeys(keys, time()))
            observed = not more and len(keys) == len(batch)
        if not observed:
            return self._submit(function, batch, *more)
        if self.is_here:
            return self._submit(run_here, function, batch, self)
        expected: Future[Any] = Future()
        future = self._submit(run_in_pool, function, batch)
        future.add_done_callback(partial(self._receive, expected, keys))
        return expected

    def _receive(self, expected: Future[Any], keys: list[Any], future: Future[Any]) -> None:
        """Handle a batch that has ended in another process.

        Record the facts about its tasks, and pass its results on to the scheduler. Both come from
        `future`. The scheduler waits for `expected`.
        """
        try:
            results, runs = future.result()
        except BaseException as error:  # Also if the process died, or the batch was cancelled.
            now, text = time(), text_of(error)
            # The batch failed, so each of its tasks is recorded as failed.
            for key in keys:
                sent = self._sent.get(key, self.began)
                self.note_end(TaskFacts(key, os.getpid(), sent, ended=now, exception=text))
            expected.set_exception(error)
            return
        try:
            for facts in runs:
                self.note_end(facts)
        finally:
            expected.set_result(results)

    def note_begin(self, facts: TaskFacts, task: Any) -> None:
        """Record that a task starts in a thread of this process, and notify the listeners."""
        run = self._runs[facts.key] = self._run(facts)
        run.task = task
        for listener in self.listeners:
            listener.began(self, run)

    def note_end(self, facts: TaskFacts) -> None:
        """Record that a task has ended, and notify the listeners."""
        with logging_errors("the end of a task"):
            run = self._runs.pop(facts.key, None) or self._run(facts)
            run.done = time()
            self._sent.pop(facts.key, None)
            if facts.exception is None:
                self._ended[facts.key] = run.done, facts.size
            for listener in self.listeners:
                listener.ended(self, run)

    def _run(self, facts: TaskFacts) -> LocalTaskRun:
        """Return the `LocalTaskRun` of a task, with its times."""
        # Inputs that are data in the graph, instead of results of tasks, are left out.
        inputs = {key: self._ended[key] for key in facts.inputs if key in self._ended}
        ready = max((done for done, _ in inputs.values()), default=self.began)
        sent = self._sent.get(facts.key, facts.taken)
        run = LocalTaskRun(facts, self.began, min(ready, sent), sent, inputs=tuple(inputs))
        run.input_size = sum(size for _, size in inputs.values())
        return run


def _kind_of_pool(submit: Any) -> str:
    """Return where a pool runs tasks: in the computing thread, in threads, or in processes."""
    pool = getattr(submit, "__self__", None)
    if type(pool) is names.LOCAL.find("SynchronousExecutor"):
        return SYNC
    if isinstance(pool, ThreadPoolExecutor) or isinstance(getattr(pool, "pool", None), ThreadPool):
        return THREADS
    return PROCESSES


def _observing(scheduler: str, original: Any, patch: Patch) -> Any:
    def get_async(*args: Any, **kwargs: Any) -> Any:
        compute = _begin(scheduler, args) if patch.active else None
        if compute is None:
            return original(*args, **kwargs)
        try:
            return original(compute.submit, *args[1:], **kwargs)
        finally:
            _notify(compute, "computed")

    return get_async


def _begin(scheduler: str, args: tuple[Any, ...]) -> Compute | None:
    """Return the computation that starts, or None if the computation is not observed.

    `args` are the arguments of Dask's `get_async`.
    """
    with logging_errors("a computation"):
        listeners = _listeners.all
        if not listeners or len(args) < 4 or in_task() or os.getpid() != _pid or _in_worker():
            return None
        compute = Compute(scheduler, args[0], int(args[1]), _count(args[3]), listeners)
        _notify(compute, "computes")
        compute.began = time()  # Leave out the time in which the recorder may have opened files.
        return compute
    return None


def _count(keys: Any) -> int:
    return sum(map(_count, keys)) if type(keys) is list else 1


def _notify(compute: Compute, method: str) -> None:
    for listener in compute.listeners:
        with logging_errors("a computation"):
            getattr(listener, method)(compute)


def _in_worker() -> bool:
    """Return whether this thread runs a task of a distributed worker."""
    try:
        sys.modules["distributed.worker"].get_worker()
    except Exception:
        return False
    return True


def _hooks() -> Iterator[Hook]:
    global _pid  # noqa: PLW0603
    _pid = os.getpid()
    for module, scheduler in SCHEDULERS.items():
        yield importlib.import_module(module), "get_async", partial(_observing, scheduler)


#: The pid of the observed process. Forked children of this process are not observed.
_pid = os.getpid()
_listeners: SharedListeners[Any] = SharedListeners(_hooks)


def availability() -> str:
    """Return ``available`` if Dask's local schedulers can be observed, or else why they cannot."""
    gone = names.LOCAL.gone()
    return f"this version of Dask has no {gone[0]}" if gone else "available"


def observe_computes(listener: Any) -> Callable[[], None]:
    """Notify a listener of the computations of Dask's local schedulers in this process.

    Parameters
    ----------
    listener
        An object with four methods. ``computes(compute)`` is called before the first task of a
        `Compute`. ``began(compute, run)`` and ``ended(compute, run)`` are called in the thread that
        runs a task. ``computed(compute)`` is called at the end of the computation. For tasks in
        other processes, ``began`` is not called, and ``ended`` may be called in any thread.

    Returns
    -------
    Callable
        Stops the notifications. Tasks that are running are observed until they end.
    """
    return _listeners.add(listener)


def observe_first_build(call: Callable[[], object]) -> Callable[[], None]:
    """Call a function just before the program builds its first layer from collections.

    Return a function that cancels the call.
    """

    def first(original: Any, patch: Patch) -> Any:
        def from_collections(*args: Any, **kwargs: Any) -> Any:
            if not patch.active:
                return original(*args, **kwargs)
            patch.remove()
            with logging_errors("the first build"):
                call()
            owner, *args_of_method = args
            return owner.from_collections(*args_of_method, **kwargs)

        return from_collections

    owner = names.GRAPH.find("HighLevelGraph")
    return (lambda: None) if names.GRAPH.gone() else Patch(owner, "from_collections", first).remove
