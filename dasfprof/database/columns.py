"""Columns of a decoded block: numpy arrays, with dictionaries for repeated values.

`decode` turns a plain msgpack list, as described in FORMAT.md, into a column. The method `to_list`
of a column returns Python values. Decoding allocates at most a fixed multiple of the bytes that it
reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt

from dasfprof.database import keys, values

Array = npt.NDArray[Any]

#: Forms of an encoded column. The first item of its list is one of these.
CONSTANT, NUMBER, OPTIONAL, SERIES, DICTIONARY, KEYS, LIST = "c", "n", "o", "a", "d", "k", "l"

UNSIGNED = ("u1", "u2", "u4")
_DTYPES = {*UNSIGNED, "u8", "i8", "f4", "f8"}


class CorruptBlockError(ValueError):
    """Raised if a block does not follow FORMAT.md. The reader skips such a block."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers. If `optional` is true, NaN represents None."""

    array: Array
    optional: bool = False

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Array) -> NumberColumn:
        """Return a column with the rows at the given indices."""
        return NumberColumn(self.array[rows], self.optional)

    def to_list(self) -> list[Any]:
        """Return the values as Python numbers."""
        items: list[Any] = self.array.tolist()
        if self.optional:
            return [None if item != item else item for item in items]  # noqa: PLR0124  (NaN)
        return items


@dataclass(frozen=True)
class DictionaryColumn:
    """A column of values that repeat. The value of row i is `entries[codes[i]]`."""

    codes: Array
    entries: list[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Array) -> DictionaryColumn:
        """Return a column with the rows at the given indices."""
        return DictionaryColumn(self.codes[rows], self.entries)

    def to_list(self) -> list[Any]:
        """Return the value of each row. Rows with the same code share one object."""
        entries = self.entries
        return [entries[code] for code in self.codes.tolist()]


@dataclass(frozen=True)
class KeyColumn:
    """A column of Dask keys. The key of row i is `join_key(heads[codes[i]], tails[i])`."""

    heads: list[keys.Head]
    codes: Array
    #: Array of shape (rows, 4), with the narrow unsigned type that the file uses.
    tails: Array

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Array) -> KeyColumn:
        """Return a column with the rows at the given indices."""
        return KeyColumn(self.heads, self.codes[rows], self.tails[rows])

    def to_list(self) -> list[Any]:
        """Return the key of each row, equal to the key in Dask."""
        heads, join = self.heads, keys.join_key
        pairs = zip(self.codes.tolist(), self.tails.tolist(), strict=True)
        return [join(heads[code], tail) for code, tail in pairs]


@dataclass(frozen=True)
class ListColumn:
    """A column of lists of keys. The list of row i is `inner[offsets[i]:offsets[i + 1]]`."""

    offsets: Array
    inner: KeyColumn

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: Array) -> ListColumn:
        """Return a column with the rows at the given indices."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.append(0, np.cumsum(lengths))
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return ListColumn(offsets, self.inner.take(np.repeat(self.offsets[rows], lengths) + within))

    def to_list(self) -> list[Any]:
        """Return the list of keys of each row."""
        inner, bounds = self.inner.to_list(), self.offsets.tolist()
        return [inner[start:stop] for start, stop in pairwise(bounds)]


Column = NumberColumn | DictionaryColumn | KeyColumn | ListColumn


def decode(encoded: Any, rows: int, limit: int) -> Column:
    """Decode a column of `rows` values, or raise `CorruptBlockError` if it breaks FORMAT.md.

    `limit` is the maximum total number of items in a column of lists.
    """
    try:
        tag = encoded[0]
        if tag == CONSTANT and encoded[1] is None:
            return nothing(rows)
        if tag == DICTIONARY:
            entries = encoded[2]
            if not isinstance(entries, list):
                raise CorruptBlockError("a dictionary that is not a list")
            return DictionaryColumn(_decode_small(encoded[1], rows, len(entries), "codes"), entries)
        if tag == KEYS:
            return _decode_keys(encoded, rows)
        if tag == LIST:
            return _decode_list(encoded, rows, limit)
        return decode_numbers(encoded, rows)
    except values.DAMAGE_ERRORS as error:
        raise CorruptBlockError(f"malformed column: {error}") from error


def repeated(value: Any, rows: int) -> Array:
    """Return a read-only array of equal numbers, which stores the number only once."""
    number = np.asarray(value)
    # `np.broadcast_to` takes five times as long. Blocks with few rows have many such columns.
    array: Array = np.ndarray((rows,), number.dtype, number, strides=(0,))
    array.flags.writeable = False
    return array


# Blocks have many columns without values, so these columns are cached.
@lru_cache(maxsize=64)
def nothing(rows: int) -> NumberColumn:
    """Return a column in which every value is missing."""
    return NumberColumn(repeated(np.nan, rows), optional=True)


def decode_numbers(encoded: Any, rows: int, widen: bool = True) -> NumberColumn:
    """Decode a column of numbers: a constant, a series, or a buffer.

    If `widen` is true, integers become 64 bits wide. Otherwise they may remain narrower. If the
    list has another form, or does not contain `rows` values, this raises `CorruptBlockError` or one
    of `values.DAMAGE_ERRORS`.
    """
    tag = encoded[0]
    if tag == CONSTANT:
        value = encoded[1]
        if value is not None and type(value) is not float:
            value = _int64(value)
        return NumberColumn(repeated(np.nan if value is None else value, rows), value is None)
    if tag == SERIES:
        first, step = _int64(encoded[1]), _int64(encoded[2])
        _int64(first + step * max(0, rows - 1))
        return NumberColumn(first + step * np.arange(rows, dtype=np.int64))
    if tag not in (NUMBER, OPTIONAL):
        raise CorruptBlockError(f"unknown column form {tag!r}")
    dtype, data = encoded[1], encoded[4]
    if dtype not in _DTYPES:
        raise CorruptBlockError(f"unknown type of numbers {dtype!r}")
    array = np.frombuffer(data, f"<{dtype}")
    if len(array) != rows:
        raise CorruptBlockError(f"a column of {len(array)} values in a block of {rows} rows")
    base, scale, optional = encoded[2], encoded[3], tag == OPTIONAL
    if not isinstance(base, int | float):
        raise CorruptBlockError(f"a base of type {type(base).__name__}")
    if isinstance(scale, float):
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = np.multiply(array, scale, dtype=np.float64)
            numbers += base
        if optional:
            missing = array == np.iinfo(array.dtype).max
            if missing.any():
                numbers[missing] = np.nan
        return NumberColumn(numbers, optional)
    if array.dtype.kind == "u" and array.dtype.itemsize < 8:
        if _int64(base) >= (1 << 63) - (1 << 32):
            _int64(base + int(array.max(initial=0)))
        array = np.add(array, base, dtype=np.int64) if widen or base else array
    return NumberColumn(array, optional)


def _int64(value: Any) -> int:
    """Return the value, or raise an error if it is not a signed 64-bit integer."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise CorruptBlockError("not a 64-bit integer")
    return value


def _decode_small(encoded: Any, rows: int, limit: int, what: str) -> Array:
    """Decode a column of integers, or raise an error if any is not from 0 to `limit` - 1.

    `what` is the name of the integers in the error's message.
    """
    numbers = decode_numbers(encoded, rows, widen=False).array
    if numbers.dtype.kind not in "ui":
        raise CorruptBlockError(f"{what} that are not integers")
    unsigned = numbers.dtype.kind == "u"
    if unsigned and 1 << 8 * numbers.dtype.itemsize <= limit:  # No value can exceed the limit.
        return numbers
    checked = numbers[:1] if numbers.strides == (0,) else numbers  # A constant is stored once.
    is_negative = not unsigned and checked.min(initial=0) < 0
    if is_negative or (rows and int(checked.max(initial=0)) >= limit):
        raise CorruptBlockError(f"{what} beyond {limit}")
    return numbers


def _narrowest(columns: list[Array]) -> np.dtype[Any]:
    """Return an unsigned type that is wide enough for the numbers of all columns.

    All numbers must fit into 32 bits.
    """
    # The numbers of a column with a 64-bit type may fit into a narrower type.
    types = [
        column.dtype if column.itemsize < 8 else np.min_scalar_type(int(column.max(initial=0)))
        for column in columns
    ]
    return np.result_type(*types)


def _decode_keys(encoded: Any, rows: int) -> KeyColumn:
    _, kinds, texts, codes, *words = encoded
    if not isinstance(kinds, bytes):
        raise CorruptBlockError("kinds of key heads that are not bytes")
    heads: list[keys.Head] = list(zip(kinds, texts, strict=True))
    types = set(map(type, texts))
    of_kinds = zip(kinds, map(type, texts), strict=True)
    for kind, kind_of_text in set(of_kinds if len(types) > 1 else product(set(kinds), types)):
        if kind > keys.PACKED and not keys.TUPLE <= kind <= keys.TUPLE + keys.TAIL_WORDS:
            raise CorruptBlockError(f"unknown kind of key head: {kind}")
        if kind_of_text is not (bytes if kind == keys.PACKED else str):
            raise CorruptBlockError(f"a key head of kind {kind} of type {kind_of_text.__name__}")
    if keys.PACKED in kinds:
        for text in (text for kind, text in heads if kind == keys.PACKED):
            values.unpack(text)
    if len(words) != keys.TAIL_WORDS:
        raise CorruptBlockError(f"keys of {len(words)} words")
    numbers = [_decode_small(column, rows, 1 << 32, "words of keys") for column in words]
    tails = np.empty((rows, keys.TAIL_WORDS), dtype=_narrowest(numbers))
    for word, column in enumerate(numbers):
        tails[:, word] = column
    return KeyColumn(heads, _decode_small(codes, rows, len(heads), "codes"), tails)


def _decode_list(encoded: Any, rows: int, limit: int) -> ListColumn:
    lengths = _decode_small(encoded[1], rows, limit + 1, "lengths of lists")
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(lengths.astype(np.int64), out=offsets[1:])
    total = int(offsets[-1])
    if total > limit:
        raise CorruptBlockError(f"lists of {total} items where {limit} are possible")
    return ListColumn(offsets, _decode_keys(encoded[2], total))
