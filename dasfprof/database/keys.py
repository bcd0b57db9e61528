"""Functions that split Dask's keys into a head, which many keys share, and a tail of numbers.

Most keys follow a pattern: ``('sum-<32 hex digits>', 3, 0)``, ``inc-<32 hex digits>``,
``inc-<uuid>``, ``inc-<uuid>-17``. The *head* of such a key (a kind and a text) is shared by the
tasks of one group or prefix, and is stored in a dictionary. The *tail* has at most 16 bytes: four
unsigned 32-bit numbers. A key of any other form is stored as a head without a tail. `split_key` and
`join_key` are exact inverses: the joined key equals the original key, and tuples remain tuples.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain, repeat
from operator import getitem, itemgetter, ne
from typing import Any

import numpy as np
import numpy.typing as npt

from dasfprof.database import values
from dasfprof.database.values import number_array

#: Kinds of heads. FORMAT.md describes how a head of each kind is joined with its tail.
TEXT, NUMBERED, HEX, UUID, FLOAT, PACKED = 0, 1, 2, 3, 4, 5
#: ``TUPLE + n`` is a tuple of the head's text and n numbers, with n from 0 to 4.
TUPLE = 8

Head = tuple[int, Any]
Tail = tuple[int, int, int, int]

TAIL_WORDS = 4
NO_TAIL: Tail = (0, 0, 0, 0)

_LIMIT = 1 << 32
_HEX_DIGITS = 32
_UUID_LENGTH = 36
#: Positions of the dashes in a UUID.
_UUID_DASHES = (8, 13, 18, 23)
_MAX_DECIMAL_DIGITS = 10
#: Powers of ten, the largest first.
_POWERS = 10 ** np.arange(_MAX_DECIMAL_DIGITS - 1, -1, -1)
_WORDS = struct.Struct(">4I")
_PADDING = tuple(NO_TAIL[count:] for count in range(TAIL_WORDS + 1))


def split_key(key: Any) -> tuple[Head, Tail]:
    """Return the head and the tail of a key."""
    kind = type(key)
    split = _split_text(key) if kind is str else _split_tuple(key) if kind is tuple else None
    if split is not None:
        return split
    packed = values.pack_any(key)
    return (PACKED, values.pack_any(values.as_read(key, packed))), NO_TAIL


def split_keys(items: list[Any]) -> tuple[list[Head], npt.NDArray[np.uint32]]:
    """Return the heads of many keys, and their tails as an array of shape (keys, 4)."""
    split = None
    if items and type(items[0]) is tuple:
        split = _split_tuples(items)
    elif set(map(type, items)) == {str}:
        split = _split_texts(items)
    if split is not None:
        return split
    pairs = [split_key(item) for item in items]
    words = chain.from_iterable(tail for _, tail in pairs)
    tails = np.fromiter(words, dtype="<u4", count=TAIL_WORDS * len(pairs))
    return [head for head, _ in pairs], tails.reshape(-1, TAIL_WORDS)


def _split_tuples(items: list[Any]) -> tuple[list[Head], npt.NDArray[np.uint32]] | None:
    """Split tuples that all have the same form and length, or return None for other keys."""
    if set(map(type, items)) != {tuple} or len(set(map(len, items))) != 1:
        return None
    count = len(items[0]) - 1
    if not 0 <= count <= TAIL_WORDS:
        return None
    # Splitting whole columns is twice as fast as splitting one tuple after the other.
    texts, *numbers = zip(*items, strict=True)
    if set(map(type, texts)) != {str}:
        return None
    tails = np.zeros((len(items), TAIL_WORDS), dtype="<u4")
    for word, column in enumerate(numbers):
        if set(map(type, column)) != {int} or min(column) < 0 or max(column) >= _LIMIT:
            return None
        tails[:, word] = number_array(column, "<u4")
    heads = {text: (TUPLE + count, text) for text in set(texts)}
    return [heads[text] for text in texts], tails


def _split_texts(items: list[str]) -> tuple[list[Head], npt.NDArray[np.uint32]] | None:
    """Split texts whose tails are all of the same kind, or return None for other texts."""
    # Splitting all texts together is five times as fast as splitting one after the other.
    first = items[0]
    is_uuid = first[-_UUID_LENGTH - 1 : -_UUID_LENGTH] == "-" == first[-13:-12]
    prefix = first[:-_UUID_LENGTH] if is_uuid else first[: first.rfind("-") + 1]
    # Usually, all texts have the same prefix.
    ends = list(map(itemgetter(slice(len(prefix), None)), items))
    if prefix and "".join(items) == prefix + prefix.join(ends):
        texts, distinct = None, {prefix[:-1]}
    else:
        # `rpartition` would create a tuple for each text, which the garbage collector tracks.
        dashes = [len(item) - _UUID_LENGTH - 1 if is_uuid else item.rfind("-") for item in items]
        if min(dashes) < 0 or any(map(ne, map(getitem, items, dashes), repeat("-"))):
            return None
        ends = [item[dash + 1 :] for item, dash in zip(items, dashes, strict=True)]
        texts = [item[:dash] for item, dash in zip(items, dashes, strict=True)]
        distinct = set(texts)
    if any(text[:2] == "('" for text in distinct):
        return None
    end = ends[0]
    kind = FLOAT if "." in end else HEX if len(end) == _HEX_DIGITS else NUMBERED
    kind = UUID if is_uuid else kind
    words = _READ_ENDS[kind](ends)
    if words is None:
        return None
    tails = np.zeros((len(items), TAIL_WORDS), dtype="<u4")
    tails[:, : words.shape[1]] = words
    heads = {text: (kind, text) for text in distinct}
    if texts is None:
        return [*heads.values()] * len(items), tails
    return [heads[text] for text in texts], tails


def _read_hashes(ends: list[str]) -> npt.NDArray[Any] | None:
    return _words_of_digits("".join(ends)) if set(map(len, ends)) == {_HEX_DIGITS} else None


def _read_uuids(ends: list[str]) -> npt.NDArray[Any] | None:
    if set(map(len, ends)) != {_UUID_LENGTH}:
        return None
    dashes = set(map(itemgetter(*_UUID_DASHES), ends))
    digits = "".join(ends).replace("-", "")
    if dashes != {("-",) * len(_UUID_DASHES)} or len(digits) != _HEX_DIGITS * len(ends):
        return None
    return _words_of_digits(digits)


def _words_of_digits(digits: str) -> npt.NDArray[Any] | None:
    """Return the hex digits of several tails as an array, with one row of 32-bit words per tail.

    Return None if the text does not consist of lower-case hex digits.
    """
    try:
        octets = bytes.fromhex(digits)
    except ValueError:
        return None
    if octets.hex() != digits:
        return None
    return np.frombuffer(octets, dtype=">u4").reshape(-1, TAIL_WORDS)


def _read_times(ends: list[str]) -> npt.NDArray[Any] | None:
    ticks = many_time_ticks(ends)
    if ticks is None:
        read_singly = [time_ticks(end) for end in ends]
        if None in read_singly:
            return None
        ticks = np.array(read_singly, dtype=np.int64)
    return np.stack([ticks >> 32, ticks & (_LIMIT - 1)], axis=1)


def _read_decimals(ends: list[str]) -> npt.NDArray[Any] | None:
    """Parse texts as 32-bit integers. Return None unless `str` writes them in the same way."""
    octets = np.frombuffer("".join(ends).encode("utf-8", "replace"), dtype="u1") - np.uint8(
        ord("0")
    )
    lengths = number_array(list(map(len, ends)), "<i8")
    if lengths.min() < 1 or lengths.max() > _MAX_DECIMAL_DIGITS or len(octets) != lengths.sum():
        return None
    stops = lengths.cumsum()
    starts = stops - lengths
    if octets.max() > 9 or ((octets[starts] == 0) & (lengths > 1)).any():
        return None
    powers = _POWERS[np.arange(len(octets)) - stops.repeat(lengths)]
    numbers = np.add.reduceat(octets * powers, starts)
    return numbers.reshape(-1, 1) if numbers.max() < _LIMIT else None


_READ_ENDS = {HEX: _read_hashes, UUID: _read_uuids, FLOAT: _read_times, NUMBERED: _read_decimals}


def _split_tuple(key: tuple[Any, ...]) -> tuple[Head, Tail] | None:
    count = len(key) - 1
    if not 0 <= count <= TAIL_WORDS or type(key[0]) is not str:
        return None
    numbers = key[1:]
    for number in numbers:
        # Any other item (bool, numpy number, nested tuple) would lose its type in a tail.
        if type(number) is not int or not 0 <= number < _LIMIT:
            return None
    return (TUPLE + count, key[0]), numbers + _PADDING[count]


@lru_cache(maxsize=256)  # Dask's stimulus ids, which end with a time, repeat from row to row.
def _split_text(key: str) -> tuple[Head, Tail]:
    if key[:2] == "('":
        return (TEXT, key), NO_TAIL
    head, dash, tail = key.rpartition("-")
    if dash:
        length = len(tail)
        if length == _HEX_DIGITS:
            words = _hex_words(tail)
            if words is not None:
                return (HEX, head), words
        elif "." in tail:
            ticks = time_ticks(tail)
            if ticks is not None:
                return (FLOAT, head), (ticks >> 32, ticks & (_LIMIT - 1), 0, 0)
        elif length <= _MAX_DECIMAL_DIGITS and tail.isdecimal():
            number = int(tail)
            if number < _LIMIT and str(number) == tail:
                return (NUMBERED, head), (number, 0, 0, 0)
        if length == 12 and len(key) > _UUID_LENGTH and key[-37] == "-":
            words = _uuid_words(key[-_UUID_LENGTH:])
            if words is not None:
                return (UUID, key[:-37]), words
    return (TEXT, key), NO_TAIL


def join_key(head: Head, tail: Tail) -> Any:
    """Join a head and a tail into a key.

    Raises
    ------
    ValueError
        If the kind of the head is unknown.
    """
    kind, text = head
    if TUPLE <= kind <= TUPLE + TAIL_WORDS:
        return (text, *tail[: kind - TUPLE])
    if kind == TEXT:
        return text
    if kind == NUMBERED:
        return f"{text}-{tail[0]}"
    if kind in (HEX, UUID):
        digits = _WORDS.pack(*tail).hex()
        return f"{text}-{digits if kind == HEX else _uuid_text(digits)}"
    if kind == FLOAT:
        return f"{text}-{(tail[0] << 32 | tail[1]) / TICKS_PER_SECOND!r}"
    if kind == PACKED:
        return values.unpack(text)
    raise ValueError(f"unknown kind of key head: {kind!r}")


def _hex_words(digits: str) -> Tail | None:
    """Return 32 hex digits as four 32-bit words, or None if the text is not lower-case hex."""
    try:
        octets = bytes.fromhex(digits)
    except ValueError:
        return None
    return _WORDS.unpack(octets) if octets.hex() == digits else None


def _uuid_words(text: str) -> Tail | None:
    """Return the digits of a UUID as four 32-bit words, or None for another 36-character text."""
    digits = text.replace("-", "")
    dashes = set(itemgetter(*_UUID_DASHES)(text))
    return _hex_words(digits) if len(digits) == _HEX_DIGITS and dashes == {"-"} else None


def _uuid_text(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# A stimulus id such as ``task-finished-1763777777.1234567`` ends with the `repr` of a float64.

#: Number of ticks per second. A float64 from 2**30 to 2**31 (a Unix time from 2004 to 2038) is an
#: integer number of ticks.
TICKS_PER_SECOND = float(1 << 22)
_EARLIEST, _LATEST = float(1 << 30), float(1 << 31)
_TICK_BITS = 22
#: Number of digits of such a time before the decimal point, and maximum number after it.
_POINT, _MAX_DECIMALS = 10, 7


def time_ticks(text: str) -> int | None:
    """Convert the text of a Unix time to ticks (see `TICKS_PER_SECOND`).

    Return None if the time is out of range, or if `repr` writes the number as another text.
    """
    try:
        seconds = float(text)
    except ValueError:
        return None
    if _EARLIEST <= seconds < _LATEST and repr(seconds) == text:
        return int(seconds * TICKS_PER_SECOND)
    return None


def many_time_ticks(texts: list[str]) -> npt.NDArray[np.int64] | None:
    """Convert many texts as `time_ticks` does, three times as fast as one by one.

    Return None if `time_ticks` would return None for any text, and in a few other rare cases.
    """
    decimals = number_array(list(map(len, texts)), "<i8") - _POINT - 1
    if decimals.min() < 1 or decimals.max() > _MAX_DECIMALS:
        return None
    width = _POINT + 1 + _MAX_DECIMALS
    octets = "".join(map(str.ljust, texts, repeat(width), repeat("0"))).encode("utf-8", "replace")
    if len(octets) != width * len(texts):
        return None
    digits = np.frombuffer(octets, dtype="u1").reshape(-1, width) - np.uint8(ord("0"))
    point = np.uint8((ord(".") - ord("0")) % 256)
    if (digits[:, _POINT] != point).any() or (np.delete(digits, _POINT, axis=1) > 9).any():
        return None
    seconds = digits[:, :_POINT] @ _POWERS[-_POINT:]
    fractions = digits[:, _POINT + 1 :] @ _POWERS[-_MAX_DECIMALS:]
    if seconds.min() < _EARLIEST or seconds.max() >= _LATEST - 1:
        return None
    # In the supported range, each float64 is an integer number of ticks.
    ticks: npt.NDArray[np.int64] = (seconds << _TICK_BITS) + _to_ticks(fractions, 10**_MAX_DECIMALS)
    remainder, scale = ticks & (2**_TICK_BITS - 1), _POWERS[-1 - decimals]
    # `repr` writes the shortest decimal number that rounds to the float64, or the closest of them
    # if several numbers are equally short.
    closest, tie = _to_decimals(remainder, scale)
    fewer, _ = _to_decimals(remainder, scale // 10)
    too_long = (_to_ticks(fewer, scale // 10) == remainder) & (decimals > 1)
    if tie.any() or too_long.any() or (closest * (10**_MAX_DECIMALS // scale) != fractions).any():
        return None
    return ticks


def _to_ticks(numbers: npt.NDArray[np.int64], scale: Any) -> Any:
    """Convert times in units of 1 / `scale` seconds to ticks, rounded."""
    # Rounding is unambiguous, because no time is halfway between two ticks.
    return ((numbers << _TICK_BITS) * 2 + scale) // (scale * 2)


def _to_decimals(ticks: npt.NDArray[np.int64], scale: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """Convert ticks to integer numbers of 1 / `scale` seconds, by rounding.

    Also return a mask of the ticks that are halfway between two such numbers. `scale` contains
    powers of ten.
    """
    exact, half = ticks * scale, 1 << _TICK_BITS - 1
    return (exact + half) >> _TICK_BITS, exact & (2 * half - 1) == half
