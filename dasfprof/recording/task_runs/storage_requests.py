"""Hooks on functions of storage libraries, and rules for counting the requests of each function.

In fsspec, the hooks are on the functions with which a file fetches and uploads blocks, and on the
methods of file systems for complete files and for ranges of files. In asynchronous file systems,
these methods are coroutine functions, which run on an event loop in a separate thread. File systems
of this host, and file systems that pass requests on to another file system, are left out.

In Zarr 3, the hooks are on the methods of stores. Stores that pass requests on to another store, or
to a remote file system of fsspec, are left out.

Hooks on the reads of fsspec's files and of Zarr's arrays count the bytes that the reader gets,
which may be fewer than the bytes that the requests transfer.

In h5py, the hooks are on the functions that read and write datasets. The bytes of a request are the
bytes of the array in memory. If the file is a Python file object, such as a file of fsspec, the
requests of that object are counted instead.

In pandas and pyarrow, the hooks are on the functions that read CSV and Parquet files. They record
only which files are read completely.
"""

from __future__ import annotations

import inspect
import itertools
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, NamedTuple, TypeAlias

from dasfprof.recording.dask_internals.patch import Hook, Patch, unpatched
from dasfprof.schema.tasks import COMPLETE, STORED_CHUNK

#: Modules that have the hooked classes. When Zarr's second module is imported, the classes of
#: Zarr's stores exist.
MODULES = (
    *("fsspec.spec", "fsspec.asyn", "zarr.abc.store", "zarr.storage", "h5py._hl.dataset"),
    *("pandas.io.parsers.readers", "pyarrow.parquet.core", "zarr.core.array"),
)
#: Protocols of file systems that are on this host or pass requests on to another file system.
_NOT_REMOTE = frozenset(
    (
        *("file", "local", "memory", "arrow_hdfs_local", "dir", "zip", "tar", "libarchive"),
        *("filecache", "simplecache", "blockcache", "cached", "async_wrapper", "asyncwrapper"),
        *("generic", "git", "reference"),
    )
)
#: Names of fsspec for stores of Zarr and obstore. Other stores are named after their class.
_ZARR_NAMES = {
    "LocalStore": "file",
    "GCSStore": "gs",
    "AzureStore": "az",
    "ManagedMemoryStore": "memory",
}
#: Maximum number of items that are recorded per task run.
MOST_ITEMS = 16
#: Threshold (bytes): a smaller dataset is not recorded if it is read completely.
_LARGE = 1e6
#: Ends of the names of objects that hold metadata of an array instead of its data.
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")

_Args: TypeAlias = tuple[Any, ...]
_Kwargs: TypeAlias = dict[str, Any]
#: Returns the bytes of a request from its result, or None if they are unknown.
BytesOf: TypeAlias = Callable[[Any], int | None]


class RequestKind(NamedTuple):
    """A rule for counting the requests of a method."""

    is_write: bool
    #: Returns the name of an object's store, or None if the object's requests are not counted. If
    #: the name is empty, only the item is recorded, because requests within the request count.
    store: Callable[[Any], str | None]
    #: Called before the request, with the arguments of the request. The first argument is the
    #: object. Returns the function that returns the bytes of the request.
    size: Callable[[_Args, _Kwargs], BytesOf]
    #: Called with the same arguments. Returns a text that identifies what is read, or None if it is
    #: not recorded. The text may have several parts, separated by spaces.
    item: Callable[[_Args, _Kwargs], str | None] = lambda _args, _kwargs: None


#: Returns, for a kind of request, the function that wraps a method with requests of this kind.
Around: TypeAlias = Callable[[Any], Callable[[Any, Patch], Any]]


def _argument(position: int, name: str, args: _Args, kwargs: _Kwargs) -> Any:
    """Return the argument that was passed at this position or by this name, or None."""
    return args[position] if len(args) > position else kwargs.get(name)


def _hash_of(path: str, selection: str) -> str | None:
    """Return a hash of the selected part of an object, or None if the object holds metadata."""
    if path.endswith(_METADATA):
        return None
    return f"{zlib.crc32(f'{path} {selection}'.encode(errors='replace')):x}"


def family(base: type) -> Iterator[type]:
    """Yield a class and all its derived classes."""
    pending, seen = [base], {base}
    while pending:
        current = pending.pop()
        yield current
        derived: list[type] = type.__subclasses__(current)
        pending += [kind for kind in derived if kind not in seen]
        seen.update(derived)


def hooks(around: Around, around_read: Around, new: Callable[..., Any]) -> Iterator[Hook]:
    """Yield the hooks on the libraries that the program has imported.

    `around(kind)` returns a function that wraps the methods whose calls are requests of this
    `RequestKind`. `around_read(store_of)` returns a function that wraps methods that return data
    from a store. `new` wraps functions that create objects or classes.
    """
    modules: list[Any] = [sys.modules.get(name) for name in MODULES]
    spec, asyn, stores, _, hdf5, text, parquet, arrays = modules
    if hasattr(spec, "AbstractBufferedFile"):
        yield type(spec.AbstractFileSystem), "__init__", new
        yield spec.AbstractBufferedFile, "__init__", new
        abstract = getattr(asyn, "AsyncFileSystem", None)
        yield from _on_methods(spec.AbstractFileSystem, _OF_SYSTEMS, around, abstract)
        yield from _on_methods(spec.AbstractBufferedFile, _OF_FILES, around)
        for kind in family(spec.AbstractBufferedFile):
            read = vars(kind).get("read")
            if inspect.isfunction(read) and not inspect.iscoroutinefunction(read):
                yield kind, "read", around_read(_protocol_of_file)
    if hasattr(asyn, "sync"):
        yield asyn, "sync", _around_sync
    if hasattr(stores, "Store"):
        yield stores.Store, "__init__", new
        yield from _on_methods(stores.Store, _OF_STORES, around, stores.Store)
    if hasattr(arrays, "Array"):
        for name in ("basic", "orthogonal", "coordinate", "mask", "block"):
            yield arrays.Array, f"get_{name}_selection", around_read(_store_of_array)
    if hasattr(hdf5, "Dataset"):
        for name, request in _OF_DATASETS.items():
            yield hdf5.Dataset, name, around(request)
    if hasattr(text, "_read"):
        yield text, "_read", around(_OF_TABLES)
    if hasattr(parquet, "ParquetDataset"):
        yield parquet.ParquetDataset, "__init__", around(_OF_TABLES)


def _on_methods(
    base: type, methods: dict[str, RequestKind], around: Around, abstract: type | None = None
) -> Iterator[Hook]:
    """Yield a hook for each definition of one of `methods`, in `base` or in a derived class.

    Inherited methods get no hook, and neither do those of the class `abstract`.
    """
    for kind in family(base):
        for name, request in methods.items():
            if kind is not abstract and inspect.isfunction(vars(kind).get(name)):
                yield kind, name, around(request)


def _protocol(file_system: Any) -> str | None:
    """Return the protocol of a file system, or None if its requests are not counted."""
    protocol = getattr(type(file_system), "protocol", None)
    if isinstance(protocol, list | tuple):
        protocol = protocol[0] if protocol else None
    return None if protocol in _NOT_REMOTE or not isinstance(protocol, str) else protocol


def _protocol_of_file(file: Any) -> str | None:
    return _protocol(getattr(file, "fs", None))


def _length(value: Any) -> int | None:
    """Return the number of bytes of a bytes-like value, or None for a value of another type."""
    if isinstance(value, memoryview):
        return value.nbytes
    return len(value) if isinstance(value, bytes | bytearray) else None


def _file_size(path: Any) -> int | None:
    """Return the bytes of a local file, or None if there is no such file."""
    is_file = isinstance(path, str | os.PathLike) and os.path.isfile(path)
    return os.path.getsize(path) if is_file else None


def _nbytes(array: Any) -> int | None:
    return getattr(array, "nbytes", None)


def _of_result(size_of: BytesOf) -> Callable[[_Args, _Kwargs], BytesOf]:
    """Return the `size` of a `RequestKind`, for requests that return the data."""
    return lambda _args, _kwargs: size_of


def _of_argument(position: int, name: str, size_of: BytesOf) -> Callable[[_Args, _Kwargs], BytesOf]:
    """Return the `size` of a `RequestKind`, for requests with the data or its path as argument."""
    return lambda args, kwargs: lambda _result: size_of(_argument(position, name, args, kwargs))


def _range(args: _Args, kwargs: _Kwargs) -> str | None:
    path = _argument(1, "path", args, kwargs)
    limits = _argument(2, "start", args, kwargs), _argument(3, "end", args, kwargs)
    return _hash_of(path, str(limits)) if isinstance(path, str) else None


def _uploaded(args: _Args, kwargs: _Kwargs) -> BytesOf:
    """Return a function that returns how many bytes an upload has sent, given the upload's result.

    Must be called before the upload, while the file's buffer contains the bytes to upload.
    """
    before = _buffered(args[0])

    def sent(result: Any) -> int:
        # If the result is False, the file has emptied its buffer itself. It may keep a part of the
        # block for the next request.
        is_partial = result is False and not _argument(1, "final", args, kwargs)
        return before - (_buffered(args[0]) if is_partial else 0)

    return sent


def _buffered(file: Any) -> int:
    """Return how many bytes of a file are in its buffer and not uploaded yet."""
    with file.buffer.getbuffer() as held:
        return int(held.nbytes)


#: Methods of file systems. Names of methods of asynchronous file systems begin with an underscore.
_OF_SYSTEMS = {
    f"{prefix}{name}": kind
    for prefix in ("", "_")
    for name, kind in {
        "cat_file": RequestKind(False, _protocol, _of_result(_length), _range),
        "get_file": RequestKind(False, _protocol, _of_argument(2, "lpath", _file_size)),
        "put_file": RequestKind(True, _protocol, _of_argument(1, "lpath", _file_size)),
        "pipe_file": RequestKind(True, _protocol, _of_argument(2, "value", _length)),
    }.items()
}
_OF_FILES = {
    "_fetch_range": RequestKind(False, _protocol_of_file, _of_result(_length)),
    "_upload_chunk": RequestKind(True, _protocol_of_file, _uploaded),
}


def _around_sync(original: Any, patch: Patch) -> Any:
    """Return a wrapper of fsspec's `sync`, which runs a coroutine."""

    def sync(*args: Any, **kwargs: Any) -> Any:
        if patch.active and len(args) > 1:
            # An object may have stored its method before the method was wrapped.
            args = (args[0], _current(args[1]), *args[2:])
        return original(*args, **kwargs)

    return sync


def _current(method: Any) -> Any:
    """Return the current wrapper of a bound method, or the method if its class has no wrapper."""
    owner = type(getattr(method, "__self__", None))
    function: Any = getattr(owner, getattr(method, "__name__", ""), None)
    if type(method) is not MethodType or unpatched(function) is not unpatched(method.__func__):
        return method
    return MethodType(function, method.__self__)


def _store(store: Any) -> str | None:
    kind = type(store)
    names = {base.__name__ for base in kind.__mro__}
    if "FsspecStore" in names:  # The hooks on fsspec do not count requests to local files.
        files = getattr(store.fs, "sync_fs", store.fs)
        return "file" if type(files).__name__ == "LocalFileSystem" else None
    if "WrapperStore" in names:
        return None
    if kind.__name__ == "ObjectStore":  # The object contains a store of obstore.
        kind = type(store.store)
    name = kind.__name__.removesuffix("Store").lower()
    return _ZARR_NAMES.get(kind.__name__) or name or "zarr"


def _store_of_array(array: Any) -> str | None:
    """Return the name under which the requests of an array are counted, or None if unknown."""
    store = array.store
    while hasattr(store, "_store") and hasattr(store, "_with_store"):
        store = store._store
    files = getattr(store, "fs", None)
    return _store(store) or _protocol(getattr(files, "sync_fs", files))


def _object(args: _Args, kwargs: _Kwargs) -> str | None:
    key, selection = _argument(1, "key", args, kwargs), _argument(3, "byte_range", args, kwargs)
    return _hash_of(f"{args[0]}/{key}", str(kwargs.get("byte_range", selection)))


# A missing object stands for fill values, and counts as 0 bytes.
_READ = RequestKind(
    False, _store, _of_result(lambda data: 0 if data is None else len(data)), _object
)
_WRITE = RequestKind(True, _store, _of_argument(2, "value", len))
_OF_STORES = {
    **dict.fromkeys(("get", "get_sync"), _READ),
    **dict.fromkeys(("set", "set_if_not_exists", "set_sync"), _WRITE),
}


def _stored_chunks(args: _Args, _kwargs: _Kwargs) -> str | None:
    """Return hashes of the stored chunks that a selection of a dataset reads, separated by spaces.

    The hash of the dataset stands for all of its chunks. Return None if the chunks are unknown, or
    need not be read again.
    """
    dataset, selection = args[:2]
    chunks, selection = dataset.chunks, selection if type(selection) is tuple else (selection,)
    if selection and selection[0] is Ellipsis:
        selection = selection[1:] and (None,)
    if not all(isinstance(index, int | slice) for index in selection):
        return None
    slices = (
        index if isinstance(index, slice) else slice(index, index + 1 or None)
        for index in selection
    )
    spans, path, is_complete = [], f"{dataset.file.filename}{dataset.name}", True
    for length, size, index in itertools.zip_longest(dataset.shape, chunks or (), slices):
        start, stop, step = (index or slice(None)).indices(length)
        is_complete &= (start, stop, step) == (0, length, 1)
        spans.append(range(start // (size or 1), -(-stop // (size or 1))))
    if is_complete:
        return f"{COMPLETE}{_hash_of(path, '')}" if dataset.nbytes >= _LARGE else None
    if chunks is None:
        return None
    # HDF5 need not read chunks again that fit into its cache.
    nbytes = math.prod(map(len, spans)) * math.prod(chunks) * dataset.dtype.itemsize
    if nbytes <= dataset.id.get_access_plist().get_chunk_cache()[1]:
        return None
    indices = itertools.islice(itertools.product(*spans), MOST_ITEMS)
    return " ".join(f"{STORED_CHUNK}{_hash_of(path, str(index))}" for index in indices)


def _hdf5(dataset: Any) -> str:
    """Return the name of a dataset's store, or an empty text if it is in a Python file object."""
    return "" if dataset.file.driver == "fileobj" else "hdf5"


_OF_DATASETS = {
    "__getitem__": RequestKind(False, _hdf5, _of_result(_nbytes), _stored_chunks),
    "__setitem__": RequestKind(True, _hdf5, _of_argument(2, "val", _nbytes)),
}


#: Names of arguments that select a part of a file to be read.
_PARTS = ("nrows", "skiprows", "chunksize", "usecols", "filters")


def _complete_file(args: _Args, kwargs: _Kwargs) -> str | None:
    """Return a hash of the file from which a table is read, or None if only a part is read.

    `args` and `kwargs` are arguments of pandas' ``_read`` or of pyarrow's ``ParquetDataset``.
    """
    source, options = args if isinstance(args[-1], dict) else (_argument(1, "", args, {}), kwargs)
    path = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    is_part = any(options.get(name) is not None for name in _PARTS)
    if is_part or not isinstance(path, str | os.PathLike):
        return None
    return f"{COMPLETE}{_hash_of(os.fspath(path), '')}"


_OF_TABLES = RequestKind(False, lambda _reader: "", _of_result(_length), _complete_file)
