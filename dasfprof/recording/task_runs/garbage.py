"""CPU seconds of Python's garbage collector in the threads of tasks.

The interpreter calls `gc.callbacks` before and after each collection, in the thread that happens to
have made one object too many: nothing is called as long as nothing is collected. What is called
must neither wait nor take a lock, which that thread may hold. It is CPU that is counted: between
its two calls other threads may get the interpreter's lock, or the core. Collections of the
youngest generation are left out, as Dask does: they are many, and to read the clock would take a
part of them. Of what programs of small objects compute they take 8 % at most.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from time import thread_time
from typing import Any

from dasfprof.recording.dask_internals.task_functions import running_tasks
from dasfprof.recording.guard import HookGuard

#: The most task runs that have not been noted. With more, the event loop is not taking any.
_MOST = 10_000


def collections_of(
    worker: Any, guard: HookGuard, undo: list[Callable[[], object]]
) -> dict[Any, float]:
    """Return the CPU seconds of collections by the key of the task in whose thread they ran.

    Parameters
    ----------
    worker
        The worker.
    guard
        Handles errors.
    undo
        Gets what ends it.

    Returns
    -------
    dict
        Grows with collections; whoever notes the end of a task run takes its seconds out.
    """
    found = _Collections(worker, guard)
    gc.callbacks.append(found.called)
    undo.append(found.stop)
    return found.seconds


class _Collections:
    """Hears of each collection of this process; one goes on at a time."""

    def __init__(self, worker: Any, guard: HookGuard) -> None:
        self.seconds: dict[Any, float] = {}
        self._threads = running_tasks(worker)
        self._guard = guard
        self._begin: float | None = None

    def called(self, phase: str, info: dict[str, int]) -> None:
        """Take note of the begin or the end of a collection."""
        try:
            if info["generation"] == 0:
                return
            if phase == "start":
                self._begin = thread_time()
            elif self._begin is not None:
                lasted, self._begin = thread_time() - self._begin, None
                key, seconds = self._threads.get(threading.get_ident()), self.seconds
                if key is not None and (key in seconds or len(seconds) < _MOST):
                    seconds[key] = seconds.get(key, 0.0) + lasted
        except Exception:
            self._guard.caught("garbage collections")

    def stop(self) -> None:
        """Hear no more."""
        with contextlib.suppress(ValueError):  # somebody has cleared the list
            gc.callbacks.remove(self.called)
