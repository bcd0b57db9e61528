"""`Groups`: sums, means, medians and ranks of values by group, without a loop over groups."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dasfprof.database.columns import Array

#: Floating-point sums depend on their order: a run that is read part by part, or by several
#: processes, would come out differently in the last digits. So each number is split into multiples
#: of one part in these, whose sums a float holds without rounding: of seconds up to 136 years, of
#: whole bytes up to 9 PB, of 100 million rows. What is finer than the last is rounded away.
_UNITS = (2.0**21, 2.0**48, 2.0**75)

#: Rows that are split at once: few enough to stay in the processor's cache.
_CHUNK = 1 << 15


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
        return self._sum(np.isfinite(values).astype(float)).astype(np.int64)

    def sum(self, values: Array) -> Array:
        """Sum the values of each group; in whatever order the rows are, the sums are the same."""
        return rounded(self.exact(values))

    def exact(self, values: Array) -> Array:
        """Sum the values of each group without rounding, so that sums of parts add up exactly.

        Returns
        -------
        array
            Sums of multiples of each of `_UNITS`, shape (3, groups); see `rounded`.
        """
        values = np.where(np.isfinite(values), values, 0.0)
        codes = self.codes
        if self.sizes.sum() < len(codes):
            inside = codes >= 0
            codes, values = codes[inside], values[inside]
        sums = np.zeros((len(_UNITS), self.count))
        multiples = np.empty_like(values, dtype=float)
        for sum_, unit in zip(sums, _UNITS, strict=True):
            some = False
            for rows in (slice(start, start + _CHUNK) for start in range(0, len(codes), _CHUNK)):
                piece = np.rint(values[rows] * unit, out=multiples[rows])
                piece /= unit
                values[rows] -= piece
                some = some or bool(values[rows].any())
            sum_[:] = np.bincount(codes, weights=multiples, minlength=self.count)
            if not some:
                break
        return sums

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
        rows = np.flatnonzero(np.isfinite(values) & (self.codes >= 0))
        codes = self.codes[rows]
        # Values alone, group by group, are sorted in a tenth of the time of rows by value.
        ordered = values[rows[np.argsort(_narrow(codes), kind="stable")]]
        sizes = np.bincount(codes, minlength=self.count)
        first = np.r_[0, np.cumsum(sizes)][:-1]
        several = sizes > 1
        for begin, size in zip(first[several].tolist(), sizes[several].tolist(), strict=True):
            ordered[begin : begin + size].sort()
        found = np.full(self.count, np.nan)
        some = sizes > 0
        low = ordered[(first + (sizes - 1) // 2)[some]]
        high = ordered[(first + sizes // 2)[some]]
        found[some] = (low + high) / 2
        return found

    def deviation(self, values: Array) -> Array:
        """Return the median absolute deviation from each group's median."""
        medians = np.append(self.median(values), np.nan)
        return self.median(np.abs(values - medians[self.codes]))

    def places(self, values: Array) -> Array:
        """Return each row's place in its group, from 0, when sorted by values (-1: in no group)."""
        inside = np.flatnonzero(self.codes >= 0)
        order = inside[sorted_rows(self.codes[inside], values[inside])]
        places = np.full(len(self.codes), -1, dtype=np.int64)
        places[order] = np.arange(len(order)) - np.repeat(self.begins[:-1], self.sizes)
        return places

    def ranks(self, values: Array) -> Array:
        """Return each row's rank in its group, from 1; equal values share the mean of their ranks.

        A row whose value is NaN, or that is in no group, has NaN.
        """
        rows = np.flatnonzero(np.isfinite(values) & (self.codes >= 0))
        codes = self.codes[rows]
        order = sorted_rows(codes, values[rows], stable=False)
        rows, codes = rows[order], codes[order]
        first = np.r_[0, np.cumsum(np.bincount(codes, minlength=self.count))][codes]
        own = np.arange(len(rows)) - first + 1.0
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (np.diff(codes) != 0) | (np.diff(values[rows]) != 0)
        ties = np.cumsum(new) - 1
        found = np.full(len(self.codes), np.nan)
        found[rows] = ratio(np.bincount(ties, weights=own), np.bincount(ties))[ties]
        return found

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

    def _sum(self, values: Array) -> Array:
        inside = self.codes >= 0
        if inside.all():
            sums = np.bincount(self.codes, weights=values, minlength=self.count)
        else:
            sums = np.bincount(self.codes[inside], weights=values[inside], minlength=self.count)
        return sums.astype(float)


def rounded(sums: Array) -> Array:
    """Return exact sums as floats, shape (groups,)."""
    whole: Array = sums[0] + (sums[1] + sums[2])
    return whole


def sorted_rows(codes: Array, values: Array, *, stable: bool = True) -> Array:
    """Sort rows by group and, within it, by value; NaN comes last.

    Equal rows stay in their order, if that is wanted: it takes twice the time.
    """
    # Two sorts: numpy's lexsort takes thrice as long where the codes are small integers.
    order = np.argsort(values, kind="stable" if stable else "quicksort")
    rows: Array = order[np.argsort(_narrow(codes[order]), kind="stable")]
    return rows


def ratio(part: Array, whole: Array) -> Array:
    """Divide; what has no whole, or an unknown one, is NaN."""
    found = np.full(np.broadcast(part, whole).shape, np.nan)
    with np.errstate(invalid="ignore"):
        np.divide(part, whole, out=found, where=np.asarray(whole) > 0)
    return found


def _narrow(codes: Array) -> Array:
    """Return codes in 16 bits where they fit: numpy sorts those by radix."""
    small = codes.max(initial=0) < 1 << 15 and codes.min(initial=0) >= -1 << 15
    return codes.astype(np.int16) if small else codes


def distinct(values: Array) -> Array:
    """Return the distinct values of a one-dimensional array, ascending.

    `numpy.unique` does the same, since numpy 2.3 by a table of hashes: of millions of distinct
    integers that takes fifteen times as long as sorting them.
    """
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
