"""The notebook, executed from begin to end in a kernel of its own."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from executed_notebook import assert_without_outputs, execute, output

pytestmark = pytest.mark.whole_program

NOTEBOOK = "tutorial.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run."""
    question = "functions.groupby('Function')['Num Tasks (chunks)'].sum().to_dict()"
    return execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"), question)


def test_it_is_committed_without_outputs() -> None:
    assert_without_outputs(NOTEBOOK)


def test_nothing_is_written_to_standard_error(executed: list[Any]) -> None:
    text = "".join(
        item["text"]
        for cell in executed
        for item in cell.outputs
        if item.output_type == "stream" and item["name"] == "stderr"
    )
    # Progress bars are shown in a notebook; on a busy machine Dask itself may say that it waits.
    lines = [line for line in text.replace("\n", "\r").split("\r") if line.strip()]
    assert all("%|" in line or " - distributed." in line for line in lines), text


def test_the_centres_are_found(executed: list[Any]) -> None:
    # Normalised, the three centres are as far apart as they were: all coordinates differ.
    assert output(executed, "k_means(points)").count("[") == 4


def test_two_workers_and_a_scheduler_have_files(executed: list[Any]) -> None:
    names = output(executed, "    print(path.name)").split()
    assert len(names) == 6  # two of each worker, the scheduler's and the client's
    assert sum("TracePlugin" in name for name in names) == 2
    assert "with 6 databases" in output(executed, "database")


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
