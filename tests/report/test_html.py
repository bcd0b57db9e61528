"""Reports as files: contents, hostile text, empty runs, and the command."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from opened_pages import EVENTS, OpenedPage, Opener, compute
from traces import write_trace

from dasfprof import TraceAnalyser, write_report
from dasfprof.cli.main import cli
from dasfprof.report.page import document as packing

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
COMMENT = "<!--<script>"
SURROGATE = "half-\ud800-pair"
ESCAPES = "bell-\x07-\u202egnp.exe"
FORMULA = "=HYPERLINK(1)"
LONG = "x" * 1_000_000
#: Hostile texts, except for the long one, and how they are shown.
SHOWN = {
    **{text: text for text in (IMAGE, SCRIPT, COMMENT, FORMULA)},
    **{SURROGATE: "half-\\ud800-pair", ESCAPES: "bell-\\x07-\\u202egnp.exe"},
}


def unpacked(column: packing.PackedColumn) -> list[int]:
    """Decode integers by hand: base64, zlib, planes of bytes, differences."""
    content = zlib.decompress(base64.b64decode(column.packed))
    count, width = column.about["count"], int(column.about["type"][1])
    numbers = [
        sum(content[plane * count + at] << (8 * plane) for plane in range(width))
        for at in range(count)
    ]
    if column.about.get("delta"):
        numbers = [sum(numbers[: at + 1]) % 2**32 for at in range(count)]
    return numbers


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("numbers", [[], [0], [1, 255], [5, 300, 2], [70_000, 3, 2**32 - 1]])
def test_whole_numbers(numbers: list[int], delta: bool) -> None:
    column = packing.pack_integers(np.array(numbers, dtype=np.int64), delta=delta)
    assert unpacked(column) == numbers


def test_seconds() -> None:
    column = packing.seconds(np.array([0.0, 1.5, np.nan, -1e-9]))
    assert column.about["scale"] == 1e-6
    assert unpacked(column) == [0, 1_500_000, packing.MISSING, 0]
    days = packing.seconds(np.array([86_400.0, 43_200.0]))
    assert [step * days.about["scale"] for step in unpacked(days)] == pytest.approx(
        [86_400.0, 43_200.0], abs=1e-4
    )


def test_amounts() -> None:
    column = packing.amounts(np.array([8.0, np.nan, 8.0, 1e15]))
    values = [column.about["values"][place] for place in unpacked(column)]
    assert values == [8.0, None, 8.0, 1e15]
    many = np.random.default_rng(1).random(70_000)
    column = packing.amounts(many)
    assert column.about["type"] == "f8"
    assert np.frombuffer(column.content, "<f8").tolist() == many.tolist()


def test_hostile_text_is_shown_as_text(open_page: Opener, tmp_path: Path) -> None:
    events = [
        compute(key, 1.0 + number, 0.5, 0, exception=key[:1000], state="erred", type=key[:1000])
        for number, key in enumerate([*SHOWN, LONG])
    ]
    trace = write_trace(tmp_path / "hostile-TracePlugin-node-0.msgpack", *events)
    path = write_report(TraceAnalyser(trace), tmp_path / "report.html", title=SCRIPT + SURROGATE)
    page = open_page(path)
    assert page.text("#title") == SCRIPT + "half-\\ud800-pair"
    assert page.tab.title().startswith(SCRIPT)
    rows = page.texts("#task-table .rows .row > div:first-child")
    assert set(SHOWN.values()) < set(rows)
    assert len(rows) == len(SHOWN) + 1
    assert max(map(len, rows)) <= 200
    for row in page.tab.locator("#task-table .rows .row").all():
        row.click()
        key = page.details()["Key"]
        assert key in SHOWN.values() or key.startswith("x" * 1000)
        assert page.text("#details pre") in {*SHOWN.values(), "x" * 1000}
    assert page.tab.evaluate("document.images.length") == 0
    assert page.tab.evaluate("document.querySelectorAll('main script').length") == 0
    exported = {row["Task Key"] for row in page.download("#task-csv")}
    assert {IMAGE, SCRIPT, COMMENT, "half-\\ud800-pair", "'" + FORMULA, LONG} < exported
    page.search("onerror=", "1 found")


def test_the_page_cannot_reach_the_network(browser: Any, report: Path) -> None:
    page = OpenedPage(browser, report)
    reached = page.tab.evaluate(
        "fetch('http://127.0.0.1:9/').then(() => 'reached', (error) => String(error))"
    )
    assert "Failed to fetch" in reached
    assert any("Content Security Policy" in text for text in page.complaints)
    page.tab.close()


def test_a_run_without_tasks(open_page: Opener, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "empty-TracePlugin-node-0.msgpack")
    page = open_page(TraceAnalyser(trace).report(tmp_path / "report.html"))
    assert page.text("#verdict") == "No task ran."
    for section in ("#flame-section", "#tasks-section", "#tables"):
        assert not page.tab.locator(section).is_visible(), "there is nothing in it"
    page.tab.locator("#timeline .overlay").focus()
    for key in ("Enter", "ArrowDown", "+", "Home", "f", "."):
        page.tab.keyboard.press(key)
    for view in ("compact", "hierarchy", "flatten"):
        page.tab.click(f'label:has(input[value="{view}"])')
    page.tab.fill("#search", "x")
    page.until(lambda: page.text("#found") == "0 found")


def test_a_report_is_one_file_and_replaces_another(analyser: TraceAnalyser, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("what was there before")
    assert analyser.report(target) == target
    text = target.read_text()
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in text
    assert "http://" not in text and "https://" not in text
    assert len(text) < 220_000, "its script is compressed"
    facts = text.split('id="facts">')[1].split("</script>")[0]
    assert json.loads(facts)["summary"]["tasks"] == 6


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(tmp_path / "Tutorial 5-TracePlugin-node-0.msgpack", *EVENTS, run="Tutorial 5")
    monkeypatch.chdir(tmp_path)
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(shown.append(url)))
    result = CliRunner().invoke(cli, ["report", "."], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.startswith("Wrote ")
    assert [path.name for path in tmp_path.glob("*.html")] == ["Tutorial 5.html"]
    assert shown == []
    result = CliRunner().invoke(cli, ["report", "Tutorial", "-o", "new/folder/run.html", "--open"])
    assert result.exit_code == 0
    assert (tmp_path / "new/folder/run.html").stat().st_size > 10_000
    assert shown == [(tmp_path / "new/folder/run.html").as_uri()]
    assert "No browser could be started" in result.stderr
