"""Six more questions are answered by a page in three clicks or fewer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait
from opened_pages import OpenedPage
from traces import Plan, Task, held_results
from traces.hung import hung

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.report.page.history import write_history

MOST_CLICKS = 3
MB = 1_000_000


@contextmanager
def opened(browser: Any, report: Path) -> Iterator[OpenedPage]:
    """Open a page as it opens, and count what is pressed in it."""
    page = OpenedPage(browser, report)
    page.tab.evaluate(
        "addEventListener('pointerdown', () => (self.pressed = (self.pressed ?? 0) + 1), true)"
    )
    yield page
    assert page.complaints == []
    assert page.tab.evaluate("self.pressed ?? 0") <= MOST_CLICKS
    page.close()


def from_bar(page: OpenedPage, title: str) -> dict[str, str]:
    """Go to a table by the list in the bar; give the cells of its first row by their heads."""
    page.tab.click("#contents select")
    page.tab.select_option("#contents select", label=title)
    section = page.tab.locator("#tables section", has_text=title).first
    page.until(lambda: section.locator(".rows .row").count() > 0)
    heads = section.locator(".head button").all_text_contents()
    cells = section.locator(".rows .row").first.locator("> div").all_text_contents()
    return dict(zip(heads, cells, strict=True))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Give a run that holds 80 MB of results of `load` on one worker as it is fullest."""
    return held_results(memory_limit=400 * MB).write(tmp_path_factory.mktemp("kept"))


def test_who_held_memory(browser: Any, kept: TraceAnalyser, tmp_path: Path) -> None:
    with opened(browser, kept.report(tmp_path / "kept.html")) as page:
        page.tab.locator("button.peak").click()
        title = page.tab.locator("#memory-peak-table-title")
        page.until(lambda: title.evaluate("(one) => one.getBoundingClientRect().top < innerHeight"))
        row = page.texts("#memory-peak-table .rows .row:first-child > div")
        assert row[0] == kept.memory_peak()["Function"].iloc[0] == "load"


def test_what_would_fit(browser: Any, kept: TraceAnalyser, tmp_path: Path) -> None:
    table = kept.memory_forecast()
    with opened(browser, kept.report(tmp_path / "kept.html")) as page:
        row = from_bar(page, "Memory on other numbers of workers")
        assert row["Workers"] == str(table["Workers"].iloc[0])
        section = page.tab.locator("#tables section", has_text="Memory on other numbers of workers")
        # All are told to fit, which stands beneath the table, once.
        assert set(table["Verdict"]) == {"Fits."}
        assert "Verdict is Fits. in every row." in str(section.first.text_content())


def load(number: int) -> int:
    time.sleep(0.2)
    return number


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[TraceAnalyser, Path]:
    """Record a client that sleeps between two graphs of one line, and write its report."""
    place = tmp_path_factory.mktemp("sampled")
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with (
        LocalCluster(dashboard_address=None, **options) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=place, stack_frequency=50) as run,
    ):
        for _ in range(2):
            wait(client.map(load, range(5), pure=False))
            time.sleep(4.0)
    analyser = TraceAnalyser(run.files(), progress=False)
    return analyser, analyser.report(place / "run.html")


def line_of(text: str) -> str:
    """Return the place of a line of this file, as pages write it."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{Path(__file__).name}:{next(at for at, one in enumerate(lines, 1) if text in one)}"


def test_what_the_client_did_in_a_gap(browser: Any, sampled: tuple[TraceAnalyser, Path]) -> None:
    analyser, report = sampled
    tasks, whole = analyser.trace.tasks, analyser.trace.end - analyser.trace.begin
    ends = sorted((tasks["start"] + tasks["duration"] - analyser.trace.begin).tolist())
    with opened(browser, report) as page:
        page.tab.check("input[name=view][value=flatten]", force=True)
        page.tab.locator("#timeline").scroll_into_view_if_needed()
        page.tab.mouse.click(*page.at((ends[4] + 2.0) / whole, 36))
        page.until(lambda: page.texts("#details .line-list .place"))
        assert page.texts("#details .line-list .place")[0].startswith(line_of("time.sleep(4.0)"))


def test_which_line(browser: Any, sampled: tuple[TraceAnalyser, Path]) -> None:
    analyser, report = sampled
    first = analyser.lines()["Line"].iloc[0]
    assert first == line_of("client.map(load, range(5)")
    with opened(browser, report) as page:
        assert from_bar(page, "What the lines of the program cost")["Line"] == first


def test_what_changed_since_yesterday(browser: Any, tmp_path: Path) -> None:
    """Nothing is to be clicked: the page of the runs over time names the function."""
    for day, seconds in enumerate([1.0, 1.1, 0.9, 2.0]):
        run = f"daily-{1_790_000_000 + 86400 * day}"
        facts = {"run": run, "run_uuid": run, "run_created": 1_790_000_000.0 + 86400 * day}
        tasks = [Task("read-1", 0, 0.0, 1.0), Task("fit-1", 0, 1.0, 1.0 + seconds)]
        Plan(tasks, 1, 2, **facts).write_files(tmp_path)
    page = browser.new_page()
    written = write_history(dasfprof.history(tmp_path, progress=False), tmp_path / "index.html")
    page.goto(written.as_uri())
    assert page.locator(".change text").all_text_contents() == ["50 % slower: fit 1 s → 2 s"]
    assert page.locator(".change text").is_visible()
    page.close()


def test_is_it_stuck(browser: Any, tmp_path: Path) -> None:
    """The first sentence says so, and where."""
    analyser = hung().write(tmp_path / "hung")
    with opened(browser, analyser.report(tmp_path / "hung.html")) as page:
        finding = str(analyser.diagnose()["Finding"].iloc[0])
        assert finding.startswith(page.text("#verdict").split(".")[0])
        assert "work.py:7" in page.text("#finding-1")
