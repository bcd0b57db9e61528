"""Gestures, lines, names and contrast in the timeline, also for screen readers."""

from pathlib import Path
from typing import Any

import pytest
from opened_pages import GUTTER, RULER, OpenedPage, Opener
from timeline_runs import LANE, TALL, colour_of, colours_at
from traces import Plan, Task

from dasfprof import TraceAnalyser

#: Seconds of the run.
SECONDS = 8.0


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Plan two workers with four tasks of different function, duration, CPU usage and outcome."""
    failed: dict[str, Any] = {"state": "erred", "exception": "ValueError: no", "size": 0}
    tasks = [
        Task("load-1", 0, 0.5, 3.5, cpu=0.2),
        Task("clean-1", 0, 4.0, 4.9, cpu=0.8),
        Task("save-1", 1, 1.0, 1.9, cpu=0.2),
        Task("fails-1", 1, 3.0, SECONDS, cpu=4.9, **failed),
    ]
    used = [(worker, at, {"cpu": 50.0}) for worker in (0, 1) for at in (0.0, 4.0, SECONDS)]
    return Plan(tasks, threads=1, used=used).write(tmp_path_factory.mktemp("traces"))


def colours(page: OpenedPage, time: float, y: int, canvas: str = "#timeline .picture") -> set[str]:
    """Return the colours of adjacent pixels of a canvas at a time."""
    return set(colours_at(page, time / SECONDS, y, wide=5, canvas=canvas))


def test_bars_have_the_colour_that_the_legend_names(page: OpenedPage) -> None:
    places = [(0, 2.0), (0, 4.5), (1, 1.5), (1, 6.0)]
    for by, named in {
        "function": ["load", "clean", "save", "fails"],
        "worker": ["worker-node1-0", "worker-node1-0", "worker-node1-1", "worker-node1-1"],
        "class": ["Blocked", "Computing", "Blocked", "Computing"],
        "state": ["memory", "memory", "memory", "erred"],
    }.items():
        page.tab.select_option("#colour", by)
        for (lane, time), name in zip(places, named, strict=True):
            wanted = colour_of(page.tab.locator("#legend li", has_text=name).first)
            y = RULER + lane * LANE + 6
            page.until(lambda at=time, y=y, wanted=wanted: wanted in colours(page, at, y))


def test_touchpad_and_mouse_move_it_alike(open_page: Opener, report: Path) -> None:
    # A wheel event just after scrolling would scroll the page, so it must not be scrolled before.
    page = open_page(report, "#view=flatten", viewport=TALL)
    page.tab.click("#zoom-in")
    page.tab.click("#zoom-in")
    page.until(lambda: page.window() == (3.0, 5.0))
    page.tab.mouse.move(*page.at(0.5, RULER + 10))
    # A touchpad scrolls horizontally, and a mouse does so with Shift.
    moves: list[tuple[float, float, str | None]] = [(200, 0, None), (0, 200, "Shift")]
    for sideways, down, key in moves:
        begin, end = page.window()
        if key:
            page.tab.keyboard.down(key)
        page.tab.mouse.wheel(sideways, down)
        if key:
            page.tab.keyboard.up(key)
        page.until(lambda begin=begin: page.window()[0] == pytest.approx(begin + 0.5, abs=0.02))
        assert page.window()[1] - page.window()[0] == pytest.approx(end - begin, abs=0.02)
    # Both fingers together, and the wheel: it zooms.
    width = page.window()[1] - page.window()[0]
    page.tab.mouse.wheel(0, -100)
    page.until(lambda: page.window()[1] - page.window()[0] < width)


def test_a_finger_chooses_a_task_run(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#view=flatten", viewport=TALL, has_touch=True)
    for key, share, lane in (("load-1", 2.0 / SECONDS, 0), ("fails-1", 6.0 / SECONDS, 1)):
        page.tab.touchscreen.tap(*page.at(share, RULER + lane * LANE + 10))
        page.until(lambda key=key: page.details().get("Key") == key)


def test_one_line_at_the_pointer_and_at_round_times_through_all(
    open_page: Opener, report: Path
) -> None:
    page = open_page(report, "#view=flatten", viewport={"width": 1280, "height": 1600})
    lanes, chart = "#timeline .overlay", "#charts canvas"
    quiet = colours(page, 7.3, 12, chart)
    assert colours(page, 7.3, RULER + 40, lanes) == {"clear"}
    page.tab.mouse.move(*page.at(7.3 / SECONDS, RULER + 10))
    page.until(lambda: len(colours(page, 7.3, RULER + 40, lanes)) > 1)
    page.until(lambda: colours(page, 7.3, 12, chart) != quiet)
    # Also from a chart to the tracks.
    box = page.tab.locator(chart).first.bounding_box()
    x = box["x"] + GUTTER + 2.6 / SECONDS * (box["width"] - GUTTER)
    page.tab.mouse.move(x, box["y"] + 20)
    page.until(lambda: len(colours(page, 2.6, RULER + 40, lanes)) > 1)
    page.tab.mouse.move(2, 2)
    page.until(lambda: colours(page, 2.6, RULER + 40, lanes) == {"clear"})
    # Between the tracks at two seconds, and in the chart's empty upper part.
    assert len(colours(page, 2.0, RULER + LANE + 2)) > 1
    assert len(colours(page, 2.0, 10, chart)) > 1


def test_screen_readers_get_the_tables(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report)
    grid = page.tab.get_by_role("grid", name="Task runs")
    assert grid.get_attribute("aria-rowcount") == str(len(analyser.trace.tasks) + 1)
    heads = grid.get_by_role("columnheader").all_text_contents()
    rows = [
        row.get_by_role("gridcell").all_text_contents() for row in grid.get_by_role("row").all()[1:]
    ]
    told = [dict(zip(heads, row, strict=True)) for row in rows]
    assert {row["Task Key"] for row in told} == {"load-1", "clean-1", "save-1", "fails-1"}
    images = page.tab.get_by_role("img").all()
    assert all(image.get_attribute("aria-label") for image in images)
