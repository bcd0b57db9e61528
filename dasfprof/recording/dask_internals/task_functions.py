"""Observers around the tasks of a process's workers, in the thread that runs each task.

They stand around Dask's private `distributed.worker._run_task_simple`, and around
`_run_task_async` where tasks are coroutines. Both belong to a module that all workers of a process
share. They are wrapped once, when the first observer comes, and put back after the last has left,
in whatever order they come and leave. If somebody else has wrapped them in between, ours stays
beneath theirs, passes calls on and is done with; the next observer wraps anew.

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

RUN_TASK = names.RUN_TASK.attribute
RUN_COROUTINE = names.RUN_COROUTINE.attribute

Run = Callable[..., Any]


class TaskObserver(Protocol):
    """Stands around tasks. What it puts around a function must not raise but what that raises."""

    def wrap(self, run: Run) -> Run:
        """Put something around a function whose first argument, by position, is the task."""
        ...

    def wrap_coroutine(self, run: Run) -> Run:
        """Put something around a coroutine function whose first argument is the task, likewise."""
        ...


class _ObservedTasks:
    """What stands around the tasks of each worker, from the first observer to the last."""

    def __init__(self) -> None:
        self._observers: dict[Any, tuple[TaskObserver, ...]] = {}
        #: What each worker's tasks run through, by what is wrapped. Replaced worker by worker: the
        #: threads that run tasks read it without a lock.
        self._chains: dict[str, dict[Any, Run]] = {}
        self._originals: dict[str, Run] = {}

    def place(self) -> list[Patch]:
        """Wrap those of Dask's functions that there are."""
        return [
            Patch(distributed.worker, name, partial(self._wrap, name))
            for name in (RUN_TASK, RUN_COROUTINE)
            if name not in self._chains and hasattr(distributed.worker, name)
        ]

    def _wrap(self, name: str, original: Any, patch: Patch) -> Any:
        self._originals[name] = original
        chains = self._chains[name] = {}
        first = _first_parameter(original)

        # Of a coroutine function this gives the coroutine: Dask awaits what it gets.
        def run_observed(*args: Any, **kwargs: Any) -> Any:
            try:
                run = chains.get(get_worker(), original)
            except ValueError:  # a process of a pool: there is no worker
                run = original
            if not args:
                if first not in kwargs:  # nothing tells which is the task
                    return original(**kwargs)
                args = (kwargs.pop(first),)
            return run(*args, **kwargs)

        return run_observed

    def forget(self) -> None:
        """Let go of wrappers that were removed: those below somebody else's only pass calls on."""
        self._chains.clear()
        self._originals.clear()

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
        """Return the observers of a worker, the innermost first."""
        return self._observers.get(worker, ())

    def abandon(self) -> None:
        """Observe nothing in a forked child: the workers are its parent's."""
        self._observers.clear()
        for chains in self._chains.values():
            chains.clear()


def _first_parameter(function: Any) -> str | None:
    """Return the name of the first parameter, if it can be given by position and by name."""
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
    """Tell whether tasks can be observed; if not, why."""
    if names.RUN_TASK.exists() and names.TASK_KEY.exists():
        return "available"
    return "this version of Dask runs its tasks in another way"


def observe(worker: Any, observer: TaskObserver) -> Callable[[], None] | None:
    """Have an observer stand around a worker's tasks from now on.

    Returns
    -------
    Callable or None
        Takes the observer away again, once; tasks that run then still go through it to their end.
        None if this Dask has no place for it.
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
