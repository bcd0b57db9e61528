"""``str(key)`` of many keys at once, out of their heads and tails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dasfprof.database import keys, values
from dasfprof.database.columns import Array


def unpack_key(packed: bytes) -> Any:
    """Unpack a key; bytes that are no msgpack stay bytes."""
    try:
        return as_tuple(values.unpack(packed))
    except values.DAMAGE_ERRORS:
        return packed


def as_tuple(key: Any) -> Any:
    """Return the tuple that a plain msgpack writer, such as DASF's, stored as a list."""
    return tuple(map(as_tuple, key)) if isinstance(key, list | tuple) else key


def text_begin(head: keys.Head) -> str:
    """Return what the texts of all keys of a head begin with."""
    kind, text = head
    if kind == keys.PACKED:
        return str(unpack_key(text))
    if kind < keys.TUPLE:
        return f"{text}-"
    # The text of a tuple holds the quoted text as it was written.
    quoted = f"'{text}'" if kind >= keys.TUPLE_TEXT else repr(text)
    return f"({quoted},)" if kind in (keys.TUPLE, keys.TUPLE_TEXT) else f"({quoted}, "


def _hex(begins: list[str], tails: Array) -> list[str]:
    digits = tails.astype(">u4").tobytes().hex()
    starts = range(0, len(digits), 32)
    return [begin + digits[at : at + 32] for begin, at in zip(begins, starts, strict=True)]


def _uuid(begins: list[str], tails: Array) -> list[str]:
    texts = _hex([""] * len(begins), tails)
    return [
        f"{begin}{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        for begin, text in zip(begins, texts, strict=True)
    ]


def _float(begins: list[str], tails: Array) -> list[str]:
    ticks = tails[:, 0].astype(np.uint64) << np.uint64(32) | tails[:, 1]
    times = (ticks / keys.TICKS_PER_SECOND).tolist()
    return [f"{begin}{time!r}" for begin, time in zip(begins, times, strict=True)]


def _with_numbers(*ends: str) -> Callable[[list[str], Array], list[str]]:
    """Append a number of the tail for each of the ends, which follow them."""

    def append(begins: list[str], tails: Array) -> list[str]:
        columns = [_number_texts(tails[:, word], end) for word, end in enumerate(ends)]
        return list(map("".join, zip(begins, *columns, strict=True)))

    return append


def _number_texts(numbers: Array, end: str) -> Iterable[str]:
    """Return numbers as texts; those of chunks are small, and each text is made once."""
    highest = int(numbers.max(initial=0))
    if highest < len(numbers):
        known = [f"{number}{end}" for number in range(highest + 1)]
        return map(known.__getitem__, numbers.tolist())
    return [f"{number}{end}" for number in numbers.tolist()]


#: How the texts of keys go on behind their heads' begin, by kind; others have nothing there.
TEXT_ENDS: dict[int, Callable[[list[str], Array], list[str]]] = {
    keys.NUMBERED: _with_numbers(""),
    keys.HEX: _hex,
    keys.UUID: _uuid,
    keys.FLOAT: _float,
    **{
        tuples + count: _with_numbers(*[", "] * (count - 1), ")")
        for count in range(1, keys.TAIL_WORDS + 1)
        for tuples in (keys.TUPLE, keys.TUPLE_TEXT)
    },
}
