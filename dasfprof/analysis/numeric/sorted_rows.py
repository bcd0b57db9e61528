"""Rows sorted by group that come piece by piece, since all of them may not fit into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.numeric.groups import Groups, rounded
from dasfprof.database.columns import Array

#: The column that tells a row's group by `group_ids`.
GROUP = "group_id"

#: Columns of rows by their names.
Rows = Mapping[str, Array]


def group_ids(names: Sequence[str]) -> Array:
    """Return a number for each name that is the same in every process and part of a run."""
    texts = [name.encode("utf-8", "surrogatepass") for name in names]
    hashes = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    return np.array([int.from_bytes(each, "little", signed=True) for each in hashes], np.int64)


def group_codes(found: Array, names: Sequence[str]) -> Array:
    """Return the places among names of numbers that `group_ids` gave."""
    ids = group_ids(names)
    order = np.argsort(ids)
    codes: Array = order[np.searchsorted(ids[order], found)]
    return codes


@dataclass(frozen=True)
class SortedRows:
    """A piece of the rows."""

    #: The group of each row, by its place among the names.
    codes: Array
    #: Each row's place in its group, from 0.
    places: Array
    columns: Rows


def in_groups(pieces: Iterable[Rows], names: Sequence[str]) -> Iterator[SortedRows]:
    """Find each row's group and its place there.

    Parameters
    ----------
    pieces
        Columns of rows, sorted by `GROUP`.
    names
        Those of the groups.
    """
    passed = np.zeros(len(names), dtype=np.int64)
    for columns in pieces:
        found = columns[GROUP]
        if not len(found):
            continue
        codes = group_codes(found, names)
        begins = np.flatnonzero(np.r_[True, found[1:] != found[:-1]])
        lengths = np.diff(np.r_[begins, len(found)])
        places = np.arange(len(found)) - np.repeat(begins, lengths) + passed[codes]
        passed[codes[begins]] += lengths
        yield SortedRows(codes, places, columns)


def gini(pieces: Iterable[Rows], name: str, names: Sequence[str]) -> Array:
    """Return the Gini coefficients of groups whose rows are sorted by value, none negative.

    See `Groups.gini`.
    """
    count = len(names)
    sizes = np.zeros(count, dtype=np.int64)
    total = weighted = np.zeros((3, count))
    for rows in in_groups(pieces, names):
        groups, values = Groups(rows.codes, count), rows.columns[name]
        sizes += groups.sizes
        total = total + groups.exact(values)
        weighted = weighted + groups.exact((rows.places + 1.0) * values)
    if not sizes.any():
        return np.full(count, np.nan)
    whole = rounded(total)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = 2 * rounded(weighted) / (sizes * whole) - (sizes + 1) / sizes
    return np.where(whole > 0, np.maximum(found, 0.0), np.nan)
