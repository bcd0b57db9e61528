"""The page leads from a task run to the runs whose results it took, and back, in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from opened_pages import Opener
from traces import Plan, Task


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of ``make-0``, the second of them taken twice; ``late-0`` runs after its taker."""
    tasks = [
        Task("make-0", 0, 0.0, 1.0),
        Task("take-0", 1, 1.5, 2.0, dependencies=["make-0"]),
        Task("make-0", 0, 3.0, 4.0),
        Task("take-1", 1, 4.5, 5.0, dependencies=["make-0"]),
        Task("take-2", 1, 5.0, 5.5, dependencies=["make-0"]),
        Task("make-0", 0, 6.0, 7.0),
        Task("early-0", 0, 7.0, 7.5, dependencies=["late-0", "take-2"]),
        Task("late-0", 1, 8.0, 8.5678),
    ]
    analyser = Plan(tasks, threads=1).write(tmp_path_factory.mktemp("run"))
    return analyser.report(tmp_path_factory.mktemp("reports") / "links.html")


@pytest.mark.parametrize(
    ("fragment", "start", "takers"),
    [
        ("#task=make-0&run=1", "0", ["take-0"]),
        ("#task=make-0&run=2", "3", ["take-1", "take-2"]),
        ("#task=make-0", "6", []),
        ("#task=take-2", "5", ["early-0"]),
        ("#task=late-0", "8", []),
    ],
)
def test_a_run_is_needed_by_those_that_took_its_result(
    open_page: Opener, report: Path, fragment: str, start: str, takers: list[str]
) -> None:
    page = open_page(report, quote(fragment, safe="#=&"))
    page.until(lambda: page.details().get("Start", "").startswith(f"{start}.000 s"))
    assert sorted(page.texts("#details ul.needed button")) == takers


def test_needs_lead_to_the_run_that_was_taken(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#task=take-1")
    page.until(lambda: page.details().get("Key") == "take-1")
    page.tab.click("#details ul.needs button")
    page.until(lambda: page.details().get("Start", "").startswith("3.000 s"))
    assert "Run 2 of 3 of this key" in page.texts("#details h4")
    page.tab.click("#details ul.runs button >> nth=1")
    page.until(lambda: page.details().get("Start", "").startswith("6.000 s"))


def test_what_no_run_made_leads_nowhere(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#task=early-0")
    page.until(lambda: page.details().get("Key") == "early-0")
    assert page.texts("#details ul.needs button") == ["take-2"]
    assert page.texts("#details ul.needs li") == ["late-0 task run unknown", "take-2 1 kB"]


def test_the_window_ends_with_the_run(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    end = page.text("#window").partition(" to ")[2].partition(" s")[0]
    assert 8.5 <= float(end) <= 8.5678
