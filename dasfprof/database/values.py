"""Encoding of the values of events' args with msgpack, and decoding to equal values.

msgpack itself turns tuples into lists, and does not support sets, complex numbers, dates, and
integers beyond 64 bits. Extension types represent these values. FORMAT.md lists them. A value of
any other type is stored as its `repr`. Therefore a trace never contains data that must be unpickled
or evaluated.

Texts such as file names may contain lone surrogates. They are encoded with Python's error handler
"surrogatepass", which extends UTF-8.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

TUPLE, INTEGER, SET, FROZENSET, COMPLEX, DATETIME, DATE, TIMEDELTA = range(1, 9)

#: Exceptions that decoding may raise for damaged or malicious bytes.
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
#: For each collection that msgpack does not have, the first item of the arrays that represent it.
#: `_COLLECTIONS` is the inverse mapping.
_MARKS: dict[type[Any], Any] = {
    tuple: msgpack.ExtType(TUPLE, b""),
    set: msgpack.ExtType(SET, b""),
    frozenset: msgpack.ExtType(FROZENSET, b""),
}
_COLLECTIONS = {mark: kind for kind, mark in _MARKS.items()}
_BASES: tuple[type[Any], ...] = (bytes, list, dict, tuple)
#: numpy's kinds of integers, floats, complex numbers, booleans, strings and bytes.
_PLAIN_DTYPES = "iufcbSU"
#: Number of levels of lists and maps around a value in a block (see FORMAT.md), plus a margin.
_LEVELS_AROUND = 8


def pack(value: Any) -> bytes:
    """Encode a value.

    Parts that neither msgpack nor an extension type supports are encoded as their `repr`.

    Raises
    ------
    ValueError, OverflowError, RecursionError
        If the value has more than about 500 levels of nesting, or more than 4 GiB.
    """
    return msgpack.packb(value, default=_replace, strict_types=True, unicode_errors="surrogatepass")


def pack_any(value: Any) -> bytes:
    """Encode a value of user code. If `pack` rejects the value, encode the `repr` of the value."""
    try:
        return pack(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return pack(_description(value))


def as_read(value: Any, packed: bytes) -> Any:
    """Return the value that readers decode from `packed`, or a text if they cannot decode it."""
    try:
        if len(packed) > 256:  # Shorter values cannot be nested too deeply.
            around = value
            for _ in range(_LEVELS_AROUND):
                around = [around]
            unpack(pack(around))
        return unpack(packed)
    except DAMAGE_ERRORS:
        # The value is nested too deeply, or contains a set with items that are not hashable after
        # decoding.
        return _description(value)


def unpack(data: bytes | memoryview) -> Any:
    """Decode bytes that `pack` or any other msgpack writer has written.

    Raises
    ------
    One of DAMAGE_ERRORS
        If the bytes are not msgpack.
    """
    return msgpack.unpackb(
        data,
        ext_hook=_from_extension,
        list_hook=_from_list,
        strict_map_key=False,
        unicode_errors="surrogatepass",
    )


def _replace(value: Any) -> Any:
    """Convert a value that msgpack cannot represent to a value that msgpack can represent."""
    kind = type(value)
    if kind in _MARKS:
        return [_MARKS[kind], *value]
    if kind is complex:
        return msgpack.ExtType(COMPLEX, _COMPLEX.pack(value.real, value.imag))
    if kind is datetime.datetime:
        return msgpack.ExtType(DATETIME, value.isoformat().encode())
    if kind is datetime.date:
        return msgpack.ExtType(DATE, value.isoformat().encode())
    if kind is datetime.timedelta:
        days = _TIMEDELTA.pack(value.days, value.seconds, value.microseconds)
        return msgpack.ExtType(TIMEDELTA, days)
    if kind is int:  # msgpack calls this function for integers of more than 64 bits.
        length = value.bit_length() // 8 + 1
        return msgpack.ExtType(INTEGER, value.to_bytes(length, "big", signed=True))
    try:
        plain = _plain(value)
    except Exception:  # Methods of the user's class may raise any error.
        return _description(value)
    # msgpack calls this function only once per value. If the result itself needs a replacement, it
    # must be replaced here.
    is_small = type(plain) is int and -(1 << 63) <= plain < 1 << 64
    is_plain = is_small or type(plain) in (float, str, bytes, list, dict, bool)
    return plain if is_plain else _replace(plain)


def _plain(value: Any) -> Any:
    """Convert a value of a derived class to the plain type, or to a text if there is none.

    NumPy's scalars of the kinds `_PLAIN_DTYPES` become Python scalars. The text is the `repr` of
    the value, or the name of its class if `repr` fails.
    """
    if isinstance(value, np.generic):
        # For other types, `item` would turn nanoseconds into an int, or return the value unchanged.
        plain = value.item() if value.dtype.kind in _PLAIN_DTYPES else value
        return _description(value) if isinstance(plain, np.generic) else plain
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    base = next((base for base in _BASES if isinstance(value, base)), None)
    return _description(value) if base is None else base(value)


def _description(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # The user's `__repr__` failed, or the value is nested too deeply.
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


def number_array(items: Sequence[Any], dtype: str) -> npt.NDArray[Any]:
    """Return numbers as an array.

    Raises
    ------
    struct.error
        If an item is not a number, is not an integer for an integer type, or is out of range.
    """
    # This is five times as fast as numpy's conversion of a list.
    native = np.dtype(dtype).newbyteorder("=")
    packed = struct.pack(f"{len(items)}{native.char}", *items)
    return np.frombuffer(packed, native).astype(dtype, copy=False)
