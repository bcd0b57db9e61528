"""Observers of functions that clients run on a worker outside of tasks, as with `Client.run`.

Like actor calls, these functions arrive as messages. Dask's private coroutine function `run`
unpickles the function and passes it to `has_arg`, which is in the same module. A wrapper of
`has_arg` records the function's name. CPU seconds are measured for each step of the coroutine,
because the event loop runs other coroutines between the steps (see `FunctionRun`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextvars import ContextVar
from time import thread_time
from typing import Any

from dask.utils import funcname

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Patch, SharedListeners
from dasfprof.recording.dask_internals.worker_calls import ActorCalls
from dasfprof.recording.guard import HookGuard


class FunctionRun:
    """A run of a function on a worker.

    Awaiting the object runs Dask's coroutine and counts the CPU seconds of all its steps.
    """

    def __init__(self, coroutine: Any) -> None:
        self._coroutine, self.cpu = coroutine, 0.0
        self.function: str | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        step, value = self._coroutine.send, None
        while True:
            before, token = thread_time(), _running.set(self)
            try:
                yielded = step(value)
            except StopIteration as end:
                return end.value
            finally:
                _running.reset(token)
                self.cpu += thread_time() - before
            try:
                value, step = (yield yielded), self._coroutine.send
            except BaseException as error:
                value, step = error, self._coroutine.throw


_running: ContextVar[FunctionRun | None] = ContextVar("dasfprof_function", default=None)


class FunctionRuns(ActorCalls):
    """Notifies an observer of each function that a worker runs outside of tasks.

    When a function has ended, the observer is called with a tuple: start, seconds, the function's
    name, CPU seconds, and the outcome. Functions of dasfprof are left out.
    """

    _request = "run"

    def __init__(self, worker: Any, observer: Callable[[Any], None], guard: HookGuard) -> None:
        super().__init__(worker, observer, guard)
        self._leave = _named.add(guard) if names.WORKER_FUNCTIONS.exist() else lambda: None

    def stop(self) -> None:
        """Stop observing, and pass on the functions in progress as ``unanswered``. Idempotent."""
        super().stop()
        self._leave()
        self._leave = lambda: None

    def _begin(self, answer: Any, *_: Any) -> tuple[Any, tuple[Any, str]]:
        return FunctionRun(answer), (None, "")

    def _note(self, call: Any, start: float, seconds: float, named: list[Any], state: str) -> None:
        if not (call.function or "").startswith("dasfprof."):
            self._observer((start, seconds, call.function, call.cpu, state))


def _naming(original: Any, patch: Patch) -> Any:
    def has_arg(function: Any, *args: Any, **kwargs: Any) -> Any:
        run = _running.get()
        if run is not None and run.function is None:
            try:
                name = getattr(function, "__qualname__", None) or funcname(function)
                run.function = f"{getattr(function, '__module__', None) or '?'}.{name}"
            except Exception:
                for guard in _named.all:
                    guard.caught("a function outside of tasks")
        return original(function, *args, **kwargs)

    return has_arg


_named: SharedListeners[HookGuard] = SharedListeners(
    lambda: [(sys.modules["distributed.worker"], "has_arg", _naming)]
)
