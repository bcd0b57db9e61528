"""Values by group without loops, sums of named groups that can be added, and constant columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array, repeated

# --- `Groups`: sums, means, medians and ranks of values by group, without a loop over groups ------


class Groups:
    """Rows in groups.

    NaN values are ignored. Results of groups without values are NaN, but their sum is 0.

    Parameters
    ----------
    codes
        Group of each row, or -1 if it is in none.
    count
        Number of groups, including empty ones.
    """

    def __init__(self, codes: Array, count: int) -> None:
        # Codes of categories may be so narrow that products with them overflow.
        self.codes: Array = codes.astype(np.int64)
        self.count = count
        #: Number of rows of each group.
        self.sizes: Array = np.bincount(codes[codes >= 0], minlength=count)

    @cached_property
    def order(self) -> Array:
        """The rows that are in a group, sorted by group and then in their order."""
        outside = int(np.count_nonzero(self.codes < 0))
        return np.argsort(self.codes, kind="stable")[outside:]

    @cached_property
    def begins(self) -> Array:
        """The start of each group in `order`. The last entry is the end of all."""
        return np.r_[0, np.cumsum(self.sizes)]

    def rows(self, group: int) -> Array:
        """Return the rows of a group."""
        return self.order[self.begins[group] : self.begins[group + 1]]

    def known(self, values: Array) -> Array:
        """Return the number of values of each group."""
        if is_constant(values):
            return self.sizes * int(np.isfinite(values[0]))
        finite = np.isfinite(values)
        return self.sizes if finite.all() else self.sum(finite).astype(np.int64)

    def sum(self, values: Array) -> Array:
        """Return the sum of each group's values."""
        if is_constant(values):
            value = float(values[0])
            return self.sizes * (value if np.isfinite(value) else 0.0)
        if values.dtype.kind == "f" and not np.isfinite(values.sum()):
            values = np.where(np.isfinite(values), values, 0.0)
        inside = self.codes >= 0 if self.sizes.sum() < len(self.codes) else slice(None)
        return np.bincount(self.codes[inside], values[inside], self.count).astype(float, copy=False)

    def known_sum(self, values: Array) -> Array:
        """Return the sum of each group's values, or NaN for a group with rows but no values."""
        return np.where((self.known(values) > 0) | (self.sizes == 0), self.sum(values), np.nan)

    def mean(self, values: Array) -> Array:
        """Return the mean of each group."""
        return ratio(self.sum(values), self.known(values))

    def max(self, values: Array) -> Array:
        """Return the highest value of each group."""
        highest = np.full(self.count, np.nan)
        inside = self.codes >= 0
        np.fmax.at(highest, self.codes[inside], values[inside].astype(float))
        return highest

    def min(self, values: Array) -> Array:
        """Return the lowest value of each group."""
        return -self.max(-values)

    def median(self, values: Array) -> Array:
        """Return the median of each group."""
        known = np.where(np.isfinite(values) & (self.codes >= 0), values, np.nan)
        medians = pd.Series(known).groupby(self.codes).median()
        return medians.reindex(range(self.count)).to_numpy()

    def deviation(self, values: Array) -> Array:
        """Return the median absolute deviation from each group's median."""
        medians = np.append(self.median(values), np.nan)
        return self.median(np.abs(values - medians[self.codes]))

    def places(self, values: Array) -> Array:
        """Return each row's index in its group, from 0, when sorted by values (-1: in no group).

        NaN comes last, and equal rows stay in their order.
        """
        order = np.argsort(values, kind="stable")
        places = np.empty(len(order), dtype=np.int64)
        places[order] = pd.Series(order).groupby(self.codes[order]).cumcount()
        return np.where(self.codes >= 0, places, -1)

    def ranks(self, values: Array) -> Array:
        """Return each row's rank in its group, from 1; equal values share the mean of their ranks.

        A row whose value is NaN, or that is in no group, has NaN.
        """
        known = np.where(np.isfinite(values) & (self.codes >= 0), values, np.nan)
        return pd.Series(known).groupby(self.codes).rank().to_numpy()


def ratio(part: Array, total: Array | float) -> Array:
    """Return the ratio, or NaN if the denominator is 0 or unknown."""
    quotient = np.full(np.broadcast(part, total).shape, np.nan)
    with np.errstate(invalid="ignore"):
        np.divide(part, total, out=quotient, where=np.asarray(total) > 0)
    return quotient


def distinct(values: Array) -> Array:
    """Return the distinct values of a one-dimensional array, ascending.

    `numpy.unique` does the same, since numpy 2.3 with a hash table. For millions of distinct
    integers, that takes fifteen times as long as sorting.
    """
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


# --- `GroupSums`: sums of named groups, which can be added for parts of a run ---------------------


@dataclass(frozen=True)
class GroupSums:
    """Sums over the rows of groups, with the groups' names."""

    #: Name of each group.
    names: list[Hashable]
    #: Number of rows of each group.
    rows: Array
    #: For each quantity: the sums, and the number of known values.
    sums: dict[str, Array]
    known: dict[str, Array]
    #: For each quantity: minimum and maximum, or NaN if no value is known.
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
        """Return sums of quantities by group, and the ranges of others."""
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
        """Return the sums over parts, of which there is at least one.

        Groups with the same name are merged. Those without rows are left out unless they are in
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
        """Merge groups that get the same name."""
        renamed = GroupSums(
            list(names), self.rows, self.sums, self.known, self.lowest, self.highest
        )
        return GroupSums.merged([renamed])

    def __len__(self) -> int:
        return len(self.names)

    def sum(self, name: str) -> Array:
        """Return the sums of a quantity."""
        return self.sums[name]

    def known_sum(self, name: str) -> Array:
        """Return the sums of a quantity, or NaN for groups with rows but without known values."""
        return np.where((self.known[name] > 0) | (self.rows == 0), self.sum(name), np.nan)

    def mean(self, name: str) -> Array:
        """Return the means of the known values of a quantity."""
        return ratio(self.sum(name), self.known[name])


# --- Constant columns: read-only arrays that store a single value ---------------------------------


def is_constant(array: Array) -> bool:
    """Return whether an array repeats one value that is stored once."""
    return array.strides == (0,) and len(array) > 0


def is_nothing(array: Array) -> bool:
    """Return whether an array consists of a single NaN that is stored once and repeated."""
    return is_constant(array) and bool(np.isnan(array[0]))


def as_type(array: Array, dtype: Any) -> Array:
    """Return an array with another type. A constant array stays constant."""
    if is_constant(array):
        return repeated(array[0].astype(dtype), len(array))
    return array.astype(dtype, copy=False)


def taken(array: Array, rows: Array) -> Array:
    """Return some rows of an array. A constant array stays constant."""
    return repeated(array[0], len(rows)) if is_constant(array) else array[rows]


# --- A column that is built from the arrays of batches --------------------------------------------


class GrowingColumn:
    """A column that grows.

    Rows that are not added are missing. If all rows have the same value, it is stored once.

    Parameters
    ----------
    dtype
        Type of the column. Arrays with wider types widen it.
    width
        Number of values per row. 1 creates a one-dimensional column.
    """

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._pieces: list[tuple[int, Array]] = []

    def add(self, row: int, piece: Array) -> None:
        """Add the values of the rows from `row` onwards."""
        if piece.dtype != self._dtype:
            self._dtype = np.result_type(piece.dtype, self._dtype)
        if len(piece):
            self._pieces.append((row, piece))

    def finish(self, rows: int, missing: float) -> Array:
        """Return the finished column with this number of rows.

        A constant column is read-only. Call this once.
        """
        pieces, self._pieces = self._pieces, []
        value = np.array([missing]).astype(self._dtype)
        is_whole = sum(len(piece) for _, piece in pieces) == rows
        if self._width == 1 and all(is_constant(piece) for _, piece in pieces):
            values = [piece[:1].astype(self._dtype) for _, piece in pieces]
            values += [] if is_whole and values else [value]
            # Equal in all bits: NaN equals itself, and 0.0 does not equal -0.0.
            if len({scalar.tobytes() for scalar in values}) == 1:
                return np.broadcast_to(values[0], rows)
        shape = (rows,) if self._width == 1 else (rows, self._width)
        column = np.empty(shape, self._dtype) if is_whole else np.full(shape, value)
        for row, piece in pieces:
            column[row : row + len(piece)] = piece
        return column
