"""Which functions of Zarr 3 make requests to stores, of how many bytes.

They are the methods of its stores. Those that pass on to a remote file system of fsspec, or to
another store, are left out: the requests are that one's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from dasfprof.recording.dask_internals.patch import Hook
from dasfprof.recording.task_runs.storage_kinds import (
    Around,
    BytesOf,
    RequestKind,
    argument,
    family,
    hash_of,
    is_own,
)

#: The second is there when the first has all of Zarr's own stores.
MODULES = ("zarr.abc.store", "zarr.storage")
#: Names of stores, Zarr's and obstore's, that are not called as those of fsspec; of others the
#: class names the store.
_NAMES = {
    "LocalStore": "file",
    "GCSStore": "gs",
    "AzureStore": "az",
    "ManagedMemoryStore": "memory",
}


def _store(store: Any) -> str | None:
    kind = type(store)
    names = {base.__name__ for base in kind.__mro__}
    if "FsspecStore" in names:  # fsspec_calls leaves out local files
        files = getattr(store.fs, "sync_fs", store.fs)
        return "file" if type(files).__name__ == "LocalFileSystem" else None
    if "WrapperStore" in names:
        return None
    if kind.__name__ == "ObjectStore":  # that of obstore
        kind = type(store.store)
    return _NAMES.get(kind.__name__) or kind.__name__.removesuffix("Store").lower() or "zarr"


def _result(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> BytesOf:
    """Return the size of what was got; 0 of an object that is not there: it holds fill values."""
    return lambda result: 0 if result is None else len(result)


def _value(args: tuple[Any, ...], kwargs: dict[str, Any]) -> BytesOf:
    return lambda _result: len(argument(2, "value", args, kwargs))


def _object(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    key, selection = argument(1, "key", args, kwargs), argument(3, "byte_range", args, kwargs)
    return hash_of(f"{args[0]}/{key}", str(kwargs.get("byte_range", selection)))


_GET, _SET = RequestKind(False, _store, _result, _object), RequestKind(True, _store, _value)
_METHODS = {
    "get": (_GET, True),
    "get_sync": (_GET, False),
    "set": (_SET, True),
    "set_if_not_exists": (_SET, True),
    "set_sync": (_SET, False),
}


def hooks(around: Around, new: Callable[..., Any]) -> Iterator[Hook]:
    """Yield what is to be wrapped, if Zarr 3 is imported; see `fsspec_calls.hooks`."""
    stores = getattr(sys.modules.get(MODULES[0]), "Store", None)
    if stores is None:
        return
    yield stores, "__init__", new
    for each in family(stores):
        for name, (kind, coroutine) in _METHODS.items():
            if each is not stores and is_own(each, name, coroutine):
                yield each, name, around(kind)
