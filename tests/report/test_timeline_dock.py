"""The selection stays visible: its panel is next to or below the chart, and covers no track."""

from pathlib import Path
from typing import Any

import pytest
from opened_pages import RULER, OpenedPage, Opener
from traces import Plan, Task

from dasfprof import TraceAnalyser

THREADS = 32


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Plan eight workers with four threads for 20 s; the last task runs on the last worker."""
    lanes = [divmod(lane, 4) for lane in range(THREADS)]
    tasks = [Task(f"load-{worker}-{at}", worker, 1.0, 9.0, thread=at) for worker, at in lanes]
    tasks += [Task(f"clean-{at}", 0, 10.0 + at, 10.5 + at, thread=0) for at in range(8)]
    tasks.append(Task("last-1", 7, 19.0, 20.0, thread=3))
    return Plan(tasks, workers=8, threads=4).write(tmp_path_factory.mktemp("traces"))


def box(page: OpenedPage, selector: str) -> dict[str, float]:
    found: dict[str, float] = page.tab.locator(selector).bounding_box()
    return found


def bar_of(page: OpenedPage, time: float, lane: int) -> tuple[float, float]:
    """Return the position in the window of a time on a track."""
    canvas = page.canvas()
    high = (canvas["height"] - RULER) / THREADS
    return page.at(time / 20.0, RULER + (lane + 0.5) * high)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (800, 700)])
def test_a_click_covers_no_lane_and_leaves_what_was_clicked_in_sight(
    open_page: Opener, report: Path, width: int, height: int
) -> None:
    page = open_page(report, "#view=flatten", viewport={"width": width, "height": height})
    page.tab.evaluate("document.querySelector('#timeline').scrollIntoView({ block: 'end' })")
    before = page.canvas()
    page.tab.mouse.click(*bar_of(page, 3.0, 31))
    page.until(lambda: page.details().get("Key") == "load-7-3")
    page.until(lambda: width < 1280 or page.canvas()["width"] < before["width"] - 200)
    canvas, panel = page.canvas(), box(page, "#details")
    bars = box(page, "#contents")
    # All tracks are between the bar of sections and the end of the window. The panel covers none.
    assert canvas["y"] >= bars["y"] + bars["height"]
    assert canvas["y"] + canvas["height"] <= height
    if width >= 1280:
        assert canvas["x"] + canvas["width"] <= panel["x"]
        assert panel["y"] >= bars["height"] and panel["y"] + panel["height"] <= height
    else:
        assert canvas["y"] + canvas["height"] <= panel["y"]
        assert canvas["width"] == before["width"]
    page.tab.click("#details .close")
    page.until(lambda: page.canvas()["width"] == before["width"])


def test_a_match_below_the_fold_is_brought_into_sight(open_page: Opener, report: Path) -> None:
    for height in (420, 800):
        page = open_page(report, "#view=flatten", viewport={"width": 1400, "height": height})
        page.search("last-1", "1 found")
        page.follow("last-1")
        # The chart is narrower now, and the bar is at the outline.
        page.until(lambda p=page: p.canvas()["width"] < 1000)
        y = bar_of(page, 19.5, 31)[1]
        bars = box(page, "#contents")
        assert bars["y"] + bars["height"] < y < height


def test_who_goes_through_the_table_stays_there(page: OpenedPage) -> None:
    page.tab.locator("#task-table .table").focus()
    before = box(page, "#task-table")["y"]
    page.tab.keyboard.press("ArrowDown")
    page.until(lambda: page.details())
    assert abs(box(page, "#task-table")["y"] - before) < 2


def test_nothing_moves_while_the_page_is_read(browser: Any, report: Path) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.add_init_script(
        """window.shifts = []; new PerformanceObserver((list) => {
             const name = ({ node }) => node?.id || node?.nodeName;
             for (const one of list.getEntries())
               window.shifts.push([one.value, ...one.sources.map(name)]);
           }).observe({ type: "layout-shift", buffered: true });"""
    )
    tab.goto(report.as_uri())
    tab.wait_for_selector("[data-ready=whole]")
    shifts: Any = tab.evaluate("window.shifts")
    tab.close()
    assert sum(shift[0] for shift in shifts) < 0.02, shifts
