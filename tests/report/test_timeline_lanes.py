"""Lanes of workers fold, stay on top and show transfers, in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from opened_pages import RULER, OpenedPage, Opener
from shown_numbers import shown
from timeline_runs import LANE, MANY_SECONDS, TALL, many_workers, scroll_tracks, sums_of
from traces import Plan, Task

from dasfprof import TraceAnalyser

#: Of the run.
SECONDS = 10.0
NAMES = [f"worker-node1-{number}" for number in range(3)]


def planned(directory: Path) -> TraceAnalyser:
    """Three workers of two threads; two of three transfers to the first at a time."""
    tasks = [
        Task("load-1", 0, 1.0, 5.0, thread=1),
        Task("load-2", 0, 2.0, 4.0, thread=2),
        Task("clean-1", 0, 6.0, 7.0, thread=2),
        Task("load-3", 1, 1.0, 9.0, thread=1),
        Task("clean-2", 2, 3.0, 10.0, thread=1),
        Task("clean-3", 2, 4.0, 5.0, thread=2),
    ]
    transfers = [
        (0, 1.0, 3.0, 4_000_000, ["load-3"]),
        (0, 2.0, 2.5, 1_000_000, ["load-3"]),
        (0, 5.0, 6.0, 0, []),
        (1, 4.0, 8.0, 12_000_000, ["load-1"]),
    ]
    held = [(worker, at, {"state": "running"}) for worker in range(3) for at in (0.0, SECONDS)]
    return Plan(tasks, workers=3, transfers=transfers, held=held).write(directory)


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return planned(tmp_path_factory.mktemp("traces"))


def fold(name: str) -> str:
    return f'.handles [aria-label="Threads of {name} in one lane"]'


def pin(name: str) -> str:
    return f'.handles [aria-label="Keep {name} on top"]'


def pressed(page: OpenedPage, button: str) -> bool:
    return page.tab.locator(button).get_attribute("aria-pressed") == "true"


def order(page: OpenedPage) -> list[str]:
    """Give the workers from top to bottom."""
    found: list[str] = page.tab.evaluate(
        """() => [...document.querySelectorAll(".handles > div")]
            .sort((one, other) => one.offsetTop - other.offsetTop)
            .map((handle) => handle.lastChild.title.slice("Keep ".length, -" on top".length))"""
    )
    return found


def told(page: OpenedPage, time: float, lane: float) -> list[str]:
    """Give the lines told of a time on a lane, of ten seconds."""
    page.tab.locator("#timeline").scroll_into_view_if_needed()
    page.tab.mouse.move(*page.at(-0.05, 5))
    page.tab.mouse.move(*page.at(time / SECONDS, RULER + (lane + 0.5) * LANE))
    page.until(lambda: page.tab.locator("#timeline .tip").is_visible())
    return page.texts("#timeline .tip > *")


def test_a_folded_lane_tells_what_its_threads_run(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report, "#view=flatten")
    page.tab.click(fold(NAMES[0]))
    page.until(lambda: pressed(page, fold(NAMES[0])))
    tasks, begin = analyser.trace.tasks, analyser.trace.begin
    for time in (3.0, 4.5, 6.5, 8.0):
        start = tasks["start"] - begin
        there = (start <= time) & (time <= start + tasks["duration"])
        own = tasks[there & (tasks["worker"].astype(str) == NAMES[0])]
        counts = own["function"].astype(str).value_counts()
        expected = [f"{name}: {count}" for name, count in counts.items()]
        assert told(page, time, 0) == [f"{len(own)} of 2 threads run tasks", *expected]
    # The others have a lane a thread as before.
    assert told(page, 6.0, 1)[0] == "load"
    page.tab.click(fold(NAMES[0]))
    page.until(lambda: not pressed(page, fold(NAMES[0])))
    assert told(page, 3.0, 1)[0] == "load"


def test_lanes_by_keyboard_and_their_link(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#view=flatten")
    assert order(page) == NAMES
    page.tab.locator('.handles [tabindex="0"]').focus()
    for key in ("ArrowDown", "Enter", "ArrowDown", "ArrowRight", "Space"):
        page.tab.keyboard.press(key)
    page.until(lambda: pressed(page, fold(NAMES[1])) and pressed(page, pin(NAMES[2])))
    page.until(lambda: order(page) == [NAMES[2], NAMES[0], NAMES[1]])
    page.tab.check("#transfers")
    page.tab.select_option("#order", "least")
    page.until(lambda: order(page) == [NAMES[2], *NAMES[:2]])
    page.tab.click("#copy-link")
    page.until(lambda: "folded" in page.tab.evaluate("location.hash"))
    again = open_page(report, page.tab.evaluate("location.hash"))
    assert order(again) == order(page)
    assert [pressed(again, fold(name)) for name in NAMES] == [False, True, False]
    assert [pressed(again, pin(name)) for name in NAMES] == [False, False, True]
    assert again.tab.is_checked("#transfers")
    assert again.tab.input_value("#order") == "least"


def test_all_workers_fold_and_their_lanes_are_the_accounts(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report, "#view=flatten")
    page.tab.click("#fold-all")
    page.until(lambda: all(pressed(page, fold(name)) for name in NAMES))
    page.tab.locator("#timeline .overlay").focus()
    page.tab.keyboard.press("m")
    assert ", 3 lanes: 6 task runs" in page.text("#area h3")
    table = analyser.time_accounting().set_index("Class")["Thread Time (s)"]
    sums = sums_of(page, "classes-in")
    assert set(sums) == set(table.index[table > 0])
    for name, (text, *_) in sums.items():
        assert shown(text).shows(table[name]), name
    # The worker of the selected task run, by keyboard.
    page.tab.keyboard.press("Escape")
    page.tab.keyboard.press("Enter")
    page.tab.keyboard.press("c")
    page.until(lambda: not pressed(page, fold(NAMES[0])))
    page.tab.keyboard.press("p")
    page.until(lambda: pressed(page, pin(NAMES[0])))
    assert not pressed(page, "#fold-all")


def test_transfers_are_those_of_the_table(
    open_page: Opener, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report, "#view=flatten&transfers=1")
    transfers, workers = analyser.trace.transfers, analyser.trace.workers
    labels = workers.set_index("address")["worker"]
    # Two lanes, as two are there at a time; then the two threads of the next worker and its own.
    lanes = iter([2, 3, 2, 6])
    for row in transfers.sort_values(["worker_id", "start"]).itertuples():
        middle = row.start + row.duration / 2 - analyser.trace.begin
        source, about = told(page, middle + 0.01, next(lanes))[:2]
        assert source == f"from {labels[row.source]}"
        size, seconds = about.split(",")[0].split(" in ")
        assert shown(size).shows(row.size) or (size, row.size) == ("0 B", 0)
        assert shown(seconds).shows(row.duration)
    page.tab.uncheck("#transfers")
    assert told(page, 6.0, 2)[0] == "load"


def test_what_is_pinned_stays_above_many_workers(open_page: Opener, tmp_path: Path) -> None:
    many = many_workers(tmp_path / "traces").report(tmp_path / "many.html")
    link = "".join(f"&pinned={quote(f'worker-node1-{number}')}" for number in (30, 41))
    page = open_page(many, f"#view=flatten{link}", viewport=TALL)
    # Natural order, those that stay first; titles that have no room are left out.
    seen = [int(name.rpartition("-")[2]) for name in order(page)]
    assert seen[:2] == [30, 41]
    assert seen[2:] == sorted(seen[2:])
    for _ in range(2):
        for lane, worker in enumerate((30, 41)):
            page.tab.mouse.move(
                *page.at((0.1 * worker + 0.5) / MANY_SECONDS, RULER + (lane + 0.5) * 18)
            )
            page.until(lambda key=f"work-{worker}": key in page.text("#timeline .tip"))
        scroll_tracks(page, 300)
