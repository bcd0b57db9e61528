"""The sentences that a report begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from traces import Plan, Task

from dasfprof.report.run_summary import summarise, verdict

SHARES = {"Computing": 21.0, "Task overhead": 42.0, "Waiting for a core": 17.0, "Blocked": 4.9}
RAN = {"tasks": 540, "failed": 0, "unfinished": 0, "seconds": 29.5, "threads": 4.0}


def accounting(shares: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame({"Class": [*shares], "Share (%)": [*shares.values()]})


def findings(*rows: tuple[str, float, str, str]) -> pd.DataFrame:
    columns = ["Rule", "Seconds at stake (s)", "Finding", "Suggestion"]
    return pd.DataFrame(rows, columns=columns)


SPENT = "29.5 s on 4 threads: 21 % computing, 42 % task overhead, 17 % waiting for a core."
NONE = findings()
SMALL = ("tasks-too-small", 15.0, "Tasks are too small: 5 of them.", "Batch inputs; or fuse. So.")
SMALL_SAID = "Tasks are too small. Batch inputs."
FAILED = ("errors", float("nan"), "6 tasks failed in client.load: KeyError.", "Mend load().")


@pytest.mark.parametrize(
    ("summary", "shares", "found", "headline", "spent"),
    [
        (RAN, SHARES, NONE, "Nothing to change was found.", SPENT),
        (
            RAN,
            SHARES,
            findings(SMALL, ("slow-worker", 20.0, "x", "y")),
            f"About 15 s of 29.5 s is at stake. {SMALL_SAID}",
            SPENT,
        ),
        ({**RAN, "failed": 6}, SHARES, NONE, "6 of 540 task runs failed.", SPENT),
        (
            {**RAN, "failed": 6},
            SHARES,
            findings(FAILED, SMALL),
            "6 tasks failed in client.load. Mend load().",
            SPENT,
        ),
        (
            {**RAN, "unfinished": 1},
            SHARES,
            findings(SMALL),
            f"1 task had not ended. {SMALL_SAID}",
            SPENT,
        ),
        (
            {**RAN, "unfinished": 1},
            SHARES,
            findings(("unfinished-run", 15.0, "1 task was left: it hung.", "Look at it.")),
            "1 task was left. Look at it.",
            SPENT,
        ),
        ({**RAN, "tasks": 0}, {}, NONE, "No task ran.", ""),
        ({**RAN, "threads": None}, {}, NONE, "Nothing to change was found.", "29.5 s."),
        (
            {**RAN, "seconds": None},
            {},
            findings(SMALL),
            SMALL_SAID,
            "A run of unknown length on 4 threads.",
        ),
    ],
)
def test_verdict(
    summary: dict[str, Any],
    shares: dict[str, float],
    found: pd.DataFrame,
    headline: str,
    spent: str,
) -> None:
    assert verdict(summary, accounting(shares), found) == (headline, spent)


def test_the_first_sentence_of_an_oversubscribed_run(tmp_path: Path) -> None:
    """Two workers of two threads each compute for half of four seconds and wait for a core."""
    facts = {"cpu": 0.5, "run_queue": 0.5}
    tasks = [
        Task(f"loop-{second}{worker}{thread}", worker, second, second + 1.0, thread=thread, **facts)
        for second in range(4)
        for worker in (0, 1)
        for thread in (1, 2)
    ]
    analyser = Plan(tasks, workers=2, threads=2, cores=2).write(tmp_path)
    found = verdict(summarise(analyser.run), analyser.time_accounting(), analyser.diagnose())
    # Two threads would take as long for the eight CPU seconds: nothing is known to be at stake.
    assert found.headline == "The hosts have too few cores. Run fewer threads."
    assert found.spent.startswith("4 s on 4 threads: 50 % computing, 50 % waiting for a core")
