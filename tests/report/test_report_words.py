"""Words of a report that a stranger has to decode say what they mean, and what usually helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_pages import Opener
from traces import Plan, Task, filled

from dasfprof import TraceAnalyser
from dasfprof.analysis.model.thread_time import HELPS, ThreadTime
from dasfprof.analysis.run.slots import STATUSES
from dasfprof.analysis.tables.task_status import MEANINGS, NEXT_STEPS

HELPS_WORDS = "What usually helps: "


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    failed = Task("fails-1", 0, 6.0, 6.5, state="erred", size=0)
    tasks = [*filled(["load"], 0.5, count=12), failed]
    return Plan(tasks).write(tmp_path_factory.mktemp("traces"))


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
        assert all(HELPS_WORDS in title for title in titles(selector)), selector
    assert all(HELPS_WORDS in text for text in page.texts(".classes .meaning"))
    named = dict(zip(page.texts("#details dt"), titles("#details dt"), strict=True))
    for status in ("Not started", "Inqueue", "Preparing", "Finalizing"):
        assert MEANINGS[status] in named[status] and NEXT_STEPS[status] in named[status]
    heads = dict(
        zip(page.texts("#task-table .head button"), titles("#task-table .head button"), strict=True)
    )
    assert MEANINGS["Inqueue"] in heads["Inqueue (s)"]
    assert "Result (MB)" in heads and "Memory usage (Mb)" not in heads
    # A file that is exported has the names that the tables of Python have.
    (row, *_) = page.download("#task-csv")
    assert "Memory usage (Mb)" in row
    assert float(row["Total (s)"]) > 0
