"""Columns of numbers are read back unchanged, and times take four bytes each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasfprof.database.columns import decode_numbers, encode_numbers

T = 1.7e9


@given(
    counts=st.lists(st.integers(0, 2**40) | st.none(), min_size=1, max_size=50),
    exponent=st.integers(0, 24),
)
def test_rounded_times_come_back_equal(counts: list[int | None], exponent: int) -> None:
    times = np.array([np.nan if n is None else T + n / 2**exponent for n in counts])
    optional = None in counts
    decoded = decode_numbers(encode_numbers(times, optional=optional), len(times))
    assert np.array_equal(decoded.array, times, equal_nan=True)


@pytest.mark.parametrize("digits", [10, 22])
def test_times_within_a_thousand_seconds_take_four_bytes(digits: int) -> None:
    times = T + np.round(np.linspace(0, 1000, 500) * 2**digits) / 2**digits
    form, kind, base, scale, data = encode_numbers(times)
    assert (form, kind, base, scale) == ("n", "u4", T, 2.0**-22)
    assert len(data) == 500 * 4


def test_times_further_apart_are_stored_as_they_are() -> None:
    times = T + np.linspace(0, 1100, 500)
    assert encode_numbers(times)[1] == "f8"
    assert np.array_equal(decode_numbers(encode_numbers(times), 500).array, times)
