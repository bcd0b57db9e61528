"""Significance tests, compared with printed tables and values by hand."""

import math

import numpy as np
import pytest

from dasfprof.analysis.numeric.significance import (
    holm,
    mann_whitney_p,
    p_value,
    permutation_p,
    student_p,
    student_quantile,
    welch_p,
)


@pytest.mark.parametrize(
    ("t", "free", "p"),
    # Two-sided critical values from textbooks.
    [(12.706, 1, 0.05), (2.571, 5, 0.05), (2.228, 10, 0.05), (3.169, 10, 0.01), (636.62, 1, 0.001)],
)
def test_students_t_against_the_printed_table(t: float, free: float, p: float) -> None:
    assert student_p(t, free) == pytest.approx(p, rel=1e-3)
    assert student_p(-t, free) == pytest.approx(p, rel=1e-3)
    assert student_quantile(p, free) == pytest.approx(t, rel=1e-3)


def test_a_permutation_test_counts_the_splits() -> None:
    low, high = np.arange(5.0), np.arange(5.0) + 10
    # Of C(10, 5) = 252 splits, this one is the most extreme, together with its mirror image.
    assert permutation_p(low, high) == 2 / 252
    assert permutation_p(low, high, greater=True) == 1 / 252
    assert permutation_p(high, low, greater=True) == 1.0
    # {1, 2} against {2, 3}: sums of two of 1, 2, 2, 3 are 3, 3, 4, 4, 5, 5; 3 and 5 are as extreme.
    assert permutation_p(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == 4 / 6
    # Many splits are sampled.
    low, high = np.arange(12.0), np.arange(12.0) + 20
    assert permutation_p(low, high) == 1 / 20_001
    assert permutation_p(low, low) > 0.9


def test_welch_by_hand() -> None:
    # Means 2 and 6, variances 1 and 4 of 3 each: t = 4 / sqrt(5/3) = 3.098,
    # degrees of freedom (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 2.941.
    first, second = np.array([1.0, 2.0, 3.0]), np.array([4.0, 6.0, 8.0])
    assert welch_p(first, second) == pytest.approx(student_p(4 / math.sqrt(5 / 3), 2.9411765))
    assert welch_p(first, second, greater=True) == pytest.approx(welch_p(first, second) / 2)
    assert welch_p(second, first, greater=True) == pytest.approx(1 - welch_p(first, second) / 2)
    assert welch_p(np.ones(3), np.ones(3)) == 1.0
    assert welch_p(np.ones(3), np.full(3, 2.0)) == 0.0


def test_one_against_several_or_one() -> None:
    # Mean 2, variance 1 of 3: t = (8 - 2) / sqrt(1 + 1/3), with 2 degrees of freedom.
    one, several = np.array([8.0]), np.array([1.0, 2.0, 3.0])
    wanted = student_p(6 / math.sqrt(4 / 3), 2)
    assert p_value(several, one) == pytest.approx(wanted)
    assert p_value(one, several) == pytest.approx(wanted)
    for few in (np.array([1.0]), np.empty(0)):
        assert math.isnan(p_value(few, one))


def test_mann_whitney_by_hand() -> None:
    low, high = np.arange(8.0), np.arange(8.0) + 8
    # U = 0, mean 32, variance 8 * 8 * 17 / 12; with continuity z = 31.5 / 9.522.
    z = 31.5 / math.sqrt(8 * 8 * 17 / 12)
    assert mann_whitney_p(low, high) == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert mann_whitney_p(np.ones(8), np.ones(9)) == 1.0
    assert math.isnan(mann_whitney_p(low[:7], high))


def test_holm_by_hand() -> None:
    corrected = holm(np.array([0.04, np.nan, 0.01, 0.03]))
    # 3 x 0.01; then 2 x 0.03; then 0.04, but not below the previous value.
    np.testing.assert_allclose(corrected, [0.06, np.nan, 0.03, 0.06])


@pytest.mark.parametrize(
    ("runs", "spread", "limit"), [(2, 0.15, 0.0), (3, 0.05, 0.1), (5, 0.02, 0.0), (5, 0.15, 0.1)]
)
def test_false_alarms_are_under_one_in_a_hundred(runs: int, spread: float, limit: float) -> None:
    """Wall times have one distribution: log-normal, and a tenth of them 30 % longer."""
    random = np.random.default_rng(5)

    def draw() -> np.ndarray:
        far_off = np.where(random.random(runs) < 0.1, 1.3, 1.0)
        return np.exp(random.normal(0, spread, runs)) * far_off

    alarms = sum(p_value(draw() * (1 + limit), draw(), greater=True) < 0.01 for _ in range(1000))
    assert alarms < 10 + 5  # of 1,000 samples, with a tolerance of 5 for chance
