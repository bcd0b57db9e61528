"""Steps and lines of the program in the report: view, filters, details and tables."""

import dataclasses
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest
from opened_pages import LOAD, RULER, OpenedPage, Opener, assert_exported, small_run

from dasfprof import TraceAnalyser
from dasfprof.analysis.trace.lines import MADE_BY_DASK, REASONS

#: Steps and lines of the three loads, the two sums, and other tasks.
READ, REDUCE = "read <i>all</i>", "reduce/sums"
LINES = {"load": "pipe<b>line.py:3", "sum": "pipe<b>line.py:3, 8"}
LOAD_0 = str((LOAD, 0))


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    trace = small_run(tmp_path_factory.mktemp("traces")).trace
    names = [name.split("-")[0] for name in trace.tasks["function"].astype(str)]
    lines = [LINES.get(name) for name in names]
    why = [None if line else MADE_BY_DASK for line in lines]
    noted = pd.DataFrame(
        {
            "line": LINES.values(),
            "file": ["/home/me/pipe<b>line.py"] * 2,
            "number": [3, 8],
            "code": ["<module>"] * 2,
            "text": ["x = read()", "y = x.sum()"],
            **dict.fromkeys(("missing", "cell", "library", "library_code")),
            "library_line": [-1, -1],
            "fused": [(), (LINES["load"],)],
        }
    )
    tasks = trace.tasks.assign(
        step=pd.Categorical([{"load": READ, "sum": REDUCE}.get(name) for name in names]),
        line=pd.Categorical(lines),
        no_line=pd.Categorical(why, categories=list(REASONS)),
    )
    return TraceAnalyser(dataclasses.replace(trace, tasks=tasks, lines=noted))


def test_the_hierarchy_opens_step_by_step(page: OpenedPage) -> None:
    page.tab.click('label:has(input[value="hierarchy"])')
    # Three expanded steps with one function each: six tracks of 26 pixels.
    page.until(lambda: page.canvas()["height"] == RULER + 6 * 26)
    # The loads are first; two of them ran in parallel.
    page.tab.mouse.click(*page.at(-0.05, RULER + 26 + 10))
    page.until(lambda: page.canvas()["height"] == RULER + 7 * 26)
    page.tab.mouse.click(*page.at(0.25, RULER + 26 + 10))
    page.until(lambda: page.details().get("Key") == LOAD_0)
    assert page.details()["Step"] == READ
    # If the step is collapsed, they are all in one track.
    page.tab.mouse.click(*page.at(-0.05, RULER + 10))
    page.until(lambda: page.canvas()["height"] == RULER + 5 * 26)


def test_the_band_of_steps(page: OpenedPage) -> None:
    page.tab.locator("#timeline").scroll_into_view_if_needed()
    # The loads ran from 1 to 4 of ten seconds, the sums from 4: one line of 16 pixels is enough.
    page.until(lambda: page.canvas()["height"] == RULER + 16 + 96)
    page.tab.mouse.move(*page.at(0.2, RULER + 8))
    page.until(lambda: page.tab.locator("#timeline .tip").is_visible())
    told = page.texts("#timeline .tip > *")
    assert told[:2] == [READ, "3 task runs from 1.00 s to 4.00 s"]
    page.tab.mouse.click(*page.at(0.5, RULER + 8))
    page.until(lambda: page.text("#found") == "2 found")


def test_filters_colours_and_tables(page: OpenedPage, analyser: TraceAnalyser) -> None:
    names = {"step": (READ, REDUCE, "(no step)"), "line": (*LINES.values(), f"({MADE_BY_DASK})")}
    for by, labels in names.items():
        for label, left in zip(labels, (3, 2, 1), strict=True):
            page.tab.select_option(f"#only-{by}", label=label)
            page.until(lambda left=left: page.text("#found") == f"{left} found")
        page.tab.click("#show-all")
    page.tab.locator("#ledger-table .rows .row").filter(has_text=LINES["sum"]).click()
    page.until(lambda: page.text("#found") == "2 found")
    page.tab.select_option("#colour", "step")
    page.until(lambda: any(READ in text for text in page.texts("#legend li")))
    assert len(page.texts("#legend li:not(:has(.failed))")) == 3
    assert_exported(page, "steps", analyser.per_step_bottleneck())
    assert_exported(page, "step-status", analyser.per_step_status())
    assert_exported(page, "ledger", analyser.lines())


def test_a_task_tells_its_line(open_page: Opener, report: Path) -> None:
    page = open_page(report, f"#line={quote(LINES['load'])}")
    page.until(lambda: page.text("#found") == "3 found")
    page.tab.click("#task-table .rows .row >> nth=0")
    page.until(lambda: page.details().get("Built at") == LINES["load"])


def test_without_steps_nothing_speaks_of_them(open_page: Opener, tmp_path: Path) -> None:
    page = open_page(small_run(tmp_path).report(tmp_path / "report.html"))
    for hidden in ("#steps-section", "#step-status-section", "#only-step"):
        assert not page.tab.locator(hidden).is_visible()
    assert page.tab.locator("#colour [value=step]").count() == 0
    assert "Step" not in page.texts("#task-table .head button")
