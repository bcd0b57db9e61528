"""Five questions put to the page of a real run are answered in three clicks or fewer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import new_client
from distributed import Client, wait
from opened_pages import OpenedPage, chromium
from shown_numbers import shown

import dasfprof
from dasfprof import TraceAnalyser

pytestmark = pytest.mark.whole_program  # in a browser

WORKERS, LATE = 8, 7
MOST_CLICKS = 3


def load(number: int) -> int:
    time.sleep(0.05)
    return number


def clean(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def check(number: int) -> int:
    time.sleep(0.02)
    if number == 3:
        raise ValueError("trace 3: the depth is negative")
    if number % 5 == 4:
        raise KeyError("depth")
    return number


def work(client: Client) -> None:
    """Have one worker late, failures of two kinds, and a client that does something else."""
    workers = client.sync(client.scheduler.identity)["workers"]
    (late,) = (address for address, about in workers.items() if about["name"] == LATE)
    wait(client.map(load, range(40), pure=False))
    slow = client.submit(clean, 3.0, workers=[late], pure=False)
    wait([slow, *client.map(clean, [0.03] * 24, pure=False), *client.map(check, range(20))])
    time.sleep(2.0)
    wait(client.map(load, range(40), pure=False))


@contextmanager
def cluster(workers: int) -> Iterator[Client]:
    about = {"processes": False, "threads_per_worker": 1, "dashboard_address": None}
    with new_client(n_workers=workers, **about) as client:
        yield client


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Record the run."""
    directory = tmp_path_factory.mktemp("run")
    with cluster(WORKERS) as client, dasfprof.profile(client, directory=directory) as run:
        work(client)
    return TraceAnalyser(run.files(), progress=False)


@contextmanager
def opened(analyser: TraceAnalyser, directory: Path) -> Iterator[OpenedPage]:
    """Open the report as it opens, and count what is pressed in it."""
    report = analyser.report(directory / "report.html")
    # One for each page: its event loop ends before another cluster starts.
    with chromium() as browser:
        page = OpenedPage(browser, report)
        page.tab.evaluate(
            "addEventListener('pointerdown', () => (self.pressed = (self.pressed ?? 0) + 1), true)"
        )
        yield page
        assert page.complaints == []
        assert page.tab.evaluate("self.pressed ?? 0") <= MOST_CLICKS


@pytest.fixture
def page(analyser: TraceAnalyser, tmp_path: Path) -> Iterator[OpenedPage]:
    with opened(analyser, tmp_path) as report:
        yield report


def finding(page: OpenedPage, analyser: TraceAnalyser, rule: str) -> tuple[Any, dict[str, Any]]:
    """Give a rule's finding on the page, and in the table."""
    table = analyser.diagnose()
    at = table["Rule"].tolist().index(rule)
    told = page.tab.locator(f"#finding-{at + 1}")
    if not told.is_visible():  # on a busy machine there are findings of more weight
        page.tab.locator("#findings .lesser > summary").click()
    return told, table.iloc[at].to_dict()


def test_why_is_worker_7_late(
    page: OpenedPage, analyser: TraceAnalyser, request: pytest.FixtureRequest
) -> None:
    tasks = analyser.trace.tasks
    (name,) = (one for one in tasks["worker"].unique() if one.endswith(f"-{LATE}"))
    own = tasks[tasks["worker"] == name]
    # Its bar among those of all workers: what its threads did.
    accounts = analyser.time_accounting("worker")
    blocked = accounts[accounts["Class"] == "Blocked"].set_index("Worker")
    for worker in blocked.index:
        text = page.tab.locator(f'.bars [aria-label^="{worker}:"]').get_attribute("aria-label")
        share = next(part for part in str(text).split(": ")[1].split(", ") if "Blocked" in part)
        assert shown(share.removeprefix("Blocked ")).shows(blocked["Share (%)"][worker] / 100)
    seconds = blocked["Thread Time (s)"]
    assert seconds.idxmax() == name, "that is why"
    if request.config.getoption("--long"):  # on a crowded machine the others are blocked for long
        assert seconds[name] > 2 * seconds.drop(name).mean()
    # Its longest task run.
    longest = own.loc[own["duration"].idxmax()]
    page.tab.select_option("#only-worker", label=name)
    page.until(lambda: page.text("#found") == f"{len(own)} found")
    page.tab.click("#task-table .rows .row >> nth=0")
    key = analyser.trace.keys.texts(np.array([longest["key_id"]])).tolist()[0]
    page.until(lambda: page.details().get("Key") == key)
    assert page.details()["Worker"] == name


def test_which_failures_where_and_the_first(page: OpenedPage, analyser: TraceAnalyser) -> None:
    tasks = analyser.trace.tasks
    failed = tasks[tasks["state"] == "erred"]
    assert failed["exception"].nunique() == 2
    told, row = finding(page, analyser, "failed-tasks")
    assert page.tab.locator("#findings li").first.get_attribute("id") == "finding-1"
    told.locator(".sentence a").first.click()
    page.until(lambda: page.text("#found") == f"{len(failed)} found")
    heads = page.texts("#task-table .head button")
    seen = {
        tuple(line.locator("> div").all_text_contents()[heads.index(name)] for name in names)
        for names in [("Task Key", "Worker", "Exception")]
        for line in page.tab.locator("#task-table .rows .row").all()
    }
    keys = analyser.trace.keys.texts(failed["key_id"].to_numpy())
    assert seen == set(zip(keys, failed["worker"], failed["exception"], strict=True))
    # The first: its key, what it raised, and where.
    told.locator("summary").click()
    evidence = told.locator(".evidence p").text_content()
    first = failed["done"].to_numpy().argmin()
    assert evidence == row["Evidence"]
    assert f"First error: {keys[first]}: " in evidence
    assert f"{Path(__file__).name}, line" in evidence or f"{Path(__file__).name}:" in evidence


def test_what_would_i_change_first(page: OpenedPage, analyser: TraceAnalyser) -> None:
    first = analyser.diagnose().iloc[0]
    suggestion = page.tab.locator("#finding-1 summary")
    assert suggestion.text_content() == first["Suggestion"]
    box, room = suggestion.bounding_box(), page.tab.viewport_size
    assert box["y"] + box["height"] < room["height"], "on the first screen"
    assert suggestion.evaluate("(one) => one.scrollWidth <= one.clientWidth"), "all of it"
    suggestion.click()
    assert page.tab.locator("#finding-1 .evidence p").is_visible()


def test_what_did_the_client_do_in_the_gap(page: OpenedPage, analyser: TraceAnalyser) -> None:
    told, row = finding(page, analyser, "client-bound")
    told.locator(".sentence a").first.click()
    page.until(lambda: page.text("#followed") != "")
    begin, end = page.window()
    assert begin <= row["Start (s)"] < row["Stop (s)"] <= end
    told.locator("summary").click()
    assert told.locator("summary").text_content() == row["Suggestion"]
    assert f"{Path(__file__).name}:" in told.text_content(), "the client's line"
