"""`GroupSums`: sums of groups that have names; those of parts of a run add up."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.database.columns import Array


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
