"""A click on a time between task runs shows its category, and what the client did meanwhile."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import new_client
from opened_pages import RULER, OpenedPage, Opener
from traces import Plan, Plugin, T, Task, row

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.report.page import flame_data
from dasfprof.schema.profiles import CLIENT_SAMPLE
from dasfprof.schema.steps import CLIENT_CALLS
from dasfprof.schema.under_way import STACK

MINE = "/home/me/mine.py"
#: Tasks of a thread without work from 4 to 12.
PLAN = Plan([Task("a-1", 0, 0.0, 4.0), Task("b-1", 0, 12.0, 16.0)], workers=1, threads=1)


def call(begin: float, end: float, name: str, **more: Any) -> tuple[Any, ...]:
    usual = {"file": MINE, "line": 7, "code": "main", "main": 1, "calls": 1, "keys": 1}
    times = {"timestamp": T + begin, "stop": T + end, "seconds": end - begin, "longest": 0.0}
    rest = ("waiting", "receiving", "deserialising", "tokenising", "optimising", "pickling")
    return row(CLIENT_CALLS, call=name, **{**usual, **times, **dict.fromkeys(rest, 0.0), **more})


def sample(at: float, interval: float, stack: int, phase: str) -> tuple[Any, ...]:
    spent = {"activity": "waiting", "cpu": 0.0, "run_queue": 0.0, "phase": phase}
    return row(CLIENT_SAMPLE, timestamp=T + at, interval=interval, stack=stack, **spent)


def write(directory: Path) -> TraceAnalyser:
    PLAN.write_files(directory)
    calls = [
        call(0.0, 16.0, "recording"),
        call(3.0, 7.0, "compute"),
        call(8.0, 11.0, "submit", line=20, code="prepare", calls=50, seconds=1.0),
        call(13.0, 14.0, "gather"),
    ]
    # A rare sample of the program covers more than the time since the previous one.
    samples = [sample(at, 2.0, 0, "waiting") for at in (6.0, 8.0, 15.0)]
    samples.insert(2, sample(11.0, 5.0, 1, "program"))
    Plugin(directory, "StepRecorder", pid=20).write(
        (STACK, [(T, 0, [["main", MINE, 7]], -1), (T, 1, [["prepare", MINE, 20]], 0)]),
        (CLIENT_CALLS, calls),
        (CLIENT_SAMPLE, samples),
    )
    return TraceAnalyser(directory, progress=False)


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return write(tmp_path_factory.mktemp("traces"))


def click(page: OpenedPage, time: float) -> None:
    page.tab.locator("#timeline").scroll_into_view_if_needed()
    page.tab.mouse.click(*page.at(time / 16, RULER + 12))


def test_a_click_pins_what_the_gap_was_and_what_the_client_did(page: OpenedPage) -> None:
    click(page, 8.0)
    page.until(lambda: page.text("#details h3") == "8 s without a task")
    place, times = {"Worker": "worker-node1-0", "Thread": "0"}, {"Start": "4.000 s"}
    assert page.details() == {**place, **times, "End": "12.000 s"}
    classes = page.texts("#details .gap-classes b")
    assert classes and all(page.texts("#details .gap-classes li"))
    # Three of four seconds of the compute call are in the gap. The times of fifty calls are
    # unknown.
    assert page.texts("#details .client-calls li") == [
        "compute 3 s of 4 s mine.py:7 main",
        "submit up to 1 s, 50 calls in a row mine.py:20 prepare",
    ]
    assert page.texts("#details .line-list .seconds") == ["4 s", "3 s"]
    assert page.texts("#details .line-list .place") == ["mine.py:7 main", "mine.py:20 prepare"]
    page.tab.keyboard.press("Escape")
    page.until(lambda: not page.tab.locator("#details").is_visible())


def test_the_gap_behind_a_task_run_by_keyboard(open_page: Opener, report: Path) -> None:
    page = open_page(report, "#view=flatten&task=a-1")
    page.tab.locator("#timeline .overlay").focus()
    page.tab.keyboard.press("g")
    page.until(lambda: page.text("#details h3") == "8 s without a task")
    assert page.text("#said") == "8 s without a task, worker-node1-0"


def test_it_is_said_why_nothing_is_told(
    open_page: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = PLAN.write(tmp_path / "bare").report(tmp_path / "bare.html")
    page = open_page(path, "#view=flatten")
    click(page, 8.0)
    page.until(lambda: len(page.texts("#details .absent")) == 2)
    calls, stacks = page.texts("#details .absent")
    assert "not recorded" in calls and "not sampled" in stacks
    # If a page lacks the brief calls, it is unknown whether there were any.
    monkeypatch.setattr(flame_data, "MOST_CALLS", 0)
    page = open_page(write(tmp_path / "full").report(tmp_path / "few.html"), "#view=flatten")
    click(page, 8.0)
    page.until(lambda: page.texts("#details .absent"))
    assert "without 3 shorter calls" in page.text("#details .absent")


async def naps(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_what_a_task_of_the_event_loop_holds_is_told(open_page: Opener, tmp_path: Path) -> None:
    """The only thread of its worker starts no task meanwhile, which has a separate category."""
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with new_client(**options) as client, dasfprof.profile(client, directory=tmp_path) as run:
        for function, seconds in ((time.sleep, 0.1), (naps, 4.0), (time.sleep, 0.1)):
            client.submit(function, seconds, pure=False).result()
    report = TraceAnalyser(run.files(), progress=False).report(tmp_path / "run.html")
    page = open_page(report, "#view=flatten")
    held = "Slot occupied, thread idle"
    assert any(text.startswith(f"{held} ") for text in page.texts("#gap-legend li"))
    tracks = page.tab.evaluate("JSON.parse(document.querySelector('#facts').textContent).timeline")
    page.tab.locator("#timeline").scroll_into_view_if_needed()
    threads = [track["thread"] for track in tracks["tracks"]]
    assert None in threads and len(threads) == 2
    (lane,) = (at for at, thread in enumerate(threads) if thread is not None)
    # The client slept for four seconds in the middle of the run.
    page.tab.mouse.click(*page.at(0.5, RULER + 12 + 26 * lane))
    page.until(lambda: page.texts("#details .gap-classes b"))
    assert page.texts("#details .gap-classes b")[0] == held
