"""Columns of a block: numpy arrays, with dictionaries for repeated values.

An encoder turns the values of a column into a plain msgpack list, as described in FORMAT.md. It
accepts values in slices (`convert`, `add`), so that the writer can let other threads run between
two slices. `decode` turns such a list into a column, whose method `to_list` returns Python values.
Decoding allocates at most a fixed multiple of the bytes that it reads.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise, product, repeat
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from dasfprof.database import keys, values
from dasfprof.database.values import number_array

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


_TICK = 1.0 / keys.TICKS_PER_SECOND
#: The largest 32-bit count, which represents a missing value.
_NA_COUNT = float((1 << 32) - 1)


def encode_numbers(array: Array, optional: bool = False) -> list[Any]:
    """Encode an array in the narrowest form that decodes to equal numbers.

    If `optional` is true, NaN represents None.
    """
    tag = OPTIONAL if optional else NUMBER
    if array.size == 0:
        return _numbers(tag, array)
    octets = array.tobytes()
    # Most columns with few rows are constant.
    if octets == octets[: array.itemsize] * array.size:
        first = array[0].item()
        if not np.isnan(first):
            return [CONSTANT, first]
        if optional:
            return [CONSTANT, None]
    if array.dtype.kind == "f":
        if optional and np.all(np.isnan(array)):
            return [CONSTANT, None]
        return _encode_times(array, tag) or _numbers(tag, array)
    low, high = int(array.min()), int(array.max())
    if array.dtype == "<i8":
        first, step = int(array[0]), int(array[1]) - int(array[0])
        # Differences that exceed 64 bits wrap around. The check of the last value detects this.
        if first + step * (array.size - 1) == int(array[-1]) and np.all(np.diff(array) == step):
            return [SERIES, first, step]
    for dtype in UNSIGNED:
        if high - low <= np.iinfo(dtype).max:
            counts = (array - array.dtype.type(low)).astype(f"<{dtype}")
            return _numbers(tag, counts, low)
    return _numbers(tag, array)


def _encode_times(array: Array, tag: str) -> list[Any] | None:
    """Encode times as 32-bit counts of 2**-22 s from the earliest time.

    Return None if this form would not be exact. `tag` is `NUMBER` or `OPTIONAL`.
    """
    missing = np.isnan(array)
    if array.dtype != "<f8" or (missing.any() and tag != OPTIONAL):
        return None
    # A Unix time as float64 is an integer multiple of 2**-22 s, so usually the counts are exact.
    base = float(np.nanmin(array))
    with np.errstate(over="ignore", invalid="ignore"):
        ticks = np.where(missing, _NA_COUNT, (array - base) * keys.TICKS_PER_SECOND)
        if not np.all((ticks < _NA_COUNT) | missing):
            return None
    counts = ticks.astype("<u4")
    is_exact = np.all((base + counts * _TICK == array) | missing)
    has_negative_zero = np.any(np.signbit(array) & (array == 0))
    return _numbers(tag, counts, base, _TICK) if is_exact and not has_negative_zero else None


def _numbers(tag: str, array: Array, base: float = 0, scale: float = 1) -> list[Any]:
    return [tag, array.dtype.str[1:], base, scale, array.tobytes()]


#: Masks to round a float32 to its upper three bytes, which have 16 of its 24 bits of precision.
_UPPER_BYTES, _HALF_OF_LAST_BIT = np.uint32(0xFFFFFF00), np.uint32(0x80)
#: Type of dictionary codes, lengths of lists, and words of keys.
_CODE = "<u4"


class Encoder(ABC):
    """Base class of encoders, which accept the values of a column slice by slice."""

    #: Total number of items in the lists, if the values of the column are lists.
    items = 0

    def __init__(self) -> None:
        self._slices: list[Any] = []

    @abstractmethod
    def convert(self, items: Sequence[Any]) -> Any:
        """Convert values to the form that `add` accepts. Raise an error if the codec cannot.

        The encoder can still be used after such an error.
        """

    def add(self, converted: Any) -> None:
        """Store values that `convert` has returned."""
        self._slices.append(converted)

    @abstractmethod
    def finish(self) -> list[Any]:
        """Return the msgpack list of the column."""


class _Index(dict[Any, int]):
    """A dictionary that assigns a code to each new value when the value is first looked up."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


def _codes(index: _Index, items: Sequence[Any]) -> Array:
    """Return the codes of values."""
    # Often all values are equal, and this is faster.
    if len(items) and items.count(items[0]) == len(items):
        return np.full(len(items), index[items[0]], dtype=_CODE)
    return number_array(list(map(index.__getitem__, items)), _CODE)


class _NumberEncoder(Encoder):
    def __init__(self, dtype: str, optional: bool = False) -> None:
        super().__init__()
        self._dtype = dtype
        self._optional = optional
        #: Whether the numbers are integers. Unlike integers, equal floats may differ: 0.0 and -0.0.
        self._is_integer = np.dtype(dtype).kind == "i"

    def convert(self, items: Sequence[Any]) -> Array:
        if type(items) in (list, tuple) and items:
            first = items[0]
            is_simple = first is None or (type(first) is int and self._is_integer)
            # Compare the first and the last value first, because counting is slower.
            if is_simple and first is items[-1] and items.count(first) == len(items):
                return np.array([first], dtype=self._dtype).repeat(len(items))
            try:
                return number_array(items, self._dtype)
            except struct.error:  # An item is None, or has a type that only numpy converts.
                pass
        array = np.array(items, dtype=self._dtype)
        if array.ndim != 1:
            raise TypeError("a list where a number is expected")
        return array

    def finish(self) -> list[Any]:
        return encode_numbers(_joined(self._slices, self._dtype), optional=self._optional)


class _ReadingEncoder(_NumberEncoder):
    """Encodes numbers as float32 with a precision of 16 bits."""

    def __init__(self) -> None:
        # Resource samples are not more precise, and the noise in further bits could not be
        # compressed.
        super().__init__("<f4", optional=True)

    def finish(self) -> list[Any]:
        bits = _joined(self._slices, self._dtype).view("<u4")
        rounded = (bits + _HALF_OF_LAST_BIT) & _UPPER_BYTES
        return encode_numbers(rounded.view(self._dtype), optional=True)


class _TextEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self._index = _Index()

    def convert(self, items: Sequence[Any]) -> Array:
        return _codes(self._index, items)

    def finish(self) -> list[Any]:
        return [DICTIONARY, encode_numbers(_joined(self._slices)), list(self._index)]


class _ValueEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self._codes: dict[bytes, int] = {}
        self._entries: list[Any] = []
        self._last: tuple[Any, int] = (object(), 0)

    def convert(self, items: Sequence[Any]) -> Array:
        if _is_one_object(items):
            return np.full(len(items), self._code(items[0]), dtype=_CODE)
        return number_array([self._code(item) for item in items], _CODE)

    def _code(self, item: Any) -> int:
        if item is not self._last[0]:  # Successive rows often share one object.
            packed = values.pack_any(item)
            code = self._codes.get(packed)
            if code is None:
                self._entries.append(values.as_read(item, packed))
                code = self._codes[packed] = len(self._codes)
            self._last = item, code
        return self._last[1]

    def finish(self) -> list[Any]:
        return [DICTIONARY, encode_numbers(_joined(self._slices)), self._entries]


class _KeyEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self._index = _Index()

    def convert(self, items: Iterable[Any]) -> tuple[Array, Array]:
        items = list(items)
        if not items:
            return np.empty(0, dtype=_CODE), np.empty((0, keys.TAIL_WORDS), dtype=_CODE)
        # All rows have the same object, such as the stimulus id of many tasks.
        if items[0] is items[-1] and _is_one_object(items):
            head, tail = keys.split_key(items[0])
            tails = np.array([tail], dtype=_CODE).repeat(len(items), 0)
            return np.full(len(items), self._index[head], dtype=_CODE), tails
        heads, tails = keys.split_keys(items)
        return _codes(self._index, heads), tails

    def finish(self) -> list[Any]:
        codes = _joined([codes for codes, _ in self._slices])
        tails = _joined([tails for _, tails in self._slices]).reshape(-1, keys.TAIL_WORDS)
        heads = list(self._index)
        kinds, texts = bytes(kind for kind, _ in heads), [text for _, text in heads]
        words = map(encode_numbers, tails.T)
        return [KEYS, kinds, texts, encode_numbers(codes), *words]


class _KeyListEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self._keys = _KeyEncoder()

    def convert(self, items: Sequence[Any]) -> tuple[Array, tuple[Array, Array]]:
        lengths = number_array(list(map(len, items)), _CODE)
        return lengths, self._keys.convert(chain.from_iterable(items))

    def add(self, converted: tuple[Array, tuple[Array, Array]]) -> None:
        lengths, inner = converted
        self.items += int(lengths.sum())
        self._slices.append(lengths)
        self._keys.add(inner)

    def finish(self) -> list[Any]:
        return [LIST, encode_numbers(_joined(self._slices)), self._keys.finish()]


#: Constructors of the encoders by name of the codec that a schema declares for a column.
CODECS: dict[str, Callable[[], Encoder]] = {
    "float": lambda: _NumberEncoder("<f8"),  # exact floats
    "float32": _ReadingEncoder,  # floats or None, with 16 bits of precision (five digits)
    "time": lambda: _NumberEncoder("<f8", optional=True),  # exact floats or None
    "int": lambda: _NumberEncoder("<i8"),  # 64-bit integers
    "text": _TextEncoder,  # str, None, or other hashable plain values; values should repeat
    "key": _KeyEncoder,  # Dask keys
    "keys": _KeyListEncoder,  # lists of Dask keys
    "value": _ValueEncoder,  # any values, see `dasfprof.database.values`
}


def _is_one_object(items: Sequence[Any]) -> bool:
    return len(items) > 0 and all(map(is_, items, repeat(items[0])))


def _joined(slices: list[Array], dtype: str = _CODE) -> Array:
    if len(slices) == 1:
        return slices[0]
    return np.concatenate(slices) if slices else np.empty(0, dtype)
