"""The plan in the report: boxes that people read, and a click that lights their task runs."""

from __future__ import annotations

from typing import Any

import pytest
from opened_pages import EVENTS, OpenedPage, Opener
from traces import compute, write_trace

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


def test_a_fan_of_layers_is_one_box_that_fits(
    open_page: Opener, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As of a climatology: twelve layers of one function take of one array, one takes of all."""
    layers = [(f"split-{number:032x}", 0) for number in range(12)]
    tasks = [compute((f"load-{'a' * 32}", 0), 0.0, 1.0, "w")]
    first = [tasks[0].args["key"]]
    tasks += [compute(key, 1.5 + at, 0.5, "w", dependencies=first) for at, key in enumerate(layers)]
    tasks.append(compute((f"concatenate-{'b' * 32}", 0), 15.0, 1.0, "w", dependencies=layers))
    path = tmp_path_factory.mktemp("traces") / "fan-TracePlugin-node-0.msgpack"
    analyser = TraceAnalyser(write_trace(path, *tasks))
    page = open_page(analyser.report(tmp_path_factory.mktemp("reports") / "fan.html"))
    assert len(page.texts(BOXES)) == 3
    assert "12 layers · 12 tasks · 6 s" in str(box(page, "split").text_content())
    assert page.tab.locator("#plan").evaluate("(one) => one.scrollWidth <= one.clientWidth")
    box(page, "split").click()
    page.until(lambda: page.text("#found") == "12 found")
