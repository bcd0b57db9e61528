"""Encoders, which turn the values of a column into a plain msgpack list.

An encoder accepts values in slices (`convert`, `add`), so that the writer can let other threads run
between two slices. At the end, `finish` returns the msgpack list. See FORMAT.md.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import is_
from typing import Any

import numpy as np

from dasfprof.database import keys, values
from dasfprof.database.columns import (
    CONSTANT,
    DICTIONARY,
    KEYS,
    LIST,
    NUMBER,
    OPTIONAL,
    SERIES,
    UNSIGNED,
    Array,
)
from dasfprof.database.values import number_array

# --- Encoding of a column of numbers, in the narrowest form that decodes to equal numbers ---------

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


# --- Encoders -------------------------------------------------------------------------------------

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
