"""Entries of the timeline's legends isolate their bars, in a real browser."""

import re
from pathlib import Path

import pytest
from opened_pages import RULER, OpenedPage, Opener
from timeline_runs import LANE, colour_of, colours_at
from traces import Plan, Task

from dasfprof import TraceAnalyser

#: Seconds of the run.
SECONDS = 13.5


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Plan nine functions on two workers; one task run of two functions failed."""
    tasks = []
    for at in range(27):
        failed = {"state": "erred", "exception": "ValueError: no"} if at in (3, 8) else {}
        begin, length = 0.5 * at, 0.4 - 0.01 * (at % 9)
        key = f"step{at % 9}-{at}"
        tasks.append(Task(key, at % 2, begin, begin + length, cpu=length / 2, **failed))
    used = [(0, at, {"cpu": 50.0}) for at in (0.0, 9.0)]
    return Plan(tasks, threads=1, used=used).write(tmp_path_factory.mktemp("traces"))


def isolated(page: OpenedPage) -> list[str]:
    return [text.split()[0] for text in page.texts('#gap-legend [aria-pressed="true"]')]


def colours(page: OpenedPage, time: float, lane: int, begin: int, high: int) -> list[str]:
    """Return the colours in a track at a time, from this many pixels below its top."""
    return colours_at(page, time / SECONDS, RULER + lane * LANE + begin, high=high)


def inked(page: OpenedPage, time: float, lane: int) -> bool:
    found = colours(page, time, lane, 2, LANE - 5)
    return any(int(part) < 250 for colour in found for part in re.findall(r"\d+", colour))


def test_a_class_between_bars_alone(page: OpenedPage) -> None:
    page.tab.locator("#timeline").scroll_into_view_if_needed()
    time, lane = 0.25, 1
    page.tab.mouse.move(*page.at(time / SECONDS, RULER + (lane + 0.5) * LANE))
    page.until(lambda: page.tab.locator("#timeline .tip b").count() > 0)
    there = page.texts("#timeline .tip b")
    legend = page.texts("#gap-legend button")
    others = [text for text in legend if not text.startswith(tuple(there))]
    assert others
    assert len(legend) > len(others)
    for text in legend:
        page.tab.get_by_role("button", name=text, exact=True).click()
        page.until(lambda wanted=text not in others: inked(page, time, lane) == wanted)
    page.tab.keyboard.press("Escape")
    page.until(lambda: inked(page, time, lane))


def test_a_class_of_the_verdict_takes_the_place_of_what_was_isolated(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report, "#view=flatten&class=No+runnable+tasks")
    assert isolated(page) == ["No"]
    page.tab.click("#classes > [title^=Computing]")
    page.until(lambda: isolated(page) == ["Computing"])
    assert page.text("#found") == "", "all task runs may have computed"
    # The part of each bar that is computing, which is half here.
    first = analyser.trace.tasks.query("worker == 'worker-node1-0'").iloc[0]
    assert first["cpu"] == pytest.approx(first["duration"] / 2, rel=1e-4)
    colour = colour_of(page.tab.locator("#gap-legend"))
    begin = first["start"] - analyser.trace.begin
    for share, wanted in ((0.2, True), (0.8, False)):
        time = begin + share * first["duration"]
        page.until(
            lambda at=time, is_so=wanted: (colours(page, at, 0, LANE // 2, 1) == [colour]) == is_so
        )
    page.tab.keyboard.press("Escape")
    page.until(lambda: isolated(page) == [])
