"""Calls of fsspec that read from storage or write to it, with their bytes and seconds.

Wrapped are what the files of a file system call to fetch and to upload a block, its methods for
whole files, and `fsspec.asyn.sync`, in which a thread waits for what file systems do in a loop of
their own. Of calls within one another the outermost counts. fsspec is not imported for it: where
it is not yet, the wrappers come as soon as it is, and those of its later classes with these.

File systems of this host, and those that only pass on to another, are left out.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, thread_time
from typing import Any, NamedTuple, TypeAlias

from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedListeners, WhenImported


class StorageCall(NamedTuple):
    """A call that has ended."""

    #: As the file system calls itself: s3, gs, https, ...
    protocol: str
    is_write: bool
    #: Bytes; None: unknown, as of calls that raised an error.
    size: int | None
    seconds: float
    #: Of these, the thread was on no core.
    waiting: float


#: Called in the thread that called, after each call; must not raise.
Listener: TypeAlias = Callable[[StorageCall], object]
#: Finds the bytes of a call of its result and arguments.
_Size: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], int | None]

#: Of this host, or of another file system.
_NOT_REMOTE = frozenset(
    (
        *("file", "local", "memory", "arrow_hdfs_local", "dir", "zip", "tar", "libarchive"),
        *("filecache", "simplecache", "blockcache", "cached", "async_wrapper", "generic", "git"),
    )
)
_MODULES = ("fsspec.spec", "fsspec.asyn")


def _result(result: Any, _args: Any, _kwargs: Any) -> int | None:
    """Return the bytes that were read."""
    return _bytes_of(result)


def _file(place: int, name: str) -> _Size:
    """Return a function that returns the size of the local files that an argument names."""
    return lambda _result, args, kwargs: _size_of_files(_taken(place, name, args, kwargs))


def _taken(place: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


#: Methods of file systems for whole files: whether they write, and what tells the bytes. Those of
#: asynchronous ones have an underscore before their names.
_WHOLE: dict[str, tuple[bool, _Size]] = {
    "cat_file": (False, _result),
    "cat_ranges": (False, _result),
    "get_file": (False, _file(1, "lpath")),
    "put_file": (True, _file(0, "lpath")),
    "pipe_file": (True, lambda _result, args, kwargs: _bytes_of(_taken(1, "value", args, kwargs))),
}
_IN_LOOP: dict[str, tuple[bool, _Size]] = {
    **{f"_{name}": what for name, what in _WHOLE.items()},
    "_cat": (False, _result),
    "_get": (False, _file(1, "lpath")),
    "_put": (True, _file(0, "lpath")),
    "_pipe": (True, lambda _result, args, kwargs: _piped(args, kwargs)),
}


def _bytes_of(value: Any) -> int | None:
    """Return the bytes of a value, or of those in a list or dict; None if it holds others."""
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if type(value) in (list, tuple, dict):
        sizes = [_bytes_of(each) for each in (value.values() if type(value) is dict else value)]
        return None if None in sizes else sum(filter(None, sizes))
    return None


def _piped(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    path = _taken(0, "path", args, kwargs)
    return _bytes_of(path if type(path) is dict else _taken(1, "value", args, kwargs))


def _size_of_files(paths: Any) -> int | None:
    """Return the size of files here; None if one is none, as of a directory."""
    if type(paths) is list:
        sizes = [_size_of_files(path) for path in paths]
        return None if None in sizes else sum(filter(None, sizes))
    try:
        is_file = isinstance(paths, str | os.PathLike) and os.path.isfile(paths)
        return os.path.getsize(paths) if is_file else None
    except OSError:
        return None


def _protocol_of(file_system: Any) -> str | None:
    """Return what a file system calls itself; None if it is not to be told of."""
    protocol = getattr(type(file_system), "protocol", None)
    if isinstance(protocol, list | tuple):
        protocol = protocol[0] if protocol else None
    return None if protocol in _NOT_REMOTE or not isinstance(protocol, str) else protocol


class _Calls(SharedListeners[Listener]):
    """The listeners of this process, and the wrappers that are there as long as any listens."""

    def __init__(self) -> None:
        super().__init__(self._hooks_now, self._forget)
        #: Whether a thread is in a call that counts.
        self._within = threading.local()
        #: Classes that were looked at.
        self._seen: set[type] = set()
        self._imports = WhenImported(_MODULES, self._imported)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Let one listen; return what ends that."""
        self._imports.start()
        return super().add(listener)

    def _forget(self) -> None:
        self._imports.stop()
        self._seen.clear()

    def _imported(self) -> None:
        try:
            self.place_more()
        except Exception:  # a class that takes no attribute: it stays as it is
            self._imports.stop()

    def _hooks_now(self) -> Iterator[Hook]:
        spec, asyn = map(sys.modules.get, _MODULES)
        systems = getattr(spec, "AbstractFileSystem", None)
        files = getattr(spec, "AbstractBufferedFile", None)
        if systems is None or files is None:
            return
        yield from _own_functions(type(systems), "__init__", self._around_class)
        yield from _own_functions(files, "__init__", self._around_file)
        if asyn is not None:
            yield from _own_functions(asyn, "sync", self._around_sync)
        for each in _family(systems):
            self._seen.add(each)
            for name, (is_write, size) in _WHOLE.items():
                yield from _own_functions(each, name, partial(self._around_method, is_write, size))
        for each in _family(files):
            self._seen.add(each)
            yield from _own_functions(each, "_fetch_range", self._around_fetch)
            yield from _own_functions(each, "_upload_chunk", self._around_upload)

    # --- wrappers --------------------------------------------------------------------------------

    def _around_class(self, original: Any, patch: Patch) -> Any:
        """Wrap the making of classes of file systems."""

        def make(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            if patch.active:
                self._imported()

        return make

    def _around_file(self, original: Any, patch: Patch) -> Any:
        """Wrap the opening of files, which shows their classes."""

        def open_file(*args: Any, **kwargs: Any) -> None:
            if patch.active and args and type(args[0]) not in self._seen:
                self._imported()
            original(*args, **kwargs)

        return open_file

    def _around_sync(self, original: Any, patch: Patch) -> Any:
        def sync(*args: Any, **kwargs: Any) -> Any:
            called = args[1] if len(args) > 1 else None
            known = _IN_LOOP.get(getattr(called, "__name__", ""))
            if known is None or not patch.active:
                return original(*args, **kwargs)
            call = partial(original, *args, **kwargs)
            system = getattr(called, "__self__", None)
            return self._told(call, system, known[0], lambda r: known[1](r, args[2:], kwargs))

        return sync

    def _around_method(self, is_write: bool, size: _Size, original: Any, patch: Patch) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            if not patch.active or not args:
                return original(*args, **kwargs)
            call = partial(original, *args, **kwargs)
            return self._told(call, args[0], is_write, lambda r: size(r, args[1:], kwargs))

        return method

    def _around_fetch(self, original: Any, patch: Patch) -> Any:
        def fetch(*args: Any, **kwargs: Any) -> Any:
            if not patch.active or not args:
                return original(*args, **kwargs)
            call = partial(original, *args, **kwargs)
            return self._told(call, getattr(args[0], "fs", None), False, _bytes_of)

        return fetch

    def _around_upload(self, original: Any, patch: Patch) -> Any:
        def upload(*args: Any, **kwargs: Any) -> Any:
            held = _bytes_held(args[0]) if args else None
            if not patch.active or held is None:
                return original(*args, **kwargs)

            def sent(result: Any) -> int:
                # False: the file sees to its buffer itself, and may keep some for the next time.
                kept = result is False and not _taken(1, "final", args, kwargs)
                return held - (_bytes_held(args[0]) or 0 if kept else 0)

            call = partial(original, *args, **kwargs)
            return self._told(call, getattr(args[0], "fs", None), True, sent)

        return upload

    def _told(
        self,
        call: Callable[[], Any],
        file_system: Any,
        is_write: bool,
        size_of: Callable[[Any], int | None],
    ) -> Any:
        """Call, and tell the listeners; not within another call."""
        protocol = None if file_system is None else _protocol_of(file_system)
        if protocol is None or getattr(self._within, "call", False):
            return call()
        self._within.call = True
        size, begin, cpu = None, perf_counter(), thread_time()
        try:
            result = call()
            size = _known(size_of, result)
            return result
        finally:
            seconds = perf_counter() - begin
            waiting = max(seconds - (thread_time() - cpu), 0.0)
            ended = StorageCall(protocol, is_write, size, seconds, waiting)
            self._within.call = False
            for listener in self.all:
                listener(ended)


def _bytes_held(file: Any) -> int | None:
    """Return the bytes that a file has yet to upload; None: unknown."""
    buffer: Any = getattr(file, "buffer", None)
    if not hasattr(buffer, "getbuffer"):
        return None
    with buffer.getbuffer() as held:
        return int(held.nbytes)


def _known(size_of: Callable[[Any], int | None], result: Any) -> int | None:
    try:
        return size_of(result)
    except Exception:
        return None


def _own_functions(owner: Any, name: str, wrap: Callable[[Any, Patch], Any]) -> Iterator[Hook]:
    """Yield an attribute to wrap, if it is the owner's own; coroutine functions stay."""
    own = vars(owner).get(name)
    if inspect.isfunction(own) and not inspect.iscoroutinefunction(own):
        yield owner, name, wrap


def _family(base: type) -> Iterator[type]:
    """Yield a class and all that are derived of it."""
    pending, seen = [base], {base}
    while pending:
        current = pending.pop()
        yield current
        derived: list[type] = type.__subclasses__(current)
        new = [each for each in derived if each not in seen]
        seen.update(new)
        pending += new


_calls = _Calls()


def listen(listener: Listener) -> Callable[[], None]:
    """Call a listener with each call in any thread of this process; return what ends it."""
    return _calls.add(listener)
