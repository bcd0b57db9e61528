"""Lines of the program in the report: those of the ledger light their tasks, tasks tell theirs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import pytest
from opened_pages import EVENTS, OpenedPage, Opener, assert_exported
from traces import write_trace

from dasfprof import TraceAnalyser
from dasfprof.analysis.trace.lines import MADE_BY_DASK, REASONS

READ, REDUCE = "pipe<b>line.py:3", "pipe<b>line.py:3, 8"


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    path = tmp_path_factory.mktemp("traces") / "mine-TracePlugin-node-0.msgpack"
    trace = TraceAnalyser(write_trace(path, *EVENTS)).trace
    of_functions = {"load": READ, "sum": REDUCE}
    functions = trace.tasks["function"].astype(str)
    lines = [of_functions.get(name.split("-")[0]) for name in functions]
    why = [None if line else MADE_BY_DASK for line in lines]
    noted = pd.DataFrame(
        {
            "line": [READ, REDUCE],
            "file": ["/home/me/pipe<b>line.py"] * 2,
            "number": [3, 8],
            "code": ["<module>"] * 2,
            "text": ["x = read()", "y = x.sum()"],
            **dict.fromkeys(("missing", "cell", "library", "library_code")),
            "library_line": [-1, -1],
            "fused": [(), (READ,)],
        }
    )
    tasks = trace.tasks.assign(
        line=pd.Categorical(lines), no_line=pd.Categorical(why, categories=list(REASONS))
    )
    return TraceAnalyser(dataclasses.replace(trace, tasks=tasks, lines=noted))


def test_filters_and_rows_of_the_ledger_light_their_tasks(page: OpenedPage) -> None:
    for line, left in ((READ, 3), (REDUCE, 2), (f"({MADE_BY_DASK})", 1)):
        page.tab.select_option("#only-line", label=line)
        page.until(lambda left=left: page.text("#found") == f"{left} found")
    page.tab.locator("#ledger-table .rows .row").filter(has_text=REDUCE).click()
    page.until(lambda: page.text("#found") == "2 found")


def test_the_ledger_equals_the_frame(page: OpenedPage, analyser: TraceAnalyser) -> None:
    assert_exported(page, "ledger", analyser.lines())


def test_a_task_tells_its_line(open_page: Opener, report: Path) -> None:
    page = open_page(report, f"#line={READ.replace('<', '%3C').replace('>', '%3E')}")
    page.until(lambda: page.text("#found") == "3 found")
    page.tab.click("#task-table .rows .row >> nth=0")
    page.until(lambda: page.details().get("Built at") == READ)
