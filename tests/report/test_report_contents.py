"""The bar of a report's sections, and tables that are wider than the page: where one is is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_pages import OpenedPage, Opener
from traces import Plan, filled

from dasfprof import TraceAnalyser


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return Plan(filled(["load", "clean"], 0.4, count=40)).write(tmp_path_factory.mktemp("traces"))


def top_of(page: OpenedPage, selector: str) -> float:
    """Return how far below the window's top an element begins."""
    return float(page.tab.locator(selector).bounding_box()["y"])


def test_a_section_is_one_click_away_from_anywhere(open_page: Opener, report: Path) -> None:
    page = open_page(report, viewport={"width": 1280, "height": 700})
    bar = page.tab.locator("#contents")
    assert page.texts("#contents button") == [
        *(
            "Findings",
            "Timeline",
            "Plan",
            "Thread time",
            "Flame graph",
            "Task runs",
            "Missing data",
        ),
    ]
    for name in ("tasks", "findings", "accounting"):
        label = {"tasks": "Task runs", "findings": "Findings", "accounting": "Thread time"}[name]
        bar.get_by_text(label, exact=True).click()
        # The heading stands beneath the bar, which stays on top; the last sections end the page.
        page.until(lambda name=name: 0 <= top_of(page, f"#{name}-title") < 700)
        page.until(lambda: top_of(page, "#contents") <= 1 or page.tab.evaluate("scrollY") < 400)
        bottom = top_of(page, "#contents") + float(bar.bounding_box()["height"])
        assert top_of(page, f"#{name}-title") >= bottom
    page.until(lambda: page.texts("#contents [aria-current]") == ["Thread time"])


def test_each_table_is_in_the_list(open_page: Opener, report: Path) -> None:
    page = open_page(report, viewport={"width": 1280, "height": 700})
    titles = page.texts("#tables h2")
    assert page.texts("#contents option") == ["Tables …", *titles]
    last = len(titles) - 1
    page.tab.select_option("#contents select", str(last))
    heading = page.tab.locator("#tables h2").nth(last)
    page.until(lambda: 0 < heading.bounding_box()["y"] < 700)
