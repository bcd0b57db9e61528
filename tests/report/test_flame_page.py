"""Flame graphs of a report, the panel of a function, and the details of a task run."""

from pathlib import Path
from typing import Any

import pytest
from opened_pages import OpenedPage, Opener, small_run
from sampled_runs import CALLS, HOSTILE, SOURCE, WORK, write_sampled_run
from traces import Plugin, T, row

from dasfprof import TraceAnalyser
from dasfprof.report.page import flame_data
from dasfprof.schema.profiles import TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import STACK


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return TraceAnalyser(write_sampled_run(tmp_path_factory.mktemp("traces")), progress=False)


def titles(page: OpenedPage) -> dict[str, str]:
    """Return the titles of the drawn calls by their first words."""
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
    assert "\\x1bevil\\udcff.py" in hostile
    assert hostile.endswith("computing or waiting: unknown")
    # The texture distinguishes them: the waiting part is hatched, and its width is its fraction.
    first = page.tab.locator("#flame button").first
    assert first.locator("i").get_attribute("class") == "waits"
    widths = [each.bounding_box()["width"] for each in (first.locator("i"), first)]
    assert widths[0] / widths[1] == pytest.approx(0.5, abs=0.01)
    hatching = "one => getComputedStyle(one).backgroundImage"
    assert "repeating-linear-gradient" in first.locator("i").evaluate(hatching)
    assert page.tab.locator("#flame i.unknown").count() > 0
    assert page.tab.locator("#flame-section img").count() == 0
    calls = analyser.call_tree(least=0).set_index("Code")["Time (s)"]
    assert calls["nearest"] == 3.5


def test_what_cannot_be_told_apart_is_dotted(open_page: Opener, tmp_path: Path) -> None:
    """``step`` computes for 1 s and waits for the GIL for 2 s, at two lines."""
    calls = [(T, 0, [["first", WORK, 5]], -1), (T, 1, [["second", WORK, 9]], -1)]
    facts: dict[str, Any] = {"thread": "7", "activity": "lock", "interval": 1.0, "run_queue": 0.0}
    times = [{"timestamp": T + at, "stack": int(at > 2), "cpu": 1 / 3} for at in (1, 2, 3)]
    samples = [row(TASK_SAMPLE, **time, **facts) for time in times]
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
    assert [cell[0] for cell in cells] == ["40", "41", "42", "43"]
    assert [cell[1] for cell in cells] == ["", "1.75 s", "", "1.75 s"]
    assert [cell[3] for cell in cells] == SOURCE.splitlines()
    assert rows.nth(1).locator("i").count() == 0  # it computes
    assert rows.nth(3).locator("i.waits").count() == 1
    # The path is still shown, and leads back.
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
    opened = open_page(small_run(tmp_path).report(tmp_path / "report.html"))
    assert "stack_frequency" in opened.text("#flame-absent")
    assert opened.tab.is_visible("#flame-absent")
    assert not opened.tab.is_visible("#flame-parts")


@pytest.fixture
def opened(open_page: Opener, report: Path) -> Opener:
    """Open the report, or another one, at an address within it."""
    return lambda fragment="", path=report: open_page(path, fragment)


def figures(page: OpenedPage) -> dict[str, str]:
    return dict(zip(page.texts("#function dt"), page.texts("#function dd"), strict=True))


def is_open(page: OpenedPage) -> bool:
    return bool(page.tab.evaluate("document.getElementById('function').open"))


def test_the_drawer_tells_of_all_task_runs(opened: Opener, analyser: TraceAnalyser) -> None:
    page = opened("#about=nearest")
    assert page.text("#function-title") == "nearest"
    assert figures(page) == {
        **{"Task runs": "4", "Total time": "10 s", "CPU time": "unknown"},
        **{"Median": "2.5 s", "95th percentile": "4 s"},
    }
    bars = page.tab.locator("#function .histogram i")
    bar_titles = bars.evaluate_all("all => all.map((i) => i.title)")
    assert sum(int(title.rsplit(": ", 1)[1].split()[0]) for title in bar_titles) == 4
    assert page.texts("#function figcaption span") == ["1 s", "2.5 s", "4 s"]
    assert page.texts("#function .slowest button") == ["4 s", "3 s", "2 s", "1 s"]
    cells = page.texts("#function .of-workers tr:nth-child(2) > *")
    assert cells == ["worker-node1-0", "4", "10 s", "", "2.5 s"]
    # Its lines are those of the table.
    lines = analyser.hot_lines("nearest")
    assert sorted(lines["Line"].tolist()) == [41, 43]
    assert page.texts("#function .line-list .seconds") == ["1.75 s", "1.75 s"]
    places = page.texts("#function .line-list .place")
    assert sorted(places) == ["kmeans.py:41 nearest", "kmeans.py:43 nearest"]
    cells = page.texts("#function .lines td")
    assert cells[1::4] == ["", "1.75 s", "", "1.75 s"]
    assert cells[3::4] == SOURCE.splitlines()
    assert page.tab.locator("#function img").count() == 0


def test_ways_into_the_drawer_and_out_of_it(opened: Opener) -> None:
    page = opened("#search=nearest-4")
    page.until(lambda: page.text("#found") == "1 found")
    page.tab.locator("#task-table .rows .link").click()
    assert page.text("#function-title") == "nearest"
    assert page.tab.evaluate("location.hash") == "#about=nearest"
    assert page.chosen_row() == []  # only the name is a link
    page.tab.keyboard.press("Escape")
    page.until(lambda: "search=nearest-4" in page.tab.evaluate("location.hash"))
    assert not is_open(page)
    # With the keyboard.
    page.tab.locator("#task-table .table").focus()
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("Enter")
    assert is_open(page)
    page.tab.click("#function .close")
    page.until(lambda: not is_open(page))
    # From the details, and from there to the slowest task run.
    assert page.details()["Key"] == "nearest-4"
    page.tab.click("#details dd button")
    page.tab.locator("#function .slowest button", has_text="2 s").click()
    page.until(lambda: page.details().get("Key") == "nearest-2")
    assert not is_open(page)
    page.tab.click("#details dd button")
    page.tab.click("#function button:has-text('Show in flame graph')")
    assert page.text("#flame-frame h3") == "nearest"
    # From a finding, and a table by function.
    page.tab.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.tab.locator("#findings .link", has_text="fails").first.click()
    assert figures(page)["Failed"] == "1"
    page.tab.keyboard.press("Escape")
    page.tab.locator("#tables .rows .link").first.click()
    assert is_open(page)


def test_a_name_without_task_runs_and_a_hostile_one(opened: Opener) -> None:
    page = opened("#about=no%20such")
    assert "no task run" in page.text("#function .absent")
    name = "/script><img"  # Dask's name for the tasks with the hostile key
    page.tab.evaluate("name => location.hash = new URLSearchParams({ about: name })", name)
    page.until(lambda: page.text("#function-title") == name)
    assert figures(page)["Task runs"] == "1"
    assert HOSTILE in page.text("#function .slowest")
    assert HOSTILE in page.text("#function .line-list")
    page.tab.evaluate("location.hash = '#view=flatten'")
    page.until(lambda: not is_open(page))
    assert page.tab.evaluate("location.hash") == "#view=flatten"


def test_a_task_run_shows_its_own_lines_logs_and_code(opened: Opener) -> None:
    page = opened("#view=flatten&task=nearest-2")
    assert page.texts("#details .line-list .seconds") == ["1.25 s", "750 ms"]
    places = page.texts("#details .line-list .place")
    assert places == ["kmeans.py:41 nearest", "kmeans.py:43 nearest"]
    assert page.tab.locator("#details .line-list").get_by_title(WORK).count() == 2
    assert page.texts("#details ul.logs b") == ["WARNING"]
    told = f"x: numpy.ndarray float64 (3, 4); {HOSTILE}: int"
    assert page.text("#details .arguments") == told
    (row,) = page.download("#arguments-csv")
    assert (row["Function"], row["Arguments"], row["Task Runs"]) == ("nearest", told, "1")
    assert page.text("#details pre") == SOURCE
    go_to(page, "nearest-4")
    assert "No sample" in page.text("#details .absent")
    go_to(page, "fails-1")
    assert page.text("#details .raised") == f"Raised at {WORK}:43 nearest"


def go_to(page: OpenedPage, key: str) -> None:
    page.tab.evaluate(f"location.hash = '#task={key}'")
    page.until(lambda: page.details().get("Key") == key)


def test_details_are_those_of_one_run_of_a_key(page: OpenedPage) -> None:
    page.search("kmeans.py", "8 found")  # functions with code, log records or errors in that file
    page.search("NO CHUNK", "1 found")  # the task run that logged it, not the other
    page.search("load-1", "2 found")
    told = set()
    for _ in range(2):
        state = page.follow("load-1")["Final state"]
        traceback = page.texts("#details details.traceback pre")
        told.add((state, *traceback, *page.texts("#details ul.logs li")))
    logged = f"ERROR no chunk {HOSTILE} (OSError) {WORK}:41 nearest"
    assert told == {("erred", CALLS.rstrip()), ("memory", logged)}

    # The reason for missing samples.
    go_to(page, "coroutine-1")
    (long,) = page.texts("#details ul.logs li")
    assert len(long) < 400
    assert "coroutines" in page.text("#details p.absent")
    go_to(page, "constructor-1")
    assert page.texts("#details details") == []
    assert "coroutines" not in page.text("#details p.absent")


def test_few_samples_of_many_task_runs_are_left_out(
    opened: Opener, analyser: TraceAnalyser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nearest-2 has three samples, and others have one or two: five are one too many."""
    monkeypatch.setattr(flame_data, "MOST_SAMPLES", 4)
    page = opened("#task=nearest-2", analyser.report(tmp_path / "few.html"))
    assert len(page.texts("#details .line-list li")) == 2
    go_to(page, "nearest-1")
    assert "Fewer than 3 samples" in page.text("#details .absent")
