"""Lines of the program in the report: those of the ledger light their tasks, tasks tell theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from opened_pages import EVENTS, OpenedPage
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


@pytest.fixture(scope="module")
def report(analyser: TraceAnalyser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return analyser.report(tmp_path_factory.mktemp("reports") / "lines.html")


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[OpenedPage]:
    opened = OpenedPage(browser, report, "#view=flatten")
    yield opened
    assert opened.complaints == []
    opened.close()


@pytest.mark.parametrize(("line", "left"), [(READ, 3), (REDUCE, 2), (f"({MADE_BY_DASK})", 1)])
def test_filter_by_line(page: OpenedPage, line: str, left: int) -> None:
    page.tab.select_option("#only-line", label=line)
    page.until(lambda: page.text("#found") == f"{left} found")


def test_a_row_of_the_ledger_lights_its_tasks(page: OpenedPage) -> None:
    page.tab.locator("#ledger-table .rows .row").filter(has_text=REDUCE).click()
    page.until(lambda: page.text("#found") == "2 found")


def test_the_ledger_equals_the_frame(page: OpenedPage, analyser: TraceAnalyser) -> None:
    exported = page.download("#ledger-csv")
    frame = analyser.lines()
    assert list(exported[0]) == list(frame.columns)
    assert [row["Line"] for row in exported] == frame["Line"].tolist()
    assert [float(row["Thread Time (s)"]) for row in exported] == frame["Thread Time (s)"].tolist()


def test_a_task_tells_its_line(browser: Any, report: Path) -> None:
    page = OpenedPage(browser, report, f"#line={READ.replace('<', '%3C').replace('>', '%3E')}")
    page.until(lambda: page.text("#found") == "3 found")
    page.tab.click("#task-table .rows .row >> nth=0")
    page.until(lambda: page.details().get("Built at") == READ)
    page.close()
