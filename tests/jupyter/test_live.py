"""Display of a run in progress in a real kernel: ``%%dasfprof --live`` and `watch`."""

from typing import Any

import pytest
from executed_cells import Elements, cell, execute, printed, shown

pytestmark = pytest.mark.whole_program

CELLS = [
    "%load_ext dasfprof",
    "import time, dasfprof\n"
    "from distributed import Client, LocalCluster\n"
    "cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)\n"
    "client = Client(cluster)",
    "%%dasfprof <b>naps -d traces --live\n"
    "futures = client.map(time.sleep, [0.05] * 20, pure=False)\n"
    "client.gather(futures);",
    "run = dasfprof.register_default_profiler(client, 'more', directory='traces')\n"
    "view = run.watch()\nview",
    "futures = client.map(time.sleep, [0.01] * 7, pure=False)\nclient.gather(futures);",
    "# the end\nrun.stop()\nview.stop()\nprint(view)",
    "client.close(); cluster.close()",
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return execute(CELLS, tmp_path_factory.mktemp("live"))


def test_a_cell_is_shown_while_it_runs_and_its_report_after(cells: list[Any]) -> None:
    ran = cell(cells, "%%dasfprof")
    live, report = (output for output in ran.outputs if output.output_type == "display_data")
    page = Elements(live["data"]["text/html"])
    assert "20 of 20 done" in page.text
    assert "has ended" in page.text
    assert "b" not in page.tags or "<b>naps" in page.text
    assert "srcdoc" in report["data"]["text/html"]


def test_a_view_follows_its_run(cells: list[Any]) -> None:
    page = Elements(shown(cell(cells, "run = "))["text/html"])
    assert "sleep" in page.text
    assert "7" in page.text
    assert "has ended" in page.text
    assert "has ended" in printed(cell(cells, "# the end"))
