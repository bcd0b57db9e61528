"""Links between a task run and its dependencies and dependents, in a real browser."""

import hashlib
import uuid
from pathlib import Path

import pytest
from exported_traces import analyser_of
from opened_pages import OpenedPage, Opener, compute
from traces import Plan, Task

from dasfprof import TraceAnalyser
from dasfprof.report.page import timeline_data


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Write three runs of ``make-0``, the second of which is used twice, and a late ``late-0``."""
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
    return Plan(tasks, threads=1).write(tmp_path_factory.mktemp("run"))


def test_a_run_is_needed_by_those_that_took_its_result(page: OpenedPage) -> None:
    for fragment, start, takers in (
        ("#task=make-0&run=1", "0", ["take-0"]),
        ("#task=make-0&run=2", "3", ["take-1", "take-2"]),
        ("#task=make-0", "6", []),
        ("#task=take-2", "5", ["early-0"]),
        ("#task=late-0", "8", []),
    ):
        page.tab.evaluate(f"location.hash = '{fragment}'")
        begin = f"{start}.000 s"
        page.until(lambda begin=begin: page.details().get("Start", "").startswith(begin))
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
    # The window ends with the run.
    end = page.text("#window").partition(" to ")[2].partition(" s")[0]
    assert 8.5 <= float(end) <= 8.5678


HASHES = [hashlib.md5(bytes([at]), usedforsecurity=False).hexdigest() for at in range(8)]
KEYS = [*(f"add-{digits}" for digits in HASHES), f"inc-{uuid.UUID(HASHES[0], version=4)}"]


@pytest.mark.parametrize("half", [False, True])
def test_keys_with_hashes_are_shown_found_and_linked(
    half: bool, open_page: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are too many hashes for a page, it has the first half of each."""
    monkeypatch.setattr(timeline_data, "_MANY_HASHES", 5 if half else 5000)
    events = [
        compute(key, 1.0 + at, 0.5, 0, dependencies=KEYS[:at][-1:]) for at, key in enumerate(KEYS)
    ]
    page = open_page(analyser_of(tmp_path, events).report(tmp_path / "report.html"))
    # The first sixteen digits of a UUID contain two dashes.
    told = [key[: 22 if key.startswith("inc") else 20] + "…" if half else key for key in KEYS]

    def shown() -> list[str]:
        return page.texts("#task-table .rows .row > div:first-child")

    assert sorted(shown()) == sorted(told)
    page.search(HASHES[3], "1 found")
    assert shown() == told[3:4]
    page.tab.fill("#search", "")
    page.tab.evaluate(f"location.hash = '#task={KEYS[5]}'")
    page.until(lambda: page.details().get("Key") == told[5])
    assert page.texts("#details ul.needs button") == told[4:5]
    assert page.texts("#details ul.needed button") == told[6:7]
