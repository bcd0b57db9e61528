"""Observers of the tasks of a process's workers, called in the thread that runs each task.

They wrap Dask's private `distributed.worker._run_task_simple`, and `_run_task_async` for tasks that
are coroutines. All workers of a process share these functions, so they are wrapped once, when the
first observer is added, and restored when the last is removed, in any order. If other code has
wrapped ours in the meantime, ours stays in place and only passes calls on; the next observer wraps
the functions again.

Tasks that Dask sends to a pool of processes are not observed: those processes have no worker.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import distributed.worker
from distributed import get_worker

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Patch, SharedPatches

RUN_TASK, RUN_COROUTINE = "_run_task_simple", "_run_task_async"

Run = Callable[..., Any]


class TaskObserver(Protocol):
    """Wraps the functions that run tasks. A wrapper must raise only what the function raises."""

    def wrap(self, run: Run) -> Run:
        """Return a wrapper of a function whose first positional argument is the task."""
        ...

    def wrap_coroutine(self, run: Run) -> Run:
        """Return a wrapper of a coroutine function whose first argument is the task."""
        ...


class _ObservedTasks:
    """The observers of each worker, and the functions that they wrap."""

    def __init__(self) -> None:
        self._observers: dict[Any, tuple[TaskObserver, ...]] = {}
        #: For each worker the wrappers of its tasks, by the wrapped function. An entry is replaced
        #: as a whole, as the threads that run tasks read it without a lock.
        self._chains: dict[str, dict[Any, Run]] = {}
        self._originals: dict[str, Run] = {}

    def place(self) -> list[Patch]:
        """Wrap Dask's functions, as far as they exist."""
        return [
            Patch(distributed.worker, name, partial(self._wrap, name))
            for name in (RUN_TASK, RUN_COROUTINE)
            if name not in self._chains and hasattr(distributed.worker, name)
        ]

    def _wrap(self, name: str, original: Any, patch: Patch) -> Any:
        self._originals[name] = original
        chains = self._chains[name] = {}
        first = _first_parameter(original)

        # For a coroutine function this returns the coroutine, which Dask awaits.
        def run_observed(*args: Any, **kwargs: Any) -> Any:
            try:
                run = chains.get(get_worker(), original)
            except ValueError:  # a process of a pool has no worker
                run = original
            if not args:
                if first not in kwargs:  # the task is unknown
                    return original(**kwargs)
                args = (kwargs.pop(first),)
            return run(*args, **kwargs)

        return run_observed

    def forget(self) -> None:
        """Forget the wrappers that were removed; those that stay in place only pass calls on."""
        self._chains.clear()
        self._originals.clear()

    def change(self, worker: Any, observers: tuple[TaskObserver, ...]) -> None:
        """Set the observers of a worker, from its next task on."""
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
        """Return the observers of a worker, the innermost first."""
        return self._observers.get(worker, ())

    def abandon(self) -> None:
        """Remove all observers in a forked child: the workers are the parent's."""
        self._observers.clear()
        for chains in self._chains.values():
            chains.clear()


def _first_parameter(function: Any) -> str | None:
    """Return the name of the first parameter if it can be passed by position and by name."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return None
    by_both = first is not None and first.kind is first.POSITIONAL_OR_KEYWORD
    return first.name if first is not None and by_both else None


_lock = threading.Lock()
_tasks = _ObservedTasks()
_patches = SharedPatches(_tasks.place, _tasks.forget)


def availability() -> str:
    """Return ``available`` if tasks can be observed, else the reason."""
    if names.RUN_TASK.exist():
        return "available"
    return "this version of Dask runs its tasks in another way"


def observe(worker: Any, observer: TaskObserver) -> Callable[[], None] | None:
    """Add an observer of a worker's tasks.

    Returns
    -------
    Callable or None
        Removes the observer; it still observes the running tasks to their end. None if this Dask
        does not have the functions to wrap.
    """
    if availability() != "available":
        return None
    with _lock:
        _patches.enter()
        try:
            _tasks.change(worker, (*_tasks.of(worker), observer))
        except Exception:
            _patches.leave()
            raise
    return partial(_leave, worker, observer)


def _leave(worker: Any, observer: TaskObserver) -> None:
    with _lock:
        observers = _tasks.of(worker)
        rest = tuple(other for other in observers if other is not observer)
        if len(rest) < len(observers):
            _tasks.change(worker, rest)
            _patches.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tasks.abandon)
