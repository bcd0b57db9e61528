"""Dask's keys as small integers: `KeyTable`, and the `KeyCollector` that makes one.

A trace names each key many times: where it ran, where it was sent, whose input it was. Here every
distinct key gets one number, its *key id*, in the order of first use, without making a Python
object a key: keys stay the heads and tails that `dasfprof.database.keys` splits them into. Text
and function names are made for the ids that ask for them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.analysis.trace.growing_column import GrowingColumn
from dasfprof.analysis.trace.key_numbers import hashes_of, number_keys
from dasfprof.analysis.trace.key_texts import TEXT_ENDS, as_tuple, text_begin, unpack_key
from dasfprof.database import keys
from dasfprof.database.columns import Array, Column, KeyColumn


class KeyTable:
    """The distinct keys of a trace; a key id is a row.

    Parameters
    ----------
    heads
        The distinct heads.
    head_ids
        Each key's head, shape (keys,).
    tails
        Each key's tail, shape (keys, 4).
    """

    def __init__(self, heads: list[keys.Head], head_ids: Array, tails: Array) -> None:
        self.heads = heads
        self.head_ids = head_ids
        self._tails = tails  # of a type as narrow as they allow
        self._kinds = np.array([kind for kind, _ in heads], dtype=np.int8)

    def __len__(self) -> int:
        return len(self.head_ids)

    @property
    def tails(self) -> Array:
        """Each key's tail, shape (keys, 4)."""
        return self.tails_of(slice(None))

    def tails_of(self, ids: Array | slice) -> Array:
        """Return the tails of keys, shape (ids, 4)."""
        return self._tails[ids].astype(np.uint32, copy=False)

    def keys(self, ids: Array) -> list[Any]:
        """Return keys as Dask has them."""
        heads = [self.heads[head] for head in self.head_ids[ids].tolist()]
        pairs = zip(heads, self._tails[ids].tolist(), strict=True)
        return [
            unpack_key(head[1]) if head[0] == keys.PACKED else keys.join_key(head, tail)
            for head, tail in pairs
        ]

    def texts(self, ids: Array) -> Array:
        """Return ``str(key)`` of keys, as an array of Python strings."""
        head_ids, tails = self.head_ids[ids], self.tails_of(ids)
        texts, kinds = self._begins[head_ids], self._kinds[head_ids]
        found = np.flatnonzero(np.bincount(kinds)).tolist()
        for kind in found:
            if kind in TEXT_ENDS:
                rows = np.flatnonzero(kinds == kind) if len(found) > 1 else slice(None)
                texts[rows] = TEXT_ENDS[kind](texts[rows].tolist(), tails[rows])
        return texts

    @cached_property
    def _begins(self) -> Array:
        """What the texts of all keys of a head begin with."""
        begins = np.empty(len(self.heads), dtype=object)
        begins[:] = [text for _, text in self.heads]
        for place in np.flatnonzero(self._kinds != keys.TEXT).tolist():
            begins[place] = text_begin(self.heads[place])
        return begins

    def hashes(self) -> Array:
        """Return a number of each key, in 64 bits, that it has in every trace."""
        texts = [repr(head).encode("utf-8", "backslashreplace") for head in self.heads]
        codes = np.array([zlib.crc32(text) for text in texts], dtype=np.int64)
        return hashes_of(codes[self.head_ids], self.tails)

    def functions(self) -> tuple[Array, list[str]]:
        """Return the name that `dask.utils.key_split` has for each key.

        Returns
        -------
        codes, names
            Key ``i`` is named ``names[codes[i]]``.
        """
        return self._functions

    @cached_property
    def _functions(self) -> tuple[Array, list[str]]:
        numbers: dict[str, int] = {}
        known: dict[tuple[int, str], str] = {}
        of_heads = [
            numbers.setdefault(function_of(head, known), len(numbers)) for head in self.heads
        ]
        codes = np.array(of_heads, dtype=np.int32)[self.head_ids]
        # The one kind of tail that key_split can take for a part of the name.
        lettered = np.flatnonzero(self._kinds[self.head_ids] == keys.HEX)
        lettered = lettered[_all_letters(self.tails_of(lettered))]
        for key_id, key in zip(lettered.tolist(), self.keys(lettered), strict=True):
            codes[key_id] = numbers.setdefault(key_split(key), len(numbers))
        return codes, list(numbers)


class KeyCollector:
    """Takes columns of keys and numbers the distinct ones."""

    def __init__(self) -> None:
        self._heads = _Index()
        self._packed: dict[bytes, tuple[keys.Head, keys.Tail]] = {}
        self._count = 0
        self._head_ids = GrowingColumn(np.int32)
        self._tails = GrowingColumn(np.uint8, keys.TAIL_WORDS)

    def add(self, column: KeyColumn) -> slice:
        """Take the keys of a column; gives their place among all that were taken."""
        index, tails = self._heads, column.tails
        if keys.PACKED in {kind for kind, _ in column.heads}:
            heads, tails = list(column.heads), column.tails.astype(np.uint32)
            packed = [place for place, (kind, _) in enumerate(heads) if kind == keys.PACKED]
            for place in packed:
                heads[place], tail = self._split_again(heads[place])
                tails[column.codes == place] = tail
        else:
            heads = column.heads
        head_ids = np.array([index[head] for head in heads], dtype=np.int32)
        self._head_ids.add(self._count, head_ids[column.codes])
        self._tails.add(self._count, tails)
        self._count += len(tails)
        return slice(self._count - len(tails), self._count)

    def split(self) -> tuple[list[keys.Head], Array, Array]:
        """Return the keys as they were added, not numbered: heads, and each key's head and tail."""
        head_ids = self._head_ids.finish(self._count, 0)
        return list(self._heads), head_ids, self._tails.finish(self._count, 0)

    def finish(self) -> tuple[KeyTable, Array]:
        """Number the keys.

        Returns
        -------
        table, ids
            `ids` holds the key id of every key that was added, in order.
        """
        heads, head_ids, tails = self.split()
        ids, first = number_keys(head_ids, tails)
        return KeyTable(heads, head_ids[first], tails[first]), ids

    def _split_again(self, head: keys.Head) -> tuple[keys.Head, keys.Tail]:
        """Split a packed key as the plain key that it equals.

        A tuple with numpy integers is packed, and one that a plain msgpack writer, such as
        DASF's, stored as an array.
        """
        packed: bytes = head[1]
        if packed not in self._packed:
            key = unpack_key(packed)
            self._packed[packed] = (head, keys.NO_TAIL) if key is packed else keys.split_key(key)
        return self._packed[packed]


def as_key_column(column: Column) -> KeyColumn:
    """Return a column of keys in the form of keys; one that was stored as text or numbers too."""
    if isinstance(column, KeyColumn):
        return column
    return split_keys(column.to_list())


def split_keys(items: Iterable[Any]) -> KeyColumn:
    """Split keys into heads and tails."""
    index = _Index()
    pairs = [keys.split_key(as_tuple(item)) for item in items]
    codes = np.array([index[head] for head, _ in pairs], dtype=np.int64)
    tails = np.array([tail for _, tail in pairs], dtype=np.uint32).reshape(len(pairs), 4)
    return KeyColumn(list(index), codes, tails)


class _Index(dict[Any, int]):
    """Numbers values in the order of their first use."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


def _all_letters(tails: Array) -> Array:
    """Return which tails are written with the hex digits a to f alone."""
    letters = np.ones(len(tails), dtype=bool)
    for shift in range(0, 32, 4):
        letters &= ((tails >> np.uint32(shift)) & np.uint32(15) >= 10).all(axis=1)
    return letters


def function_of(head: keys.Head, known: dict[tuple[int, str], str]) -> str:
    """Name the function of the keys of a head; `known` has names by kind and begin of the text.

    `key_split` ends the name at the first part that is not of letters: in the text of a tuple at
    the quote at the latest, else at a hash that has a digit.
    """
    kind, text = head
    begin, quote = "", ""
    if kind == keys.TEXT and text[:2] == "('":
        begin, quote, _ = text.partition("',")
    elif kind >= keys.TUPLE and text[-33:-32] == "-":
        begin, last = text[:-33], text[-32:]
        quote = "" if last.isalpha() or "-" in last else last
    if not quote:
        return _split(head)
    name = known.get((kind, begin))
    if name is None:
        name = known[kind, begin] = _split(head)
    return name


def _split(head: keys.Head) -> str:
    kind, text = head
    key = as_tuple(unpack_key(text)) if kind == keys.PACKED else keys.join_key(head, keys.NO_TAIL)
    try:
        name: str = key_split(key)
    except (TypeError, ValueError, IndexError, RecursionError):  # an unhashable or empty key
        return "Other"
    return name
