"""Whether values rise steadily from one to the next, and by how much each time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from dasfprof.analysis.numeric.significance import student_quantile
from dasfprof.database.columns import Array

#: Values that tell of a drift, and the share of cases in which the true one is not in its interval.
FEWEST, _OUTSIDE = 8, 0.05
#: A steady rise goes on in the second half, at so large a part of its rate in the first.
_GOES_ON = 0.5
#: What rose at first had, at half its values, come so far of its way.
_AT_FIRST = 0.8


class Course(str, Enum):
    """How values went."""

    FEW = "too few"
    RISES = "rises"
    AT_FIRST = "rose at first"
    OPEN = "no steady rise"


@dataclass(frozen=True)
class Drift:
    """By how much values change with each step."""

    #: The first value, the one at half of the steps, the last.
    first: float
    half: float
    last: float
    #: The mean change a step, and between which bounds it is in 95 of 100 cases; NaN: too few.
    each: float
    least: float
    most: float
    course: Course


def drift_of(values: Array, steps: Array | None = None) -> Drift:
    """Find the drift of values in order.

    They are taken for a random walk with drift: what one of them has more than the one before is
    kept. So values that wander are no trend, and of those that scatter around a line the interval
    is wider than need be.

    Parameters
    ----------
    values
        In order; none is NaN.
    steps
        From each to the next, one fewer than values; None: one each.
    """
    changes = np.diff(values)
    steps = np.ones(len(changes)) if steps is None else steps
    unknown = float("nan")
    if not len(values):
        return Drift(unknown, unknown, unknown, unknown, unknown, unknown, Course.FEW)
    middle = int(np.searchsorted(np.cumsum(steps), steps.sum() / 2)) + 1 if len(steps) else 0
    first, half, last = (float(values[at]) for at in (0, min(middle, len(values) - 1), -1))
    if len(values) < FEWEST:
        return Drift(first, half, last, unknown, unknown, unknown, Course.FEW)
    each, least, most = _mean(changes, steps)
    _, goes_on, _ = _mean(changes[middle:], steps[middle:])
    rates = [
        float(changes[part].sum() / steps[part].sum())
        for part in (slice(middle), slice(middle, None))
    ]
    course = Course.OPEN
    if least > 0 and goes_on > 0 and rates[1] >= _GOES_ON * rates[0]:
        course = Course.RISES
    elif last > first and half - first >= _AT_FIRST * (values.max() - first):
        course = Course.AT_FIRST
    return Drift(first, half, last, each, least, most, course)


def _mean(changes: Array, steps: Array) -> tuple[float, float, float]:
    """Return the mean change a step with its interval; without one of fewer than three changes."""
    each = float(changes.sum() / steps.sum())
    free = len(changes) - 1
    if free < 2:
        return each, -np.inf, np.inf
    spread = float(((changes - each * steps) ** 2 / steps).sum()) / free
    error = student_quantile(_OUTSIDE, free) * np.sqrt(spread / steps.sum())
    return each, each - error, each + error
