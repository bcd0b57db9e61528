"""Encoding of a column of numbers, in the narrowest form that decodes to equal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.database.columns import CONSTANT, NUMBER, OPTIONAL, SERIES, UNSIGNED, Array
from dasfprof.database.key_times import TICKS_PER_SECOND

_TICK = 1.0 / TICKS_PER_SECOND
#: Counts of ticks that a byte holds anyway, and those that no integer does.
_NARROWEST, _WIDEST = 254.0, 2.0**62
#: The most bytes of numbers that are split into byte planes. Larger blocks are not compressed, so
#: that planes would only slow them down.
_PLANES_BYTES = 2048


def encode_numbers(array: Array, optional: bool = False) -> list[Any]:
    """Encode an array in the narrowest form that decodes to equal numbers.

    A Unix time as float64 is a whole number of 2**-22 s, so that the times of a block are exact as
    32-bit counts from the earliest one.
    """
    tag = OPTIONAL if optional else NUMBER
    if array.size == 0:
        return _numbers(tag, array)
    octets = array.tobytes()
    if octets == octets[: array.itemsize] * array.size:  # most columns of few rows are constant
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
        # Differences beyond 64 bits wrap around; the check of the last value detects that.
        if first + step * (array.size - 1) == int(array[-1]) and np.all(np.diff(array) == step):
            return [SERIES, first, step]
    for dtype in UNSIGNED:
        if high - low <= np.iinfo(dtype).max:
            counts = (array - array.dtype.type(low)).astype(f"<{dtype}")
            return _numbers(tag, counts, low)
    return _numbers(tag, array)


def _encode_times(array: Array, tag: str) -> list[Any] | None:
    """Encode times as counts of 2**-22 s from the earliest; None if that is not exact.

    Times that were rounded to more are counts of 2, 4, 8 ... times 2**-22 s.
    """
    if array.dtype != "<f8":
        return None
    missing = np.isnan(array)
    complete = not missing.any()
    if not complete and tag != OPTIONAL:
        return None
    known = array if complete else array[~missing]
    base = float(known.min())
    with np.errstate(over="ignore", invalid="ignore"):
        known_ticks = (known - base) * TICKS_PER_SECOND
    limit = float(known_ticks.max())
    scale = _TICK
    if _NARROWEST < limit < _WIDEST:
        bits = int(np.bitwise_or.reduce(known_ticks.astype(np.int64)))
        common = bits & -bits  # the highest power of two that divides all of them
        known_ticks, limit, scale = known_ticks / common, limit / common, _TICK * common
    ticks = known_ticks
    if not complete:
        ticks = np.zeros(len(array))
        ticks[~missing] = known_ticks
    for dtype in UNSIGNED:
        null = np.iinfo(dtype).max  # the largest count stands for NA
        if limit < null:
            if not complete:
                ticks[missing] = null
            counts = ticks.astype(f"<{dtype}")
            exact = base + counts * scale == array
            if not np.all(exact if complete else exact | missing) or np.any(
                np.signbit(array) & (array == 0)
            ):
                return None
            return _numbers(tag, counts, base, scale)
    return None


def _numbers(tag: str, array: Array, base: float = 0, scale: float = 1) -> list[Any]:
    dtype = array.dtype.str[1:]
    if array.itemsize == 1 or not 0 < array.nbytes <= _PLANES_BYTES:
        return [tag, dtype, base, scale, array.tobytes()]
    return [tag, dtype.upper(), base, scale, _split_planes(array)]


def _split_planes(array: Array) -> bytes:
    """Return the first byte of each number, then the second of each, and so on.

    Numbers of one column have similar high bytes, which compress well side by side.
    """
    octets = np.frombuffer(array.tobytes(), dtype="u1")
    return octets.reshape(-1, array.itemsize).T.tobytes()
