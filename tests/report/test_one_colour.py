"""A colour has one meaning on a page: a function, a worker, or a category of time."""

from pathlib import Path

import pytest
from opened_pages import OpenedPage, Opener
from traces import Plan, Task

from dasfprof import TraceAnalyser

WORKERS = 3


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Plan seven functions on three workers, with gaps; one worker has no memory samples."""
    tasks = [
        Task(f"f{at}-{worker}", worker, 2.0 * at, 2.0 * at + 1.0, cpu=0.5)
        for at in range(7)
        for worker in range(WORKERS)
    ]
    used = [
        (worker, second, {"cpu": 50.0} if worker == 0 else {"cpu": 50.0, "memory": 1e8 * worker})
        for second in range(14)
        for worker in range(WORKERS)
    ]
    return Plan(tasks, workers=WORKERS, threads=1, used=used).write(
        tmp_path_factory.mktemp("traces")
    )


def colours_of(page: OpenedPage, entries: str) -> dict[str, str]:
    """Return the colours of a legend's entries by their first word."""
    found: dict[str, str] = page.tab.locator(entries).evaluate_all(
        """all => Object.fromEntries(all.filter((one) => one.querySelector("i")).map((one) =>
             [one.textContent.trim().split(" ")[0],
              getComputedStyle(one.querySelector("i")).backgroundColor]))"""
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_classes_of_time_share_no_colour_with_what_ran(
    open_page: Opener, report: Path, scheme: str
) -> None:
    page = open_page(report, "#view=flatten", color_scheme=scheme)
    functions = colours_of(page, "#legend li")
    classes = colours_of(page, "#gap-legend li")
    page.tab.select_option("#colour", "worker")
    page.until(lambda: "worker-node1-0" in colours_of(page, "#legend li"))
    workers = colours_of(page, "#legend li")
    assert len(functions) == len(set(functions.values())) == 7
    assert len(workers) == len(set(workers.values())) == WORKERS
    assert len(classes) >= 3
    assert not set(classes.values()) & {*functions.values(), *workers.values()}


def test_a_worker_has_one_colour_in_all_charts(page: OpenedPage) -> None:
    page.tab.select_option("#colour", "worker")
    lanes = colours_of(page, "#legend li")
    charts = page.tab.locator("#charts .reading")
    page.until(lambda: any("worker" in text for text in charts.all_text_contents()))
    told = 0
    for number in range(charts.count()):
        own = colours_of(page, f"#charts .reading >> nth={number} >> span")
        for name, colour in own.items():
            if name in lanes:
                assert colour == lanes[name], name
                told += 1
    assert told > WORKERS
