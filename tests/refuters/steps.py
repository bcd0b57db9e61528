"""Step functions of time, such as the number of parallel tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = Any


@dataclass(frozen=True)
class Steps:
    """Step function that has `values[i]` from `times[i]`, and 0 before the first time."""

    times: Numbers
    values: Numbers

    @classmethod
    def of(cls, begins: Sequence[float], ends: Sequence[float], each: Numbers = 1.0) -> Steps:
        """Return the number of time ranges over time. Ranges without start or end do not count."""
        begins, ends = np.asarray(begins, dtype=float), np.asarray(ends, dtype=float)
        each = np.broadcast_to(np.asarray(each, dtype=float), begins.shape)
        known = ends > begins
        times = np.concatenate([begins[known], ends[known]])
        steps = np.concatenate([each[known], -each[known]])
        order = np.argsort(times, kind="stable")
        return cls(times[order], np.round(np.cumsum(steps[order]), 9))

    def at(self, times: Numbers) -> Numbers:
        index = np.searchsorted(self.times, times, side="right") - 1
        return np.where(index >= 0, np.append(self.values, 0.0)[index], 0.0)

    def with_(self, other: Steps, function: Any) -> Steps:
        """Return a function of the values of this step function and another."""
        times = np.union1d(self.times, other.times)
        return Steps(times, function(self.at(times), other.at(times)))

    def least(self, other: Steps) -> Steps:
        return self.with_(other, np.minimum)

    def __add__(self, other: Steps) -> Steps:
        return self.with_(other, np.add)

    def less(self, other: Steps) -> Steps:
        """Return the difference from another step function, but at least 0."""
        return self.with_(other, lambda mine, its: np.maximum(mine - its, 0.0))

    def where(self, true: Any) -> Steps:
        """Return a function of the values, such as 1 where a condition is true."""
        return Steps(self.times, true(self.values).astype(float))

    def integral(self, begin: float = -np.inf, end: float = np.inf) -> float:
        """Return the integral over time within bounds."""
        if len(self.times) <= 1:
            return 0.0
        times = np.clip(self.times, begin, end)
        return float((self.values[:-1] * np.diff(times)).sum())
