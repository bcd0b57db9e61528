"""`Groups`: values by group, without a loop; `GroupSums`: sums of named groups, which add up."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array

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
        begins: Array = np.r_[0, np.cumsum(self.sizes)]
        return begins

    def known(self, values: Array) -> Array:
        """Count the values of each group."""
        return self.sum(np.isfinite(values)).astype(np.int64)

    def sum(self, values: Array) -> Array:
        """Sum the values of each group."""
        values = np.where(np.isfinite(values), values, 0.0)
        inside = self.codes >= 0 if self.sizes.sum() < len(self.codes) else slice(None)
        return np.bincount(self.codes[inside], values[inside], self.count).astype(float)

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
        found: Array = medians.reindex(range(self.count)).to_numpy()
        return found

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
        ranks: Array = pd.Series(known).groupby(self.codes).rank().to_numpy()
        return ranks

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
        places: dict[Hashable, int] = {name: place for place, name in enumerate(names)}
        of_parts = []
        for part in parts:
            some = np.flatnonzero(part.rows)
            named = [places.setdefault(part.names[row], len(places)) for row in some.tolist()]
            of_parts.append((part, some, np.array(named, dtype=np.int64)))
        count, first = len(places), parts[0]
        rows = np.zeros(count, dtype=np.int64)
        sums = {name: np.zeros(count) for name in first.sums}
        known = {name: np.zeros(count, dtype=np.int64) for name in first.known}
        lowest = {name: np.full(count, np.nan) for name in first.lowest}
        highest = {name: np.full(count, np.nan) for name in first.highest}
        for part, some, at in of_parts:
            np.add.at(rows, at, part.rows[some])
            for name, total in sums.items():
                np.add.at(total, at, part.sums[name][some])
                np.add.at(known[name], at, part.known[name][some])
            for name, least in lowest.items():
                np.fmin.at(least, at, part.lowest[name][some])
            for name, most in highest.items():
                np.fmax.at(most, at, part.highest[name][some])
        return cls(list(places), rows, sums, known, lowest, highest)

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
