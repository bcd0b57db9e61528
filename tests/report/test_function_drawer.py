"""The drawer of a function, and what a selected task run tells of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_pages import OpenedPage, Opener
from sampled_runs import CALLS, HOSTILE, SOURCE, WORK, write_sampled_run

from dasfprof import TraceAnalyser
from dasfprof.report.page import flame_data


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return TraceAnalyser(write_sampled_run(tmp_path_factory.mktemp("traces")), progress=False)


@pytest.fixture
def opened(open_page: Opener, report: Path) -> Opener:
    """Open the report, or another one, at a place of it."""
    return lambda fragment="", path=report: open_page(path, fragment)


def figures(page: OpenedPage) -> dict[str, str]:
    return dict(zip(page.texts("#function dt"), page.texts("#function dd"), strict=True))


def is_open(page: OpenedPage) -> bool:
    return bool(page.tab.evaluate("document.getElementById('function').open"))


def test_the_drawer_tells_of_all_task_runs(opened: Opener, analyser: TraceAnalyser) -> None:
    page = opened("#about=nearest")
    assert page.text("#function-title") == "nearest"
    assert figures(page) == {
        "Task runs": "4",
        "Total time": "10 s",
        "CPU time": "unknown",
        "Median": "2.5 s",
        "95th percentile": "4 s",
    }
    bars = page.tab.locator("#function .histogram i")
    counts = [
        title.rsplit(": ", 1)[1] for title in bars.evaluate_all("all => all.map((i) => i.title)")
    ]
    assert sum(int(count.split()[0]) for count in counts) == 4
    assert page.texts("#function figcaption span") == ["1 s", "2.5 s", "4 s"]
    assert page.texts("#function .slowest button") == ["4 s", "3 s", "2 s", "1 s"]
    assert page.texts("#function .of-workers tr:nth-child(2) > *") == [
        *("worker-node1-0", "4", "10 s", "", "2.5 s"),
    ]
    # Its lines as the table has them.
    lines = analyser.hot_lines("nearest")
    assert sorted(lines["Line"].tolist()) == [41, 43]
    assert page.texts("#function .line-list .seconds") == ["1.75 s", "1.75 s"]
    places = page.texts("#function .line-list .place")
    assert sorted(places) == ["kmeans.py:41 nearest", "kmeans.py:43 nearest"]
    cells = page.texts("#function .lines td")
    assert cells[1::4] == ["", "1.75 s", "", "1.75 s"]
    assert cells[3::4] == SOURCE.splitlines()
    assert page.tab.locator("#function img").count() == 0


def test_ways_into_the_drawer_and_out_of_it(opened: Opener) -> None:
    page = opened("#search=nearest-4")
    page.until(lambda: page.text("#found") == "1 found")
    page.tab.locator("#task-table .rows .link").click()
    assert page.text("#function-title") == "nearest"
    assert page.tab.evaluate("location.hash") == "#about=nearest"
    assert page.chosen_row() == []  # only the name leads there
    page.tab.keyboard.press("Escape")
    page.until(lambda: "search=nearest-4" in page.tab.evaluate("location.hash"))
    assert not is_open(page)
    # By keyboard.
    page.tab.locator("#task-table .table").focus()
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("Enter")
    assert is_open(page)
    page.tab.click("#function .close")
    page.until(lambda: not is_open(page))
    # From the details, and from there to the slowest task run.
    assert page.details()["Key"] == "nearest-4"
    page.tab.click("#details dd button")
    page.tab.locator("#function .slowest button", has_text="2 s").click()
    page.until(lambda: page.details().get("Key") == "nearest-2")
    assert not is_open(page)
    page.tab.click("#details dd button")
    page.tab.click("#function button:has-text('Show in flame graph')")
    assert page.text("#flame-frame h3") == "nearest"
    # From a finding, and a table by function.
    page.tab.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.tab.locator("#findings .link", has_text="fails").first.click()
    assert figures(page)["Failed"] == "1"
    page.tab.keyboard.press("Escape")
    page.tab.locator("#tables .rows .link").first.click()
    assert is_open(page)


def test_a_name_without_task_runs_and_a_hostile_one(opened: Opener) -> None:
    page = opened("#about=no%20such")
    assert "no task run" in page.text("#function .absent")
    name = "/script><img"  # as Dask names the tasks of the hostile key
    page.tab.evaluate("name => location.hash = new URLSearchParams({ about: name })", name)
    page.until(lambda: page.text("#function-title") == name)
    assert figures(page)["Task runs"] == "1"
    assert HOSTILE in page.text("#function .slowest")
    assert HOSTILE in page.text("#function .line-list")
    page.tab.evaluate("location.hash = '#view=flatten'")
    page.until(lambda: not is_open(page))
    assert page.tab.evaluate("location.hash") == "#view=flatten"


def test_a_task_run_shows_its_own_lines_logs_and_code(opened: Opener) -> None:
    page = opened("#view=flatten&task=nearest-2")
    assert page.texts("#details .line-list .seconds") == ["1.25 s", "750 ms"]
    assert page.texts("#details .line-list .place") == [
        *("kmeans.py:41 nearest", "kmeans.py:43 nearest"),
    ]
    assert page.tab.locator("#details .line-list").get_by_title(WORK).count() == 2
    assert page.texts("#details ul.logs b") == ["WARNING"]
    told = f"x: numpy.ndarray float64 (3, 4); {HOSTILE}: int"
    assert page.text("#details .arguments") == told
    (row,) = page.download("#arguments-csv")
    assert (row["Function"], row["Arguments"], row["Task Runs"]) == ("nearest", told, "1")
    assert page.text("#details pre") == SOURCE
    page.tab.evaluate("location.hash = '#task=nearest-4'")
    page.until(lambda: page.details().get("Key") == "nearest-4")
    assert "No sample" in page.text("#details .absent")
    page.tab.evaluate("location.hash = '#task=fails-1'")
    page.until(lambda: page.details().get("Key") == "fails-1")
    assert page.text("#details .raised") == f"Raised at {WORK}:43 nearest"


def test_details_are_those_of_one_run_of_a_key(opened: Opener) -> None:
    page = opened("#view=flatten")
    page.search("kmeans.py", "8 found")  # whose code is there, who logged or failed there
    page.search("NO CHUNK", "1 found")  # the run that logged it, not the other
    page.search("load-1", "2 found")
    told = set()
    for _ in range(2):
        state = page.follow("load-1")["Final state"]
        traceback = page.texts("#details details.traceback pre")
        told.add((state, *traceback, *page.texts("#details ul.logs li")))
    logged = f"ERROR no chunk {HOSTILE} (OSError) {WORK}:41 nearest"
    assert told == {("erred", CALLS.rstrip()), ("memory", logged)}


def test_details_say_why_there_is_no_sample(opened: Opener) -> None:
    page = opened("#view=flatten")
    page.search("coroutine-1", "1 found")
    page.follow("coroutine-1")
    (long,) = page.texts("#details ul.logs li")
    assert len(long) < 400
    assert "coroutines" in page.text("#details p.absent")
    page.search("constructor-1", "1 found")
    page.follow("constructor-1")
    assert page.texts("#details details") == []
    assert "coroutines" not in page.text("#details p.absent")


def test_few_samples_of_many_task_runs_are_left_out(
    opened: Opener, analyser: TraceAnalyser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nearest-2 there are three samples, of the others one or two: five are one too many."""
    monkeypatch.setattr(flame_data, "MOST_SAMPLES", 4)
    page = opened("#task=nearest-2", analyser.report(tmp_path / "few.html"))
    assert len(page.texts("#details .line-list li")) == 2
    page.tab.evaluate("location.hash = '#task=nearest-1'")
    page.until(lambda: page.details().get("Key") == "nearest-1")
    assert "Fewer than 3 samples" in page.text("#details .absent")
