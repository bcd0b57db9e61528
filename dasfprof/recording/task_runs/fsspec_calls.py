"""Which functions of fsspec make requests to storage, of how many bytes.

They are what the files of a file system call to fetch and to upload a block, and its methods for
whole files and ranges of them: coroutines of asynchronous file systems, which run in an event loop
of a thread of their own whoever calls them. File systems of this host, and those that only pass on
to another, are left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from dasfprof.recording.dask_internals.patch import Hook, Patch, unpatched
from dasfprof.recording.task_runs.storage_kinds import (
    Around,
    BytesOf,
    RequestKind,
    argument,
    family,
    hash_of,
    is_own,
)

#: Of this host, or of another file system.
_NOT_REMOTE = frozenset(
    (
        *("file", "local", "memory", "arrow_hdfs_local", "dir", "zip", "tar", "libarchive"),
        *("filecache", "simplecache", "blockcache", "cached", "async_wrapper", "asyncwrapper"),
        *("generic", "git", "reference"),
    )
)
MODULES = ("fsspec.spec", "fsspec.asyn")


def bytes_of(value: Any) -> int | None:
    """Return the bytes of a value; None if it is of another type."""
    if isinstance(value, memoryview):
        return value.nbytes
    return len(value) if isinstance(value, bytes | bytearray) else None


def _store(file_system: Any) -> str | None:
    """Return the protocol of a file system; None if its requests do not count."""
    protocol = getattr(type(file_system), "protocol", None)
    if isinstance(protocol, list | tuple):
        protocol = protocol[0] if protocol else None
    return None if protocol in _NOT_REMOTE or not isinstance(protocol, str) else protocol


def _store_of_file(file: Any) -> str | None:
    """Return the protocol of a file's file system, as `_store`."""
    return _store(getattr(file, "fs", None))


def _result(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> BytesOf:
    return bytes_of


def _value(args: tuple[Any, ...], kwargs: dict[str, Any]) -> BytesOf:
    return lambda _result: bytes_of(argument(2, "value", args, kwargs))


def _file(place: int, name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], BytesOf]:
    """Return the size of requests that copy from or to the local file that an argument names."""
    return lambda args, kwargs: lambda _result: _size_of_file(argument(place, name, args, kwargs))


def _size_of_file(path: Any) -> int | None:
    """Return the size of a file here; None if it is none, such as a directory."""
    is_file = isinstance(path, str | os.PathLike) and os.path.isfile(path)
    return os.path.getsize(path) if is_file else None


def _object(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    path = argument(1, "path", args, kwargs)
    limits = argument(2, "start", args, kwargs), argument(3, "end", args, kwargs)
    return hash_of(path, str(limits)) if isinstance(path, str) else None


def _uploaded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> BytesOf:
    """Return the size of uploads of a block, of what its file has in its buffer now."""
    before = _bytes_held(args[0])

    def sent(result: Any) -> int:
        # False: the file sees to its buffer itself, and may keep some for the next time.
        is_partial = result is False and not argument(1, "final", args, kwargs)
        return before - (_bytes_held(args[0]) if is_partial else 0)

    return sent


def _bytes_held(file: Any) -> int:
    """Return the bytes that a file has yet to upload."""
    with file.buffer.getbuffer() as held:
        return int(held.nbytes)


#: Methods of file systems; coroutines of asynchronous ones have an underscore before their names.
_METHODS = {
    "cat_file": RequestKind(False, _store, _result, _object),
    "get_file": RequestKind(False, _store, _file(2, "lpath")),
    "put_file": RequestKind(True, _store, _file(1, "lpath")),
    "pipe_file": RequestKind(True, _store, _value),
}
#: Methods of files.
_OF_FILES = {
    "_fetch_range": RequestKind(False, _store_of_file, _result),
    "_upload_chunk": RequestKind(True, _store_of_file, _uploaded),
}


def hooks(around: Around, new: Callable[..., Any]) -> Iterator[Hook]:
    """Yield what is to be wrapped, if fsspec is imported.

    `around` returns the wrapper of requests of a kind; `new` wraps what makes objects or classes.
    """
    spec, asyn = map(sys.modules.get, MODULES)
    systems = getattr(spec, "AbstractFileSystem", None)
    files = getattr(spec, "AbstractBufferedFile", None)
    asynchronous = getattr(asyn, "AsyncFileSystem", None)
    if systems is None or files is None:
        return
    yield type(systems), "__init__", new
    yield files, "__init__", new
    if asyn is not None and is_own(asyn, "sync", coroutine=False):
        yield asyn, "sync", _around_sync
    for each in family(systems):
        for name, kind in _METHODS.items():
            if is_own(each, name, coroutine=False):
                yield each, name, around(kind)
            # The base class of asynchronous file systems has none.
            elif is_own(each, f"_{name}", coroutine=True) and each is not asynchronous:
                yield each, f"_{name}", around(kind)
    for each in family(files):
        for name, kind in _OF_FILES.items():
            if is_own(each, name, coroutine=False):
                yield each, name, around(kind)


def _around_sync(original: Any, patch: Patch) -> Any:
    """Wrap what starts coroutines: instances keep methods of before these were wrapped."""

    def sync(*args: Any, **kwargs: Any) -> Any:
        if patch.active and len(args) > 1:
            args = (args[0], _current(args[1]), *args[2:])
        return original(*args, **kwargs)

    return sync


def _current(method: Any) -> Any:
    """Return what is a class's method now in place of a bound one, if that is its wrapper."""
    own: Any = getattr(
        type(getattr(method, "__self__", None)), getattr(method, "__name__", ""), None
    )
    if type(method) is not MethodType or unpatched(own) is not unpatched(method.__func__):
        return method
    return MethodType(own, method.__self__)
