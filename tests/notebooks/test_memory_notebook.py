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


def test_the_run_that_fits_takes_what_was_foretold(
    executed: list[Any], request: pytest.FixtureRequest
) -> None:
    least, real, most = ast.literal_eval(output(executed, "[round(float(size))"))
    assert least < most
    # On a crowded machine one worker gets to more blocks than the other, of 20 MB each.
    blocks = 2 if request.config.getoption("--long") else 6
    assert least - blocks * 20 <= real <= most + blocks * 20
    assert real < 570  # from where on it would have been killed
