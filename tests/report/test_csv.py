"""Tables as CSV: read back with the standard library's reader."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from dasfprof.report.formats.tables import defuse, write_csv


def read_back(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("\n=1", "'\n=1"),
        ("  =1", "'  =1"),
        ("＝1", "'＝1"),  # noqa: RUF001
        ('=HYPERLINK("http://x";"y")', '\'=HYPERLINK("http://x";"y")'),
        ("('sum-1', 0)", "('sum-1', 0)"),
        ("a=b", "a=b"),
        ("", ""),
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


def test_no_rows_leave_the_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"Host": pd.Series(dtype=object), "Duration (s)": pd.Series(dtype=float)})
    assert read_back(write_csv(frame, tmp_path / "table.csv")) == [["Host", "Duration (s)"]]


def test_labels_with_lone_surrogates(tmp_path: Path) -> None:
    frame = pd.DataFrame([[1.0]], columns=pd.Index(["w-\udcff"], dtype=object))
    assert read_back(write_csv(frame, tmp_path / "table.csv")) == [["w-\\udcff"], ["1.0"]]


def test_two_workers_of_one_label_keep_their_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame([[0, 1.0, "=x"]], columns=["Second", "w", "w"])
    assert read_back(write_csv(frame, tmp_path / "table.csv"))[1] == ["0", "1.0", "'=x"]
