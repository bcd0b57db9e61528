"""Any Python value of an event's args, as msgpack, and back to an equal value.

msgpack alone turns tuples into lists and knows no sets, complex numbers, dates or integers beyond
64 bits. They are marked by extension types; FORMAT.md lists them. A value of any other type is
stored as the text of its `repr`: a trace never holds anything that must be unpickled or evaluated.

Text may hold lone surrogates (file names and exception texts do): they are encoded as the UTF-8
scheme would encode them ("surrogatepass").
"""

from __future__ import annotations

import datetime
import struct
from typing import Any

import msgpack
import numpy as np

TUPLE, INTEGER, SET, FROZENSET, COMPLEX, DATETIME, DATE, TIMEDELTA = range(1, 9)

#: What decoding raises where bytes are damaged, or were made to mislead.
DAMAGE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
    struct.error,
    msgpack.exceptions.UnpackException,
)

_COMPLEX = struct.Struct("<dd")
_TIMEDELTA = struct.Struct("<iii")  # days, seconds, microseconds
#: The collections that msgpack has no word for are arrays that begin with one of these.
_MARKS = {kind: msgpack.ExtType(kind, b"") for kind in (TUPLE, SET, FROZENSET)}
_COLLECTIONS: dict[Any, type[Any]] = {
    _MARKS[TUPLE]: tuple,
    _MARKS[SET]: set,
    _MARKS[FROZENSET]: frozenset,
}
#: Whole numbers, floats, complex numbers, booleans, text and bytes of numpy.
_PLAIN_DTYPES = "iufcbSU"
#: Lists and maps around a value in a block (FORMAT.md), and some to spare.
_LEVELS_AROUND = 8


def pack(value: Any) -> bytes:
    """Encode a value; what msgpack cannot hold and no extension names becomes its `repr`.

    Raises
    ------
    ValueError, OverflowError, RecursionError
        If it is nested deeper than msgpack goes, 500 levels or more, or longer than 4 GiB.
    """
    packed: bytes = msgpack.packb(
        value, default=_replace, strict_types=True, unicode_errors="surrogatepass"
    )
    return packed


def pack_any(value: Any) -> bytes:
    """Encode a value that user code made; one that `pack` refuses becomes its `repr`."""
    try:
        return pack(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return pack(_description(value))


def as_read(value: Any, packed: bytes) -> Any:
    """Give what readers will get for a value, once `packed` stands in a block.

    That is its `repr` where nothing else can be read: nested too deeply for a block, or a set of
    what is no longer hashable as a plain value.
    """
    try:
        if len(packed) > 256:  # shorter ones cannot be deep enough
            around = value
            for _ in range(_LEVELS_AROUND):
                around = [around]
            unpack(pack(around))
        return unpack(packed)
    except DAMAGE_ERRORS:
        return _description(value)


def unpack(data: bytes | memoryview) -> Any:
    """Decode what `pack` wrote, or what any msgpack writer wrote.

    Raises
    ------
    One of DAMAGE_ERRORS
        If the bytes are not msgpack.
    """
    # Some versions of msgpack make a list of the length that damage claims before they see that
    # its items are not there, one for each level of nesting. `skip` makes nothing.
    length = max(1, len(data))
    walk = msgpack.Unpacker(read_size=length, max_buffer_size=length)
    walk.feed(data)
    walk.skip()
    return msgpack.unpackb(
        data,
        ext_hook=_from_extension,
        list_hook=_from_list,
        strict_map_key=False,
        unicode_errors="surrogatepass",
    )


def _replace(value: Any) -> Any:
    """Give something that msgpack can hold for something that it cannot."""
    kind = type(value)
    if kind is tuple:
        return [_MARKS[TUPLE], *value]
    if kind is set:
        return [_MARKS[SET], *value]
    if kind is frozenset:
        return [_MARKS[FROZENSET], *value]
    if kind is complex:
        return msgpack.ExtType(COMPLEX, _COMPLEX.pack(value.real, value.imag))
    if kind is datetime.datetime:
        return msgpack.ExtType(DATETIME, value.isoformat().encode())
    if kind is datetime.date:
        return msgpack.ExtType(DATE, value.isoformat().encode())
    if kind is datetime.timedelta:
        days = _TIMEDELTA.pack(value.days, value.seconds, value.microseconds)
        return msgpack.ExtType(TIMEDELTA, days)
    if kind is int:  # beyond 64 bits: msgpack asks here
        length = value.bit_length() // 8 + 1
        return msgpack.ExtType(INTEGER, value.to_bytes(length, "big", signed=True))
    try:
        plain = _plain(value)
    except Exception:  # methods of the user's class
        return _description(value)
    # msgpack asks once a value, so what it would ask about again is replaced here.
    return plain if type(plain) in (float, str, bytes, list, dict, bool) else _replace_plain(plain)


def _replace_plain(plain: Any) -> Any:
    if type(plain) is int and -(1 << 63) <= plain < 1 << 64:
        return plain
    return _replace(plain)


def _plain(value: Any) -> Any:
    """Give a value of a plain type for one of a class derived from it, else its description."""
    if isinstance(value, np.generic):
        # `item` makes nanoseconds a bare number, and gives what Python has no type for as it is.
        plain = value.item() if value.dtype.kind in _PLAIN_DTYPES else value
        return _description(value) if isinstance(plain, np.generic) else plain
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    bases: tuple[type[Any], ...] = (bytes, list, dict, tuple)
    for base in bases:
        if isinstance(value, base):
            return base(value)
    return _description(value)


def _description(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # the user's `__repr__`, or it is nested too deeply
        return f"<{type(value).__qualname__} object>"


def _from_list(items: list[Any]) -> Any:
    if items and type(items[0]) is msgpack.ExtType:
        make = _COLLECTIONS.get(items[0])
        if make is not None:
            return make(items[1:])
    return items


def _from_extension(code: int, data: bytes) -> Any:
    if code == COMPLEX:
        return complex(*_COMPLEX.unpack(data))
    if code == DATETIME:
        return datetime.datetime.fromisoformat(data.decode())
    if code == DATE:
        return datetime.date.fromisoformat(data.decode())
    if code == TIMEDELTA:
        return datetime.timedelta(*_TIMEDELTA.unpack(data))
    if code == INTEGER:
        return int.from_bytes(data, "big", signed=True)
    return msgpack.ExtType(code, data)
