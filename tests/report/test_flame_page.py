"""The flame graphs of a report: calls, lines beside their source, search and keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opened_pages import EVENTS, OpenedPage, Opener
from sampled_runs import HOSTILE, SOURCE, WORK, write_sampled_run
from traces import Plugin, T, row, write_trace

from dasfprof import TraceAnalyser
from dasfprof.schema.profiles import TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import STACK


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return TraceAnalyser(write_sampled_run(tmp_path_factory.mktemp("traces")), progress=False)


def titles(page: OpenedPage) -> dict[str, str]:
    """Return the titles of the calls that are drawn, by their first words."""
    found = page.tab.eval_on_selector_all("#flame button", "all => all.map((one) => one.title)")
    return {title.split(":")[0]: title for title in found}


def choose(page: OpenedPage, view: str) -> None:
    page.tab.check(f"input[name=flame][value={view}]", force=True)


def test_calls_and_how_they_were_spent(page: OpenedPage, analyser: TraceAnalyser) -> None:
    assert page.text("#flame-about") == "7 samples, 4.25 s"
    assert not page.tab.is_visible("#flame-absent")
    assert page.texts("#flame button")[:3] == ["nearest", "nearest", "norm"]
    shown = titles(page)
    # 3.5 s of nearest: 0.5, 1 and 0.25 s computing, 1.75 s waiting.
    split = "50 % computing, 50 % waiting"
    assert shown["nearest"] == f"nearest: 3.5 s, 82.4 %; {split}"
    assert shown[f"nearest ({WORK})"] == f"nearest ({WORK}): 3.5 s, 82.4 %; {split}"
    (norm,) = (title for title in shown.values() if title.startswith("norm "))
    assert norm.endswith(": 1.5 s, 35.3 %; 100 % computing")
    (hostile,) = (title for title in shown.values() if title.startswith(f"{HOSTILE} ("))
    assert "\\x1bevil.py" in hostile
    assert hostile.endswith("computing or waiting: unknown")
    # Told apart by their texture: the part that waits is hatched, and as wide as its share.
    first = page.tab.locator("#flame button").first
    assert first.locator("i").get_attribute("class") == "waits"
    widths = [each.bounding_box()["width"] for each in (first.locator("i"), first)]
    assert widths[0] / widths[1] == pytest.approx(0.5, abs=0.01)
    hatching = "one => getComputedStyle(one).backgroundImage"
    assert "repeating-linear-gradient" in first.locator("i").evaluate(hatching)
    assert page.tab.locator("#flame i.unknown").count() > 0
    assert page.tab.locator("#flame-section img").count() == 0
    # As the table of calls has it.
    calls = analyser.call_tree(least=0).set_index("Code")["Time (s)"]
    assert calls["nearest"] == 3.5


def test_what_cannot_be_told_apart_is_dotted(open_page: Opener, tmp_path: Path) -> None:
    """``step`` computes for 1 s and wants the interpreter's lock for 2 s, at two lines."""
    calls = [(T, 0, [["first", WORK, 5]], -1), (T, 1, [["second", WORK, 9]], -1)]
    facts: dict[str, Any] = {"thread": "7", "activity": "lock", "interval": 1.0, "run_queue": 0.0}
    samples = [
        row(TASK_SAMPLE, timestamp=T + at, stack=int(at > 2), cpu=1 / 3, **facts)
        for at in (1, 2, 3)
    ]
    run = row(COMPUTE, timestamp=T, duration=3.5, key="step-1", state="memory", thread="7")
    Plugin(tmp_path).write((STACK, calls), (COMPUTE, [run]), (TASK_SAMPLE, samples))
    page = open_page(TraceAnalyser(tmp_path, progress=False).report(tmp_path / "report.html"))

    shown = titles(page)
    apart = "33.3 % computing, 66.7 % waiting for the GIL"
    assert shown["step"] == f"step: 3 s, 100 %; {apart}"
    either = "100 % computing or waiting for the GIL"
    assert shown[f"first ({WORK})"] == f"first ({WORK}): 2 s, 66.7 %; {either}"
    kinds = "all => all.map((one) => [...one.querySelectorAll('i')].map((i) => i.className))"
    found = page.tab.eval_on_selector_all("#flame button", kinds)
    assert found == [["ready"], ["unknown"], ["unknown"]]


def test_views(page: OpenedPage) -> None:
    labels = ["Tasks by function", "Tasks by worker", "Client", "Event loops"]
    assert page.texts("#flame-view label") == labels
    choose(page, "worker")
    assert page.texts("#flame button")[:2] == ["worker-node1-0", "nearest"]
    choose(page, "client")
    assert page.texts("#flame button") == ["waiting", "nearest"]
    assert page.text("#flame-about") == "1 sample, 750 ms"
    choose(page, "loops")
    assert page.texts("#flame button") == ["worker-node1-0", "plug"]
    assert page.text("#flame-about") == "1 sample, 125 ms"


def test_a_call_shows_its_lines_beside_the_source(page: OpenedPage) -> None:
    page.tab.locator("#flame button").nth(1).click()
    told = page.text("#flame-frame p")
    assert told.startswith(f"({WORK}): 3.5 s, 82.4 %;")
    assert told.endswith("2 s without the calls that it makes.")
    rows = page.tab.locator("#flame-frame tr")
    cells = [rows.nth(n).locator("td").all_text_contents() for n in range(rows.count())]
    source = SOURCE.splitlines()
    assert [cell[0] for cell in cells] == ["40", "41", "42", "43"]
    assert [cell[1] for cell in cells] == ["", "1.75 s", "", "1.75 s"]
    assert [cell[3] for cell in cells] == source
    assert page.tab.locator("#flame-frame tr").nth(1).locator("i").count() == 0  # it computes
    assert page.tab.locator("#flame-frame tr").nth(3).locator("i.waits").count() == 1
    # The way there is still shown, and leads back.
    assert page.texts("#flame button") == ["nearest", "nearest", "norm"]
    page.tab.locator("#flame button", has_text="norm").click()
    assert "source is not recorded" in page.text("#flame-frame .absent")
    assert page.texts("#flame-frame td")[:2] == ["2800", "1.5 s"]
    page.tab.click("#flame-whole")
    assert len(page.texts("#flame button")) > 3
    assert page.text("#flame-frame") == "Click a call to see its lines."


def test_search(page: OpenedPage) -> None:
    page.tab.fill("#flame-search", "KMEANS.py")
    assert page.text("#flame-found") == "1 call, 3.5 s (82.4 %)"
    assert page.texts("#flame button.lit") == ["nearest"]
    page.tab.fill("#flame-search", "numpy")
    assert page.texts("#flame button.lit") == ["norm"]
    choose(page, "worker")
    assert page.texts("#flame button.lit") == ["norm"]
    page.tab.fill("#flame-search", "")
    assert page.text("#flame-found") == ""
    assert page.texts("#flame button.lit") == []


def test_keyboard(page: OpenedPage) -> None:
    def focused() -> str:
        return str(page.tab.evaluate("document.activeElement.title"))

    page.tab.locator("#flame button").first.focus()
    for key, begin in [
        ("ArrowDown", f"nearest ({WORK})"),
        ("ArrowDown", "norm"),
        ("ArrowUp", f"nearest ({WORK})"),
        ("ArrowRight", HOSTILE),
        ("ArrowLeft", f"nearest ({WORK})"),
        ("Enter", f"nearest ({WORK})"),
    ]:
        page.tab.keyboard.press(key)
        assert focused().startswith(begin), key
    assert page.text("#flame-frame h3") == "nearest"
    page.tab.keyboard.press("Escape")
    page.tab.keyboard.press("Escape")
    assert page.text("#flame-frame") == "Click a call to see its lines."
    assert focused().startswith("nearest")
    assert page.tab.locator("#flame [tabindex='0']").count() == 1


def test_without_samples_it_says_why(open_page: Opener, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a-TracePlugin-node-0.msgpack", *EVENTS)
    opened = open_page(TraceAnalyser(trace).report(tmp_path / "report.html"))
    assert "stack_frequency" in opened.text("#flame-absent")
    assert opened.tab.is_visible("#flame-absent")
    assert not opened.tab.is_visible("#flame-parts")
