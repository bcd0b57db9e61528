"""The notebook about the diagnosis, executed from begin to end in a kernel of its own."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from executed_notebook import assert_without_outputs, execute, output

pytestmark = pytest.mark.whole_program

NOTEBOOK = "diagnose.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run."""
    return execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


def test_it_is_committed_without_outputs() -> None:
    assert_without_outputs(NOTEBOOK)


def test_the_finding_that_the_notebook_follows(executed: list[Any]) -> None:
    told = output(executed, "print(again")
    assert told.startswith("Results are computed more than once")
    assert "persist() what is built at In[" in told


def test_each_change_makes_the_run_faster(executed: list[Any]) -> None:
    seconds = ast.literal_eval(output(executed, "{name: round"))
    # 180 times 50 ms of sleep on two threads against 20 times, and 4 times.
    assert seconds["first"] > 4.5
    # On a quiet machine a third of it. A slow moment may come in any of the runs.
    assert seconds["second"] < 0.9 * seconds["first"]
    assert seconds["third"] < 0.9 * seconds["first"]


def test_the_seconds_foretold_are_saved(executed: list[Any]) -> None:
    before, after = output(executed, 'print(f"foretold').splitlines()
    was, now = (float(words.split()[0]) for words in before.split(","))
    foretold = float(after.split()[1])
    assert 0.3 * (was - now) < foretold < was


def test_it_ends_with_both_runs_side_by_side(executed: list[Any]) -> None:
    told = output(executed, "comparison = %dasfprof_compare")
    assert " → third-" in told
    assert "faster (" in told
    summed = re.search(r"(-[\d.]+) s of (-[\d.]+) s", output(executed, "waterfall[["))
    assert summed is not None
    parts, whole = map(float, summed.groups())
    assert parts == whole < -1.0


def test_it_ends_with_a_proven_gain(executed: list[Any]) -> None:
    told = output(executed, "print(trial)")
    # A hundred reads of 50 ms: fifty on each of two threads, or ten on each of ten.
    assert told.startswith("threads_per_worker=5: Gained ")
    assert "It returns the same with the change and without." in told
