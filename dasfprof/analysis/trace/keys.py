"""Dask's keys as small integers.

`KeyCollector` creates a `KeyTable`. The events of a trace contain each key many times, for example
when its task ran, when its result was sent, and when the result was an input. Every distinct key
gets a number, its *key id*, in the order of first use. No Python object is created per key. Keys
are stored as the heads and tails into which `dasfprof.database.keys` splits them. Texts and
function names are only created when they are requested.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import count
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import GrowingColumn
from dasfprof.database import keys, values
from dasfprof.database.columns import Array, Column, KeyColumn

#: Number of rows per chunk. See `_chunks`.
_CHUNK = 1 << 16
#: Maximum ratio of slots to keys in the lookup table. Keys whose heads need more slots are numbered
#: by hash.
_MOST_PLACES = 2


def number_keys(head_ids: Array, tails: Array) -> tuple[Array, Array]:
    """Assign numbers to distinct rows (a head and a tail each) in the order of their first use.

    Returns
    -------
    ids, first
        The number of each row, and for each number the first row that has it.
    """
    numbers, count = _places(head_ids, tails)
    rows = np.flatnonzero(numbers < 0)
    if len(rows):
        numbers[rows] = count + _by_hash(head_ids[rows], tails[rows])
    return _in_order(numbers)


def _places(head_ids: Array, tails: Array) -> tuple[Array, int]:
    """Map each row to a slot of a lookup table, without hashing.

    Returns
    -------
    places, count
        The slot of each row (-1 if its head has no slots), and the number of slots.
    """
    # For each head, the table has a slot for every combination of tail words between their minimum
    # and their maximum.
    heads = int(head_ids.max(initial=-1)) + 1
    sizes, spans = np.ones(heads), []
    for word in np.flatnonzero(tails.max(axis=0, initial=0)).tolist():
        least, most = np.full(heads, np.iinfo(np.int64).max), np.zeros(heads, dtype=np.int64)
        for rows in _chunks(len(tails)):
            numbers = tails[rows, word].astype(np.int64)
            np.minimum.at(least, head_ids[rows], numbers)
            np.maximum.at(most, head_ids[rows], numbers)
        spans.append((word, least, most - least + 1))
        sizes *= spans[-1][2]
    # Heads whose tails are sparse, such as hashes, have no slots.
    dense = sizes <= _MOST_PLACES * np.bincount(head_ids, minlength=heads)
    ends = np.append(0, np.cumsum(np.where(dense, sizes, 0.0)).astype(np.int64))
    places = np.empty(len(head_ids), dtype=np.int64)
    for rows in _chunks(len(head_ids)):
        of_rows = head_ids[rows]
        place = np.zeros(len(of_rows), dtype=np.int64)
        for word, least, span in spans:
            place *= span[of_rows]
            place += tails[rows, word] - least[of_rows]
        places[rows] = np.where(dense[of_rows], place + ends[of_rows], -1)
    return places, int(ends[-1])


def _by_hash(head_ids: Array, tails: Array) -> Array:
    """Number distinct rows from 0, using a 64-bit hash, and return the number of each row."""
    numbers: Array = pd.factorize(hashes_of(head_ids, tails))[0]
    ids, first = _in_order(numbers)
    for rows in _chunks(len(ids)):
        same = first[ids[rows]]
        if (head_ids[rows] != head_ids[same]).any() or (tails[rows] != tails[same]).any():
            # Two different rows have the same hash.
            rows_of_words = np.column_stack([head_ids.astype(np.uint32), tails])
            return np.unique(rows_of_words, axis=0, return_inverse=True)[1].ravel()
    return numbers


def _in_order(numbers: Array) -> tuple[Array, Array]:
    """Renumber codes by first occurrence, and return them with the first row of each code."""
    rows = len(numbers)
    first = np.full(int(numbers.max(initial=-1)) + 1, rows, np.int32 if rows < 1 << 31 else None)
    # If a number occurs several times, the last assignment stays, which is that of its first row.
    first[numbers[::-1]] = np.arange(rows - 1, -1, -1, dtype=first.dtype)
    is_first = np.zeros(rows, dtype=bool)
    is_first[first[first < rows]] = True
    first_rows = np.flatnonzero(is_first)
    first[numbers[first_rows]] = np.arange(len(first_rows), dtype=first.dtype)
    return first[numbers], first_rows


def _chunks(rows: int) -> Iterator[slice]:
    """Yield slices of a column, short enough for intermediate results to fit the CPU cache."""
    return (slice(start, start + _CHUNK) for start in range(0, rows, _CHUNK))


def hashes_of(head_ids: Array, tails: Array) -> Array:
    """Return a 64-bit hash of each key, computed from its head and the four words of its tail."""
    hashes = np.empty(len(head_ids), dtype=np.uint64)
    for rows in _chunks(len(head_ids)):
        pairs = tails[rows].astype(np.uint32).view(np.uint64)
        mixed = head_ids[rows].astype(np.uint64)
        # The multiplications are those of MurmurHash3's finalizer.
        for word in (0, 1):
            mixed *= np.uint64(0xFF51AFD7ED558CCD)
            mixed ^= mixed >> np.uint64(33)
            mixed ^= pairs[:, word]
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(33)
        hashes[rows] = mixed
    return hashes


def unpack_key(packed: bytes) -> Any:
    """Unpack a key, or return its bytes unchanged if they are not valid msgpack."""
    try:
        return as_tuple(values.unpack(packed))
    except values.DAMAGE_ERRORS:
        return packed


def as_tuple(key: Any) -> Any:
    """Convert lists in a key to tuples."""
    # A plain msgpack writer, such as DASF's, stores tuples as lists.
    return tuple(map(as_tuple, key)) if isinstance(key, list | tuple) else key


def text_begin(head: keys.Head) -> str:
    """Return the text with which all keys of a head begin."""
    kind, text = head
    if kind == keys.PACKED:
        return str(unpack_key(text))
    if kind < keys.TUPLE:
        return f"{text}-"
    return f"({text!r},)" if kind == keys.TUPLE else f"({text!r}, "


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
    """Return a function that completes texts of keys with the numbers in the keys' tails.

    Each number is followed by an item of `ends`. For example, the items ``", "`` and ``")"``
    complete ``('x', `` to ``('x', 3, 4)``.
    """

    def append(begins: list[str], tails: Array) -> list[str]:
        columns = [_number_texts(tails[:, word], end) for word, end in enumerate(ends)]
        return list(map("".join, zip(begins, *columns, strict=True)))

    return append


def _number_texts(numbers: Array, end: str) -> Iterable[str]:
    """Return numbers as texts, each followed by `end`."""
    # Chunk numbers are small and repeat, so the text of each number is created once.
    highest = int(numbers.max(initial=0))
    if highest < len(numbers):
        known = [f"{number}{end}" for number in range(highest + 1)]
        return map(known.__getitem__, numbers.tolist())
    return [f"{number}{end}" for number in numbers.tolist()]


#: Function that completes the texts of keys from their tails, by the kind of their head. Texts of
#: other kinds end with the text of the head.
TEXT_ENDS: dict[int, Callable[[list[str], Array], list[str]]] = {
    keys.NUMBERED: _with_numbers(""),
    keys.HEX: _hex,
    keys.UUID: _uuid,
    keys.FLOAT: _float,
    **{
        keys.TUPLE + count: _with_numbers(*[", "] * (count - 1), ")")
        for count in range(1, keys.TAIL_WORDS + 1)
    },
}


class KeyTable:
    """The distinct keys of a trace. A key id is a row of this table.

    Parameters
    ----------
    heads
        The distinct heads.
    head_ids
        Index of the head of each key, with shape (keys,).
    tails
        Tail of each key, with shape (keys, 4).
    """

    def __init__(self, heads: list[keys.Head], head_ids: Array, tails: Array) -> None:
        self.heads = heads
        self.head_ids = head_ids
        self._tails = tails  # The type is as narrow as possible.
        self._kinds = np.array([kind for kind, _ in heads], dtype=np.int8)

    def __len__(self) -> int:
        return len(self.head_ids)

    @property
    def tails(self) -> Array:
        """Tail of each key, with shape (keys, 4)."""
        return self.tails_of(slice(None))

    def tails_of(self, ids: Array | slice) -> Array:
        """Return the tails of keys, with shape (ids, 4)."""
        return self._tails[ids].astype(np.uint32, copy=False)

    def are_tuples(self, ids: Array) -> Array:
        """Return a mask of keys that are tuples, such as those of chunks and partitions."""
        return self._kinds[self.head_ids[ids]] >= keys.TUPLE

    def keys(self, ids: Array) -> list[Any]:
        """Return keys as the Python objects that Dask uses."""
        heads = [self.heads[head] for head in self.head_ids[ids].tolist()]
        pairs = zip(heads, self._tails[ids].tolist(), strict=True)
        return [
            unpack_key(head[1]) if head[0] == keys.PACKED else keys.join_key(head, tail)
            for head, tail in pairs
        ]

    def texts(self, ids: Array) -> Array:
        """Return the text ``str(key)`` of each key, as an array of Python strings."""
        head_ids, tails = self.head_ids[ids], self.tails_of(ids)
        texts, kinds = self._begins[head_ids], self._kinds[head_ids]
        present = np.flatnonzero(np.bincount(kinds)).tolist()
        for kind in present:
            if kind in TEXT_ENDS:
                rows = np.flatnonzero(kinds == kind) if len(present) > 1 else slice(None)
                texts[rows] = TEXT_ENDS[kind](texts[rows].tolist(), tails[rows])
        return texts

    @cached_property
    def _begins(self) -> Array:
        """For each head, the text with which all of its keys begin."""
        begins = np.empty(len(self.heads), dtype=object)
        begins[:] = [text for _, text in self.heads]
        for place in np.flatnonzero(self._kinds != keys.TEXT).tolist():
            begins[place] = text_begin(self.heads[place])
        return begins

    def hashes(self) -> Array:
        """Return a 64-bit hash of each key, which is the same in every trace."""
        texts = [repr(head).encode("utf-8", "backslashreplace") for head in self.heads]
        codes = np.array([zlib.crc32(text) for text in texts], dtype=np.int64)
        return hashes_of(codes[self.head_ids], self.tails)

    def functions(self) -> tuple[Array, list[str]]:
        """Return the name of each key's function, as `dask.utils.key_split` does.

        Returns
        -------
        codes, names
            Key ``i`` is named ``names[codes[i]]``.
        """
        return self._functions

    @cached_property
    def _functions(self) -> tuple[Array, list[str]]:
        numbers: dict[str, int] = {}
        alike = [
            text.partition("',")[0]
            if kind == keys.TEXT and text[:2] == "('"
            else _alike(kind, text)
            for kind, text in self.heads
        ]
        of_alike = {
            begin: numbers.setdefault(_split(head), len(numbers))
            for begin, head in dict(zip(alike, self.heads, strict=True)).items()
        }
        of_heads = np.fromiter(map(of_alike.__getitem__, alike), np.int32, len(alike))
        codes = of_heads[self.head_ids]
        # Only for this kind of key may `key_split` include the tail in the name.
        lettered = np.flatnonzero(self._kinds[self.head_ids] == keys.HEX)
        lettered = lettered[_all_letters(self.tails_of(lettered))]
        for key_id, key in zip(lettered.tolist(), self.keys(lettered), strict=True):
            codes[key_id] = numbers.setdefault(function_name(key), len(numbers))
        return codes, list(numbers)


class KeyCollector:
    """Collects columns of keys, and numbers the distinct keys."""

    def __init__(self) -> None:
        self._heads: defaultdict[keys.Head, int] = defaultdict(count().__next__)
        self._packed: dict[bytes, tuple[keys.Head, keys.Tail]] = {}
        self._count = 0
        self._head_ids = GrowingColumn(np.int32)
        self._tails = GrowingColumn(np.uint8, keys.TAIL_WORDS)

    def add(self, column: KeyColumn) -> slice:
        """Add the keys of a column, and return their range of positions among all added keys."""
        heads, tails = column.heads, column.tails
        if keys.PACKED in set(map(itemgetter(0), heads)):
            heads, tails = list(column.heads), column.tails.astype(np.uint32)
            packed = [place for place, (kind, _) in enumerate(heads) if kind == keys.PACKED]
            for place in packed:
                heads[place], tail = self._split_again(heads[place])
                tails[column.codes == place] = tail
        head_ids = np.fromiter(map(self._heads.__getitem__, heads), np.int32, len(heads))
        self._head_ids.add(self._count, head_ids[column.codes])
        self._tails.add(self._count, tails)
        self._count += len(tails)
        return slice(self._count - len(tails), self._count)

    def split(self) -> tuple[list[keys.Head], Array, Array]:
        """Return the distinct heads, and for each added key the index of its head, and its tail.

        Equal keys are not combined.
        """
        head_ids = self._head_ids.finish(self._count, 0)
        return list(self._heads), head_ids, self._tails.finish(self._count, 0)

    def finish(self) -> tuple[KeyTable, Array]:
        """Assign a key id to each key.

        Returns
        -------
        table, ids
            The distinct keys, and the key id of each added key in the order of addition.
        """
        heads, head_ids, tails = self.split()
        ids, first = number_keys(head_ids, tails)
        return KeyTable(heads, head_ids[first], tails[first]), ids

    def _split_again(self, head: keys.Head) -> tuple[keys.Head, keys.Tail]:
        """Return the head and the tail that a packed key would have if it were not packed."""
        # For example, tuples with numpy integers are packed, and so are tuples that a plain msgpack
        # writer, such as DASF's, stored as arrays.
        packed: bytes = head[1]
        if packed not in self._packed:
            key = unpack_key(packed)
            self._packed[packed] = (head, keys.NO_TAIL) if key is packed else keys.split_key(key)
        return self._packed[packed]


def as_key_column(column: Column) -> KeyColumn:
    """Return a column of keys as a `KeyColumn`, even if it was stored as text or numbers."""
    return column if isinstance(column, KeyColumn) else split_keys(column.to_list())


def split_keys(items: Iterable[Any]) -> KeyColumn:
    """Split keys into heads and tails."""
    numbers: dict[keys.Head, int] = {}
    pairs = [keys.split_key(as_tuple(item)) for item in items]
    codes = np.array([numbers.setdefault(head, len(numbers)) for head, _ in pairs], dtype=np.int64)
    tails = np.array([tail for _, tail in pairs], dtype=np.uint32).reshape(len(pairs), 4)
    return KeyColumn(list(numbers), codes, tails)


def function_name(key: Any) -> str:
    """Return the name that Dask gives to the function of a key."""
    from dask.utils import key_split  # imports all of Dask

    return str(key_split(key))


def _all_letters(tails: Array) -> Array:
    """Return a mask of tails whose hex digits are all letters (a to f)."""
    letters = np.ones(len(tails), dtype=bool)
    for shift in range(0, 32, 4):
        letters &= ((tails >> np.uint32(shift)) & np.uint32(15) >= 10).all(axis=1)
    return letters


def _alike(kind: int, text: Any) -> keys.Head:
    """Return a key for the cache of function names, given a head (`kind`, `text`).

    Heads with the same cache key have the same function name.
    """
    if kind >= keys.TUPLE and text[-33:-32] == "-":
        # In `key_split`, a name ends before the first word (between hyphens) that contains anything
        # but letters, such as a hash with a digit. A hash of letters only is part of the name.
        last = text[-32:]
        return kind, text if last.isalpha() or "-" in last else text[:-33]
    return kind, text


def _split(head: keys.Head) -> str:
    kind, text = head
    key = as_tuple(unpack_key(text)) if kind == keys.PACKED else keys.join_key(head, keys.NO_TAIL)
    try:
        return function_name(key)
    except (TypeError, ValueError, IndexError, RecursionError):  # an unhashable or empty key
        return "Other"
