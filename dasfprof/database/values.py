"""Any Python value of an event's args, as msgpack, and back to an equal value.

msgpack alone turns tuples into lists and knows no sets, complex numbers, dates or integers beyond
64 bits. They travel as extension types; FORMAT.md lists them. A value of any other type is stored
as the text of its `repr`: a trace never holds anything that must be unpickled or evaluated.

Text may hold lone surrogates (file names and exception texts do): they are encoded as the UTF-8
scheme would encode them ("surrogatepass").
"""

from __future__ import annotations

import datetime
from typing import Any

import msgpack

TUPLE, INTEGER, SET, FROZENSET, COMPLEX, DATETIME, DATE, TIMEDELTA = range(1, 9)


def pack(value: Any) -> bytes:
    """Encode a value; what msgpack cannot hold and no extension names becomes its `repr`."""
    packed: bytes = msgpack.packb(
        value, default=_to_extension, strict_types=True, unicode_errors="surrogatepass"
    )
    return packed


def unpack(data: bytes) -> Any:
    """Decode what `pack` wrote, or what any msgpack writer wrote.

    Raises
    ------
    ValueError, TypeError, RecursionError, OverflowError, MemoryError
        If the bytes are not msgpack; `msgpack.exceptions.UnpackException` is raised as well. The
        reader of blocks treats all of them as damage.
    """
    return msgpack.unpackb(
        data,
        ext_hook=_from_extension,
        strict_map_key=False,
        use_list=True,
        unicode_errors="surrogatepass",
    )


def _to_extension(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return msgpack.ExtType(TUPLE, pack(list(value)))
    if kind is set:
        return msgpack.ExtType(SET, pack(list(value)))
    if kind is frozenset:
        return msgpack.ExtType(FROZENSET, pack(list(value)))
    if kind is complex:
        return msgpack.ExtType(COMPLEX, pack([value.real, value.imag]))
    if kind is datetime.datetime:
        return msgpack.ExtType(DATETIME, value.isoformat().encode())
    if kind is datetime.date:
        return msgpack.ExtType(DATE, value.isoformat().encode())
    if kind is datetime.timedelta:
        return msgpack.ExtType(TIMEDELTA, pack([value.days, value.seconds, value.microseconds]))
    if kind is int:  # beyond 64 bits: msgpack asks here
        return msgpack.ExtType(INTEGER, str(value).encode())
    # Subclasses of plain types (numpy scalars, enums, OrderedDict, named tuples) as the plain type.
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        plain = value.item()
        return plain if type(plain) is not kind else repr(value)
    bases: tuple[type[Any], ...] = (int, float, str, bytes, list, dict, tuple)
    for base in bases:
        if isinstance(value, base):
            return base(value)
    return repr(value)


def _from_extension(code: int, data: bytes) -> Any:
    if code == TUPLE:
        return tuple(unpack(data))
    if code == SET:
        return set(unpack(data))
    if code == FROZENSET:
        return frozenset(unpack(data))
    if code == COMPLEX:
        return complex(*unpack(data))
    if code == DATETIME:
        return datetime.datetime.fromisoformat(data.decode())
    if code == DATE:
        return datetime.date.fromisoformat(data.decode())
    if code == TIMEDELTA:
        days, seconds, microseconds = unpack(data)
        return datetime.timedelta(days, seconds, microseconds)
    if code == INTEGER:
        return int(data)
    return msgpack.ExtType(code, data)
