"""Records which distributed locks and semaphores the tasks of this process hold.

The scheduler knows the leases, but not the tasks that hold them. So `acquire` and `release` are
wrapped in worker processes. A wrapper first calls the original function, and does not change its
result or its exceptions.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from time import time
from typing import Any, NamedTuple

import distributed
from distributed import get_worker

from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedListeners
from dasfprof.recording.dask_internals.task_functions import running_tasks

#: Maximum number of tasks for which locks are stored. Some tasks may never release their locks.
_MOST = 10_000

#: Number of arguments of `MultiLock.acquire` before the number of required locks.
_ALL_LOCKS = 3


class _Held(NamedTuple):
    #: The lock object. If it no longer exists, the lock is not held, because the scheduler takes
    #: back its lease.
    owner: weakref.ref[Any]
    kind: str
    name: str
    #: Maximum number of holders of the lock, the Unix time at which the task acquired the lock, and
    #: the seconds for which the task waited for it.
    limit: int
    since: float
    waited: float


#: The locks that each task holds, by the task's key. Tasks that are coroutines are left out.
_held: dict[Any, list[_Held]] = {}
_lock = threading.Lock()


def held_by(key: Any) -> list[list[str]]:
    """Return the kind and the name of each lock that the task with this key holds."""
    if not _held:
        return []
    held = list(_held.get(key, ()))
    return [[lock.kind, lock.name] for lock in held if lock.owner() is not None]


def _current_task() -> Any:
    """Return the key of the task that this thread runs, or None."""
    with contextlib.suppress(ValueError):  # This is not a thread of a worker.
        return running_tasks(get_worker()).get(threading.get_ident())
    return None


def _acquired(owner: Any, asked: float) -> None:
    task = _current_task()
    if task is not None:
        # The owner's class may be derived from a class of Dask.
        classes = [
            each for each in type(owner).__mro__ if each.__module__.startswith("distributed.")
        ]
        kind, now = classes[0].__name__, time()
        lock_names = owner.names if kind == "MultiLock" else [owner.name]
        limit = int(getattr(owner, "max_leases", 1) or 1)
        facts = limit, now, max(now - asked, 0.0)
        held = [_Held(weakref.ref(owner), kind, str(name), *facts) for name in lock_names]
        with _lock:
            if task in _held or len(_held) < _MOST:
                _held[task] = _held.get(task, []) + held


def _released(owner: Any) -> None:
    """Record that a lock was released.

    If the current task does not hold the lock, the first task that holds it is assumed to have
    released it.
    """
    current = _current_task()
    with _lock:
        for task in sorted(_held, key=lambda task: task != current):
            released = [lock for lock in _held[task] if lock.owner() is owner]
            if released:
                break
        else:
            return
        if released[0].kind != "MultiLock":
            del released[1:]
        _held[task] = [lock for lock in _held[task] if all(lock is not gone for gone in released)]
        if not _held[task]:
            del _held[task]
    current_worker = get_worker()
    for worker, listener in _listeners.all:
        for lock in released if worker is current_worker else ():
            listener(lock._asdict())


def _note_acquired(original: Any, patch: Patch) -> Any:
    def acquire(*args: Any, **kwargs: Any) -> Any:
        asked = time()
        result = original(*args, **kwargs)
        if patch.active:
            with contextlib.suppress(Exception):
                # If a MultiLock required only some of its locks, it is unknown which locks it
                # holds.
                some = len(args) > _ALL_LOCKS or kwargs.get("num_locks") is not None
                if result and not some and not asyncio.iscoroutine(result):
                    _acquired(args[0], asked)
        return result

    return acquire


def _note_released(original: Any, patch: Patch) -> Any:
    def release(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if patch.active:
            with contextlib.suppress(Exception):
                _released(args[0])
        return result

    return release


def _hooks() -> Iterator[Hook]:
    for owner in (distributed.Semaphore, distributed.MultiLock):
        yield owner, "acquire", _note_acquired
        yield owner, "release", _note_released


_listeners: SharedListeners[tuple[Any, Callable[[dict[str, Any]], object]]] = SharedListeners(
    _hooks, _held.clear
)


def watch_locks(worker: Any, listener: Callable[[dict[str, Any]], object]) -> Callable[[], None]:
    """Record the locks that tasks of this process hold, until the returned function is called.

    Parameters
    ----------
    worker, listener
        When a task of this worker has released a lock, the listener is called, in any thread. Its
        argument is a dict about the lock, with ``kind, name, limit`` (maximum number of holders),
        ``since`` (Unix time when the task acquired the lock) and ``waited`` (seconds of waiting).
    """
    return _listeners.add((worker, listener))
