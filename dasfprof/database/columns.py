"""Columns of a block: how a batch of like values becomes bytes, and arrays again.

Encoders take values in slices (`extend`), so that the writer can let other threads run between
two slices, and give one plain msgpack list at the end (`finish`). FORMAT.md describes the lists.

Decoded columns are numpy arrays with dictionaries beside them; `to_list` gives Python values back.
Decoding never allocates more than a fixed multiple of the bytes that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dasfprof.database import keys, values

Array = npt.NDArray[Any]

#: The codecs that a column of a schema may name.
#: ``float``: exact; ``float32``: rounded to 24 bits, None becomes NA; ``time``: exact, None
#: becomes NA; ``int``: 64 bits; ``text``: str or None or hashable plain values; ``key``: a Dask
#: key; ``keys``: a list of Dask keys; ``value``: anything, see `dasfprof.database.values`.
CODECS = ("float", "float32", "time", "int", "text", "key", "keys", "value")

CONSTANT, NUMBER, OPTIONAL, SERIES, DICTIONARY, KEYS, LIST = "c", "n", "o", "a", "d", "k", "l"

_TICK = 1.0 / keys.TICKS_PER_SECOND
_UNSIGNED = ("u1", "u2", "u4")
_DTYPES = {*_UNSIGNED, "u8", "i8", "f4", "f8"}
_TAIL_WORDS = 4


class CorruptBlockError(ValueError):
    """A block's bytes do not have the form that FORMAT.md gives; the reader skips the block."""


# --- encoding ------------------------------------------------------------------------------------


class Encoder(Protocol):
    """Takes a column's values slice by slice; `items` counts those inside of lists."""

    items: int

    def extend(self, items: Sequence[Any]) -> None: ...  # noqa: D102
    def finish(self) -> list[Any]: ...  # noqa: D102


class _Index(dict[Any, int]):
    """Numbers values in the order of their first use."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


class _NumberEncoder:
    items = 0

    def __init__(self, dtype: str, optional: bool = False) -> None:
        self._dtype = dtype
        self._optional = optional
        self._slices: list[Array] = []

    def extend(self, items: Sequence[Any]) -> None:
        self._slices.append(np.array(items, dtype=self._dtype))

    def finish(self) -> list[Any]:
        array = np.concatenate(self._slices) if self._slices else np.empty(0, self._dtype)
        return encode_numbers(array, optional=self._optional)


class _TextEncoder:
    items = 0

    def __init__(self) -> None:
        self._index = _Index()
        self._codes: list[int] = []

    def extend(self, items: Sequence[Any]) -> None:
        index = self._index
        self._codes += [index[item] for item in items]

    def finish(self) -> list[Any]:
        return _encode_dictionary(self._codes, list(self._index))


class _ValueEncoder:
    items = 0

    def __init__(self) -> None:
        self._index = _Index()
        self._codes: list[int] = []

    def extend(self, items: Sequence[Any]) -> None:
        index, pack = self._index, values.pack
        self._codes += [index[pack(item)] for item in items]

    def finish(self) -> list[Any]:
        return _encode_dictionary(self._codes, [values.unpack(item) for item in self._index])


class _KeyEncoder:
    items = 0

    def __init__(self) -> None:
        self._index = _Index()
        self._codes: list[Array] = []
        self._tails: list[Array] = []

    def extend(self, items: Iterable[Any]) -> None:
        index, split = self._index, keys.split_key
        pairs = [split(item) for item in items]
        self._codes.append(np.array([index[head] for head, _ in pairs], dtype="<u4"))
        tails = np.array([tail for _, tail in pairs], dtype="<u4")
        self._tails.append(tails.reshape(len(pairs), _TAIL_WORDS))

    def finish(self) -> list[Any]:
        heads = [list(head) for head in self._index]
        words = np.concatenate(self._tails).T
        codes = encode_numbers(np.concatenate(self._codes))
        return [KEYS, heads, codes, *map(encode_numbers, words)]


class _KeyListEncoder:
    def __init__(self) -> None:
        self.items = 0
        self._lengths: list[int] = []
        self._keys = _KeyEncoder()

    def extend(self, items: Sequence[Any]) -> None:
        lengths = [len(item) for item in items]
        self._lengths += lengths
        self.items += sum(lengths)
        self._keys.extend(chain.from_iterable(items))

    def finish(self) -> list[Any]:
        lengths = encode_numbers(np.array(self._lengths, dtype="<u4"))
        return [LIST, lengths, self._keys.finish()]


def encoder(codec: str) -> Encoder:
    """Make the encoder of a codec."""
    if codec == "float":
        return _NumberEncoder("<f8")
    if codec == "time":
        return _NumberEncoder("<f8", optional=True)
    if codec == "float32":
        return _NumberEncoder("<f4", optional=True)
    if codec == "int":
        return _NumberEncoder("<i8")
    if codec == "text":
        return _TextEncoder()
    if codec == "key":
        return _KeyEncoder()
    if codec == "keys":
        return _KeyListEncoder()
    if codec == "value":
        return _ValueEncoder()
    raise ValueError(f"unknown codec {codec!r}; valid are {', '.join(CODECS)}")


def encode_numbers(array: Array, optional: bool = False) -> list[Any]:
    """Encode an array in the narrowest form that gives back equal numbers.

    Times are the trick: a Unix time as float64 is a whole number of 2**-22 s, so the times of a
    block are exact as 32-bit counts from the earliest one.
    """
    tag, name = OPTIONAL if optional else NUMBER, array.dtype.str[1:]
    if array.size == 0:
        return [tag, name, 0, 1, b""]
    if array.dtype.kind == "f":
        if np.all(array == array[0]) or (optional and np.all(np.isnan(array))):
            first = float(array[0])
            return [CONSTANT, None if optional and np.isnan(first) else first]
        return _encode_times(array, tag) or [tag, name, 0, 1, array.tobytes()]
    low, high = int(array.min()), int(array.max())
    if low == high:
        return [CONSTANT, low]
    if array.size > 1 and array.dtype == "<i8":
        step = int(array[1]) - int(array[0])
        if np.all(np.diff(array) == step):
            return [SERIES, int(array[0]), step]
    for dtype in _UNSIGNED:
        if high - low <= np.iinfo(dtype).max:
            counts = (array - array.dtype.type(low)).astype(f"<{dtype}")
            return [tag, dtype, low, 1, counts.tobytes()]
    return [tag, name, 0, 1, array.tobytes()]


def _encode_times(array: Array, tag: str) -> list[Any] | None:
    """Encode as counts of 2**-22 s from the earliest, where that is exact; else None."""
    if array.dtype != "<f8":
        return None
    missing = np.isnan(array)
    base = float(np.min(array[~missing]))
    if missing.any() and tag != OPTIONAL:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        ticks = (array - base) * keys.TICKS_PER_SECOND
    limit = float(np.max(ticks[~missing]))
    for dtype in _UNSIGNED:
        null = np.iinfo(dtype).max  # the largest count stands for NA
        if limit < null:
            ticks[missing] = null
            counts = ticks.astype(f"<{dtype}")
            exact = base + counts * _TICK == array
            if not np.all(exact | missing) or np.any(np.signbit(array) & (array == 0)):
                return None
            return [tag, dtype, base, _TICK, counts.tobytes()]
    return None


def _encode_dictionary(codes: list[int], entries: list[Any]) -> list[Any]:
    if len(entries) == 1:
        return [DICTIONARY, [CONSTANT, 0], entries]
    return [DICTIONARY, encode_numbers(np.array(codes, dtype="<u4")), entries]


# --- decoding ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberColumn:
    """Numbers; with `optional`, a NaN stands for None."""

    array: Array
    optional: bool = False

    def __len__(self) -> int:
        return len(self.array)

    def to_list(self) -> list[Any]:
        """Give the values as Python numbers."""
        items: list[Any] = self.array.tolist()
        if self.optional:
            return [None if item != item else item for item in items]  # noqa: PLR0124  (NaN)
        return items


@dataclass(frozen=True)
class DictionaryColumn:
    """Values that repeat: `entries[codes[i]]` is row i's."""

    codes: Array
    entries: list[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def to_list(self) -> list[Any]:
        """Give the values; equal rows share one object."""
        entries = self.entries
        return [entries[code] for code in self.codes.tolist()]


@dataclass(frozen=True)
class KeyColumn:
    """Dask keys: row i is `join_key(heads[codes[i]], tails[i])`; `tails` has shape (rows, 4)."""

    heads: list[keys.Head]
    codes: Array
    tails: Array

    def __len__(self) -> int:
        return len(self.codes)

    def to_list(self) -> list[Any]:
        """Give the keys as Dask has them."""
        heads, join = self.heads, keys.join_key
        pairs = zip(self.codes.tolist(), self.tails.tolist(), strict=True)
        return [join(heads[code], tail) for code, tail in pairs]


@dataclass(frozen=True)
class ListColumn:
    """Lists of keys: row i is `inner[offsets[i]:offsets[i + 1]]`."""

    offsets: Array
    inner: KeyColumn

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to_list(self) -> list[Any]:
        """Give a list of keys a row."""
        inner, bounds = self.inner.to_list(), self.offsets.tolist()
        return [inner[start:stop] for start, stop in zip(bounds, bounds[1:], strict=False)]


Column = NumberColumn | DictionaryColumn | KeyColumn | ListColumn


def decode(encoded: Any, rows: int, limit: int) -> Column:
    """Decode a column of `rows` values, whose lists hold no more than `limit` items together.

    Raises
    ------
    CorruptBlockError
        If the list is not one of FORMAT.md's, or does not hold `rows` values.
    """
    try:
        tag = encoded[0]
        if tag == DICTIONARY:
            return _decode_dictionary(encoded, rows)
        if tag == KEYS:
            return _decode_keys(encoded, rows)
        if tag == LIST:
            return _decode_list(encoded, rows, limit)
        if tag == CONSTANT and not isinstance(encoded[1], int | float | None):
            raise CorruptBlockError(f"a constant that is no number: {type(encoded[1]).__name__}")
        return decode_numbers(encoded, rows)
    except CorruptBlockError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise CorruptBlockError(f"malformed column: {error}") from error


def decode_numbers(encoded: Any, rows: int) -> NumberColumn:
    """Decode a constant, a series or a buffer of numbers."""
    tag = encoded[0]
    if tag == CONSTANT:
        value = encoded[1]
        array = np.asarray(np.nan if value is None else value)
        if array.dtype.kind not in "if":
            raise CorruptBlockError("a constant beyond 64 bits")
        return NumberColumn(np.broadcast_to(array, rows), optional=value is None)
    if tag == SERIES:
        first, step = int(encoded[1]), int(encoded[2])
        if max(abs(first), abs(first + step * rows)) >= 1 << 63:
            raise CorruptBlockError("a series beyond 64 bits")
        return NumberColumn(first + step * np.arange(rows, dtype=np.int64))
    if tag not in (NUMBER, OPTIONAL) or encoded[1] not in _DTYPES:
        raise CorruptBlockError(f"unknown column form {tag!r}")
    array = np.frombuffer(encoded[4], dtype=f"<{encoded[1]}")
    if len(array) != rows:
        raise CorruptBlockError(f"a column of {len(array)} values in a block of {rows} rows")
    base, scale, optional = encoded[2], encoded[3], tag == OPTIONAL
    if isinstance(scale, float):
        numbers = base + array * scale
        if optional:
            numbers[array == np.iinfo(array.dtype).max] = np.nan
        return NumberColumn(numbers, optional)
    if array.dtype.kind in "ui" and array.dtype.itemsize < 8:
        array = array.astype(np.int64) + int(base)
    return NumberColumn(array, optional)


def _decode_codes(encoded: Any, rows: int, entries: int) -> Array:
    codes = decode_numbers(encoded, rows).array
    if codes.dtype.kind not in "ui":
        raise CorruptBlockError("dictionary codes that are not whole numbers")
    if rows and not 0 <= int(codes.min()) <= int(codes.max()) < entries:
        raise CorruptBlockError("dictionary codes outside of the dictionary")
    return codes


def _decode_dictionary(encoded: Any, rows: int) -> DictionaryColumn:
    entries = encoded[2]
    if not isinstance(entries, list):
        raise CorruptBlockError("a dictionary that is no list")
    return DictionaryColumn(_decode_codes(encoded[1], rows, len(entries)), entries)


def _decode_keys(encoded: Any, rows: int) -> KeyColumn:
    heads = [(int(kind), text) for kind, text in encoded[1]]
    for kind, text in heads:
        known = kind <= keys.PACKED or keys.TUPLE <= kind <= keys.TUPLE + _TAIL_WORDS
        if not known or not isinstance(text, bytes if kind == keys.PACKED else str):
            raise CorruptBlockError(f"unknown kind of key head: {kind!r}")
    codes = _decode_codes(encoded[2], rows, len(heads))
    tails = np.empty((rows, _TAIL_WORDS), dtype=np.uint32)
    for word, column in enumerate(encoded[3 : 3 + _TAIL_WORDS]):
        tails[:, word] = decode_numbers(column, rows).array
    return KeyColumn(heads, codes, tails)


def _decode_list(encoded: Any, rows: int, limit: int) -> ListColumn:
    lengths = decode_numbers(encoded[1], rows).array.astype(np.int64)
    if rows and int(lengths.min()) < 0:
        raise CorruptBlockError("a list of negative length")
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if not 0 <= total <= limit:
        raise CorruptBlockError(f"lists of {total} items in a block of {limit} bytes")
    return ListColumn(offsets, _decode_keys(encoded[2], total))

