"""Figures of values by group, such as sums and medians, and columns that are constant.

Figures are computed for all groups at once, without a loop over groups.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array, repeated


class Groups:
    """Computes figures of the rows in each group.

    NaN values are ignored. If a group has no values, its results are NaN, except that its sum is 0.

    Parameters
    ----------
    codes
        Group of each row, or -1 if the row is in no group.
    count
        Number of groups, including empty ones.
    """

    def __init__(self, codes: Array, count: int) -> None:
        # Codes of categories may have a narrow type, in which products of codes overflow.
        self.codes: Array = codes.astype(np.int64, copy=False)
        self.count = count
        #: Rows that are in a group, as an index.
        self._inside = self.codes >= 0 if self.codes.min(initial=0) < 0 else slice(None)
        #: Number of rows of each group.
        self.sizes: Array = np.bincount(self.codes[self._inside], minlength=count)

    @cached_property
    def order(self) -> Array:
        """The rows that are in any group, sorted by group. Rows of a group keep their order."""
        outside = int(np.count_nonzero(self.codes < 0))
        return np.argsort(self.codes, kind="stable")[outside:]

    @cached_property
    def begins(self) -> Array:
        """The index in `order` at which each group starts, and then the length of `order`."""
        return np.r_[0, np.cumsum(self.sizes)]

    def rows(self, group: int) -> Array:
        """Return the rows of a group."""
        return self.order[self.begins[group] : self.begins[group + 1]]

    def known(self, values: Array) -> Array:
        """Return the number of known values (not NaN) in each group."""
        if is_constant(values):
            return self.sizes * int(np.isfinite(values[0]))
        finite = np.isfinite(values)
        return self.sizes if finite.all() else self.sum(finite).astype(np.int64)

    def sum(self, values: Array) -> Array:
        """Return the sum of the values in each group."""
        if is_constant(values):
            value = float(values[0])
            return self.sizes * (value if np.isfinite(value) else 0.0)
        if values.dtype.kind == "f" and not np.isfinite(values.sum()):
            values = np.where(np.isfinite(values), values, 0.0)
        codes = self.codes[self._inside]
        return np.bincount(codes, values[self._inside], self.count).astype(float, copy=False)

    def known_sum(self, values: Array) -> Array:
        """Return the sum of the values in each group, or NaN if a group has only unknown values."""
        return np.where((self.known(values) > 0) | (self.sizes == 0), self.sum(values), np.nan)

    def mean(self, values: Array) -> Array:
        """Return the mean of the values in each group."""
        return ratio(self.sum(values), self.known(values))

    def max(self, values: Array) -> Array:
        """Return the maximum of the values in each group."""
        highest = np.full(self.count, np.nan)
        np.fmax.at(highest, self.codes[self._inside], values[self._inside].astype(float))
        return highest

    def min(self, values: Array) -> Array:
        """Return the minimum of the values in each group."""
        return -self.max(-values)

    def median(self, values: Array) -> Array:
        """Return the median of the values in each group."""
        known = np.where(np.isfinite(values) & (self.codes >= 0), values, np.nan)
        medians = pd.Series(known).groupby(self.codes).median()
        return medians.reindex(range(self.count)).to_numpy()

    def deviation(self, values: Array) -> Array:
        """Return the median absolute deviation from each group's median."""
        medians = np.append(self.median(values), np.nan)
        return self.median(np.abs(values - medians[self.codes]))

    def places(self, values: Array) -> Array:
        """Return the position of each row in its group, from 0, if the group is sorted by `values`.

        A row that is in no group has -1. NaN values come last.
        """
        groups = pd.Series(values).groupby(self.codes)
        places = groups.rank(method="first", na_option="bottom").to_numpy() - 1
        return np.where(self.codes >= 0, places, -1).astype(np.int64)

    def ranks(self, values: Array) -> Array:
        """Return the rank of each row in its group, from 1, or NaN if it has no value or no group.

        Rows with equal values share the mean of their ranks.
        """
        known = np.where(np.isfinite(values) & (self.codes >= 0), values, np.nan)
        return pd.Series(known).groupby(self.codes).rank().to_numpy()


def ratio(part: Array, total: Array | float) -> Array:
    """Return ``part / total``, or NaN if `total` is 0 or unknown."""
    quotient = np.full(np.broadcast(part, total).shape, np.nan)
    with np.errstate(invalid="ignore"):
        np.divide(part, total, out=quotient, where=np.asarray(total) > 0)
    return quotient


def distinct(values: Array) -> Array:
    """Return the distinct values of a one-dimensional array in ascending order."""
    # Since numpy 2.3, `numpy.unique` uses a hash table, which takes fifteen times as long as
    # sorting for millions of distinct integers.
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


@dataclass(frozen=True)
class GroupSums:
    """Sums, minima and maxima of quantities by group, with the names of the groups."""

    #: Name of each group.
    names: list[Hashable]
    #: Number of rows of each group.
    rows: Array
    #: For each quantity: its sum in each group, and the number of known values in each group.
    sums: dict[str, Array]
    known: dict[str, Array]
    #: For each quantity: its minimum and maximum in each group, or NaN if no value is known.
    lowest: dict[str, Array]
    highest: dict[str, Array]

    @classmethod
    def by_name(
        cls,
        names: Sequence[Hashable],
        groups: Groups,
        summed: Mapping[str, Array],
        ranged: Mapping[str, Array] | None = None,
    ) -> GroupSums:
        """Return the sums of quantities `summed`, and minima and maxima of `ranged`, by group.

        Group ``i`` of `groups` has the name ``names[i]``. Quantities have one value per row.
        """
        ranged = ranged or {}
        return cls(
            list(names),
            groups.sizes,
            {name: groups.sum(values) for name, values in summed.items()},
            {name: groups.known(values) for name, values in summed.items()},
            {name: groups.min(values) for name, values in ranged.items()},
            {name: groups.max(values) for name, values in ranged.items()},
        )

    @classmethod
    def merged(cls, parts: Sequence[GroupSums], names: Sequence[Hashable] = ()) -> GroupSums:
        """Combine the sums of several parts of a run, of which there must be at least one.

        Groups with the same name are merged. Groups without rows are left out, except those in
        `names`, which come first.
        """
        indices: dict[Hashable, int] = {}
        others = (part.names[row] for part in parts for row in np.flatnonzero(part.rows).tolist())
        codes = [indices.setdefault(name, len(indices)) for name in (*names, *others)]
        groups = Groups(np.array(codes[len(names) :], dtype=np.int64), len(indices))

        def joined(columns: Iterable[Array]) -> Array:
            pairs = zip(columns, parts, strict=True)
            return np.concatenate([column[part.rows > 0] for column, part in pairs])

        def combined(kind: str, how: Callable[[Array], Array]) -> dict[str, Array]:
            columns_of_parts = [getattr(part, kind) for part in parts]
            return {
                name: how(joined(columns[name] for columns in columns_of_parts))
                for name in columns_of_parts[0]
            }

        return cls(
            list(indices),
            groups.sum(joined(part.rows for part in parts)).astype(np.int64),
            combined("sums", groups.sum),
            combined("known", groups.sum),
            combined("lowest", groups.min),
            combined("highest", groups.max),
        )

    def by(self, names: Sequence[Hashable]) -> GroupSums:
        """Rename the groups, and merge groups that get the same name."""
        return GroupSums.merged([replace(self, names=list(names))])

    def __len__(self) -> int:
        return len(self.names)

    def sum(self, name: str) -> Array:
        """Return the sum of a quantity in each group."""
        return self.sums[name]

    def known_sum(self, name: str) -> Array:
        """Return the sum of a quantity in each group, or NaN if a group has only unknown values."""
        return np.where((self.known[name] > 0) | (self.rows == 0), self.sum(name), np.nan)

    def mean(self, name: str) -> Array:
        """Return the mean of the known values of a quantity in each group."""
        return ratio(self.sum(name), self.known[name])


def is_constant(array: Array) -> bool:
    """Return whether an array consists of one value that is stored once and repeated."""
    return array.strides == (0,) and len(array) > 0


def as_type(array: Array, dtype: Any) -> Array:
    """Convert an array to another type. A constant array stays constant."""
    if is_constant(array):
        return repeated(array[0].astype(dtype), len(array))
    return array.astype(dtype, copy=False)


def taken(array: Array, rows: Array) -> Array:
    """Return the given rows of an array. A constant array stays constant."""
    return repeated(array[0], len(rows)) if is_constant(array) else array[rows]


#: Size in bytes up to which pieces of a column are collected before they are copied into it.
_COLLECTED = 1 << 20


class GrowingColumn:
    """A column that is built from pieces.

    Rows that no piece contains are missing. If all rows have the same value, the value is stored
    once.

    Parameters
    ----------
    dtype
        Type of the column. It becomes wider if a piece has a wider type.
    width
        Number of values per row. 1 creates a one-dimensional column.
    """

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self._dtype = np.dtype(dtype)
        self._column: Array = np.empty((0,) if width == 1 else (0, width), self._dtype)
        #: Pieces that are not in the column yet, and the size of those that are not constant.
        self._pieces: list[tuple[int, Array]] = []
        self._size = 0
        #: Number of rows so far, and those of them that are missing.
        self._rows = 0
        self._gaps: list[slice] = []

    def add(self, row: int, piece: Array) -> None:
        """Add a piece: the values of consecutive rows, beginning with `row`.

        The rows must follow the rows of the previous piece.
        """
        if piece.dtype != self._dtype:
            self._dtype = np.result_type(piece.dtype, self._dtype)
        if not len(piece):
            return
        if row > self._rows:
            self._gaps.append(slice(self._rows, row))
        self._rows = row + len(piece)
        self._pieces.append((row, piece))
        self._size += 0 if is_constant(piece) else piece.nbytes
        if self._size > _COLLECTED:
            size = len(self._column)
            self._store(size if self._rows <= size else max(self._rows, size * 5 // 4))

    def finish(self, rows: int, missing: float) -> Array:
        """Return the column with this number of rows, which is read-only if it is constant.

        This may only be called once. `missing` is the value of missing rows.
        """
        gaps = [*self._gaps, slice(self._rows, rows)] if self._rows < rows else self._gaps
        value = np.array([missing]).astype(self._dtype)
        is_empty = self._column.shape == (0,)
        if is_empty and all(is_constant(piece) for _, piece in self._pieces):
            values = [piece[:1].astype(self._dtype) for _, piece in self._pieces]
            values += [value] if gaps or not values else []
            # Values are compared bit by bit, so that NaN equals NaN, and 0.0 differs from -0.0.
            if len({scalar.tobytes() for scalar in values}) == 1:
                return np.broadcast_to(values[0], rows)
        self._store(rows)
        column, self._column = self._column, np.empty(0)
        for gap in gaps:
            column[gap] = value
        return column

    def _store(self, rows: int) -> None:
        """Resize the column to this number of rows, and copy the pieces into it."""
        self._column = self._column.astype(self._dtype, copy=False)
        # Large arrays grow and shrink in place, because the operating system moves their pages.
        self._column.resize((rows, *self._column.shape[1:]), refcheck=False)
        for row, piece in self._pieces:
            self._column[row : row + len(piece)] = piece
        self._pieces, self._size = [], 0
