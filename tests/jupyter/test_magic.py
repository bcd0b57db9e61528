"""``%%dasfprof`` in a real kernel, on real clusters."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from executed_cells import Elements, cell, execute, failure, printed, shown

pytestmark = pytest.mark.whole_program

#: Code that prints whether a plugin of dasfprof remains on the cluster.
_LEFT = (
    "client.run_on_scheduler(lambda dask_scheduler: [name for name in "
    "[*dask_scheduler.plugins, *dask_scheduler.worker_plugins] if name.startswith('dasfprof')])"
)

CELLS = [
    "%load_ext dasfprof",
    "%%dasfprof early\n1",
    "import time\n"
    "from distributed import Client, LocalCluster\n"
    "cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)\n"
    "client = Client(cluster)",
    "%%dasfprof naps -d traces\n"
    "futures = client.map(time.sleep, [0.05] * 20, pure=False)\n"
    "len(client.gather(futures))",
    "# what the variable has\n"
    "view = _dasfprof\n"
    "print(len(view.analyser.trace.tasks), str(view.report), view.findings['Finding'].tolist(),\n"
    "      len(futures), sep='|')",
    "%%dasfprof -o kept -d traces --stack-frequency 5 --profiler cProfile --no-record-code\n"
    "client.submit(abs, -3).result();",
    "# the kept one\nprint(kept.analyser.trace.tasks['function'].tolist(), kept is not view,\n"
    "      [kept.analyser.trace.surroundings.settings[f'dasfprof.{name}']\n"
    "       for name in ('stack-frequency', 'profiler', 'record-code', 'log-values')])",
    "%%dasfprof fails -d traces\nclient.submit(abs, -4).result()\n1 / 0\nnever = 1",
    "%%dasfprof erred -d traces\nclient.submit(divmod, 1, 0).result()",
    "%%dasfprof idle -d traces\n1 / 0",
    f"# after the error\nprint('never' in globals(), {_LEFT})",
    "%%dasfprof -d traces\nif True\n    pass",
    "%%dasfprof -o 1x\n1",
    "%%dasfprof --loud\n1",
    "%%dasfprof a/b\n1",
    "%%dasfprof -d traces\n\n# nothing at all",
    "%%dasfprof awaits\nawait client",
    f"# after those\nprint({_LEFT})",
    "# a name that would be markup\n"
    "hostile = 'x<img src=x onerror=alert(1)>'\n"
    "def work(i):\n    time.sleep(0.1)\n",
    "%%dasfprof <b>bold -d traces -o marked\n"
    "keys = [f'{hostile}-{number}' for number in range(10)]\n"
    "results = client.gather([client.submit(work, n, key=k) for n, k in enumerate(keys)])",
    "%%dasfprof closes -d traces\nclient.submit(abs, -5).result()\nclient.close(); cluster.close()",
    "%%dasfprof late\n1",
    "loop = await Client(processes=False, asynchronous=True, dashboard_address=None)",
    "%%dasfprof asynchronous\n1",
    "import dasfprof, dasfprof.jupyter\n"
    "async with dasfprof.profile(loop, 'awaited', directory='traces') as run:\n"
    "    await loop.submit(abs, -6)\n"
    "await loop.close()\n"
    "dasfprof.jupyter.show(run)",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernel")


@pytest.fixture(scope="module")
def cells(place: Path) -> list[Any]:
    return execute(CELLS, place)


def test_the_cell_runs_as_it_would_without(cells: list[Any]) -> None:
    assert shown(cell(cells, "%%dasfprof naps"), "execute_result")["text/plain"] == "20"
    kinds = {output.output_type for output in cell(cells, "%%dasfprof -o kept").outputs}
    assert kinds == {"display_data"}, "a semicolon silences the result, as ever"
    settings = "['abs'] True ['5.0', 'cprofile', 'False', 'False']"
    assert printed(cell(cells, "# the kept one")).strip() == settings


def test_it_shows_html_and_text(cells: list[Any], place: Path) -> None:
    data = shown(cell(cells, "%%dasfprof naps"))
    assert set(data) == {"text/html", "text/plain"}
    count, report, findings, futures = printed(cell(cells, "# what the variable has")).split("|")
    assert (count, futures.strip()) == ("20", "20")
    text = Elements(data["text/html"])
    for words in [*ast.literal_eval(findings), "20 task runs of 1 function, on 2 workers"]:
        assert words in data["text/plain"]
        assert words in text.text
    assert report in data["text/plain"]
    assert text.value("a", "href") == f"traces/{Path(report).name}"
    # The timeline is a frame with the complete report.
    assert text.value("iframe", "sandbox") == "allow-scripts allow-downloads"
    (written,) = place.glob("traces/naps-*.html")
    framed = text.value("iframe", "srcdoc").replace('<base href="about:srcdoc">', "")
    assert framed == written.read_text(encoding="utf-8")


def test_an_error_goes_on_and_the_run_is_shown(cells: list[Any]) -> None:
    item = cell(cells, "%%dasfprof fails")
    assert [output.output_type for output in item.outputs] == ["display_data", "error"]
    assert shown(item)["text/plain"].startswith("fails-")
    assert "1 task run of 1 function" in shown(item)["text/plain"]
    error = failure(item)
    assert (error.ename, error.evalue) == ("ZeroDivisionError", "division by zero")
    trace = "\n".join(error.traceback)
    assert "jupyter.py" not in trace, "only the cell is of interest"
    assert printed(cell(cells, "# after the error")).strip() == "False []"


def test_a_task_that_fails_the_cell_is_its_run_s_first_finding(cells: list[Any]) -> None:
    item = cell(cells, "%%dasfprof erred")
    _, *lines = shown(item)["text/plain"].splitlines()
    finding = next(line for line in lines if line.startswith("high"))

    assert lines[0].startswith("1 task run of 1 function, 1 failed,")
    assert "1 task failed: ZeroDivisionError in divmod." in finding
    assert next(line for line in lines if line.startswith(("high", "medium", "low"))) == finding
    assert failure(item).ename == "ZeroDivisionError"
    # A cell that fails before any task has no verdict.
    text = shown(cell(cells, "%%dasfprof idle"))["text/plain"]
    assert "0 task runs" in text and "nothing to diagnose" in text
    assert "No known problem" not in text
    assert "first task" not in text


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        ("%%dasfprof early", "there is no Dask client"),
        ("%%dasfprof late", "there is no Dask client"),
        ("%%dasfprof -o 1x", "-o '1x' is not the name of a variable"),
        ("%%dasfprof --loud", "unrecognized arguments: --loud"),
        ("%%dasfprof a/b", "contain a path separator"),
        ("%%dasfprof awaits", "async with dasfprof.profile(client)"),
        ("%%dasfprof asynchronous", "async with dasfprof.profile(client)"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(cells: list[Any], begin: str, words: str) -> None:
    item = cell(cells, begin)
    told = printed(item, "stderr")
    assert told.startswith("UsageError: ")
    assert words in told
    assert "display_data" not in [output.output_type for output in item.outputs]


def test_nothing_is_started_for_a_cell_that_cannot_run(cells: list[Any], place: Path) -> None:
    syntax = cell(cells, "%%dasfprof -d traces\nif")
    assert failure(syntax).ename == "SyntaxError"
    assert not list(place.glob("traces/awaits*"))
    assert printed(cell(cells, "# after those")).strip() == "[]"


def test_names_are_no_markup(cells: list[Any]) -> None:
    data = shown(cell(cells, "%%dasfprof <b>bold"))
    page = Elements(data["text/html"])
    assert "img" not in page.tags
    assert "<b>bold-" in page.text
    assert "<img src=x onerror=alert(1)>" in page.text, "a finding names the function"
    assert "<img" not in page.value("iframe", "srcdoc")


def test_cells_without_tasks_that_close_their_cluster_or_await(cells: list[Any]) -> None:
    data = shown(cell(cells, "%%dasfprof -d traces\n\n#"))
    assert "0 task runs" in data["text/plain"]
    assert "iframe" in data["text/html"]
    assert "1 task run of 1 function" in shown(cell(cells, "%%dasfprof closes"))["text/plain"]
    data = shown(cell(cells, "import dasfprof, dasfprof.jupyter"), "execute_result")
    assert data["text/plain"].startswith("awaited-")
    assert "1 task run of 1 function" in data["text/plain"]
    assert "<iframe" in data["text/html"]


def test_a_terminal_gets_text(tmp_path: Path) -> None:
    """IPython without a notebook."""
    sources = [
        "%load_ext dasfprof",
        "from distributed import Client\nclient = Client(processes=False, dashboard_address=None)",
        "%%dasfprof plain\nclient.submit(abs, -7).result()",
        "client.close()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    nbformat.write(notebook, tmp_path / "cells.ipynb")
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "cells.ipynb"]
    options = {"cwd": tmp_path, "env": {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}}
    options |= {"stdout": subprocess.PIPE, "text": True, "timeout": 240}
    done = subprocess.run(command, check=True, **options)
    assert "1 task run of 1 function, on 1 worker" in done.stdout
    assert f"The report: {tmp_path}" in done.stdout
    assert "<iframe" not in done.stdout
