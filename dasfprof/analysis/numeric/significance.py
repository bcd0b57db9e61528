"""Statistical tests of whether two groups of measurements differ, and corrections for many tests.

They need only NumPy. All p-values are two-sided, unless `greater` tests whether the second group is
greater than the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import combinations

import numpy as np

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.database.columns import Array

#: Maximum number of permutations for which all are evaluated. If there are more, a random sample of
#: this size is evaluated.
_MOST_SPLITS = 20_000
#: Significance level: chance alone causes a difference as large as this in fewer than 1 of 100
#: comparisons.
CERTAIN = 0.01
_PRECISION = 1e-12
_PERMUTATION = "permutation test"
#: Nodes and weights of Gauss-Legendre quadrature, for a precision of about 1e-6.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(100)
#: Minimum number of values from which a drift or a trend is computed.
FEWEST = 8


def p_value(first: Array, second: Array, *, greater: bool = False, level: float = CERTAIN) -> float:
    """Return the p-value of a difference of means.

    The p-value is the probability that chance alone causes a difference at least this large. It is
    NaN if no test is possible, because a group is empty or both groups have one measurement.
    """
    name = name_of_test(len(first), len(second), level)
    if name == _PERMUTATION:
        # A two-sided permutation test (Pitman 1937) assumes nothing about the distribution. It is
        # exact if all permutations can be evaluated, but needs enough measurements to reach
        # `level`.
        return permutation_p(first, second, greater=greater)
    # Welch's t-test (Welch 1947) assumes a normal distribution. For one measurement against
    # several, it is the t-test of a single case (Crawford and Howell 1998), which uses the variance
    # of the other group.
    return welch_p(first, second, greater=greater) if name else math.nan


def name_of_test(first: int, second: int, level: float = CERTAIN) -> str:
    """Return the name of the test that `p_value` uses for groups of these sizes.

    The name is empty if no test is possible.
    """
    if min(first, second) == 0 or max(first, second) == 1:
        return ""
    if min(first, second) == 1:
        return "t-test of a single run"
    return _PERMUTATION if math.comb(first + second, first) >= 2 / level else "Welch's t-test"


def permutation_p(first: Array, second: Array, *, greater: bool = False) -> float:
    """Return the fraction of permutations with a difference at least as large as observed."""
    values = np.concatenate([first, second]).astype(float)
    size, count = len(second), len(values)
    splits = math.comb(count, size)
    if splits <= _MOST_SPLITS:
        chosen = np.array(list(combinations(range(count), size)))
    else:
        random = np.random.default_rng(0)  # A fixed seed gives the same answer each time.
        chosen = np.argsort(random.random((_MOST_SPLITS, count)), axis=1)[:, :size]
    sums = values[chosen].sum(axis=1)
    expected, seen = values.sum() * size / count, float(second.sum())
    off, seen_off = (sums - expected, seen - expected)
    if not greater:
        off, seen_off = np.abs(off), abs(seen_off)
    as_much = int(np.count_nonzero(off >= seen_off - _PRECISION * np.abs(values).sum()))
    # A random sample need not contain the observed permutation, so the observed one is added.
    return as_much / splits if splits <= _MOST_SPLITS else (as_much + 1) / (_MOST_SPLITS + 1)


def welch_p(first: Array, second: Array, *, greater: bool = False) -> float:
    """Return the p-value of Welch's t-test.

    If one group has a single measurement, the test assumes that it has the variance of the other
    group.
    """
    difference, error, free = _difference(first, second)
    if error == 0:
        return float(difference <= 0) if greater else float(difference == 0)
    t = difference / error
    two_sided = student_p(t, free)
    if not greater:
        return two_sided
    return two_sided / 2 if t > 0 else 1 - two_sided / 2


def difference_interval(first: Array, second: Array, p: float) -> tuple[float, float]:
    """Return the confidence interval of the difference of means, with error probability `p`.

    Both bounds are NaN if each group has only one measurement.
    """
    if min(len(first), len(second)) == 0 or len(first) == len(second) == 1:
        return math.nan, math.nan
    difference, error, free = _difference(first, second)
    # The interval contains all differences that `welch_p` does not reject.
    off = student_quantile(p, free) * error if error else 0.0
    return difference - off, difference + off


def _difference(first: Array, second: Array) -> tuple[float, float, float]:
    """Return the difference of means, its standard error, and its degrees of freedom."""
    sizes = np.array([len(first), len(second)])
    difference = float(second.mean() - first.mean())
    spreads = np.array([x.var(ddof=1) if len(x) > 1 else 0.0 for x in (first, second)])
    if sizes.min() == 1:
        spread, free = float(spreads.max()), float(sizes.max()) - 1
        error = math.sqrt(spread * (1 + 1 / int(sizes.max())))
    else:
        parts = spreads / sizes
        error = math.sqrt(float(parts.sum()))
        squares = float((parts**2 / (sizes - 1)).sum())
        free = float(parts.sum()) ** 2 / squares if squares > 0 else 1.0
    return difference, error, free


def student_p(t: float, free: float) -> float:
    """Return the two-sided probability of a value `t` of Student's distribution.

    `free` is the number of degrees of freedom, at least 1.
    """
    # With ``t = sqrt(free) * tan(angle)``, the density is proportional to a power of the cosine.
    least = math.atan(abs(t) / math.sqrt(free))
    half = (math.pi / 2 - least) / 2
    density = np.cos(least + half * (_NODES + 1)) ** (free - 1)
    scale = math.exp(math.lgamma((free + 1) / 2) - math.lgamma(free / 2)) / math.sqrt(math.pi)
    return min(2 * scale * half * float(_WEIGHTS @ density), 1.0)


@lru_cache(maxsize=256)
def student_quantile(p: float, free: float) -> float:
    """Return the two-sided quantile of Student's distribution for probability `p`."""
    low, high = 0.0, 1.0
    while student_p(high, free) > p:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, free) > p else (low, middle)
    return high


def mann_whitney_p(first: Array, second: Array) -> float:
    """Return the p-value of the Mann-Whitney U test, or NaN for fewer than 8 values per group."""
    n, m = len(first), len(second)
    if min(n, m) < FEWEST:
        return math.nan
    # The normal approximation needs eight values per group. It has corrections for ties and
    # continuity (Hollander and Wolfe 1999).
    values = np.concatenate([first, second])
    ranks = Groups(np.zeros(n + m, dtype=np.int64), 1).ranks(values)
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    ties = np.unique(values, return_counts=True)[1].astype(float)
    correction = float((ties**3 - ties).sum()) / ((n + m) * (n + m - 1))
    variance = n * m / 12 * (n + m + 1 - correction)
    if variance <= 0:
        return 1.0
    z = max(abs(u - n * m / 2) - 0.5, 0.0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def kendall_p(values: Array) -> float:
    """Return the p-value of the Mann-Kendall test for a trend, or NaN for fewer than 8 values."""
    n = len(values)
    if n < FEWEST:
        return math.nan
    # The normal approximation has corrections for ties and continuity (Kendall 1975).
    later, earlier = np.tril_indices(n, -1)
    score = abs(float(np.sign(values[later] - values[earlier]).sum()))
    ties = np.unique(values, return_counts=True)[1].astype(float)
    variance = n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())
    if variance <= 0:
        return 1.0
    return math.erfc(max(score - 1, 0.0) / math.sqrt(variance / 18) / math.sqrt(2))


def slope_of(values: Array) -> float:
    """Return the median slope between any two values, per step (Theil 1950, Sen 1968)."""
    later, earlier = np.tril_indices(len(values), -1)
    return float(np.median((values[later] - values[earlier]) / (later - earlier)))


def holm(p_values: Array) -> Array:
    """Correct p-values for the number of tests (Holm 1979), not counting NaN values."""
    corrected = np.full(len(p_values), np.nan)
    known = np.flatnonzero(np.isfinite(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    raised = p_values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return corrected


#: Error probability of the confidence interval of a drift.
_OUTSIDE = 0.05
#: Threshold (fraction of the rate in the first half): with at least this rate in the second half, a
#: steady rise continues.
_GOES_ON = 0.5
#: Threshold (fraction of the total rise): with at least this rise in the first half, the rise had
#: ended by then.
_AT_FIRST = 0.8


class Course(str, Enum):
    """Course of a series over time."""

    FEW = "too few"
    RISES = "rises"
    AT_FIRST = "rose at first"
    OPEN = "no steady rise"


@dataclass(frozen=True)
class Drift:
    """Mean change of a series per step, with a confidence interval."""

    #: First value of the series, value after half of the steps, and last value. NaN if there are no
    #: values.
    first: float = math.nan
    half: float = math.nan
    last: float = math.nan
    #: Mean change per step, and the bounds of its 95 % confidence interval. NaN if there are too
    #: few values.
    each: float = math.nan
    least: float = math.nan
    most: float = math.nan
    course: Course = Course.FEW


def drift_of(values: Array, steps: Array | None = None) -> Drift:
    """Return the drift of ordered values, which must not contain NaN.

    `steps` is the number of steps from each value to the next. None means that it is always 1.
    """
    changes = np.diff(values)
    steps = np.ones(len(changes)) if steps is None else steps
    if not len(values):
        return Drift()
    middle = int(np.searchsorted(np.cumsum(steps), steps.sum() / 2)) + 1 if len(steps) else 0
    first, half, last = (float(values[at]) for at in (0, min(middle, len(values) - 1), -1))
    if len(values) < FEWEST:
        return Drift(first, half, last)
    # The values are assumed to be a random walk with drift, in which each change persists. So
    # values that merely wander do not count as a trend. If values scatter around a line instead,
    # the interval is wider than necessary.
    each, least, most = _mean(changes, steps)
    early, *_ = _mean(changes[:middle], steps[:middle])
    late, goes_on, _ = _mean(changes[middle:], steps[middle:])
    course = Course.OPEN
    if least > 0 and goes_on > 0 and late >= _GOES_ON * early:
        course = Course.RISES
    elif last > first and half - first >= _AT_FIRST * (values.max() - first):
        course = Course.AT_FIRST
    return Drift(first, half, last, each, least, most, course)


def _mean(changes: Array, steps: Array) -> tuple[float, float, float]:
    """Return the mean change per step, and its confidence interval."""
    each = float(changes.sum() / steps.sum())
    free = len(changes) - 1
    if free < 2:
        # Fewer than three changes do not show how much changes vary.
        return each, -np.inf, np.inf
    spread = float(((changes - each * steps) ** 2 / steps).sum()) / free
    error = student_quantile(_OUTSIDE, free) * np.sqrt(spread / steps.sum())
    return each, each - error, each + error
