"""Protocol buffers: single fields, and fields of many messages at a time as arrays.

The encoding is that of https://protobuf.dev/programming-guides/encoding: a field is a tag, which is
its number and its type, and then a varint, eight bytes, or a length and as many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dasfprof.database.columns import Array

if TYPE_CHECKING:
    pass


_VARINT, _FIXED, _BYTES = 0, 1, 2
#: Bits of a number that a byte of a varint holds.
_BITS = 7


def varint(value: int) -> bytes:
    """Write a number; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= _BITS
    return bytes([*written, value])


def number(field: int, value: int) -> bytes:
    """Write a field that is a varint."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """Write a field that is a double."""
    return varint(field << 3 | _FIXED) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """Write a field that is a message, or bytes."""
    content = b"".join(parts)
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Write a field that is text, which has no lone surrogates."""
    return message(field, value.encode("utf-8"))


@dataclass(frozen=True)
class Rows:
    """A piece of each of many messages: all bytes in a row, and how many are of each message."""

    data: Array
    lengths: Array

    @classmethod
    def constant(cls, content: bytes, count: int) -> Rows:
        """Take the same for all."""
        data = np.tile(np.frombuffer(content, np.uint8), count)
        return cls(data, np.full(count, len(content)))

    @classmethod
    def of(cls, contents: Sequence[bytes]) -> Rows:
        """Take bytes of each."""
        data = np.frombuffer(b"".join(contents), np.uint8)
        return cls(data, np.fromiter(map(len, contents), np.int64, len(contents)))

    @classmethod
    def varints(cls, values: Array) -> Rows:
        """Write a number of each."""
        values = values.astype(np.uint64)
        width = max(-(-int(values.max(initial=0)).bit_length() // _BITS), 1)
        shifts = np.arange(width, dtype=np.uint64) * np.uint64(_BITS)
        groups = values[:, None] >> shifts
        lengths = np.maximum((groups > 0).sum(axis=1), 1)
        more = np.arange(1, width + 1) < lengths[:, None]
        written = (groups & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << _BITS
        return cls(written[np.arange(width) < lengths[:, None]], lengths)

    def taken(self, rows: Array) -> Rows:
        """Take those of some rows, in any order and number."""
        lengths = self.lengths[rows]
        begins = (np.cumsum(self.lengths) - self.lengths)[rows]
        return Rows(self.data[_places(begins, lengths)], lengths)

    def only(self, rows: Array, count: int) -> Rows:
        """Put them on some rows, in ascending order, of `count`; others have none."""
        lengths = np.zeros(count, dtype=np.int64)
        lengths[rows] = self.lengths
        return Rows(self.data, lengths)

    def summed(self, counts: Array) -> Rows:
        """Put as many of them on each row as `counts` says."""
        ends = np.r_[0, np.cumsum(self.lengths)]
        return Rows(self.data, np.diff(ends[np.r_[0, np.cumsum(counts)]]))


def messages(field: int, parts: Iterable[Rows]) -> list[Rows]:
    """Wrap the parts of many messages as a field each."""
    parts = list(parts)
    lengths = np.sum([part.lengths for part in parts], axis=0)
    tag = Rows.constant(varint(field << 3 | _BYTES), len(lengths))
    return [tag, Rows.varints(lengths), *parts]


def joined(parts: Sequence[Rows]) -> bytes:
    """Put the parts of each message after each other, and all messages in a row."""
    total = np.sum([part.lengths for part in parts], axis=0)
    written = np.empty(int(total.sum()), np.uint8)
    begins = np.cumsum(total) - total
    for part in parts:
        written[_places(begins, part.lengths)] = part.data
        begins = begins + part.lengths
    return written.tobytes()


def _places(begins: Array, lengths: Array) -> Array:
    """Return where the bytes of each row are, given where they begin and how many they are."""
    ends = np.cumsum(lengths)
    places: Array = np.repeat(begins - (ends - lengths), lengths)
    places += np.arange(len(places))
    return places
