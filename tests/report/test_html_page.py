"""The report in a real browser: what users see, do and export."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from opened_pages import GUTTER, LOAD, RULER, SUM, OpenedPage, Opener, assert_exported

from dasfprof import TraceAnalyser
from dasfprof.analysis.model.thread_time import HELPS, ThreadTime

LOAD_0, SUM_0 = str((LOAD, 0)), str((SUM, 0))


def test_head_tells_what_ran_and_on_what_time_was_spent(
    page: OpenedPage, analyser: TraceAnalyser
) -> None:
    assert "node: 2 workers" in page.text("#subtitle")
    tiles = dict(zip(page.texts(".tile dt"), page.texts(".tile dd:not(.about)"), strict=True))
    assert (tiles["Run time"], tiles["Task runs"], tiles["Failed"]) == ("10 s", "6", "1")
    assert "fails" in page.text("#verdict")
    shares = analyser.time_accounting().set_index("Class")["Share (%)"]
    named = page.texts("#class-names li")
    told = [f"{name} {share:.3g} %" for name, share in shares.items() if share >= 1]
    assert named == [*told, f"{(shares < 1).sum()} more under 1 % each"]
    spent = page.text("#spent-on")
    assert all(f"{shares[name]:.0f} % {name.lower()}" in spent for name in ("Computing", "Blocked"))


def test_exported_tables_equal_the_frames(page: OpenedPage, analyser: TraceAnalyser) -> None:
    exported = pd.DataFrame(page.download("#task-csv")).set_index("Task Key")
    longest = analyser.per_task_bottleneck().set_index("Task Key")
    status = analyser.per_task_status().set_index("Task Key")
    # The page has integer microseconds.
    assert exported.index[0] == longest.index[0] == LOAD_0
    for key in longest.index:
        row = exported.loc[key]
        for label in ("Start (s)", "Duration (s)", "Memory usage (Mb)"):
            assert float(row[label]) == pytest.approx(longest.loc[key, label], abs=1e-6)
        for label in ("Function", "Worker", "State"):
            assert row[label] == longest.loc[key, label]
        for label in ("Inqueue (s)", "Preparing (s)", "Finalizing (s)"):
            assert float(row[label]) == pytest.approx(status.loc[key, label], abs=1e-6)
    assert len(exported) == len(longest) == 6
    assert_exported(page, "functions", analyser.per_function_bottleneck())
    assert_exported(page, "balance", analyser.per_worker_task_balance())
    assert_exported(page, "status", analyser.per_function_status())


def test_selecting_in_the_chart_marks_the_table(page: OpenedPage) -> None:
    # In the first track, LOAD 0 runs on worker 0 from 1 to 3 of ten seconds.
    page.tab.mouse.click(*page.at(0.2, RULER + 10))
    page.until(lambda: page.details().get("Key") == LOAD_0)
    facts = {"Duration": "2 s", "Worker": "worker-node-0", "Result": "2 MB", "Shape": "(500, 500)"}
    assert facts.items() <= page.details().items()
    assert page.chosen_row()[0] == LOAD_0
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 1280
    # Its only dependent: an arrow, and a link.
    assert page.painted("overlay") > 100
    page.tab.click("#details ul.needed button")
    page.until(lambda: page.details().get("Key") == SUM_0)
    assert len(page.texts("#details ul.needs button")) == 2
    page.tab.click("#details .close")
    assert not page.tab.locator("#details").is_visible()


def test_selecting_in_the_table_marks_the_chart(page: OpenedPage) -> None:
    assert page.painted("overlay") == 0
    page.tab.click(f'#task-table .rows .row:has-text("{SUM}"):has-text("sum") >> nth=0')
    page.until(lambda: page.details().get("Key") == SUM_0)
    assert page.painted("overlay") > 20
    page.tab.locator("#task-table .table").focus()
    page.tab.keyboard.press("ArrowUp")
    page.until(lambda: page.details().get("Key") != SUM_0)
    assert page.chosen_row()[0] == page.details()["Key"]


def test_critical_path_is_shown_first(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    path = analyser.critical_path()
    page = open_page(report)
    assert page.tab.locator("input[value=critical]").is_checked()
    shown = page.texts("#path-legend li")[1:]
    longest = path.groupby("Kind")["Duration (s)"].sum().sort_values(ascending=False)
    for text, (kind, seconds) in zip(shown, longest.items(), strict=True):
        name, number, unit = text.rsplit(maxsplit=2)
        scale = {"s": 1.0, "ms": 1e-3}[unit]
        assert (name, float(number) * scale) == (kind, pytest.approx(seconds, rel=0.005))
    # A click on work of the critical path selects its task run.
    work = path[path["Kind"] == "Compute"].iloc[-1]
    middle = (work["Start (s)"] + work["Duration (s)"] / 2) / 10
    page.tab.mouse.move(*page.at(middle, RULER + 10))
    page.until(lambda: "Compute" in page.text("#timeline .tip"))
    page.tab.mouse.click(*page.at(middle, RULER + 10))
    page.until(lambda: page.details().get("Key") == work["Task Key"])


def test_classes_of_time_tell_their_meaning(page: OpenedPage, analyser: TraceAnalyser) -> None:
    frame = analyser.time_accounting()
    assert page.texts("#accounting tr th") == frame["Class"].tolist()
    told = [text.split(" What usually helps: ") for text in page.texts("#accounting tr .meaning")]
    helps = {spent.label: HELPS[spent] for spent in ThreadTime}
    meanings = frame["Meaning"].tolist()
    assert told == [
        [text, helps[name]] for name, text in zip(frame["Class"], meanings, strict=True)
    ]


def test_views(page: OpenedPage) -> None:
    flat = page.painted()
    assert flat > 1000
    page.tab.click('label:has(input[value="compact"])')
    page.tab.fill("#threshold", "900")
    page.until(lambda: page.text("#shown") == "3 of 6 task runs")
    page.until(lambda: 0 < page.painted() < flat)
    page.tab.click('label:has(input[value="hierarchy"])')
    page.until(lambda: page.painted() > 1000)
    closed = page.canvas()["height"]
    # load takes the most time: its track is first, and expands to a track per worker.
    page.tab.mouse.click(*page.at(-0.05, RULER + 10))
    page.until(lambda: page.canvas()["height"] > closed)
    page.tab.mouse.click(*page.at(0.15, RULER + 10))
    page.until(lambda: LOAD in page.details().get("Key", ""))


def test_zoom_and_pan(page: OpenedPage) -> None:
    assert page.window() == (0.0, 10.0)
    page.tab.mouse.move(*page.at(0.5, RULER + 10))
    page.tab.mouse.wheel(0, -200)
    page.until(lambda: page.window() != (0.0, 10.0))
    begin, end = page.window()
    assert begin == pytest.approx(10.0 - end, abs=0.11)  # about the pointer, in the middle
    page.tab.mouse.down()
    page.tab.mouse.move(*page.at(0.4, RULER + 10), steps=4)
    page.tab.mouse.up()
    page.until(lambda: page.window()[0] > begin)
    assert page.window()[1] - page.window()[0] == pytest.approx(end - begin, abs=0.11)
    page.tab.keyboard.press("Home")
    page.until(lambda: page.window() == (0.0, 10.0))
    page.tab.click("#zoom-in")
    page.until(lambda: page.window() == (2.5, 7.5))
    # The strip selects the time.
    box = page.tab.locator("#strip canvas").bounding_box()
    width = box["width"] - GUTTER
    page.tab.mouse.move(box["x"] + GUTTER + 0.2 * width, box["y"] + 20)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + GUTTER + 0.6 * width, box["y"] + 20, steps=4)
    page.tab.mouse.up()
    page.until(lambda: page.window() == pytest.approx((2.0, 6.0), abs=0.11))  # its end rounds down


def test_keyboard(page: OpenedPage) -> None:
    page.tab.locator("#timeline .overlay").focus()
    for key in ("+", "ArrowRight", "ArrowLeft", "-"):
        before = page.window()
        page.tab.keyboard.press(key)
        page.until(lambda before=before: page.window() != before)
    page.tab.keyboard.press("Home")
    page.tab.keyboard.press("Enter")
    page.until(lambda: page.details().get("Key") == LOAD_0)
    page.tab.keyboard.press(".")
    page.until(lambda: page.details().get("Key") == SUM_0)
    page.tab.keyboard.press("ArrowDown")
    page.until(lambda: page.details().get("Key") == "fails-1")
    assert page.text("#details pre") == "ValueError: <b>no</b>"
    page.tab.keyboard.press("f")
    page.until(lambda: page.window()[0] > 7)
    page.tab.keyboard.press("/")
    page.tab.keyboard.type("sum")
    page.until(lambda: page.text("#found") == "2 found")


def test_sorting(page: OpenedPage) -> None:
    for label in ("Start (s)", "Task Key", "Function", "Inqueue (s)", "State"):
        header = page.tab.locator("#task-table .head button", has_text=label)
        for _ in range(2):
            header.click()
            cell = page.texts("#task-table .head button").index(label)
            cells = f"#task-table .rows .row > div:nth-child({cell + 1})"
            shown = page.texts(cells)
            values = [float(text) for text in shown] if label.endswith("(s)") else shown
            direction = page.tab.locator("#task-table .head [aria-sort$=ing]")
            descending = direction.get_attribute("aria-sort") == "descending"
            assert values == sorted(values, reverse=descending), label


def test_links_to_a_task_a_time_and_a_function(open_page: Opener, report: Path) -> None:
    for view in ("", "view=hierarchy&"):
        page = open_page(report, f"#{view}task={SUM_0}")
        page.until(lambda page=page: page.details().get("Key") == SUM_0)
        assert page.chosen_row()[0] == SUM_0
    page = open_page(report, f"#time=2,4&function={SUM}")
    page.until(lambda: page.text("#found") == "2 found")
    assert page.window() == (2.0, 4.0)


def test_resources(page: OpenedPage) -> None:
    charts = page.tab.locator("#charts canvas")
    labels = [canvas.get_attribute("aria-label") for canvas in charts.all()]
    assert "CPU of workers over time, at most 100 %, one core: 100 %" in labels
    assert "Tasks in memory over time, at most 5" in labels
    reasons = page.texts("#charts .absent")
    assert "GPU utilisation, GPU memory: no reading of a GPU was recorded." in reasons
    charts.first.scroll_into_view_if_needed()
    box = charts.first.bounding_box()
    page.tab.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
    page.until(lambda: "100 %" in page.texts("#charts .chart:first-child output b"))


def box_of(page: OpenedPage, name: str) -> Any:
    return page.tab.locator(".plan-box").filter(has_text=name)


def test_boxes_of_the_plan_tell_tasks_and_failures(page: OpenedPage) -> None:
    assert len(page.texts(".plan-box")) == 3
    assert "3 tasks · 3.53 s" in str(box_of(page, "load").text_content())
    assert page.texts(".plan-box.failed .bad") == ["1 failed"]
    # The inputs of the sums: distinct results of all loads.
    assert page.texts(".plan-drawing text") == ["6 MB"]
    above, below = (box_of(page, name).bounding_box()["y"] for name in ("load", "sum"))
    assert above < below
    # They can be combined.
    assert page.texts("#plan-by span") == ["layer", "function"]
    page.tab.check("#plan-by input[value=function]", force=True)
    assert len(page.texts(".plan-box")) == 3


def test_a_click_lights_the_task_runs_of_a_box(page: OpenedPage) -> None:
    for name, modifiers, count in (
        ("load", [], "3 found"),
        ("sum", ["Shift"], "5 found"),
        ("sum", [], "2 found"),
        ("sum", [], ""),
    ):
        box_of(page, name).click(modifiers=modifiers)
        page.until(lambda count=count: page.text("#found") == count)
        assert name != "load" or "Only load" in page.text("#filtered-by")


def test_scrolling_the_page_past_the_chart_does_not_zoom(page: OpenedPage) -> None:
    page.tab.mouse.move(20, 500)
    page.tab.mouse.wheel(0, 100)
    page.until(lambda: page.tab.evaluate("scrollY") == 100)
    page.tab.evaluate("scrollTo(0, 0)")
    page.until(lambda: page.tab.evaluate("scrollY") == 0)
    page.tab.mouse.move(*page.at(0.5, RULER + 10))
    page.tab.mouse.wheel(0, 100)  # everything is shown already, so the page scrolls
    page.until(lambda: page.tab.evaluate("scrollY") == 100)
    assert page.window() == (0.0, 10.0)


def test_filter_of_functions(page: OpenedPage) -> None:
    page.tab.fill("#functions-filter", "SUM")
    names = "#functions-table .rows .row > div:nth-child(1)"
    page.until(lambda: page.texts(names) == [SUM, SUM])  # Dask does not treat letters as a hash
