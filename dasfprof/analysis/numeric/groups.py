"""Values by group, without a loop; sums of named groups, which add up; columns of one value."""

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

    Values that are NaN take part in nothing. What has no value to tell of is NaN, but a sum of
    nothing is 0.

    Parameters
    ----------
    codes
        The number of each row's group; a row of -1 is in none.
    count
        How many groups there are, empty ones among them.
    """

    def __init__(self, codes: Array, count: int) -> None:
        # Codes of categories may be so narrow that a product of them with a number overflows.
        self.codes: Array = codes.astype(np.int64)
        self.count = count
        #: The number of rows of each group.
        self.sizes: Array = np.bincount(codes[codes >= 0], minlength=count)

    @cached_property
    def order(self) -> Array:
        """The rows that are in a group, by group, else in their order."""
        outside = int(np.count_nonzero(self.codes < 0))
        return np.argsort(self.codes, kind="stable")[outside:]

    @cached_property
    def begins(self) -> Array:
        """Where each group begins in `order`; the last entry is the end of all."""
        return np.r_[0, np.cumsum(self.sizes)]

    def known(self, values: Array) -> Array:
        """Count the values of each group."""
        if is_constant(values):
            return self.sizes * int(np.isfinite(values[0]))
        finite = np.isfinite(values)
        return self.sizes if finite.all() else self.sum(finite).astype(np.int64)

    def sum(self, values: Array) -> Array:
        """Sum the values of each group."""
        if is_constant(values):
            value = float(values[0])
            return self.sizes * (value if np.isfinite(value) else 0.0)
        if values.dtype.kind == "f" and not np.isfinite(values.sum()):
            values = np.where(np.isfinite(values), values, 0.0)
        inside = self.codes >= 0 if self.sizes.sum() < len(self.codes) else slice(None)
        return np.bincount(self.codes[inside], values[inside], self.count).astype(float, copy=False)

    def told(self, values: Array) -> Array:
        """Sum the values of each group; one that has rows, but no value, is NaN."""
        return np.where((self.known(values) > 0) | (self.sizes == 0), self.sum(values), np.nan)

    def mean(self, values: Array) -> Array:
        """Average the values of each group."""
        return ratio(self.sum(values), self.known(values))

    def max(self, values: Array) -> Array:
        """Return the highest value of each group."""
        found = np.full(self.count, np.nan)
        inside = self.codes >= 0
        np.fmax.at(found, self.codes[inside], values[inside].astype(float))
        return found

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
        """Return each row's place in its group, from 0, when sorted by values (-1: in no group).

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

    def gini(self, values: Array) -> Array:
        """Return the Gini coefficient of each group's values, which are not negative.

        0 where all are equal, near 1 where one holds everything; NaN where all are 0.
        ``G = 2 sum(i x_i) / (n sum(x)) - (n + 1) / n`` over the values in order.
        """
        places = self.places(values) + 1.0
        sizes, total = self.known(values), self.sum(values)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = 2 * self.sum(places * values) / (sizes * total) - (sizes + 1) / sizes
        return np.where(total > 0, np.maximum(found, 0.0), np.nan)


def ratio(part: Array, whole: Array) -> Array:
    """Divide; what has no whole, or an unknown one, is NaN."""
    found = np.full(np.broadcast(part, whole).shape, np.nan)
    with np.errstate(invalid="ignore"):
        np.divide(part, whole, out=found, where=np.asarray(whole) > 0)
    return found


def distinct(values: Array) -> Array:
    """Return the distinct values of a one-dimensional array, ascending.

    `numpy.unique` does the same, since numpy 2.3 by a table of hashes: of millions of distinct
    integers that takes fifteen times as long as sorting them.
    """
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


# --- `GroupSums`: sums of groups that have names; those of parts of a run add up ------------------


@dataclass(frozen=True)
class GroupSums:
    """Sums over the rows of groups."""

    #: What each group is called.
    names: list[Hashable]
    #: The number of rows of each.
    rows: Array
    #: For each quantity the sums, and how many of its values are known.
    sums: dict[str, Array]
    known: dict[str, Array]
    #: For each quantity the lowest and the highest value, NaN where none is known.
    lowest: dict[str, Array]
    highest: dict[str, Array]

    @classmethod
    def of(
        cls,
        names: Sequence[Hashable],
        groups: Groups,
        summed: Mapping[str, Array],
        ranged: Mapping[str, Array] | None = None,
    ) -> GroupSums:
        """Sum quantities up by group, and find the range of others."""
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
        """Add up the sums of parts, of which there is one at least.

        Groups of one name become one; those without rows are left out, unless they are among the
        names, which come first.
        """
        places: dict[Hashable, int] = {}
        told = (part.names[row] for part in parts for row in np.flatnonzero(part.rows).tolist())
        codes = [places.setdefault(name, len(places)) for name in (*names, *told)]
        groups = Groups(np.array(codes[len(names) :], dtype=np.int64), len(places))

        def joined(columns: Iterable[Array]) -> Array:
            pairs = zip(columns, parts, strict=True)
            return np.concatenate([column[part.rows > 0] for column, part in pairs])

        def put(kind: str, how: Callable[[Array], Array]) -> dict[str, Array]:
            own = [getattr(part, kind) for part in parts]
            return {name: how(joined(one[name] for one in own)) for name in own[0]}

        return cls(
            list(places),
            groups.sum(joined(part.rows for part in parts)).astype(np.int64),
            put("sums", groups.sum),
            put("known", groups.sum),
            put("lowest", groups.min),
            put("highest", groups.max),
        )

    def by(self, names: Sequence[Hashable]) -> GroupSums:
        """Put groups together: those that get the same name."""
        renamed = GroupSums(
            list(names), self.rows, self.sums, self.known, self.lowest, self.highest
        )
        return GroupSums.merged([renamed])

    def __len__(self) -> int:
        return len(self.names)

    def sum(self, name: str) -> Array:
        """Return the sums of a quantity."""
        return self.sums[name]

    def told(self, name: str) -> Array:
        """Return the sums of a quantity; NaN where there are rows, and no value is known."""
        return np.where((self.known[name] > 0) | (self.rows == 0), self.sum(name), np.nan)

    def mean(self, name: str) -> Array:
        """Return the means of the known values of a quantity."""
        return ratio(self.sum(name), self.known[name])


# --- Columns of one value: arrays that repeat it, have it in memory once, and cannot be written to


def is_constant(array: Array) -> bool:
    """Return whether an array repeats one value that is in memory once."""
    return array.strides == (0,) and len(array) > 0


def is_nothing(array: Array) -> bool:
    """Return whether an array repeats NaN that is in memory once."""
    return is_constant(array) and bool(np.isnan(array[0]))


def as_type(array: Array, dtype: Any) -> Array:
    """Return an array in another type; a constant stays one."""
    if is_constant(array):
        return repeated(array[0].astype(dtype), len(array))
    return array.astype(dtype, copy=False)


def taken(array: Array, rows: Array) -> Array:
    """Return some rows of an array; a constant stays one."""
    return repeated(array[0], len(rows)) if is_constant(array) else array[rows]


# --- A column in the making: takes the arrays of batches, one after the other ---------------------


class GrowingColumn:
    """A column that grows; rows between the arrays that it takes are missing.

    If all rows hold one value, it takes the memory of one.

    Parameters
    ----------
    dtype
        Of the column; arrays of wider types widen it.
    width
        Values in a row; 1 makes a column of one dimension.
    """

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._pieces: list[tuple[int, Array]] = []

    def add(self, row: int, piece: Array) -> None:
        """Take the values of the rows from `row` on."""
        if piece.dtype != self._dtype:
            self._dtype = np.result_type(piece.dtype, self._dtype)
        if len(piece):
            self._pieces.append((row, piece))

    def finish(self, rows: int, missing: float) -> Array:
        """Return the column of `rows` rows, once; one of a single value is read-only."""
        pieces, self._pieces = self._pieces, []
        value = np.array([missing]).astype(self._dtype)
        is_whole = sum(len(piece) for _, piece in pieces) == rows
        if self._width == 1 and all(is_constant(piece) for _, piece in pieces):
            values = [piece[:1].astype(self._dtype) for _, piece in pieces]
            values += [] if is_whole and values else [value]
            # Equal to the bit: NaN is itself, 0.0 is not -0.0.
            if len({one.tobytes() for one in values}) == 1:
                return np.broadcast_to(values[0], rows)
        shape = (rows,) if self._width == 1 else (rows, self._width)
        column = np.empty(shape, self._dtype) if is_whole else np.full(shape, value)
        for row, piece in pieces:
            column[row : row + len(piece)] = piece
        return column
