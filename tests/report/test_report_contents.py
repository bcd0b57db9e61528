"""The bar of a report's sections, and explanations of terms with usual remedies."""

from pathlib import Path

import pytest
from opened_pages import OpenedPage, Opener
from traces import Plan, Task, filled

from dasfprof import TraceAnalyser
from dasfprof.analysis.model.thread_time import HELPS, ThreadTime
from dasfprof.analysis.run.task_runs import STATUSES
from dasfprof.analysis.tables.task_status import MEANINGS, NEXT_STEPS


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    failed = Task("fails-1", 0, 9.0, 9.5, state="erred", size=0)
    tasks = [*filled(["load", "clean"], 0.4, count=40), failed]
    return Plan(tasks).write(tmp_path_factory.mktemp("traces"))


def top_of(page: OpenedPage, selector: str) -> float:
    return float(page.tab.locator(selector).bounding_box()["y"])


def test_a_section_is_one_click_away_from_anywhere(open_page: Opener, report: Path) -> None:
    page = open_page(report, viewport={"width": 1280, "height": 700})
    bar = page.tab.locator("#contents")
    sections = ["Findings", "Timeline", "Plan", "Thread time", "Flame graph", "Task runs"]
    assert page.texts("#contents button") == [*sections, "Missing data"]
    labels = {"tasks": "Task runs", "findings": "Findings", "accounting": "Thread time"}
    for name, label in labels.items():
        bar.get_by_text(label, exact=True).click()
        # The heading is below the bar, which stays on top, unless the end of the page is reached.
        page.until(lambda name=name: 0 <= top_of(page, f"#{name}-title") < 700)
        page.until(lambda: top_of(page, "#contents") <= 1 or page.tab.evaluate("scrollY") < 400)
        bottom = top_of(page, "#contents") + float(bar.bounding_box()["height"])
        assert top_of(page, f"#{name}-title") >= bottom
    page.until(lambda: page.texts("#contents [aria-current]") == ["Thread time"])
    # All tables are in the list.
    titles = page.texts("#tables h2")
    assert page.texts("#contents option") == ["Tables …", *titles]
    last = len(titles) - 1
    page.tab.select_option("#contents select", str(last))
    heading = page.tab.locator("#tables h2").nth(last)
    page.until(lambda: 0 < heading.bounding_box()["y"] < 700)


def test_each_class_and_status_has_words() -> None:
    assert set(HELPS) == set(ThreadTime)
    assert set(MEANINGS) == set(NEXT_STEPS) == set(STATUSES)


def test_classes_and_statuses_explain_themselves(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#view=flatten&task=load-1")

    def titles(selector: str) -> list[str]:
        found: list[str] = page.tab.locator(selector).evaluate_all("all => all.map((e) => e.title)")
        assert found, selector
        return found

    for selector in ("#class-names a", "#gap-legend button"):
        assert all("What usually helps: " in title for title in titles(selector)), selector
    named = dict(zip(page.texts("#details dt"), titles("#details dt"), strict=True))
    for status in ("Not started", "Inqueue", "Preparing", "Finalizing"):
        assert MEANINGS[status] in named[status] and NEXT_STEPS[status] in named[status]
    head = "#task-table .head button"
    heads = dict(zip(page.texts(head), titles(head), strict=True))
    assert MEANINGS["Inqueue"] in heads["Inqueue (s)"]
    assert "Result (MB)" in heads and "Memory usage (Mb)" not in heads
    # Exported files have the names of tables in Python.
    (row, *_) = page.download("#task-csv")
    assert "Memory usage (Mb)" in row
    assert float(row["Total (s)"]) > 0
