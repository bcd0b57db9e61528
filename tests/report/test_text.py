"""Tables and names as text: exact layout, any width, and hostile content."""

import time
import unicodedata
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pandas as pd
import pytest

from dasfprof.report.terminal.tables import format_table
from dasfprof.text import (
    clean,
    count_of,
    display_width,
    elide,
    excerpt,
    format_duration,
    format_factor,
    format_share,
    format_size,
)

#: Objects, and their texts in a terminal.
SHOWN_AS: dict[Any, str] = {
    "\x1b[31mred\x1b[0m": "\\x1b[31mred\\x1b[0m",
    "\x1b]0;owned\x07": "\\x1b]0;owned\\x07",  # the title of the window
    "\x9b2J": "\\x9b2J",  # an 8-bit control
    **{"a\nb\rc\u2028d": "a\\nb\\rc\\u2028d", "a\tb\bc\x00": "a\\tb\\x08c\\x00"},
    "abc\u202ecba\u2066": "abc\\u202ecba\\u2066",  # from right to left
    "file-\udcff": "file-\\udcff",
    **{"('sum-1f', 3, 0)": "('sum-1f', 3, 0)", "größe 数据": "größe 数据", "a\xa0b": "a b"},
    **{("a", 1): "('a', 1)", None: "None"},
}


def test_clean_shows_what_a_terminal_would_obey() -> None:
    assert {text: clean(text) for text in SHOWN_AS} == SHOWN_AS


def test_elide_keeps_begin_and_end() -> None:
    shown = {
        **{("short", 5): "short", ("abcdefghij", 7): "abcd…ij", ("abc", 1): "…"},
        ("('sum-0123456789abcdef', 12, 7)", 20): "('sum-0123456…12, 7)",
        **{("数据数据数据", 7): "数据…据", ("数据数据数据", 6): "数据…"},
    }
    assert {(text, width): elide(text, width) for text, width in shown} == shown


def test_a_key_of_a_megabyte_is_shown_at_once() -> None:
    begin = time.process_time()
    assert elide("\x1b" * 500_000 + "数" * 500_000, 20).isprintable()
    frame = pd.DataFrame({"Task Key": ["k" * 1_000_000, "k"], "k" * 1_000_000: [1, 2]})
    assert max(map(len, format_table(frame, 80).splitlines())) <= 80
    assert time.process_time() - begin < 1


def test_display_width() -> None:
    assert display_width("abc") == 3
    assert display_width("数据") == 4
    assert display_width("e\u0301") == 1


#: Sizes and durations have three digits. Durations of at least two minutes have two units.
SHOWN: dict[Callable[[Any], str], dict[float, str]] = {
    format_size: {
        **{0: "0 B", 999: "999 B", 1000: "1 kB", 29_149: "29.1 kB", 99_950: "100 kB"},
        **{999_499: "999 kB", 999_500: "1 MB", 2_340_000: "2.34 MB", 3e18: "3,000 PB"},
        nan: "unknown",
    },
    format_duration: {
        **{0: "0 s", 52.1e-6: "52.1 µs", 0.9996e-3: "1 ms", 0.0096: "9.6 ms", 0.9996: "1 s"},
        **{4.0816: "4.08 s", 119.6: "120 s", 125: "2 min 5 s", 3599.7: "1 h 0 min"},
        **{12_000: "3 h 20 min", -4.0: "−4 s", inf: "unknown", nan: "unknown"},  # noqa: RUF001
    },
    format_share: {
        **{0.0: "0 %", 5.98e-5: "under 0.1 %", 0.0241: "2.4 %", 0.36: "36 %", 1.0: "100 %"},
        nan: "unknown",
    },
    format_factor: {1.25: "1.2", 12.4: "12", 1234.0: "1,234"},
    lambda number: count_of(number, "file"): {0: "0 files", 1: "1 file", 1200: "1,200 files"},
}


@pytest.mark.parametrize("written", SHOWN)
def test_numbers_as_text(written: Callable[[Any], str]) -> None:
    assert {number: written(number) for number in SHOWN[written]} == SHOWN[written]


def test_excerpts_are_one_line() -> None:
    assert excerpt("no\n  answer") == "no answer"
    assert excerpt("x" * 300) == "x" * 199 + "…"


FRAME = pd.DataFrame(
    {
        "Host": ["c096", "c096", "c096"],
        "GPU": pd.array([None, None, None], dtype="Int64"),
        "Function": ["sum_by_nearest", "load", "rechunk-merge"],
        "Duration (s)": [12.345678, 0.5, 0.0],
        "Percentage of total time (%)": [96.1055, 3.8944, float("nan")],
        "Num Tasks (chunks)": [100, 20, 1],
    }
)


def test_a_table_that_fits() -> None:
    assert format_table(FRAME, 80).splitlines() == [
        "                                Percentage       Num",
        "                      Duration    of total     Tasks",
        "Host  Function             (s)    time (%)  (chunks)",
        "────  ──────────────  ────────  ──────────  ────────",
        "c096  sum_by_nearest     12.35       96.11       100",
        "c096  load                0.50        3.89        20",
        "c096  rechunk-merge          0          NA         1",
        "NA in every row: GPU.",
    ]


def test_a_table_that_is_too_wide_says_what_is_not_in_it() -> None:
    assert format_table(FRAME, 40).splitlines() == [
        "                      Duration",
        "Host  Function             (s)",
        "────  ──────────────  ────────",
        "c096  sum_by_nearest     12.35",
        "c096  load                0.50",
        "c096  rechunk-merge          0",
        "NA in every row: GPU.",
        "Not shown: Percentage of total time (%),",
        "Num Tasks (chunks).",
    ]


def test_long_text_is_shortened_before_numbers_go() -> None:
    frame = pd.DataFrame({"Key": ["k" * 60, "short"], "Duration (s)": [1.25, 2.0]})
    assert format_table(frame, 40).splitlines() == [
        "                                Duration",
        "Key                                  (s)",
        "──────────────────────────────  ────────",
        "kkkkkkkkkkkkkkkkkkkk…kkkkkkkkk     1.250",
        "short                              2.000",
    ]


def test_expendable_columns_go_first() -> None:
    text = format_table(FRAME, 40, expendable=("Percentage of total time (%)",))
    assert "Not shown: Percentage of total time (%)." in " ".join(text.split())
    assert "(chunks)" in text


def test_names_of_many_left_out_columns_are_counted() -> None:
    frame = pd.DataFrame({"Second": [0], **{f"worker-{n}": [n] for n in range(100)}})
    text = format_table(frame, 40)
    kept = text.splitlines()[-3].split()
    assert f"and {100 - (len(kept) - 1) - 3} more." in " ".join(text.split())


@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    frame = FRAME.assign(
        **{
            "Task Key": list(SHOWN_AS)[:3],
            "Exception": ["x" * 500, "数" * 300, "a\nb"],
            "worker-" + "h" * 100: [1.5, 2.5, 3.5],
        }
    )
    for line in format_table(frame, width).splitlines():
        assert line.isprintable()
        wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
        assert wide <= max(width, 1)


def test_a_table_without_rows_has_its_labels() -> None:
    text = format_table(FRAME.head(0), 200)
    assert [line.split() for line in text.splitlines()[:3]] == [
        ["Percentage", "Num"],
        ["Duration", "of", "total", "Tasks"],
        ["Host", "GPU", "Function", "(s)", "time", "(%)", "(chunks)"],
    ]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([2.471439, 0.000052, 0.0], ["2.471", "0.000", "0"]),
        ([10.0, 12.0, float("nan")], ["10", "12", "NA"]),
        ([123456.789, 0.5], ["123457", "0"]),
        ([0.00001234], ["0.000012"]),
        ([float("inf"), 1.5], ["inf", "1.500"]),
        ([-1.5, -20.25], ["-1.50", "-20.25"]),
    ],
)
def test_numbers_have_the_decimals_of_the_largest(values: list[float], shown: list[str]) -> None:
    lines = format_table(pd.DataFrame({"x": values}), 80).splitlines()
    assert [line.strip() for line in lines[2:]] == shown


def test_nullable_and_categorical_columns() -> None:
    frame = pd.DataFrame(
        {
            "GPU": pd.array([0, None], dtype="Int64"),
            "Utilization": pd.array([0.25, None], dtype="Float64"),
            "Worker": pd.Categorical(["w0", "w1"]),
            "Name": ["a", None],
        }
    )
    rows = [line.split() for line in format_table(frame, 80).splitlines()[2:]]
    assert rows == [["0", "0.2500", "w0", "a"], ["NA", "NA", "w1", "NA"]]


def test_what_is_said_of_every_row_is_true_of_rows_that_are_not_shown() -> None:
    rows = {
        "Function": ["a_long_name", *"bcd"],
        "Failed Tasks": [0, 0, 0, 6],
        "Other": [7, 7, 7, 8],
        "Mean (MB)": [nan, nan, nan, 1.5],
        "Nothing": [nan] * 4,
    }
    text = format_table(pd.DataFrame(rows), 24, rows=3, expendable=("Failed Tasks", "Other"))
    told = " ".join(text.splitlines()[5:])
    assert "NA in every row: Nothing." in told
    assert "Failed Tasks is above 0 in rows that are not shown." in told
    assert "Failed Tasks is 0" not in told
    assert "Failed" in text.splitlines()[0], "there are failures: the column stays"
