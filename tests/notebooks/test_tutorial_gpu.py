"""The notebook about GPUs, executed as it runs where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "tutorial_gpu.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run in an empty directory."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(place)}}
    )
    client.execute()
    assert list(place.iterdir()) == [], "it leaves nothing behind"
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cells: list[Any], begin: str, form: str) -> str:
    """Give what the one cell shows whose last line begins so."""
    (cell,) = (cell for cell in cells if cell.source.splitlines()[-1].startswith(begin))
    texts = [item["data"][form] for item in cell.outputs if item.output_type == "execute_result"]
    return "".join(texts)


def test_it_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_centres_and_tables(executed: list[Any]) -> None:
    assert shown(executed, "k_means(", "text/plain").count("[") == 4
    functions = shown(executed, "functions.head(10)", "text/html")
    for label in ("Mean GPU Utilization (%)", "Mean GPU Memory Used (GB)", "sum_by_nearest"):
        assert label in functions
    assert "GPU Samples" in shown(executed, "analyser.per_task_bottleneck()", "text/html")


def test_why_there_are_no_readings(executed: list[Any]) -> None:
    devices = shown(executed, "analyser.per_gpu_utilisation()", "text/html")
    notes = shown(executed, "analyser.trace.notes", "text/plain")
    assert "GPU" in devices
    assert "GPU" in notes
