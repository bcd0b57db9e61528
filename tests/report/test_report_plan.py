"""The plan in the report: boxes that people read, and a click that lights their task runs."""

from __future__ import annotations

from typing import Any

import pytest
from opened_pages import EVENTS, OpenedPage
from traces import write_trace

from dasfprof import TraceAnalyser

#: Three loads, two sums of two of them, and a failure.
BOXES = ".plan-box"


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    path = tmp_path_factory.mktemp("traces") / "mine-TracePlugin-node-0.msgpack"
    return TraceAnalyser(write_trace(path, *EVENTS))


def box(page: OpenedPage, name: str) -> Any:
    return page.tab.locator(BOXES).filter(has_text=name)


def test_boxes_tell_tasks_and_failures(page: OpenedPage) -> None:
    assert len(page.texts(BOXES)) == 3
    assert "3 tasks · 3.53 s" in str(box(page, "load").text_content())
    assert page.texts(".plan-box.failed .bad") == ["1 failed"]
    # What the sums take: the distinct results of all loads.
    assert page.texts(".plan-drawing text") == ["6 MB"]
    above, below = (box(page, name).bounding_box()["y"] for name in ("load", "sum"))
    assert above < below


def test_a_click_lights_the_task_runs_of_a_box(page: OpenedPage) -> None:
    box(page, "load").click()
    page.until(lambda: page.text("#found") == "3 found")
    assert "Only load" in page.text("#filtered-by")
    box(page, "sum").click(modifiers=["Shift"])
    page.until(lambda: page.text("#found") == "5 found")
    box(page, "sum").click()
    page.until(lambda: page.text("#found") == "2 found")
    box(page, "sum").click()
    page.until(lambda: page.text("#found") == "")


def test_boxes_can_be_put_together(page: OpenedPage) -> None:
    assert page.texts("#plan-by span") == ["layer", "function"]
    page.tab.check("#plan-by input[value=function]", force=True)
    assert len(page.texts(BOXES)) == 3
