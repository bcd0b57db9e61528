"""The gallery, executed from begin to end in a kernel of its own."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from executed_notebook import assert_without_outputs, execute, output

pytestmark = pytest.mark.whole_program

NOTEBOOK = "gallery.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give the notebook's cells of code after a run."""
    question = "analyser.per_function_status()[['Function', 'Task Runs']].values.tolist()"
    return execute(NOTEBOOK, tmp_path_factory.mktemp("notebook"), question)


def test_it_is_committed_without_outputs() -> None:
    assert_without_outputs(NOTEBOOK)


def test_the_profiled_cell_shows_its_result_and_the_report(executed: list[Any]) -> None:
    (cell,) = (cell for cell in executed if cell.source.startswith("%%dasfprof gallery"))
    # On a busy machine Dask logs that its loop was held up.
    logged = [one["text"] for one in cell.outputs if one["output_type"] == "stream"]
    assert not any("dasfprof" in text for text in logged)
    result, view = (one for one in cell.outputs if one["output_type"] != "stream")
    assert float(result["data"]["text/plain"]) > 0
    assert "73 task runs of 4 functions, on 2 workers, 4 threads" in view["data"]["text/plain"]
    assert "<iframe" in view["data"]["text/html"]


def test_every_task_run_is_counted(executed: list[Any]) -> None:
    counts = ast.literal_eval(output(executed, "analyser.per_function_status()[["))
    assert dict(counts) == {"read_image": 24, "denoise": 24, "brightness": 24, "total": 1}
    assert output(executed, "graph.number_of_nodes()") == "(73, 72)"


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        ("analyser.diagnose()", ["Seconds at stake (s)", "denoise"]),
        ("bars(analyser.time_accounting()", ["Computing", "Blocked"]),
        ("bars(analyser.critical_path_summary()", ["Compute", "denoise"]),
        ("analyser.per_function_bottleneck()", ["Percentage of total time (%)", "read_image"]),
        ("analyser.per_task_bottleneck()", ["Memory usage (Mb)", "denoise-"]),
        ("analyser.per_step_bottleneck()", ["read", "filter", "measure"]),
        ("analyser.per_function_status()", ["Dominant Status", "Next steps"]),
        ("analyser.stragglers()", ["larger input"]),
        ("analyser.imbalance()", ["Max/Mean of Workers"]),
        ("analyser.per_worker_task_balance()", ["Time Interval (seconds from begin)"]),
        ("analyser.transfers()", ["From Worker", "To Worker"]),
        ("bars(scaling[", ["Efficiency (%)"]),
        ("analyser.what_if(", ["denoise: 2 times as fast"]),
        ('bars(inside.analyser.hot_lines("sharpen")', ["Computing (s)", "Waiting (s)", "sharpen"]),
        ('inside.analyser.call_tree("sharpen")', ["Self (s)", "sharpen"]),
        ("inside.analyser.client_activity()", ["waiting"]),
        ("inside.analyser.function_memory()", ["sharpen"]),
        ('inside.analyser.cprofile("sharpen")', ["Cumulative Time (s)"]),
        ('inside.analyser.task_arguments("sharpen")', ["number: int; side: int"]),
        ("inside.analyser.logs()", ["WARNING", "an image is bright: %s"]),
        ("database", ["MultiEventDatabase with 6 databases", "TracePlugin"]),
    ],
)
def test_tables(executed: list[Any], begin: str, words: list[str]) -> None:
    cells = [cell for cell in executed if cell.source.splitlines()[-1].startswith(begin)]
    shown = output(cells[:1], begin, "text/html")
    for word in words:
        assert word in shown


def test_exports(executed: list[Any]) -> None:
    names = ast.literal_eval(output(executed, "sorted("))
    assert {"report.html", "gallery.json.gz", "findings.csv", "processed_tasks.csv"} <= set(names)
