"""What Dask's own schedulers run: ``scheduler="threads"``, ``"sync"`` and ``"processes"``.

Dask's callbacks are called by the thread that computes: they tell when a task was handed to the
pool and when that thread took its result, not when it ran. And they are gone while a compute runs:
of computes in two threads at a time one has none, and may lose them for good. So `get_async`, which
all three schedulers call, is wrapped, and gets another `submit`. Graph, callbacks and results are
as they were.

A compute within a task is not observed: it is part of that task's time.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import ThreadPool
from time import time
from typing import Any, Protocol

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.local_task import (
    TaskFacts,
    in_task,
    run_elsewhere,
    run_here,
    text_of,
    without_ours,
)
from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedListeners

logger = logging.getLogger(__name__)

THREADS, PROCESSES, SYNC = "threads", "processes", "sync"
#: The modules that call `get_async`, and the schedulers that they are, as people name them.
SCHEDULERS = {"dask.threaded": THREADS, "dask.multiprocessing": PROCESSES, "dask.local": SYNC}
_NAME = "get_async"


class Run:
    """A task run as the computing process saw it, with what is known of it where it ran."""

    __slots__ = ("done", "facts", "graph_known", "input_size", "inputs", "ready", "sent", "task")

    def __init__(self, facts: TaskFacts, graph_known: float, ready: float, sent: float) -> None:
        self.facts = facts
        #: When the compute began, the last input was there, the pool got it, the outcome was known.
        self.graph_known, self.ready, self.sent = graph_known, ready, sent
        self.done = 0.0
        #: The keys of inputs that are results of tasks, and the bytes of these.
        self.inputs: tuple[Any, ...] = ()
        self.input_size = 0
        #: Its specification; None: it ran in another process.
        self.task: Any = None


class Listener(Protocol):
    """Hears of computes and of their tasks, in the threads that run them; must not raise."""

    def computes(self, compute: Compute) -> None:
        """Note that a compute begins; before its first task."""

    def began(self, compute: Compute, run: Run) -> None:
        """Note that a task begins, in its thread; not of those in other processes."""

    def ended(self, compute: Compute, run: Run) -> None:
        """Note that a task has ended."""

    def computed(self, compute: Compute, error: BaseException | None) -> None:
        """Note that a compute has ended, and how."""


class Compute:
    """One call of a scheduler.

    Parameters
    ----------
    scheduler
        ``threads`` or ``processes``; of `dask.local` itself that is told by the pool, and that may
        also be ``sync``, in the thread that computes.
    submit
        What hands a batch of tasks to the pool.
    slots
        How many batches that runs at a time.
    wanted
        How many results are asked for.
    listeners
        Who hears of it.
    """

    def __init__(
        self, scheduler: str, submit: Any, slots: int, wanted: int, listeners: tuple[Listener, ...]
    ) -> None:
        pool = _kind_of_pool(submit)
        self.scheduler = pool if scheduler == SYNC else scheduler
        self.slots, self.wanted = slots, wanted
        self.began = time()
        #: The names of the steps of the program that it is in, set by who hears of it.
        self.step: tuple[str, ...] | None = None
        #: Whether tasks run in threads of this process.
        self.is_here = pool != PROCESSES
        self._submit = submit
        self.listeners = listeners
        #: By key of tasks that have ended: when that was known, and the bytes of the result.
        self._ended: dict[Any, tuple[float, int]] = {}
        #: By key of tasks that the pool has: when it got them.
        self._sent: dict[Any, float] = {}
        self._runs: dict[Any, Run] = {}

    def tell(self, listener: Listener) -> None:
        """Let one more hear of it; called as it begins."""
        self.listeners = (*self.listeners, listener)

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return max(time() - self.began, 0.0)

    def submit(self, function: Any, batch: Any, *more: Any) -> Any:
        """Hand a batch to the pool; return the future that the scheduler expects."""
        try:
            keys = [args[0] for args in batch if len(args) >= 6]
            observed = not more and len(keys) == len(batch)
            self._sent.update(dict.fromkeys(keys, time()))
        except Exception:
            logger.debug("a batch of tasks could not be noted", exc_info=True)
            observed = False
        if not observed:
            return self._submit(function, batch, *more)
        if self.is_here:
            future = self._submit(run_here, function, batch, self)
            error = future.exception() if self.scheduler == SYNC else None
            if error is not None:  # it has ended, and is raised by the thread that computes
                error.__traceback__ = without_ours(error.__traceback__)
            return future
        told: Future[Any] = Future()
        future = self._submit(run_elsewhere, function, batch)
        future.add_done_callback(partial(self._take, told, keys))
        return told

    def _take(self, told: Future[Any], keys: list[Any], future: Future[Any]) -> None:
        """Pass on a batch's results, and note what its process told."""
        try:
            results, runs = future.result()
        except BaseException as error:  # also that its process died, or that it was cancelled
            for key in keys:
                self._note_lost(key, error)
            told.set_exception(error)
            return
        try:
            for facts in runs or ():
                self.note_end(facts)
        finally:
            told.set_result(results)

    def _note_lost(self, key: Any, error: BaseException) -> None:
        sent = self._sent.get(key, self.began)
        self.note_end(TaskFacts(key, os.getpid(), sent, ended=time(), exception=text_of(error)))

    def note_begin(self, facts: TaskFacts, task: Any) -> None:
        """Note that a task begins in this process."""
        run = self._runs[facts.key] = self._run(facts)
        run.task = task
        for listener in self.listeners:
            listener.began(self, run)

    def note_end(self, facts: TaskFacts) -> None:
        """Note that a task has ended."""
        try:
            run = self._runs.pop(facts.key, None) or self._run(facts)
            run.done = time()
            self._sent.pop(facts.key, None)
            if facts.exception is None:
                self._ended[facts.key] = run.done, facts.size
            for listener in self.listeners:
                listener.ended(self, run)
        except Exception:
            logger.debug("the end of a task could not be noted", exc_info=True)

    def _run(self, facts: TaskFacts) -> Run:
        """Return a run with its times; data that stands in the graph is no result of a task."""
        known = [(key, self._ended[key]) for key in facts.inputs if key in self._ended]
        ready = max((done for _, (done, _) in known), default=self.began)
        sent = self._sent.get(facts.key, facts.taken)
        run = Run(facts, self.began, min(ready, sent), sent)
        run.inputs = tuple(key for key, _ in known)
        run.input_size = sum(size for _, (_, size) in known)
        return run


def _kind_of_pool(submit: Any) -> str:
    """Return whether a pool runs its tasks at once, in threads here, or somewhere else."""
    pool = getattr(submit, "__self__", None)
    if type(pool) is names.LOCAL.find("SynchronousExecutor"):
        return SYNC
    if isinstance(pool, ThreadPoolExecutor) or isinstance(getattr(pool, "pool", None), ThreadPool):
        return THREADS
    return PROCESSES


# --- The hook ------------------------------------------------------------------------------------


def _observing(scheduler: str, original: Any, patch: Patch) -> Any:
    def get_async(*args: Any, **kwargs: Any) -> Any:
        compute = _begin(scheduler, args) if patch.active else None
        if compute is None:
            return original(*args, **kwargs)
        try:
            value = original(compute.submit, *args[1:], **kwargs)
        except BaseException as error:
            _tell(compute, "computed", error)
            raise
        _tell(compute, "computed", None)
        return value

    return get_async


def _begin(scheduler: str, args: tuple[Any, ...]) -> Compute | None:
    """Return the compute that begins; None if it is not to be observed."""
    try:
        listeners = _listeners.all
        if not listeners or len(args) < 4 or in_task() or os.getpid() != _pid or _in_worker():
            return None
        compute = Compute(scheduler, args[0], int(args[1]), _count(args[3]), listeners)
    except Exception:
        logger.debug("a compute could not be observed", exc_info=True)
        return None
    _tell(compute, "computes")
    compute.began = time()  # the recorder may have opened its files
    return compute


def _count(keys: Any) -> int:
    return sum(map(_count, keys)) if type(keys) is list else 1


def _tell(compute: Compute, what: str, *facts: Any) -> None:
    for listener in compute.listeners:
        try:
            getattr(listener, what)(compute, *facts)
        except Exception:
            logger.debug("a compute could not be noted", exc_info=True)


def _in_worker() -> bool:
    """Return whether this thread runs a task of a distributed worker, whose time it is."""
    worker = sys.modules.get("distributed.worker")
    if worker is None:
        return False
    try:
        worker.get_worker()
    except Exception:
        return False
    return True


def _hooks() -> Iterator[Hook]:
    global _pid  # noqa: PLW0603
    _pid = os.getpid()
    for module, scheduler in SCHEDULERS.items():
        yield importlib.import_module(module), _NAME, partial(_observing, scheduler)


#: The process whose computes are observed, not those of its forked children.
_pid = os.getpid()
_listeners: SharedListeners[Listener] = SharedListeners(_hooks)


def availability() -> str:
    """Return ``available`` if Dask's own schedulers can be observed, else the reason."""
    gone = names.LOCAL.gone()
    return f"this version of Dask has no {gone[0]}" if gone else "available"


def observe_computes(listener: Listener) -> Callable[[], None]:
    """Let a listener hear of what Dask's own schedulers compute in this process.

    Returns
    -------
    Callable
        Ends it. Tasks that run are observed to their end.
    """
    return _listeners.add(listener)


def observe_first_build(call: Callable[[], object]) -> Callable[[], None]:
    """Call before the program builds the first layer of a graph out of collections, once.

    Returns
    -------
    Callable
        Waits for it no longer.
    """

    def first(original: Any, patch: Patch) -> Any:
        def from_collections(*args: Any, **kwargs: Any) -> Any:
            if not patch.active:
                return original(*args, **kwargs)
            patch.remove()
            try:
                call()
            except Exception:  # such as within an import
                logger.debug("the first build could not be noted", exc_info=True)
            owner, *given = args
            return owner.from_collections(*given, **kwargs)

        return from_collections

    owner = names.GRAPH.find("HighLevelGraph")
    return (lambda: None) if names.GRAPH.gone() else Patch(owner, "from_collections", first).remove
