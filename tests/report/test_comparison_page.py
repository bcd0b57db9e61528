"""The page of a comparison in a real browser: tables, and timelines that move together."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from compared_runs import pixels, write_sampled, write_steps
from opened_pages import GUTTER, RULER, OpenedPage, Opener, assert_exported
from traces import Plan, Task
from traces.noisy import Noisy

from dasfprof.handles.comparison import RunComparison, compare

HOSTILE = "</script><img src=x onerror=alert(1)>{{data}}"


@pytest.fixture
def opened(open_page: Opener, tmp_path: Path) -> Opener:
    numbers = count()

    def open_comparison(comparison: RunComparison, **options: Any) -> OpenedPage:
        return open_page(comparison.report(tmp_path / f"page{next(numbers)}.html"), **options)

    return open_comparison


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> RunComparison:
    """Compare three runs per side: clean takes twice as long, and add replaces sum."""
    place = tmp_path_factory.mktemp("slower")
    changed = Noisy(times={"clean": 2.0}, names={"sum": "add"})
    before = [Noisy().write(place / "a" / str(n), n) for n in range(3)]
    after = [changed.write(place / "b" / str(n), 50 + n) for n in range(3)]
    return compare(before, after)


def test_the_verdict_and_the_tables(opened: Opener, slower: RunComparison) -> None:
    page = opened(slower)
    assert page.text("#verdict strong") == slower.sentences[0]
    assert page.texts("#verdict p") == slower.sentences[1:]
    assert "slower" in str(page.tab.get_attribute("#verdict", "class"))
    assert_exported(page, "functions", slower.functions, in_order=False)
    assert_exported(page, "runs", slower.runs, in_order=False)
    assert "sum" in page.texts("#functions-table .rows .row > div:first-child")
    # There are no samples.
    assert slower.hot_lines().empty
    assert page.tab.locator("#lines-table").count() == 0
    for width in (800, 1280):
        page.tab.set_viewport_size({"width": width, "height": 900})
        assert page.tab.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("what", ["path", "threads"])
def test_the_waterfall_sums_to_the_whole(opened: Opener, slower: RunComparison, what: str) -> None:
    page = opened(slower)
    page.tab.check(f"input[name=waterfall][value={what}]", force=True)
    frame = slower.waterfall() if what == "path" else slower.thread_time()
    assert_exported(page, "waterfall", frame)
    cells = page.tab.eval_on_selector_all(
        "#waterfall .number", "cells => cells.map((cell) => Number(cell.title))"
    )
    sums = frame[["Before (s)", "After (s)"]].sum()
    assert (cells[0], cells[-1]) == pytest.approx(tuple(sums), abs=1e-9)
    assert sum(cells[:-1]) == pytest.approx(cells[-1], abs=1e-9)
    assert page.texts("#waterfall th")[1].startswith("clean Computing")
    # Each bar starts at the end of the previous one.
    boxes = [page.tab.locator("#waterfall .part").nth(n).bounding_box() for n in range(2)]
    assert boxes[1]["x"] == pytest.approx(boxes[0]["x"] + boxes[0]["width"], abs=1.5)


def test_steps(opened: Opener, tmp_path: Path) -> None:
    comparison = compare(write_steps(tmp_path / "a"), write_steps(tmp_path / "b", 2.0, 2))
    assert comparison.steps["Step"].tolist() == ["read", "reduce"]
    assert comparison.steps["Total After (s)"].tolist() == pytest.approx([8.0, 3.0])
    page = opened(comparison)
    assert_exported(page, "steps", comparison.steps, in_order=False)
    page.tab.check("input[name=by][value=step]", force=True)
    assert_exported(page, "waterfall", comparison.waterfall("step"))


def test_equal_runs_have_equal_pictures_and_move_together(opened: Opener, tmp_path: Path) -> None:
    page = opened(compare(write_steps(tmp_path / "a"), write_steps(tmp_path / "b", number=2)))
    whole = pixels(page, "before")
    assert pixels(page, "after") == whole
    page.tab.locator("[data-side=before] .overlay").focus()
    for _ in range(4):
        page.tab.keyboard.press("+")
    near = pixels(page, "before")
    assert near != whole
    assert pixels(page, "after") == near
    page.tab.locator("[data-side=after] .overlay").focus()
    page.tab.keyboard.press("Home")
    assert pixels(page, "before") == pixels(page, "after") == whole


def test_cursor_and_selection_are_linked(opened: Opener, slower: RunComparison) -> None:
    page = opened(slower)
    nothing = pixels(page, "after", "overlay")
    box = page.tab.locator("[data-side=before] .overlay").bounding_box()
    # The first track's first task is a load.
    point = box["x"] + GUTTER + 40, box["y"] + RULER + 10
    page.tab.mouse.move(*point)
    page.until(lambda: pixels(page, "after", "overlay") != nothing)
    unlit = pixels(page, "after")
    page.tab.mouse.click(*point)
    told = page.until(lambda: page.text(".chosen"))
    assert told.startswith("load: before 24 ")
    page.until(lambda: pixels(page, "after") != unlit)
    # The panel is about the drawn runs, not about all, like the tables of these runs.
    drawn = compare(*(run.trace for run in slower.typical)).functions.set_index("Function")
    for label in ("Total Before (s)", "Total After (s)"):
        assert f"{drawn.loc['load', label]:.3g} s in total" in told
    page.tab.locator("#functions-table .rows .row", has_text="clean").click()
    page.until(lambda: page.text(".chosen").startswith("clean: before 24 "))
    page.tab.locator("[data-side=after] .overlay").focus()
    page.tab.keyboard.press("Escape")
    page.until(lambda: page.text(".chosen") == "" and pixels(page, "after") == unlit)


def test_sampled_lines_are_compared(opened: Opener, tmp_path: Path) -> None:
    before = write_sampled(tmp_path / "a", {"norm": 0.5, "sort": 0.25})
    after = write_sampled(tmp_path / "b", {"norm": 1.5, "load": 0.25})
    comparison = compare(before, after)
    lines = comparison.hot_lines()
    assert lines["Line"].tolist() == [51, 52, 52]
    assert lines["Difference (s)"].tolist() == [1.0, -0.25, 0.25]
    assert comparison.hot_lines("function")["Code"].tolist() == ["norm", "sort", "load"]
    assert_exported(opened(comparison), "lines", lines)


def test_no_difference_is_not_made_one(opened: Opener, tmp_path: Path) -> None:
    sides = [
        [Noisy().write(tmp_path / s / str(n), n + 9 * (s == "b")) for n in range(3)] for s in "ab"
    ]
    page = opened(compare(*sides))
    assert page.tab.get_attribute("#verdict", "class") == "both-verdict"


def test_hostile_texts_are_texts(opened: Opener, tmp_path: Path) -> None:
    names = {"load": HOSTILE.replace("-", ""), "clean": "\u202eevil\x1b"}
    for place, seed in (("a", 1), ("b", 2)):
        plan = Noisy(names=names).plan(seed)
        plan.run = f"{HOSTILE.replace('/', '')}-{seed}"
        plan.versions = {HOSTILE: str(seed)}
        plan.write_files(tmp_path / place)
    page = opened(compare(tmp_path / "a", tmp_path / "b"))
    assert "<img src=x onerror" in page.text("#title")
    assert page.tab.locator("img").count() == 0
    assert any("<img" in text for text in page.texts("#functions-table .rows .row > div"))
    assert "\\u202eevil\\x1b" in page.texts("#functions-table .rows .row > div")


def test_runs_that_cannot_be_compared(opened: Opener, tmp_path: Path) -> None:
    good = Noisy().write(tmp_path / "good", 1)
    others = [Task(f"x-{n}", 0, n, n + 1.0) for n in range(9)]
    for tasks, words in (([], "has no task runs"), (others, "seem to be different pipelines")):
        Plan(tasks, run_uuid="2").write_files(tmp_path / str(len(tasks)))
        comparison = compare(good, tmp_path / str(len(tasks)))
        page = opened(comparison)
        assert words in page.text("#verdict") + page.text("#notes")
        assert page.tab.is_visible("#waterfall-section") == (
            comparison.verdict.kind != "cannot tell"
        )
        assert page.tab.get_attribute("#verdict", "class") == "both-verdict"
        page.tab.check("input[name=pair-view][value=critical]", force=True)
