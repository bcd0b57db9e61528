"""Columns of numbers come back equal, and times that were rounded take fewer bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasfprof.database.columns import decode_numbers
from dasfprof.database.encoders import encode_numbers

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


@pytest.mark.parametrize(("digits", "dtype"), [(10, "u2"), (22, "u4")])
def test_times_rounded_to_milliseconds_take_two_bytes(digits: int, dtype: str) -> None:
    rounded = T + np.round(np.linspace(0, 60, 500) * 2**digits) / 2**digits
    form, kind, base, scale, data = encode_numbers(rounded)
    assert (form, kind, base) == ("n", dtype, T)
    assert scale == 2.0**-digits
    assert len(data) == 500 * int(dtype[1:])
