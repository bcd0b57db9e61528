"""The notebook about lines and the plan, executed from begin to end in a kernel of its own."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from executed_notebook import assert_without_outputs, execute, output

pytestmark = pytest.mark.whole_program

NOTEBOOK = "lines.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run."""
    return execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


def test_it_is_committed_without_outputs() -> None:
    assert_without_outputs(NOTEBOOK)


def test_the_ledger_sums_to_the_time_of_all_threads(executed: list[Any]) -> None:
    ledger, accounts = ast.literal_eval(output(executed, "round(float(ledger"))
    assert ledger == accounts > 0


def test_what_is_read_twice_is_read_once_then(executed: list[Any]) -> None:
    read = ast.literal_eval(output(executed, "{name: of_line"))
    assert [tasks for tasks, _ in read.values()] == [24, 12]
    # 200 ms of sleep each, and 20 ms of calibrating in the first run.
    assert read["first"][1] > 24 * 0.22
    assert read["second"][1] > 12 * 0.2
    first, second = ast.literal_eval(output(executed, "[round(float(table"))
    assert first > 0 and second > 0
