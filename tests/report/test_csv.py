"""Tables as CSV files, read with the standard library."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from dasfprof.report.formats.tables import defuse, write_csv


def read_back(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1")  # noqa: RUF001


@pytest.mark.parametrize(
    ("text", "written"),
    [
        *((formula, f"'{formula}") for formula in (*FORMULAS, '=HYPERLINK("http://x";"y")')),
        *((text, text) for text in ("('sum-1', 0)", "a=b", "")),
        ("a\0b", "a\\x00b"),
    ],
)
def test_formulas_are_defused(text: str, written: str) -> None:
    assert defuse(text) == written


def test_values_come_back(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "Task Key": ["=cmd|' /C calc'!A0", 'say "hi", twice', "two\nlines"],
            "Duration (s)": [0.1, -2.5, 1e-9],
            "GPU": pd.array([1, None, -3], dtype="Int64"),
            "=worker": [1.0, float("nan"), 3.0],
            "Host": pd.Categorical(["-h", "größe", "plain"]),
            "Exception": pd.Series(["", "x\0", "file-\udcff"], dtype=object),
        }
    )
    path = write_csv(frame, tmp_path / "table.csv")
    assert read_back(path) == [
        ["Task Key", "Duration (s)", "GPU", "'=worker", "Host", "Exception"],
        ["'=cmd|' /C calc'!A0", "0.1", "1", "1.0", "'-h", ""],
        ['say "hi", twice', "-2.5", "", "", "größe", "x\\x00"],
        ["two\nlines", "1e-09", "-3", "3.0", "plain", "file-\\udcff"],
    ]
    assert frame["Task Key"][0] == "=cmd|' /C calc'!A0", "the caller's table is left as it was"

    # A table without rows keeps its labels. Two workers with the same label keep both columns.
    assert read_back(write_csv(frame.head(0), tmp_path / "none.csv")) == read_back(path)[:1]
    labels = pd.Index(["Second", "w", "w", "w-\udcff"], dtype=object)
    alike = pd.DataFrame([[0, 1.0, "=x", 1.0]], columns=labels)
    assert read_back(write_csv(alike, tmp_path / "alike.csv")) == [
        ["Second", "w", "w", "w-\\udcff"],
        ["0", "1.0", "'=x", "1.0"],
    ]
