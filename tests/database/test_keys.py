"""Columns of keys and of numbers are read back unchanged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasfprof.database.columns import decode_numbers, encode_numbers
from dasfprof.database.keys import (
    FLOAT,
    HEX,
    NUMBERED,
    TEXT,
    UUID,
    join_key,
    many_time_ticks,
    split_key,
    split_keys,
    time_ticks,
)

HEADS = st.sampled_from(["inc", "a-b", "", "('x", "task-finished", "12", "é", "x-" + "1f" * 16])
HASHES = st.text("0123456789abcdef", min_size=32, max_size=32)
TIMES = st.floats(1.0e9, 2.2e9).map(repr)
NUMBERS = st.integers(0, 1 << 33).map(str)
ODD = st.sampled_from(
    ["", " 7", "07", "+7", "1_000", "٣", "7.", "1e9", "nan", "inf", "1763000000.50", "-1", "0x10"]
)
ODD |= st.sampled_from(["F" * 32, "0" * 31 + " ", "0" * 30 + "  ", "4294967296", "\ud800"])
#: UUIDs, and similar texts with a digit or a dash in another position.
UUIDS = st.uuids().map(str)
ODD |= st.builds(lambda text, at: f"{text[:at]}-{text[at + 1 :]}", UUIDS, st.integers(0, 35))
ODD |= UUIDS.map(str.upper) | UUIDS.map(lambda text: text.replace("-", "0"))
ENDS = [HASHES, TIMES, NUMBERS, UUIDS, UUIDS | ODD, HASHES | TIMES | NUMBERS | ODD]
TEXTS = st.sampled_from(ENDS).flatmap(
    lambda ends: st.lists(st.builds("{}-{}".format, HEADS, ends), min_size=1, max_size=6)
)


ODD_TUPLES = st.sampled_from(
    ["f', 01)", "f',)", "f', )", "f', 1))", "a'b', 1)", "f', -1)", "f', 1,2)", "f', 4294967296)"]
) | st.sampled_from(["f', 1_0)", "f', 1), 2)", "f', 'g', 1)", "f', \u0661)", "', 0)", "f-1"])
TUPLES = st.integers(0, 4).flatmap(
    lambda length: st.tuples(st.sampled_from(["f-1", ""]), *[st.integers(0, 1 << 32)] * length)
)


OF_TUPLES = st.lists(TUPLES.map(str) | ODD_TUPLES.map("('{}".format), min_size=1, max_size=4)


@given(TEXTS | OF_TUPLES)
def test_many_texts_are_split_as_one_by_one(texts: list[str]) -> None:
    heads, tails = split_keys(texts)
    pairs = [(head, tuple(words)) for head, words in zip(heads, tails.tolist(), strict=True)]
    assert pairs == [split_key(text) for text in texts]
    assert [join_key(head, tail) for head, tail in pairs] == texts


def test_texts_that_end_alike_share_their_heads() -> None:
    hashes = ["inc-" + "0123456789abcdef" * 2, "inc-" + "f" * 32]
    times = ["task-finished-1763640000.25", "task-finished-1763640001.0"]
    numbers = ["inc-0", "inc-4294967295"]
    uuids = [f"inc-{digits}-0123-4567-89ab-0123456789ab" for digits in ("01234567", "fedcba98")]
    for texts, kind in ((uuids, UUID), (hashes, HEX), (numbers, NUMBERED)):
        assert split_keys(texts)[0] == [(kind, "inc")] * 2
    assert split_keys(times)[0] == [(FLOAT, "task-finished")] * 2
    too_large = [(TEXT, "inc-4294967296"), (NUMBERED, "inc")]
    assert split_keys(["inc-4294967296", "inc-1"])[0] == too_large


CLOCK = st.floats(2.0**30, 2.0**31 - 2)
#: Numbers as `repr` writes them, and other forms: additional zero, rounded, another last digit.
CLOCK_TEXTS = CLOCK.map(repr) | st.one_of(
    CLOCK.map("{!r}0".format),
    CLOCK.map("{:.6f}".format),
    CLOCK.map("{:.7f}".format),
    st.builds("{:.7f}".format, CLOCK.map(lambda seconds: seconds + 1e-7)),
)


@given(
    st.lists(CLOCK.map(repr), min_size=1, max_size=20)
    | st.lists(CLOCK_TEXTS, min_size=1, max_size=3)
)
def test_times_are_read_many_at_a_time(texts: list[str]) -> None:
    ticks = many_time_ticks(texts)
    assert ticks is None or ticks.tolist() == [time_ticks(text) for text in texts]


def test_the_times_of_a_day_are_read_many_at_a_time() -> None:
    """Only the few that are midway between two decimals are read one by one."""
    texts = [repr(1_763_640_000 + number * 86.4) for number in range(1000)]
    fast = [many_time_ticks(texts[at : at + 10]) is not None for at in range(0, 1000, 10)]
    assert sum(fast) >= 99


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
