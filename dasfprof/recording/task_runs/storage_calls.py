"""Wrappers that count the requests of storage libraries, by the task run that makes the request.

A context variable holds the task run for which a coroutine or thread works. A task's thread may
pass a coroutine to the event loop of another thread by `asyncio.run_coroutine_threadsafe`. The
variable is set during that call. asyncio copies it to the coroutine, to further tasks of the event
loop, and to the threads of `asyncio.to_thread`. In the thread of the task, the variable is not
needed, because the worker knows the task. So tasks that make no requests cost nothing.

If requests are nested, only the outermost is counted. The libraries are not imported for this.
Wrappers are placed as soon as the program has imported a library, and when the program defines
further classes.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, TypeAlias

from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedListeners, WhenImported
from dasfprof.recording.task_runs.run_storage import RunStorage, StorageRequest
from dasfprof.recording.task_runs.storage_requests import MODULES, BytesOf, RequestKind, hooks

#: Returns the `RunStorage` of the task run in a thread, or None if the thread runs no task. Must
#: not raise.
Find: TypeAlias = Callable[[int], RunStorage | None]

#: The `RunStorage` of the task run for which this context works. None means the task run in the
#: thread. False is set within a request, because nested requests are not counted.
_served: ContextVar[RunStorage | Literal[False] | None] = ContextVar("dasfprof", default=None)


@contextlib.contextmanager
def _serving(run: RunStorage | Literal[False]) -> Iterator[None]:
    """Within this context, count the requests of this thread or coroutine for `run`.

    If `run` is False, requests are not counted.
    """
    token = _served.set(run)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # The coroutine is closed in another context.
            _served.reset(token)


@contextlib.contextmanager
def _counting(
    run: RunStorage, request: StorageRequest, size_of: BytesOf
) -> Iterator[Callable[..., Any]]:
    """Within this context, count a request, but no requests that are nested in it.

    The context's value is a function that takes the result of the request, stores its number of
    bytes, and returns the result.
    """
    size: int | None = None

    def returned(result: Any) -> Any:
        nonlocal size
        with contextlib.suppress(Exception):  # The size stays unknown.
            size = size_of(result)
        return result

    try:
        with _serving(False):
            yield returned
    finally:
        run.end(request, size)


class _Calls(SharedListeners[Find]):
    """The listeners for storage requests of this process, and the wrappers that they need."""

    def __init__(self) -> None:
        super().__init__(self._hooks_now, self._forget)
        #: Classes of objects that the libraries have created.
        self._seen: set[type] = set()
        self._imports = WhenImported(MODULES, self._imported)

    def add(self, listener: Find) -> Callable[[], None]:
        """Add a listener, and return the function that removes it."""
        self._imports.start()
        return super().add(listener)

    def _forget(self) -> None:
        self._imports.stop()
        self._seen.clear()

    def _imported(self) -> None:
        try:
            self.place_more()
        except Exception:  # A class does not accept attributes.
            self._imports.stop()

    def _hooks_now(self) -> Iterator[Hook]:
        requests, reads = (partial(partial, w) for w in (self._around_request, self._around_read))
        placed = list(hooks(requests, reads, self._around_new))
        if placed:
            yield asyncio, "run_coroutine_threadsafe", self._around_start
            yield asyncio, "to_thread", self._around_thread
        yield from placed

    def _run(self) -> RunStorage | None:
        """Return the `RunStorage` of the task run for which this thread works, or None."""
        run = _served.get()
        if run is None:
            thread = threading.get_ident()
            run = next((storage for find in self.all if (storage := find(thread))), None)
        return run or None

    def _around_new(self, original: Any, patch: Patch) -> Any:
        """Return a wrapper of the `__init__` of a class or metaclass, which hooks new classes."""

        def make(*args: Any, **kwargs: Any) -> None:
            is_class = bool(args) and isinstance(args[0], type)
            if patch.active and args and not is_class and type(args[0]) not in self._seen:
                # This is the `__init__` of a class: the class is hooked before its first object is
                # initialized.
                self._seen.add(type(args[0]))
                self._imported()  # The hooks must exist before the object stores bound methods.
            original(*args, **kwargs)
            # This is the `__init__` of a metaclass: the class is hooked after it is created.
            if patch.active and is_class:
                self._imported()

        return make

    def _around_start(self, original: Any, patch: Patch) -> Any:
        def run_coroutine_threadsafe(*args: Any, **kwargs: Any) -> Any:
            run = self._run() if patch.active else None
            if run is None:
                return original(*args, **kwargs)
            with _serving(run):
                return original(*args, **kwargs)

        return run_coroutine_threadsafe

    def _around_thread(self, original: Any, patch: Patch) -> Any:
        async def to_thread(*args: Any, **kwargs: Any) -> Any:
            run = self._run() if patch.active and args else None
            if run is None:
                return await original(*args, **kwargs)
            with _serving(run):
                return await original(run.help, *args, **kwargs)

        return to_thread

    def _around_read(
        self, store_of: Callable[[Any], str | None], original: Any, patch: Patch
    ) -> Any:
        """Return a wrapper of a method that returns data to a task, such as a file's `read`."""

        def read(*args: Any, **kwargs: Any) -> Any:
            run = self._run() if patch.active else None
            if run is None or run.in_read:
                return original(*args, **kwargs)
            run.in_read, result = True, None
            try:
                result = original(*args, **kwargs)
                return result
            finally:
                run.end_read(store_of, args[0], result)

        return read

    def _around_request(self, kind: RequestKind, original: Any, patch: Patch) -> Any:
        async def request(*args: Any, **kwargs: Any) -> Any:
            begun = self._begin(kind, args, kwargs, False) if patch.active else None
            if begun is None:
                return await original(*args, **kwargs)
            with _counting(*begun) as returned:
                return returned(await original(*args, **kwargs))

        def call_request(*args: Any, **kwargs: Any) -> Any:
            begun = self._begin(kind, args, kwargs, True) if patch.active else None
            if begun is None:
                return original(*args, **kwargs)
            with _counting(*begun) as returned:
                return returned(original(*args, **kwargs))

        return request if inspect.iscoroutinefunction(original) else call_request

    def _begin(
        self, kind: RequestKind, args: tuple[Any, ...], kwargs: dict[str, Any], in_thread: bool
    ) -> tuple[RunStorage, StorageRequest, BytesOf] | None:
        """Record that a request starts, and return the arguments of `_counting`.

        Return None if the request is not counted.
        """
        run = self._run()
        if run is None:
            return None
        try:
            store = kind.store(args[0])
            if store is None:
                return None
            item = kind.item(args, kwargs)
            if not store:
                run.read(item)
                return None
            size = kind.size(args, kwargs)
            return run, run.begin(store, kind.is_write, item, in_thread), size
        except Exception:
            run.caught()
            return None


_calls = _Calls()


def listen(find: Find) -> Callable[[], None]:
    """Count the storage requests of task runs until the returned function is called.

    `find` returns the `RunStorage` of the task run in a thread, or None if there is none.
    """
    return _calls.add(find)
