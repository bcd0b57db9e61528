"""Numbers keys in the order of their first use, by hash."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.database.columns import Array

#: Rows of a chunk, see `_chunks`.
_CHUNK = 1 << 16


def number_keys(head_ids: Array, tails: Array) -> tuple[Array, Array]:
    """Number distinct rows in the order of their first use.

    Returns
    -------
    ids, first
        Each row's number, and the first row of each number.
    """
    import pandas as pd  # what follows a run while it goes on does without

    ids, first = _in_order(pd.factorize(hashes_of(head_ids, tails))[0])
    for rows in _chunks(len(ids)):
        same = first[ids[rows]]
        if (head_ids[rows] != head_ids[same]).any() or (tails[rows] != tails[same]).any():
            # Distinct ones share a hash.
            whole = np.column_stack([head_ids.astype(np.uint32), tails])
            found = np.unique(whole, axis=0, return_inverse=True)[1]
            return _in_order(pd.factorize(found.ravel())[0])
    return ids, first


def _in_order(numbers: Array) -> tuple[Array, Array]:
    """Return numbers of first use in a narrow type, and the first row of each."""
    most = np.maximum.accumulate(numbers)
    ids = numbers.astype(np.int32 if len(numbers) < 1 << 31 else np.int64)
    return ids, np.flatnonzero(np.diff(most, prepend=-1))


def _chunks(rows: int) -> Iterator[slice]:
    """Return pieces of a column: what is computed of a piece stays in the processor's cache."""
    return (slice(start, start + _CHUNK) for start in range(0, rows, _CHUNK))


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
