"""How a batch of like values becomes one column of a block.

Encoders take values in slices (`extend`), so that the writer can let other threads run between
two slices, and give one plain msgpack list at the end (`finish`): see FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Protocol

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
    TAIL_WORDS,
    UNSIGNED,
    Array,
)

_TICK = 1.0 / keys.TICKS_PER_SECOND


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
        self._tails.append(tails.reshape(len(pairs), TAIL_WORDS))

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


#: The codecs that a column of a schema may name.
CODECS: dict[str, Callable[[], Encoder]] = {
    "float": lambda: _NumberEncoder("<f8"),  # exact
    "float32": lambda: _NumberEncoder("<f4", optional=True),  # 24 bits; None becomes NA
    "time": lambda: _NumberEncoder("<f8", optional=True),  # exact; None becomes NA
    "int": lambda: _NumberEncoder("<i8"),  # 64 bits
    "text": _TextEncoder,  # str or None or other hashable plain values that repeat
    "key": _KeyEncoder,  # a Dask key
    "keys": _KeyListEncoder,  # a list of Dask keys
    "value": _ValueEncoder,  # anything, see `dasfprof.database.values`
}


def encoder(codec: str) -> Encoder:
    """Make a new encoder of a codec."""
    return CODECS[codec]()


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
    for dtype in UNSIGNED:
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
    for dtype in UNSIGNED:
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
