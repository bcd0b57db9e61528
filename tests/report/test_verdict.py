"""The first sentences of a report."""

import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from traces import Plan, Task

from dasfprof.report.run_summary import summarise, verdict

SHARES = {"Computing": 21.0, "Task overhead": 42.0, "Waiting for CPU": 17.0, "Blocked": 4.9}
RAN = {"tasks": 540, "failed": 0, "unfinished": 0, "seconds": 29.5, "threads": 4.0}
RAN["first_task"] = None


def accounting(shares: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame({"Class": [*shares], "Share (%)": [*shares.values()]})


def findings(*rows: tuple[str, float, str, str], severity: str = "high") -> pd.DataFrame:
    columns = ["Rule", "Seconds at stake (s)", "Finding", "Suggestion"]
    return pd.DataFrame(rows, columns=columns).assign(Severity=severity)


SMALL = ("tasks-too-small", 15.0, "Tasks are too small: 5 of them.", "Batch inputs; or fuse. So.")
SLOW = ("slow-worker", 20.0, "x", "y")
FAILED = ("failed-tasks", float("nan"), "6 tasks failed in client.load: KeyError.", "Mend load().")
LEFT = ("unfinished-run", 15.0, "1 task was left: it hung.", "Look at it.")
#: Advice and sentence of the first finding, up to a colon or semicolon.
SMALL_SAID = "Batch inputs. Tasks are too small."


@pytest.mark.parametrize(
    ("facts", "found", "said"),
    [
        ({}, [], "No known problem was found, so nothing needs to be changed."),
        ({}, [SMALL, SLOW], "To save about 15 s of 29.5 s, batch inputs. Tasks are too small."),
        ({"failed": 6}, [], "6 of 540 task runs failed."),
        ({"failed": 6}, [FAILED, SMALL], "Mend load(). 6 tasks failed in client.load."),
        ({"unfinished": 1}, [SMALL], f"1 task did not finish. {SMALL_SAID}"),
        ({"unfinished": 1}, [LEFT], "Look at it. 1 task was left."),
        ({"seconds": None}, [SMALL], SMALL_SAID),
    ],
)
def test_headline(facts: dict[str, Any], found: list[Any], said: str) -> None:
    headline = verdict({**RAN, **facts}, accounting(SHARES), findings(*found))["headline"]
    assert headline == said


def test_findings_that_are_not_severe_and_the_longest_stage_before_the_first_task() -> None:
    first = {"seconds": 6.0, "stages": {"program": 5.0, "pickling": 1.0, "sending": None}}
    facts = {**RAN, "first_task": first}
    told = verdict(facts, accounting(SHARES), findings(SMALL, severity="low"))
    assert told["headline"].startswith("No severe problem was found")
    assert told["start"] == "5 s until the program sent a graph"


def test_what_time_was_spent_on() -> None:
    """The three largest categories, as percentages of thread time if that is known."""
    spent = verdict(RAN, accounting(SHARES), findings())["spent"]
    told = ("29.5 s", "4 threads", "21 % computing", "42 % task overhead", "17 % waiting for CPU")
    assert all(words in spent for words in told)
    assert "blocked" not in spent
    spent = verdict({**RAN, "threads": None}, accounting({}), findings())["spent"]
    assert "29.5 s" in spent and "thread" not in spent
    assert verdict({**RAN, "tasks": 0}, accounting({}), findings())["spent"] == ""


def test_the_first_sentence_of_an_oversubscribed_run(tmp_path: Path) -> None:
    """Two workers with two threads compute for half of four seconds and otherwise wait for CPU."""
    facts = {"cpu": 0.5, "run_queue": 0.5}
    places = itertools.product(range(4), (0, 1), (1, 2))
    tasks = [
        Task(f"loop-{at}{worker}{thread}", worker, at, at + 1.0, thread=thread, **facts)
        for at, worker, thread in places
    ]
    analyser = Plan(tasks, workers=2, threads=2, cores=2).write(tmp_path)
    found = verdict(summarise(analyser.run), analyser.time_accounting(), analyser.diagnose())
    # Two threads would take as long for the eight CPU seconds, so there are no known savings.
    assert "stake" not in found["headline"]
    assert all(part in found["spent"] for part in ("4 s", "50 % computing", "50 % waiting"))
