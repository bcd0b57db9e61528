"""The plan in the report: boxes that people read, and a click that lights their task runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opened_pages import EVENTS, OpenedPage
from traces import compute, write_trace

from dasfprof import TraceAnalyser

#: The size of a page in a PDF.
MEDIA_BOX = re.compile(rb"/MediaBox ?\[0 0 ([0-9.]+) ([0-9.]+)\]")
#: Three loads, two sums of two of them, and a failure.
BOXES = ".plan-box"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "mine-TracePlugin-node-0.msgpack"
    analyser = TraceAnalyser(write_trace(path, *EVENTS))
    return analyser.report(tmp_path_factory.mktemp("reports") / "plan.html")


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[OpenedPage]:
    opened = OpenedPage(browser, report)
    yield opened
    assert opened.complaints == []
    opened.close()


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


def test_a_link_leads_to_what_was_chosen(page: OpenedPage, browser: Any, report: Path) -> None:
    box(page, "sum").click()
    link = page.until(
        lambda: "nodes=" in (hash_of := page.tab.evaluate("location.hash")) and hash_of
    )
    again = OpenedPage(browser, report, link)
    again.until(lambda: again.text("#found") == "2 found")
    assert box(again, "sum").get_attribute("aria-pressed") == "true"
    again.tab.click("#show-all-again")
    again.until(lambda: again.text("#found") == "")
    assert box(again, "sum").get_attribute("aria-pressed") == "false"
    again.close()


def test_paper_has_the_whole_plan(page: OpenedPage) -> None:
    """What boxes say is a table there too: nothing is cut in that."""
    on_screen = page.tab.locator(BOXES).count()
    page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.tab.emulate_media(media="print")
    page.tab.set_viewport_size({"width": 690, "height": 1000})
    assert box(page, "load").is_visible()
    assert page.tab.locator(BOXES).count() == on_screen
    assert page.texts("#plan .printed th")[:2] == ["Function", "Line"]
    rows = page.texts("#plan .printed tbody tr")
    assert len(rows) == on_screen
    assert sum("1 failed" in row for row in rows) == 1
    for one in page.tab.locator(f"#plan {BOXES}, #plan .plan-drawing").all():
        place = one.bounding_box()
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= 690
    assert page.tab.locator("#plan").evaluate("(one) => one.scrollHeight <= one.clientHeight")


@pytest.fixture(scope="module")
def wide_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of nine functions that take what one has loaded: nine boxes beside each other."""
    tasks = [compute("load-0", 0.0, 1.0, "w")]
    tasks += [
        compute(f"fit{number}-0", 1.5, 1.0, "w", dependencies=["load-0"]) for number in range(9)
    ]
    path = tmp_path_factory.mktemp("traces") / "wide-TracePlugin-node-0.msgpack"
    analyser = TraceAnalyser(write_trace(path, *tasks))
    return analyser.report(tmp_path_factory.mktemp("reports") / "wide.html")


def test_a_wide_plan_lies_across_a_page(browser: Any, wide_report: Path) -> None:
    page = OpenedPage(browser, wide_report)
    width = page.tab.locator(".plan-drawing").bounding_box()["width"]
    assert width > 2 * 1020
    printed = page.tab.pdf(prefer_css_page_size=True)
    sizes = {tuple(map(float, one)) for one in MEDIA_BOX.findall(printed)}
    assert {one < other for one, other in sizes} == {True, False}  # upright pages, and across
    page.tab.emulate_media(media="print")
    assert page.tab.locator(".plan-drawing").bounding_box()["width"] == pytest.approx(
        1020, rel=0.01
    )
    page.close()


def test_boxes_can_be_put_together(page: OpenedPage) -> None:
    assert page.texts("#plan-by span") == ["layer", "function"]
    page.tab.check("#plan-by input[value=function]", force=True)
    assert len(page.texts(BOXES)) == 3


def test_a_fan_of_layers_is_one_box_that_fits(
    browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As of a climatology: twelve layers of one function take of one array, one takes of all."""
    layers = [(f"split-{number:032x}", 0) for number in range(12)]
    tasks = [compute((f"load-{'a' * 32}", 0), 0.0, 1.0, "w")]
    first = [tasks[0].args["key"]]
    tasks += [compute(key, 1.5 + at, 0.5, "w", dependencies=first) for at, key in enumerate(layers)]
    tasks.append(compute((f"concatenate-{'b' * 32}", 0), 15.0, 1.0, "w", dependencies=layers))
    path = tmp_path_factory.mktemp("traces") / "fan-TracePlugin-node-0.msgpack"
    analyser = TraceAnalyser(write_trace(path, *tasks))
    page = OpenedPage(browser, analyser.report(tmp_path_factory.mktemp("reports") / "fan.html"))
    assert len(page.texts(BOXES)) == 3
    assert "12 layers · 12 tasks · 6 s" in str(box(page, "split").text_content())
    assert page.tab.locator("#plan").evaluate("(one) => one.scrollWidth <= one.clientWidth")
    box(page, "split").click()
    page.until(lambda: page.text("#found") == "12 found")
    assert page.complaints == []
    page.close()
