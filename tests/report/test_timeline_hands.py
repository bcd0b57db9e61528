"""What hands, eyes and screen readers meet in the timeline: gestures, lines, names, contrast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opened_pages import GUTTER, RULER, OpenedPage, Opener
from timeline_runs import LANE, TALL
from traces import Plan, Task

from dasfprof import TraceAnalyser

#: Of the run.
SECONDS = 8.0
#: How many pixels of the canvas around a place are looked at for a line.
NEAR = 2


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Two workers; four tasks that differ in function, duration, use of the CPU and end."""
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
    """Give the colours of some pixels beside each other of a canvas, at a time."""
    box = page.tab.locator(canvas).first.bounding_box()
    x = GUTTER + time / SECONDS * (box["width"] - GUTTER)
    found: list[str] = page.tab.evaluate(
        """([name, x, y, wide]) => new Promise((resolve) => requestAnimationFrame(() => {
            const canvas = document.querySelector(name);
            const context = new OffscreenCanvas(wide, 1).getContext("2d");
            context.drawImage(canvas, -x, -y);
            const pixels = context.getImageData(0, 0, wide, 1).data;
            const colour = (at) => `rgb(${[...pixels.slice(at, at + 3)].join(", ")})`;
            resolve(Array.from({ length: wide }, (_, at) =>
              `${colour(4 * at)}${pixels[4 * at + 3] ? "" : " clear"}`));
        }))""",
        [canvas, round(x) - NEAR, y, 2 * NEAR + 1],
    )
    return set(found)


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
            swatch = page.tab.locator("#legend li", has_text=name).first.locator("i")
            wanted = swatch.evaluate("(one) => getComputedStyle(one).backgroundColor")
            y = RULER + lane * LANE + 6
            page.until(lambda at=time, y=y, wanted=wanted: wanted in colours(page, at, y))


def test_touchpad_and_mouse_move_it_alike(open_page: Opener, report: Path) -> None:
    # A wheel just after the page was scrolled scrolls the page on: nothing scrolls it.
    page = open_page(report, "#view=flatten", viewport=TALL)
    page.tab.click("#zoom-in")
    page.tab.click("#zoom-in")
    page.until(lambda: page.window() == (3.0, 5.0))
    page.tab.mouse.move(*page.at(0.5, RULER + 10))
    # A touchpad moves sideways; a mouse does so with Shift.
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
    assert colours(page, 7.3, RULER + 40, lanes) == {"rgb(0, 0, 0) clear"}
    page.tab.mouse.move(*page.at(7.3 / SECONDS, RULER + 10))
    page.until(lambda: len(colours(page, 7.3, RULER + 40, lanes)) > 1)
    page.until(lambda: colours(page, 7.3, 12, chart) != quiet)
    # From a chart to the lanes as well.
    box = page.tab.locator(chart).first.bounding_box()
    x = box["x"] + GUTTER + 2.6 / SECONDS * (box["width"] - GUTTER)
    page.tab.mouse.move(x, box["y"] + 20)
    page.until(lambda: len(colours(page, 2.6, RULER + 40, lanes)) > 1)
    page.tab.mouse.move(2, 2)
    page.until(lambda: colours(page, 2.6, RULER + 40, lanes) == {"rgb(0, 0, 0) clear"})
    # Between the lanes at two seconds, and in the chart's empty upper part.
    assert len(colours(page, 2.0, RULER + LANE + 2)) > 1
    assert len(colours(page, 2.0, 10, chart)) > 1


def test_views_are_called_what_they_show_and_what_the_studio_calls_them(
    open_page: Opener, report: Path
) -> None:
    page = open_page(report)
    names = page.texts("#timeline-section .choice span")
    assert names == ["Critical path", "By thread", "Long tasks", "By step"]
    titles = [
        str(one.get_attribute("title")) for one in page.tab.locator(".choice span[title]").all()
    ]
    for studio in ("Flatten", "Compact", "Hierarchical"):
        assert sum(f"({studio})" in title for title in titles) == 1


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


#: The contrast of each text with what is behind it, by WCAG 2.2, where it is less than 4.5.
LOW_CONTRAST = """() => {
  // Mixed colours are told as shares of one.
  const parts = (colour) => (colour.match(/[0-9.]+/g) ?? []).map((part) =>
    Number(part) * (colour.startsWith("color(") ? 255 : 1));
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3) return colour;
    }
    return [255, 255, 255];
  };
  const own = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const found = [];
  for (const one of document.querySelectorAll("body *")) {
    if (!own(one) || !one.checkVisibility()) continue;
    if (one.closest("script, style, :disabled, .unseen")) continue;
    const style = getComputedStyle(one);
    if (!style.color.startsWith("rgb(")) continue;
    const [high, low] = [light(parts(style.color)), light(behind(one))].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${one.outerHTML.slice(0, 120)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_texts_have_the_contrast_of_wcag_aa(
    open_page: Opener, report: Path, scheme: str
) -> None:
    link = "#view=flatten&state=erred&task=fails-1"
    page = open_page(report, link, color_scheme=scheme)
    page.until(lambda: page.details().get("Key") == "fails-1")
    assert page.tab.evaluate(LOW_CONTRAST) == []
