"""Entries of the timeline's legends isolate what they stand for, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opened_pages import RULER, OpenedPage, Opener
from timeline_runs import LANE
from traces import Plan, Task

from dasfprof import TraceAnalyser

#: Of the run.
SECONDS = 13.5


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Nine functions on two workers; of two functions a run failed."""
    tasks = []
    for at in range(27):
        name = f"step{at % 9}"
        failed = {"state": "erred", "exception": "ValueError: no"} if at in (3, 8) else {}
        begin = 0.5 * at
        length = 0.4 - 0.01 * (at % 9)
        about = {"cpu": length / 2, **failed}
        tasks.append(Task(f"{name}-{at}", at % 2, begin, begin + length, **about))
    used = [(0, at, {"cpu": 50.0}) for at in (0.0, 9.0)]
    return Plan(tasks, threads=1, used=used).write(tmp_path_factory.mktemp("traces"))


def entry(page: OpenedPage, name: str, legend: str = "legend") -> Any:
    return page.tab.locator(f"#{legend} button", has_text=name).first


def isolated(page: OpenedPage, legend: str = "legend") -> list[str]:
    return [text.split()[0] for text in page.texts(f'#{legend} [aria-pressed="true"]')]


def test_a_click_isolates_and_shift_adds(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    tasks = analyser.trace.tasks
    page = open_page(report, "#view=flatten")

    def found(*functions: str, failed: bool = False) -> str:
        wanted = tasks["function"].astype(str).isin(functions)
        if failed:
            wanted |= tasks["state"].astype(str) == "erred"
        return f"{wanted.sum()} found"

    entry(page, "step1").click()
    page.until(lambda: page.text("#found") == found("step1"))
    entry(page, "step2").click(modifiers=["Shift"])
    page.until(lambda: page.text("#found") == found("step1", "step2"))
    entry(page, "failed").click(modifiers=["Shift"])
    page.until(lambda: page.text("#found") == found("step1", "step2", failed=True))
    entry(page, "step1").click(modifiers=["Shift"])
    page.until(lambda: page.text("#found") == found("step2", failed=True))
    # The functions without a colour of their own, together.
    entry(page, "others").click()
    page.until(lambda: page.text("#found") == found("step7", "step8"))
    entry(page, "others").click()
    page.until(lambda: page.text("#found") == "")
    assert isolated(page) == []
    page.tab.emulate_media(media="print")
    assert entry(page, "step1").is_visible()
    assert entry(page, "No runnable task", "gap-legend").is_visible()


def test_by_keyboard_and_from_a_link(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#view=flatten&colour=worker")
    assert page.tab.input_value("#colour") == "worker"
    entry(page, "worker-node1-0").focus()
    page.tab.keyboard.press("Enter")
    page.until(lambda: page.text("#found") == "14 found")
    page.tab.keyboard.press("Tab")
    page.tab.keyboard.press("Shift+Enter")
    page.until(lambda: page.text("#found") == "27 found")
    page.tab.keyboard.press("Shift+Space")
    page.until(lambda: page.text("#found") == "14 found")
    entry(page, "No runnable task", "gap-legend").click()
    page.tab.click("#copy-link")
    page.until(lambda: "shown=" in page.tab.evaluate("location.hash"))
    again = open_page(report, page.tab.evaluate("location.hash"))
    assert isolated(again) == ["worker-node1-0"]
    assert isolated(again, "gap-legend") == ["No"]
    assert again.text("#found") == "14 found"
    for one in (page, again):
        one.tab.locator("#timeline .overlay").focus()
        one.tab.keyboard.press("Escape")
        one.until(lambda one=one: one.text("#found") == "")
        assert isolated(one) == isolated(one, "gap-legend") == []
    entry(page, "worker-node1-1").click()
    page.until(lambda: page.text("#found") == "13 found")
    page.tab.keyboard.press("Escape")  # in the legend itself
    page.until(lambda: page.text("#found") == "")
    entry(page, "worker-node1-1").click()
    page.tab.select_option("#colour", "function")  # other names: nothing is isolated
    page.until(lambda: page.text("#found") == "")


def inked(page: OpenedPage, time: float, lane: int) -> bool:
    """Tell whether anything is painted in a lane at a time, of 13.5 seconds."""
    box = page.canvas()
    x, y = page.at(time / SECONDS, RULER + lane * LANE + 2)
    found: bool = page.tab.evaluate(
        """([x, y, height]) => new Promise((resolve) => requestAnimationFrame(() => {
            const canvas = document.querySelector("#timeline canvas.picture");
            const context = new OffscreenCanvas(5, height).getContext("2d");
            context.drawImage(canvas, -x, -y);
            const pixels = context.getImageData(0, 0, 5, height).data;
            resolve(pixels.some((value) => value < 250));
        }))""",
        [round(x - box["x"]), round(y - box["y"]), LANE - 5],
    )
    return found


def test_a_class_between_bars_alone(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#view=flatten")
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
    page = open_page(report, "#view=flatten")
    entry(page, "step1").click()
    page.until(lambda: page.text("#found") != "")
    page.tab.click("#classes > [title^=Computing]")
    page.until(lambda: isolated(page, "gap-legend") == ["Computing"])
    assert isolated(page) == []
    assert page.text("#found") == "", "all task runs may have computed"
    # Of each bar the part in which it computed, here a half.
    first = analyser.trace.tasks.query("worker == 'worker-node1-0'").iloc[0]
    assert first["cpu"] == pytest.approx(first["duration"] / 2, rel=1e-4)
    swatch = page.tab.locator("#gap-legend i").first
    colour = swatch.evaluate("(one) => getComputedStyle(one).backgroundColor")
    begin = first["start"] - analyser.trace.begin
    for share, wanted in ((0.2, True), (0.8, False)):
        time = begin + share * first["duration"]
        page.until(lambda at=time, is_so=wanted: (colour_of(page, at, 0) == colour) == is_so)
    page.tab.keyboard.press("Escape")
    page.until(lambda: isolated(page, "gap-legend") == [])


def colour_of(page: OpenedPage, time: float, lane: int) -> str:
    """Give the colour in the middle of a lane at a time."""
    box = page.canvas()
    x, y = page.at(time / SECONDS, RULER + (lane + 0.5) * LANE)
    found: str = page.tab.evaluate(
        """([x, y]) => new Promise((resolve) => requestAnimationFrame(() => {
            const canvas = document.querySelector("#timeline canvas.picture");
            const context = new OffscreenCanvas(1, 1).getContext("2d");
            context.drawImage(canvas, -x, -y);
            const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
            resolve(`rgb(${red}, ${green}, ${blue})`);
        }))""",
        [round(x - box["x"]), round(y - box["y"])],
    )
    return found


def luminance(colour: str) -> float:
    """Give the relative luminance of ``rgb(r, g, b)``, by WCAG 2.2."""
    shares = [float(part) / 255 for part in colour[4:-1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_wcag_aa(open_page: Opener, report: Path, scheme: str) -> None:
    page = open_page(report, "#view=flatten&shown=step1&pinned=worker-node1-0", color_scheme=scheme)
    style = "(element, name) => getComputedStyle(element)[name]"
    card = page.tab.locator("#timeline-section").evaluate(style, "backgroundColor")

    def colour(selector: str, name: str = "color") -> str:
        found: str = page.tab.locator(selector).first.evaluate(style, name)
        return found

    chosen = '#legend [aria-pressed="true"]'
    for text in (chosen, f"{chosen} small"):
        assert contrast(colour(text), colour(chosen, "backgroundColor")) >= 4.5
    for text in ("#legend button small", ".handles button", ".handles [aria-pressed=true]"):
        assert contrast(colour(text), card) >= 4.5
    # Of lines that mean something.
    assert contrast(colour("#charts span.limit i", "borderTopColor"), card) >= 3
