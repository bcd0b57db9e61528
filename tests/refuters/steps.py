"""Numbers that change in steps, such as how many tasks run at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = Any


@dataclass(frozen=True)
class Steps:
    """A number that has `values[i]` from `times[i]` on; 0 before the first."""

    times: Numbers
    values: Numbers

    @classmethod
    def of(cls, begins: Sequence[float], ends: Sequence[float], each: Numbers = 1.0) -> Steps:
        """Count how many spans hold at a time; those that have no begin or end do not count."""
        begins, ends = np.asarray(begins, dtype=float), np.asarray(ends, dtype=float)
        each = np.broadcast_to(np.asarray(each, dtype=float), begins.shape)
        known = ends > begins
        times = np.concatenate([begins[known], ends[known]])
        steps = np.concatenate([each[known], -each[known]])
        order = np.argsort(times, kind="stable")
        return cls(times[order], np.round(np.cumsum(steps[order]), 9))

    def at(self, times: Numbers) -> Numbers:
        """Return its values at times."""
        place = np.searchsorted(self.times, times, side="right") - 1
        return np.where(place >= 0, np.append(self.values, 0.0)[place], 0.0)

    def with_(self, other: Steps, function: Any) -> Steps:
        """Return what a function of two values makes of this and another."""
        times = np.union1d(self.times, other.times)
        return Steps(times, function(self.at(times), other.at(times)))

    def least(self, other: Steps) -> Steps:
        """Return the lesser of both at any time."""
        return self.with_(other, np.minimum)

    def __add__(self, other: Steps) -> Steps:
        return self.with_(other, np.add)

    def less(self, other: Steps) -> Steps:
        """Return how much more it is than another at any time, 0 where it is not."""
        return self.with_(other, lambda mine, its: np.maximum(mine - its, 0.0))

    def where(self, true: Any) -> Steps:
        """Return what a function makes of its values, such as 1 where they are so, else 0."""
        return Steps(self.times, true(self.values).astype(float))

    def integral(self, begin: float = -np.inf, end: float = np.inf) -> float:
        """Return the sum of its value over time, within bounds."""
        if len(self.times) <= 1:
            return 0.0
        times = np.clip(self.times, begin, end)
        return float((self.values[:-1] * np.diff(times)).sum())
