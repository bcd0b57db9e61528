"""Numbers keys in the order of their first use: by places in their collections, or by hash."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.database.columns import Array

#: Rows of a chunk, see `_chunks`.
_CHUNK = 1 << 16
#: A head's keys are numbered by their places if it has no more than so many for each use of a key.
_MOST_PLACES = 2


def number_keys(head_ids: Array, tails: Array) -> tuple[Array, Array]:
    """Number distinct rows in the order of their first use.

    Returns
    -------
    ids, first
        Each row's number, and the first row of each number.
    """
    places, count = _places(head_ids, tails)
    rest = np.flatnonzero(places < 0)
    if len(rest):
        rows = rest if len(rest) < len(places) else slice(None)
        numbers, distinct = _number_by_hash(head_ids[rows], tails[rows])
        places[rows] = numbers + count
        count += distinct
    first = _first_rows(places, count)
    is_first = np.zeros(len(places), dtype=bool)
    is_first[first[first < len(places)]] = True
    numbers = np.cumsum(is_first, dtype=np.int32 if len(places) < 1 << 31 else np.int64)
    numbers -= 1
    ids = np.empty(len(places), dtype=numbers.dtype)
    for rows in _chunks(len(places)):
        ids[rows] = numbers[first[places[rows]]]
    return ids, np.flatnonzero(is_first)


def _places(head_ids: Array, tails: Array) -> tuple[Array, int]:
    """Return each row's place in a table of all tails that its head's largest numbers allow.

    Returns
    -------
    places, count
        -1 for rows of heads that have few of those tails, as hashes are; and the table's size.
    """
    heads = int(head_ids.max(initial=-1)) + 1
    sizes, spans = np.ones(heads), []
    for word in np.flatnonzero(tails.max(axis=0, initial=0)).tolist():
        most = np.zeros(heads, dtype=tails.dtype)
        np.maximum.at(most, head_ids, tails[:, word])
        spans.append((word, most.astype(np.int64) + 1))
        sizes *= spans[-1][1]
    dense = sizes <= _MOST_PLACES * np.bincount(head_ids, minlength=heads)
    ends = np.cumsum(np.where(dense, sizes, 0.0)).astype(np.int64)
    begins = np.append(0, ends)[:-1]
    places = np.empty(len(head_ids), dtype=np.int64)
    for rows in _chunks(len(head_ids)):
        of_rows = head_ids[rows]
        place = np.zeros(len(of_rows), dtype=np.int64)
        for word, span in spans:
            place *= span[of_rows]
            place += tails[rows, word]
        places[rows] = np.where(dense[of_rows], place + begins[of_rows], -1)
    return places, int(ends[-1]) if heads else 0


def _number_by_hash(head_ids: Array, tails: Array) -> tuple[Array, int]:
    """Number rows by a 64-bit hash, and check that no two distinct ones share one.

    Returns
    -------
    numbers, count
        Each row's number, and how many there are.
    """
    import pandas as pd  # what follows a run while it goes on does without

    numbers, distinct = pd.factorize(hashes_of(head_ids, tails))
    first = _first_rows(numbers, len(distinct))
    for rows in _chunks(len(numbers)):
        same = first[numbers[rows]]
        if (head_ids[rows] != head_ids[same]).any() or (tails[rows] != tails[same]).any():
            whole = np.column_stack([head_ids.astype(np.uint32), tails])
            distinct, numbers = np.unique(whole, axis=0, return_inverse=True)
            return numbers.ravel(), len(distinct)
    return numbers, len(distinct)


def _chunks(rows: int) -> Iterator[slice]:
    """Return pieces of a column: what is computed of a piece stays in the processor's cache."""
    return (slice(start, start + _CHUNK) for start in range(0, rows, _CHUNK))


def _first_rows(ids: Array, count: int) -> Array:
    """Return the first row of each id; that of one without rows is the number of all rows."""
    first = np.full(count, len(ids), dtype=np.int32 if len(ids) < 1 << 31 else np.int64)
    for rows in reversed(list(_chunks(len(ids)))):
        start = rows.start
        first[ids[rows][::-1]] = np.arange(start, start + len(ids[rows]))[::-1]
    return first


def hashes_of(head_ids: Array, tails: Array) -> Array:
    """Mix a head and four words into 64 bits (the multiplications of MurmurHash3's finish)."""
    hashes = np.empty(len(head_ids), dtype=np.uint64)
    for rows in _chunks(len(head_ids)):
        pairs = tails[rows].astype(np.uint32).view(np.uint64)
        mixed = head_ids[rows].astype(np.uint64)
        for word in (0, 1):
            mixed *= np.uint64(0xFF51AFD7ED558CCD)
            mixed ^= mixed >> np.uint64(33)
            mixed ^= pairs[:, word]
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(33)
        hashes[rows] = mixed
    return hashes
