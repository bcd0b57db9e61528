"""`RequestKind`: how the requests of one function of a storage library are counted."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from dasfprof.recording.dask_internals.patch import Patch

#: Returns the bytes of a request by its result; None: unknown.
BytesOf: TypeAlias = Callable[[Any], int | None]

#: Objects that hold no data of an array.
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class RequestKind(NamedTuple):
    """How the requests of a method are counted; its functions get the object first, if any."""

    is_write: bool
    #: Returns the name of the object's store; None: its requests do not count.
    store: Callable[[Any], str | None]
    #: Called before the request, with its arguments.
    size: Callable[[tuple[Any, ...], dict[str, Any]], BytesOf]
    #: Returns the text that identifies what is read, of the same arguments; None: not recorded.
    item: Callable[[tuple[Any, ...], dict[str, Any]], str | None] = lambda _args, _kwargs: None


#: Returns what makes the wrapper of a function whose requests are of a kind.
Around: TypeAlias = Callable[[RequestKind], Callable[[Any, Patch], Any]]


def argument(place: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an argument of a call; None if it has none."""
    return args[place] if len(args) > place else kwargs.get(name)


def hash_of(path: str, selection: str) -> str | None:
    """Return a hash of what is read of an object; None of metadata, which many tasks read."""
    if path.endswith(_METADATA):
        return None
    return f"{zlib.crc32(f'{path} {selection}'.encode(errors='replace')):x}"


def is_own(owner: Any, name: str, coroutine: bool) -> bool:
    """Return whether a class or module itself has a function; of coroutines if asked for."""
    own = vars(owner).get(name)
    return inspect.isfunction(own) and inspect.iscoroutinefunction(own) is coroutine


def family(base: type) -> Iterator[type]:
    """Yield a class and all that are derived of it."""
    pending, seen = [base], {base}
    while pending:
        current = pending.pop()
        yield current
        derived: list[type] = type.__subclasses__(current)
        new = [each for each in derived if each not in seen]
        seen.update(new)
        pending += new
