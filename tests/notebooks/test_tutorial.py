"""The notebook, executed from begin to end in a kernel of its own."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run in an empty directory."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    question = "functions.groupby('Function')['Num Tasks (chunks)'].sum().to_dict()"
    notebook.cells.insert(-1, nbformat.v4.new_code_cell(question))
    place = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(place)}}
    )
    client.execute()
    assert list(place.iterdir()) == [], "it leaves nothing behind"
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def output(cells: list[Any], begin: str, form: str = "text/plain") -> str:
    """Give what the one cell shows whose last line begins so."""
    (cell,) = (cell for cell in cells if cell.source.splitlines()[-1].startswith(begin))
    texts = [item["data"][form] for item in cell.outputs if item.output_type == "execute_result"]
    texts += [item["text"] for item in cell.outputs if item.output_type == "stream"]
    return "".join(texts)


def test_it_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_nothing_is_written_to_standard_error(executed: list[Any]) -> None:
    text = "".join(
        item["text"]
        for cell in executed
        for item in cell.outputs
        if item.output_type == "stream" and item["name"] == "stderr"
    )
    # Progress bars are shown in a notebook, and nothing else.
    assert all("%|" in line for line in text.split("\r") if line.strip()), text


def test_the_centres_are_found(executed: list[Any]) -> None:
    # Normalised, the three centres are as far apart as they were: all coordinates differ.
    assert output(executed, "k_means(points)").count("[") == 4


def test_two_workers_and_a_scheduler_have_files(executed: list[Any]) -> None:
    names = output(executed, "    print(path.name)").split()
    assert len(names) == 5
    assert sum("TracePlugin" in name for name in names) == 2
    assert "with 5 databases" in output(executed, "database")


def test_tables(executed: list[Any]) -> None:
    functions = output(executed, "functions.head(10)", "text/html")
    for label in ("Percentage of total time (%)", "Num Tasks (chunks)", "sum_by_nearest"):
        assert label in functions
    tasks = output(executed, "analyser.per_task_bottleneck()", "text/html")
    assert "Memory usage (Mb)" in tasks
    balance = output(executed, "analyser.per_worker_task_balance()", "text/html")
    assert "Time Interval (seconds from begin)" in balance


def test_every_task_run_of_a_function_is_counted(executed: list[Any]) -> None:
    counts = ast.literal_eval(output(executed, "functions.groupby"))
    assert counts["sum_by_nearest"] == 20 * 8, "20 chunks in each of 8 iterations"
    assert counts["truediv"] == 20
