"""Small pictures of a report: progress, bytes between workers, durations of functions."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest
from clusters import wait_until
from distributed import Client, LocalCluster, wait
from opened_pages import Opener
from traces import Plan, Task

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.live.progress import still_to_come

#: Ten seconds: four tasks that are known from the begin on run one after another, the last fails.
TASKS = [
    *(Task(f"load-{at}", 0, 2.0 * at, 2.0 * at + 2.0) for at in range(4)),
    Task("fails-1", 1, 8.0, 10.0, state="erred", size=0),
]


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    moved = [
        (1, 2.0, 3.0, 3_000_000, ["load-0"]),
        (1, 4.0, 5.0, 1_000_000, ["load-1"]),
        (0, 9.0, 9.5, 500_000, ["load-2"]),
    ]
    return Plan(TASKS, transfers=moved).write(tmp_path_factory.mktemp("traces"))


def test_progress_counts_what_waits_runs_and_ended(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    label = str(page.tab.locator(".progress svg").get_attribute("aria-label"))
    # At 5 s two have ended and the third runs.
    assert "halfway 2 waiting, 1 running, 2 done, 0 failed" in label
    assert "at the end 0 waiting, 0 running, 4 done, 1 failed" in label
    page.tab.locator(".progress svg").scroll_into_view_if_needed()
    box = page.tab.locator(".progress svg").bounding_box()
    page.tab.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20)
    page.until(
        lambda: page.text(".progress output").endswith(": 0 waiting, 1 running, 4 done, 0 failed")
    )


def test_the_matrix_has_who_received_how_much_from_whom(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    rows = [page.texts(f".matrix tr:nth-of-type({at}) > *") for at in (1, 2, 3, 4)]
    assert rows == [
        ["from ↓ to →", "worker-node1-0", "worker-node1-1", "sent"],
        ["worker-node1-0", "", "4 MB", "4 MB"],
        ["worker-node1-1", "500 kB", "", "500 kB"],
        ["received", "500 kB", "4 MB", ""],
    ]
    assert page.text(".matrix caption").startswith("Bytes between workers: 4.5 MB of task results.")
    colours = page.tab.locator(".matrix td[style]").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours)) == len(colours) == 2


def test_functions_have_their_durations(open_page: Opener, tmp_path: Path) -> None:
    # Nine of a second, one of five; and one alone.
    tasks = [Task(f"load-{at}", 0, 1.0 * at, 1.0 * at + 1.0) for at in range(9)]
    tasks += [Task("load-9", 0, 9.0, 14.0), Task("sum-1", 0, 14.0, 16.0)]
    page = open_page(Plan(tasks).write(tmp_path / "traces").report(tmp_path / "run.html"))
    pictures = page.tab.locator("#functions-table .durations")
    labels = pictures.evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert labels == [
        "10 task runs of all workers from 1 s to 5 s",
        "1 task run of all workers from 2 s to 2 s",
    ]
    heights = pictures.nth(0).locator("i").evaluate_all("all => all.map((i) => i.style.height)")
    assert heights[0] == "100%" and heights[-1].startswith("11.1")
    assert set(heights[1:-1]) == {"0%"}
    # What CSV has is what the table of Python has.
    assert "Durations" not in page.download("#functions-csv")[0]


def test_a_run_without_transfers_has_no_matrix(open_page: Opener, tmp_path: Path) -> None:
    path = Plan(TASKS[:1]).write(tmp_path / "traces").report(tmp_path / "run.html")
    page = open_page(path)
    assert page.tab.locator(".matrix").count() == 0
    assert page.tab.locator(".progress").count() == 1


RELEASED = threading.Event()


def work(number: int) -> int:
    if number >= 30:
        RELEASED.wait()
    time.sleep(0.02)
    return number


@pytest.fixture(scope="module")
def going_on(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of a run while it goes on: 30 of 50 task runs of a function have ended."""
    place = tmp_path_factory.mktemp("run")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=place) as run,
    ):
        futures = client.map(work, range(50), pure=False)

        def analysed() -> TraceAnalyser | None:
            analyser = TraceAnalyser(run.files(), progress=False)
            left = still_to_come(analyser.trace)
            # What the scheduler counted may be on disk before the worker's runs are.
            is_there = left and left.tasks == 20 and len(analyser.trace.tasks) == 30
            return analyser if is_there else None

        path = wait_until(analysed).report(place / "run.html")
        RELEASED.set()
        wait(futures)
    return path


def test_a_run_that_goes_on_has_its_expected_end(open_page: Opener, going_on: Path) -> None:
    page = open_page(going_on)
    caption = page.text(".progress figcaption")
    assert "30 task runs in" in caption or "32 task runs in" in caption, "with those that wait"
    assert re.search(
        r"It goes on: 20 tasks had not ended(, at the pace of .* until about|;)", caption
    )
    foreseen = page.tab.locator(".progress polyline.ahead").count()
    assert foreseen == ("expected" in page.texts(".progress .legend li"))
    assert "waiting that began later" in page.text(".progress output")
