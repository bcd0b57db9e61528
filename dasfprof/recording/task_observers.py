"""Observers around the tasks of a process's workers, in the thread that runs each task.

They stand around Dask's private `distributed.worker._run_task_simple`, and around
`_run_task_async` where tasks are coroutines. Both belong to a module that all workers of a process
share. They are wrapped once, when the first observer comes, and put back after the last has left,
in whatever order they come and leave. If somebody else has wrapped them in between, ours stays
beneath theirs, passes calls on and is done with; the next observer wraps anew.

Tasks that Dask sends to a pool of processes are not observed: those processes have no worker.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import distributed.worker
from distributed import get_worker

RUN_TASK = "_run_task_simple"
RUN_COROUTINE = "_run_task_async"

Run = Callable[..., Any]


class TaskObserver(Protocol):
    """Stands around tasks. What it puts around a function must not raise but what that raises."""

    def wrap(self, run: Run) -> Run:
        """Put something around a function whose first argument is the task."""
        ...

    def wrap_coroutine(self, run: Run) -> Run:
        """Put something around a coroutine function whose first argument is the task."""
        ...


class _ObservedTasks:
    """The wrappers of a process, from the first observer to the last."""

    def __init__(self) -> None:
        self._observers: dict[Any, tuple[TaskObserver, ...]] = {}
        #: What each worker's tasks run through, by what is wrapped. Replaced worker by worker: the
        #: threads that run tasks read it without a lock.
        self._chains: dict[str, dict[Any, Run]] = {}
        self._originals: dict[str, Run] = {}
        self._put_back: list[Callable[[], None]] = []
        for name in (RUN_TASK, RUN_COROUTINE):
            if hasattr(distributed.worker, name):
                self._wrap(name)

    def _wrap(self, name: str) -> None:
        original = self._originals[name] = getattr(distributed.worker, name)
        chains: dict[Any, Run] = {}
        self._chains[name] = chains

        # Of a coroutine function this gives the coroutine: Dask awaits what it gets.
        @functools.wraps(original)
        def run_observed(task: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                run = chains.get(get_worker(), original)
            except ValueError:  # a process of a pool: there is no worker
                run = original
            return run(task, *args, **kwargs)

        def put_back() -> None:
            if getattr(distributed.worker, name) is run_observed:
                setattr(distributed.worker, name, original)

        setattr(distributed.worker, name, run_observed)
        self._put_back.append(put_back)

    def change(self, worker: Any, observers: tuple[TaskObserver, ...]) -> None:
        """Observe a worker's tasks from the next one on; without observers, no more."""
        if not observers:
            self._observers.pop(worker, None)
            for chains in self._chains.values():
                chains.pop(worker, None)
            return
        for name, chains in self._chains.items():
            chain = self._originals[name]
            for observer in observers:
                wrap = observer.wrap if name == RUN_TASK else observer.wrap_coroutine
                chain = wrap(chain)
            chains[worker] = chain
        self._observers[worker] = observers

    def of(self, worker: Any) -> tuple[TaskObserver, ...]:
        """Give the observers of a worker, the innermost first."""
        return self._observers.get(worker, ())

    def end(self) -> bool:
        """Put back what was wrapped if no worker is observed any more."""
        if self._observers:
            return False
        for put_back in self._put_back:
            put_back()
        return True

    def abandon(self) -> None:
        """Observe nothing in a forked child: the workers are its parent's."""
        self._observers.clear()
        for chains in self._chains.values():
            chains.clear()


_lock = threading.Lock()
_tasks: _ObservedTasks | None = None


def observe(worker: Any, observer: TaskObserver) -> Callable[[], None] | None:
    """Have an observer stand around a worker's tasks from now on.

    Returns
    -------
    Callable or None
        Takes the observer away again, once; tasks that run then still go through it to their end.
        None if this Dask has no place for it.
    """
    global _tasks  # noqa: PLW0603  (what is wrapped is a module's)
    if not hasattr(distributed.worker, RUN_TASK):
        return None
    with _lock:
        if _tasks is None:
            _tasks = _ObservedTasks()
        _tasks.change(worker, (*_tasks.of(worker), observer))
    return partial(_leave, worker, observer)


def _leave(worker: Any, observer: TaskObserver) -> None:
    global _tasks  # noqa: PLW0603
    with _lock:
        if _tasks is None:
            return
        observers = _tasks.of(worker)
        rest = tuple(other for other in observers if other is not observer)
        if len(rest) < len(observers):
            _tasks.change(worker, rest)
        if _tasks.end():
            _tasks = None


def _abandon_in_child() -> None:
    if _tasks is not None:
        _tasks.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
