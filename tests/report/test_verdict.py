"""The sentences that a report begins with."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dasfprof.report.verdict import verdict

SHARES = {"Computing": 21.0, "Task overhead": 42.0, "Waiting for a core": 17.0, "Blocked": 4.9}
RAN = {"tasks": 540, "failed": 0, "unfinished": 0, "seconds": 29.5, "threads": 4.0}


def accounting(shares: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame({"Class": [*shares], "Share (%)": [*shares.values()]})


def findings(*rows: tuple[str, float, str | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["Severity", "Seconds at stake (s)", "Cause"])


CLASSES = "29.5 s on 4 threads: 21 % computing, 42 % task overhead, 17 % waiting for a core."
NONE = findings()


@pytest.mark.parametrize(
    ("summary", "shares", "found", "told"),
    [
        (RAN, SHARES, NONE, CLASSES),
        (
            RAN,
            SHARES,
            findings(("high", 15.0, None), ("medium", 20.0, None)),
            f"{CLASSES} The first finding is about 15 s of it.",
        ),
        (
            RAN,
            SHARES,
            findings(("high", float("nan"), None), ("low", 9.0, "errors"), ("high", 2.0, None)),
            f"{CLASSES} Finding 3 is about 2 s of it.",
        ),
        ({**RAN, "failed": 6}, SHARES, NONE, f"6 of 540 task runs failed. {CLASSES}"),
        (
            {**RAN, "unfinished": 1},
            SHARES,
            findings(("high", 15.0, None)),
            f"1 task had not ended. {CLASSES}",
        ),
        ({**RAN, "tasks": 0}, {}, NONE, "No task ran."),
        ({**RAN, "threads": None}, {}, NONE, "29.5 s."),
        ({**RAN, "seconds": None}, {}, NONE, "A run of unknown length on 4 threads."),
    ],
)
def test_verdict(
    summary: dict[str, Any], shares: dict[str, float], found: pd.DataFrame, told: str
) -> None:
    assert verdict(summary, accounting(shares), found) == told
