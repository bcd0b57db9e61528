"""Filters by clicks, search results, links of findings, and their addresses."""

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pandas as pd
import pytest
from opened_pages import LOAD, OpenedPage, Opener, compute, small_run
from traces import Plan, Task, filled

from dasfprof import TraceAnalyser

#: Steps of the three loads, and of the two sums.
READ, REDUCE = "read", "reduce/sums"
ERROR = {"state": "erred", "exception": "KeyError: 'depth'", "size": 0}
FAILED = [compute("fails-2", 9.0, 0.25, 1, **ERROR), compute("breaks-1", 9.5, 0.25, 1, **ERROR)]


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    trace = small_run(tmp_path_factory.mktemp("traces"), *FAILED).trace
    functions = trace.tasks["function"].astype(str)
    steps = [{"load": READ, "sum": REDUCE}.get(name.split("-")[0]) for name in functions]
    tasks = trace.tasks.assign(step=pd.Categorical(steps))
    return TraceAnalyser(dataclasses.replace(trace, tasks=tasks))


def listed(page: OpenedPage, table: str = "task") -> list[str]:
    return page.texts(f"#{table}-table .rows .row > div:first-child")


def keys_of(analyser: TraceAnalyser, wanted: Any) -> set[str]:
    tasks = analyser.trace.tasks
    keys = analyser.trace.keys.texts(tasks["key_id"].to_numpy()[wanted(tasks).to_numpy()])
    return set(keys.tolist())


def test_a_row_of_a_function_filters(page: OpenedPage, analyser: TraceAnalyser) -> None:
    table = analyser.per_function_bottleneck()
    row = table[(table["Function"] == LOAD) & (table["Worker"] == "worker-node-1")].iloc[0]
    cells = page.tab.locator("#functions-table .rows .row", has_text="load")
    cells.filter(has_text="worker-node-1").locator("div >> nth=2").click()
    page.until(lambda: len(listed(page)) == row["Num Tasks (chunks)"])
    assert set(listed(page)) == keys_of(
        analyser, lambda tasks: (tasks["function"] == LOAD) & (tasks["worker"] == "worker-node-1")
    )
    only = f"Only function {LOAD}, worker worker-node-1: 2 of 8 task runs"
    assert page.text("#filtered-by") == only
    assert len(listed(page, "functions")) == len(table)
    page.tab.keyboard.press("Escape")
    page.until(lambda: len(listed(page)) == len(analyser.trace.tasks))
    assert not page.tab.locator("#filtered").is_visible()


def test_the_address_has_what_is_seen(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#view=compact&time=3.5,9")
    page.tab.fill("#search", "load")
    page.tab.select_option("#only-worker", label="worker-node-0")
    page.tab.click("#task-table .rows .row >> nth=0")

    def address() -> dict[str, list[str]]:
        return parse_qs(str(page.tab.evaluate("location.hash.slice(1)")))

    wanted = {"view": ["compact"], "search": ["load"]}
    wanted |= {"worker": ["worker-node-0"], "task": [str((LOAD, 0))], "run": ["1"]}
    page.until(lambda: wanted.items() <= address().items())
    fragment = str(page.tab.evaluate("location.hash"))
    other = open_page(report, fragment)
    other.until(lambda: other.details().get("Key") == str((LOAD, 0)))
    assert other.tab.input_value("#search") == "load"
    assert listed(other) == listed(page) == [str((LOAD, 0))]
    assert other.window() == page.window()


def test_the_search_finds(page: OpenedPage, analyser: TraceAnalyser) -> None:
    for query, column, value in (
        ("keyerror", "exception", "KeyError: 'depth'"),
        ("<b>no</b>", "exception", "ValueError: <b>no</b>"),
        ("NODE-1", "worker", "worker-node-1"),
        (REDUCE, "step", REDUCE),
        ("breaks", "function", "breaks"),
    ):
        wanted = keys_of(analyser, lambda tasks, column=column, value=value: tasks[column] == value)
        page.search(query, f"{len(wanted)} found")
        assert set(listed(page)) == wanted

    # It reports rows that filters hide.
    page.tab.evaluate(f"location.hash = '#function={LOAD}'")
    page.until(lambda: len(listed(page)) == 3)
    page.search("keyerror", "0 found, 2 more hidden by filters")
    page.tab.click("#show-all")
    page.until(lambda: page.text("#found") == "")


def test_gaps_lead_to_all_of_them(open_page: Opener, tmp_path: Path) -> None:
    tasks: list[Task] = []
    for number in range(3):
        for task in filled([f"part{number}"], 1.0, count=4, since=3.0 * number):
            task.arrival = 3.0 * number
            tasks.append(task)
    analyser = Plan(tasks, graphs=(0.0, 3.0, 6.0)).write(tmp_path)
    (spans,) = [one.places.spans for one in analyser.findings() if one.places]
    assert [end - begin for begin, end in spans] == pytest.approx([2.0, 2.0])
    page = open_page(analyser.report(tmp_path / "run.html"), "#finding=1")
    assert "and 1 more time" in page.text("#finding-1")
    page.until(lambda: page.text("#followed") != "")
    begin, end = page.window()
    assert begin <= spans[0][0] and spans[1][1] <= end
    assert page.text("#found") == "", "no task run is what it speaks of"


def test_keys_keep_their_index_and_the_first_column_stays(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report, viewport={"width": 800, "height": 900})
    cell = page.tab.locator("#task-table .rows .row", has_text=str((LOAD, 0))).first
    ends = cell.locator(".elided > span")
    assert ends.all_text_contents() == [f"('{LOAD}'", ", 0)"]
    end, box = ends.nth(1).bounding_box(), cell.locator("> div").first.bounding_box()
    assert end["x"] + end["width"] <= box["x"] + box["width"], "the index is seen"
    worker = cell.locator("> div").nth(3)
    before = worker.bounding_box()["x"]
    page.tab.evaluate("document.querySelector('#task-table .table').scrollLeft = 300")
    # There is none while rows are redrawn.
    page.until(lambda: (now := worker.bounding_box()) and now["x"] == before - 300)
    assert cell.locator("> div").first.bounding_box()["x"] == box["x"]
    # Columns that explain a row come before those that describe it.
    labels = page.texts("#task-table .head button")
    assert labels.index("Exception") < labels.index("CPU (s)")
    messages = {"", *analyser.trace.tasks["exception"].dropna()}
    assert set(page.texts("#task-table .rows .row > div:nth-child(7)")) == messages
