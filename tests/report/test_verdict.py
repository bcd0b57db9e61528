"""The sentences that a report begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from traces import Plan, Task

from dasfprof.report.run_summary import summarise, verdict

SHARES = {"Computing": 21.0, "Task overhead": 42.0, "Waiting for CPU": 17.0, "Blocked": 4.9}
RAN = {"tasks": 540, "failed": 0, "unfinished": 0, "seconds": 29.5, "threads": 4.0}


def accounting(shares: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame({"Class": [*shares], "Share (%)": [*shares.values()]})


def findings(*rows: tuple[str, float, str, str]) -> pd.DataFrame:
    columns = ["Rule", "Seconds at stake (s)", "Finding", "Suggestion"]
    return pd.DataFrame(rows, columns=columns)


SMALL = ("tasks-too-small", 15.0, "Tasks are too small: 5 of them.", "Batch inputs; or fuse. So.")
SLOW = ("slow-worker", 20.0, "x", "y")
FAILED = ("failed-tasks", float("nan"), "6 tasks failed in client.load: KeyError.", "Mend load().")
LEFT = ("unfinished-run", 15.0, "1 task was left: it hung.", "Look at it.")
#: What the first finding says and advises, without what is behind a colon or a semicolon.
SMALL_SAID = ("Tasks are too small. ", "Batch inputs.")


@pytest.mark.parametrize(
    ("facts", "found", "said"),
    [
        ({}, [], ()),
        ({}, [SMALL, SLOW], ("15 s", "29.5 s", *SMALL_SAID)),
        ({"failed": 6}, [], ("6 of 540",)),
        ({"failed": 6}, [FAILED, SMALL], ("6 tasks failed in client.load. ", "Mend load().")),
        ({"unfinished": 1}, [SMALL], ("1 task", *SMALL_SAID)),
        ({"unfinished": 1}, [LEFT], ("1 task was left. ", "Look at it.")),
        ({"seconds": None}, [SMALL], SMALL_SAID),
    ],
)
def test_headline(facts: dict[str, Any], found: list[Any], said: tuple[str, ...]) -> None:
    headline, _ = verdict({**RAN, **facts}, accounting(SHARES), findings(*found))
    assert all(words in headline for words in said)
    assert not [word for word in ("KeyError", "fuse", "hung") if word in headline]


def test_what_time_was_spent_on() -> None:
    """The three largest classes, of the threads' time if their number is known."""
    _, spent = verdict(RAN, accounting(SHARES), findings())
    told = (
        "29.5 s",
        "4 threads",
        "21 % computing",
        "42 % task overhead",
        "17 % waiting for CPU",
    )
    assert all(words in spent for words in told)
    assert "blocked" not in spent
    _, spent = verdict({**RAN, "threads": None}, accounting({}), findings())
    assert "29.5 s" in spent and "thread" not in spent
    assert verdict({**RAN, "tasks": 0}, accounting({}), findings()).spent == ""


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
    assert "stake" not in found.headline
    assert all(part in found.spent for part in ("4 s", "50 % computing", "50 % waiting"))
