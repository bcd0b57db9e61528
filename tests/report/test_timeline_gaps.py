"""The timeline between and inside the bars, compared with time accounting."""

import re
from pathlib import Path

import numpy as np
import pytest
from opened_pages import GUTTER, RULER, OpenedPage, Opener
from timeline_runs import colour_of, colours_at, hovered
from traces import Plan, Task, filled

from dasfprof import TraceAnalyser
from dasfprof.analysis.model.accounting import by_class, make_accounts, thread_seconds
from dasfprof.analysis.model.thread_time import RUNNING, USES


#: Two workers with two threads for 16 s. On the first, a task fetches its inputs from 1 to 2, waits
#: for a thread until 3, holds it from 3 to 12, and runs from 4 to 10. No task is submitted before 1
#: or after 12. The first worker's second thread and the second worker never run a task.
@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    spent = {"cpu": 3.0, "run_queue": 1.0, "storage": 1.0, "deserialize": 0.25}
    times = {"arrival": 1.0, "sent": 1.0, "received": 1.0, "ready": 2.0, "executing": 3.0}
    load = Task("load-1", 0, 4.0, 10.0, done=12.0, known=12.0, **times, **spent)
    held = [(worker, at, {"state": "running"}) for worker in (0, 1) for at in (0.0, 16.0)]
    return Plan([load], graphs=(1.0,), held=held).write(tmp_path_factory.mktemp("traces"))


def told(page: OpenedPage, time: float, lane: int) -> list[str]:
    """Return the lines of the tooltip at a time (of sixteen seconds) on a track."""
    return hovered(page, time / 16, (lane + 0.5) * 24)


@pytest.mark.parametrize("most", [1_000_000, 8])
def test_cells_sum_to_the_accounts(analyser: TraceAnalyser, most: int) -> None:
    accounts = make_accounts(analyser.run)
    cells = thread_seconds(analyser.run, most).cells
    idle = by_class(analyser.run, np.array([own.seconds.sum(axis=0) for own in cells]))
    assert idle[:, USES:] == pytest.approx(accounts.of_lives[:, USES:])
    assert not idle[:, :USES].any()


def test_gaps_are_named(page: OpenedPage) -> None:
    assert told(page, 6.0, 0)[0] == "load"
    # One of two threads waited, so each thread has half of that.
    assert [line.split(":")[0] for line in told(page, 0.5, 0)] == [
        *("3 s without a task", "No runnable tasks 1 s", "Waiting for client 1 s"),
        *("Task start delay 500 ms", "Others"),
    ]
    before, *classes = (line.split(":")[0] for line in told(page, 3.5, 0))
    assert before == "1 s before load"
    assert classes == ["Task overhead 750 ms", "Deserializing 250 ms"]
    assert told(page, 11.0, 0)[1].startswith("Task overhead 2 s")
    # Threads that never ran a task have tracks.
    assert told(page, 8.0, 3)[0] == "16 s without a task"


def test_the_legend_of_gaps_is_the_table(
    open_page: Opener, analyser: TraceAnalyser, report: Path
) -> None:
    page = open_page(report)
    table = analyser.time_accounting()
    running = {spent.label for spent in RUNNING}
    names = [name for name in table["Class"] if name not in running]
    shown = page.texts("#gap-legend li")
    shown = shown[shown.index("Between functions:") :]
    assert [text.startswith(name) for text, name in zip(shown[1:], names, strict=True)]


def colour_at(page: OpenedPage, time: float, y: float) -> str:
    return colours_at(page, time / 16, y)[0]


def swatch(page: OpenedPage, name: str) -> str:
    return colour_of(page.tab.locator("#gap-legend li", has_text=name).first)


def test_bars_show_what_their_thread_did(page: OpenedPage) -> None:
    # Of six seconds, three are on a core, one is CPU wait, one in storage calls, and one in others.
    classes = ("Computing", "Waiting for CPU", "Waiting for storage", "Blocked")
    for time, name in zip((5.5, 7.5, 8.5, 9.5), classes, strict=True):
        wanted = swatch(page, name)
        page.until(lambda at=time, wanted=wanted: colour_at(page, at, RULER + 23) == wanted)


def test_no_two_classes_look_alike_and_each_is_painted_as_its_swatch(page: OpenedPage) -> None:
    looks = """(all) => all.map((one) => { const style = getComputedStyle(one);
        return `${style.backgroundColor} ${style.backgroundImage}`; })"""
    for part in ("#gap-legend i", "#class-names i", ".classes i"):
        found = page.tab.locator(part).evaluate_all(looks)
        assert len(set(found)) == len(found) >= 4, part
    # From 3 to 4, the thread deserializes for a quarter of a second, and is held otherwise.
    seen = {colour_at(page, 3.5, RULER + y) for y in range(4, 20)}
    for name in ("Task overhead", "Deserializing"):
        parts = map(int, re.findall(r"\d+", swatch(page, name)))
        mixed = ", ".join(str(round(255 + (part - 255) * 0.55)) for part in parts)
        assert f"rgb({mixed})" in seen, name


def test_arrows_go_from_the_run_that_made_a_result(open_page: Opener, tmp_path: Path) -> None:
    tasks = [Task("a-1", 0, 1.0, 4.0), Task("b-1", 1, 8.0, 15.0, dependencies=["a-1"])]
    path = Plan(tasks, threads=1).write(tmp_path / "traces").report(tmp_path / "arrows.html")
    page = open_page(path, "#view=flatten&task=b-1")
    page.until(lambda: page.details().get("Key") == "b-1")
    red, green, blue, opacity = np.moveaxis(page.pixels("#timeline .overlay", 0, 0), -1, 0)
    # Brown is the colour of dependencies.
    _, x = np.nonzero((red > 120) & (green < 90) & (blue < 40) & (opacity > 0))
    times = (x - GUTTER) / (page.canvas()["width"] - GUTTER) * 15.0
    assert 4.0 - 0.1 <= times.min() < 4.3
    assert 7.7 < times.max() <= 8.0 + 0.1


def test_failed_runs_are_marked_and_found(open_page: Opener, tmp_path: Path) -> None:
    tasks = filled(["works"], 0.5, count=12)
    failed = [Task(f"fails-{at}", 1, 4.0 + at, 4.5 + at, state="erred", size=0) for at in range(2)]
    analyser = Plan([*tasks, *failed]).write(tmp_path / "traces")
    page = open_page(analyser.report(tmp_path / "failed.html"))
    for by in ("function", "worker", "class"):
        page.tab.select_option("#colour", by)
        page.until(lambda: "failed 2" in page.texts("#legend li"))
    page.tab.click("#tiles .bad a")
    page.until(lambda: page.text("#found") == "2 found")
    keys = page.texts("#task-table .rows .row > div:first-child")
    assert sorted(keys) == ["fails-0", "fails-1"]
    # It keeps its red frame when the colouring changes.
    bad = page.tab.evaluate("getComputedStyle(document.querySelector('#tiles .bad dd')).color")
    box = page.canvas()
    x = (4.25 / 5.5) * 16
    lane = (box["height"] - RULER) / 4
    page.until(lambda: colour_at(page, x, RULER + 3 * lane + 2) == bad)
