"""The notebook about a killed worker, executed from begin to end in a kernel of its own."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from executed_notebook import assert_without_outputs, execute, output

pytestmark = pytest.mark.whole_program

NOTEBOOK = "memory.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run."""
    return execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


def test_it_is_committed_without_outputs() -> None:
    assert_without_outputs(NOTEBOOK)


def test_the_culprit_is_named(executed: list[Any]) -> None:
    deaths = output(executed, 'deaths[["Worker"')
    assert "normalise" in deaths and ("certain" in deaths or "likely" in deaths)
    assert ast.literal_eval(output(executed, 'list(deaths["Because"])'))


def test_what_was_held_names_who_asked(executed: list[Any]) -> None:
    peak = output(executed, 'peak[["Time (s)"')
    assert "for the client" in peak and "load" in peak


def test_one_worker_would_not_do(executed: list[Any]) -> None:
    forecast = output(executed, 'forecast[["Workers"')
    assert "not fit" in forecast and "killed" in forecast
    assert "Not to be foretold" not in forecast


def test_the_run_that_fits_takes_what_was_foretold(executed: list[Any]) -> None:
    least, real, most = ast.literal_eval(output(executed, "[round(float(size))"))
    # On a crowded machine it may be a block more or less, of 20 MB.
    assert least - 40 <= real <= most + 40
    assert real < 570
