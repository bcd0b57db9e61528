"""Sums over an area of the timeline equal those of the tables."""

from pathlib import Path

import pytest
from opened_pages import OpenedPage, Opener
from shown_numbers import shown
from timeline_runs import sums_of
from traces import Plan, Task, filled

from dasfprof import TraceAnalyser


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Plan two workers with two threads, delays, spilling, transfers, a late graph, and a pause."""
    tasks = filled(["load", "clean"], 0.371, count=20)
    for number, task in enumerate(tasks):
        task.start += 0.02 + 0.01 * (number % 5)
        task.cpu, task.run_queue = 0.1 + 0.01 * number % 0.2, 0.02
        task.executing, task.done = task.start - 0.004, task.stop + 0.003
        task.disk_read = 0.001
    for number in range(2):
        use = Task(f"use-{number}", number, 7.0 + number, 8.7, arrival=6.0, sent=6.2, received=6.3)
        use.ready, use.dependencies = 6.9, ["load-1"]
        tasks.append(use)
    states = [(0.0, "running"), (5.0, "paused"), (5.5, "running"), (12.0, "running")]
    held = [(1, at, {"state": state}) for at, state in states]
    return Plan(tasks, graphs=(0.0, 6.0), held=held).write(tmp_path_factory.mktemp("traces"))


def test_the_whole_run_is_the_accounting(page: OpenedPage, analyser: TraceAnalyser) -> None:
    table = analyser.time_accounting().set_index("Class")["Thread Time (s)"]
    table = table[table > 0]
    assert len(table) >= 8
    for tracks in (2, 4):  # all workers collapsed, and expanded
        page.tab.click("#fold-all")
        page.tab.locator("#timeline .overlay").focus()
        page.tab.keyboard.press("m")
        page.until(lambda tracks=tracks: f", {tracks} tracks: " in page.text("#area h3"))
        classes = sums_of(page, "classes-in")
        assert set(classes) == set(table.index)
        for name, seconds in table.items():
            assert shown(classes[name][0]).shows(seconds), name
    tasks = analyser.trace.tasks
    for group, cells in sums_of(page, "functions-in").items():
        own = tasks["duration"][tasks["function"].astype(str) == group]
        assert cells[0] == str(len(own))
        for text, seconds in zip(cells[1:], [own.sum(), own.max()], strict=True):
            assert shown(text).shows(seconds), (group, text)
    page.tab.keyboard.press("Escape")
    page.until(lambda: not page.tab.locator("#area").is_visible())


def test_the_lanes_of_a_worker_are_its_accounts(page: OpenedPage, analyser: TraceAnalyser) -> None:
    page.tab.locator("#timeline").scroll_into_view_if_needed()
    page.tab.click("#choose")
    height = page.canvas()["height"]
    page.tab.mouse.move(*page.at(0.0, height - 2))
    page.tab.mouse.down()
    page.tab.mouse.move(*page.at(0.5, height - 10))
    page.tab.mouse.move(*page.at(1.0, 24 + (height - 24) * 0.6))
    page.tab.mouse.up()
    page.until(lambda: page.tab.locator("#area").is_visible())
    assert "2 tracks" in page.text("#area h3")
    table = analyser.time_accounting("worker")
    own = table[(table["Worker"] == "worker-node1-1") & (table["Thread Time (s)"] > 0.05)]
    classes = sums_of(page, "classes-in")
    assert "Worker paused" in classes
    for row in own.to_dict("records"):
        text = classes[row["Class"]][0]
        # The last pixel of the canvas may be missing.
        low, high = shown(text).bounds
        assert low * 0.98 <= row["Thread Time (s)"] <= high * 1.02, row["Class"]


def test_workers_by_busy_time(open_page: Opener, tmp_path: Path) -> None:
    seconds = {2: 2.0, 7: 1.0, 10: 4.0}
    tasks = [Task(f"on-{worker}", worker, 0.0, long) for worker, long in seconds.items()]
    plan = Plan(tasks, workers=11, threads=1)
    page = open_page(plan.write(tmp_path / "traces").report(tmp_path / "order.html"))
    page.tab.click('label:has(input[value="compact"])')
    page.tab.fill("#threshold", "0")
    for order, first in (("name", 2), ("most", 10), ("least", 7)):
        page.tab.select_option("#order", order)
        page.tab.locator("#timeline .overlay").focus()
        page.tab.keyboard.press("Enter")
        # The first task run of the first track that has any.
        page.until(lambda key=f"on-{first}": page.details().get("Key") == key)
        page.tab.click("#details .close")
