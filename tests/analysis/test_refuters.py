"""The refuters: each rule has one, and a finding whose figures or cause are changed is refuted."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from diagnosed_plans import found
from refuters import REFUTERS, refute
from refuters.figures import taken_apart
from refuters.steps import Steps
from traces import Plan, Task, filled

from dasfprof.analysis.diagnosis import RULES


def test_each_rule_has_a_refuter() -> None:
    assert REFUTERS.keys() == {*RULES, "rule-failed"}


@pytest.mark.parametrize(
    ("pattern", "text", "low", "high"),
    [
        ("took {duration} in", "it took 2.1 s in f", 2.0950001, 2.1049999),
        ("took {duration} in", "it took 36.6 ms in f", 0.03655001, 0.03664999),
        ("took {duration} in", "it took 52 µs in f", 51.951e-6, 52.049e-6),
        ("took {duration} in", "it took 2 min 5 s in f", 124.501, 125.499),
        ("took {duration} in", "it took 3 h 20 min in f", 11970.1, 12029.9),
        ("had {size} of", "had 97 MB of it", 96.951e6, 97.049e6),
        ("had {size} of", "had 312 B of it", 311.6, 312.4),
        ("for {share} of", "for 36 % of it", 0.35501, 0.36499),
        ("for {share} of", "for 2.4 % of it", 0.023501, 0.024499),
        ("{factor} times", "1.3 times", 1.2501, 1.3499),
        ("{factor} times", "12 times", 11.51, 12.49),
        ("{count} task", "13,954 tasks", 13954, 13954),
    ],
)
def test_a_figure_shows_what_rounds_to_it(pattern: str, text: str, low: float, high: float) -> None:
    found = taken_apart(pattern, text)
    assert found is not None
    (figure,) = found.values()

    assert figure.shows(low) and figure.shows(high)
    assert not figure.shows(low * 0.99 - 1e-9) and not figure.shows(high * 1.02 + 1e-3)


def test_steps() -> None:
    two, one = Steps.of([0.0, 1.0], [4.0, 3.0]), Steps.of([2.0], [5.0])

    assert two.integral() == 6.0
    assert two.integral(0.5, 2.0) == 2.5
    assert two.least(one).integral() == 2.0
    assert two.less(one).integral() == 4.0
    assert two.where(lambda number: number == 2).integral() == 2.0


def slow_function() -> Plan:
    tasks = filled(["load"], 0.1)
    for number in range(16):
        turn, lane = divmod(number, 4)
        worker, thread = divmod(lane, 2)
        tasks.append(Task(f"fit-{number}", worker, 0.4 + turn, 1.4 + turn, thread=thread))
    return Plan(tasks)


def changed(findings: dict[str, dict[str, object]], words: str, others: str) -> pd.DataFrame:
    """Return findings as a table in which a text is another."""
    table = pd.DataFrame(list(findings.values()))
    texts = ["Finding", "Evidence", "Suggestion"]
    before = table[texts].to_string()
    table[texts] = table[texts].map(lambda text: text.replace(words, others))
    assert table[texts].to_string() != before
    return table


@pytest.mark.parametrize(
    ("words", "others"),
    [
        ("fit has", "load has"),
        ("91 %", "99 %"),
        ("1 s a task", "1.01 s a task"),
        ("16 tasks", "17 tasks"),
        ("16 s in all", "16.1 s in all"),
        ("100 ms on average", "101 ms on average"),
        ("100 % of its time", "99 % of its time"),
        ("One function takes most", "A function takes most"),
    ],
)
def test_each_changed_figure_is_refuted(words: str, others: str, tmp_path: Path) -> None:
    findings = found(slow_function(), tmp_path)
    assert findings.keys() == {"dominating-function"}
    table = changed(findings, words, others)
    if words == "fit has":
        table["Function"] = "load"

    # The beginning of the sentence is none of its figures.
    assert bool(refute(tmp_path, table)) == (words != "One function takes most")


def test_seconds_beyond_the_run_and_shares_beyond_all_are_refuted(tmp_path: Path) -> None:
    table = pd.DataFrame(list(found(slow_function(), tmp_path).values()))
    table["Seconds at stake (s)"] = 4.5
    table["Evidence"] += " That is 401 % of it."

    (seconds, share) = refute(tmp_path, table)
    assert "4.5 s are at stake in a run of 4.4 s" in seconds
    assert "a share of 401 %" in share


def test_a_sentence_that_has_changed_is_not_passed_over(tmp_path: Path) -> None:
    findings = found(slow_function(), tmp_path)

    (told,) = refute(tmp_path, changed(findings, "a task (the", "each (the"))
    assert re.search("the refuter finds no '.*a task", told)
