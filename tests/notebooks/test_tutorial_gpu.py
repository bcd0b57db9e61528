"""The notebook about GPUs, executed as it runs where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from executed_notebook import assert_without_outputs, execute, output

pytestmark = pytest.mark.whole_program

NOTEBOOK = "tutorial_gpu.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run."""
    return execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


def test_it_is_committed_without_outputs() -> None:
    assert_without_outputs(NOTEBOOK)


def test_centres_and_tables(executed: list[Any]) -> None:
    assert output(executed, "k_means(", "text/plain").count("[") == 4
    functions = output(executed, "functions.head(10)", "text/html")
    for label in ("Mean GPU Utilization (%)", "Mean GPU Memory Used (GB)", "sum_by_nearest"):
        assert label in functions
    assert "GPU Samples" in output(executed, "analyser.per_task_bottleneck()", "text/html")


def test_why_there_are_no_readings(executed: list[Any]) -> None:
    devices = output(executed, "analyser.per_gpu_utilisation()", "text/html")
    notes = output(executed, "[note.text for note in", "text/plain")
    assert "GPU" in devices
    assert "GPU" in notes
