"""What a notebook shows of a run: its figures, its findings, no markup of the trace's, a frame."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pytest
from opened_pages import DEADLINE, EVENTS, compute
from traces import record, usage, write_trace

from dasfprof import TraceAnalyser, write_report
from dasfprof.report import notebook
from dasfprof.report.notebook import analyser_html, frame_html, run_html, run_text

IMAGE = "x<img src=x onerror=alert(1)>"
SURROGATE = "half-\ud800-pair"
LONG = "long" * 300_000


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Give a run of two workers in which one of six task runs failed."""
    return TraceAnalyser(write_trace(tmp_path_factory.mktemp("run") / "run.msgpack", *EVENTS))


def test_figures(analyser: TraceAnalyser) -> None:
    text = run_text(analyser, analyser.diagnose(), "few tasks")
    name, words, *_ = text.splitlines()
    assert name == "few tasks  2026-09-21 14:13:20 UTC, 10 s"
    assert words.startswith("6 task runs of 3 functions, 1 failed, on 2 workers")
    assert escape(words) in run_html(analyser, analyser.diagnose())


def test_each_finding_is_told(analyser: TraceAnalyser) -> None:
    findings = analyser.diagnose()
    assert len(findings), "a task failed"
    text = run_text(analyser, findings)
    html = run_html(analyser, findings)
    for finding in findings.to_dict("records"):
        assert finding["Finding"] in text
        assert finding["Suggestion"] in text
        assert f">{finding['Severity']}</span>" in html
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in html
    assert "<b>no" not in html


def test_findings_can_be_folded(analyser: TraceAnalyser) -> None:
    findings = analyser.diagnose()
    open_, folded = (run_html(analyser, findings, folded=it) for it in (False, True))
    assert folded.count("<details>") == open_.count("<details>") + 1
    for finding in findings["Suggestion"]:
        assert finding in folded


def test_without_findings(analyser: TraceAnalyser) -> None:
    none = analyser.diagnose().head(0)
    assert "None of the known faults was found." in run_html(analyser, none)
    assert "None of the known faults was found." in run_text(analyser, none)
    assert ".diagnose()" in run_html(analyser, None)


def test_many_findings_are_counted(analyser: TraceAnalyser) -> None:
    findings = analyser.diagnose().head(1)
    many = findings.loc[findings.index.repeat(12)]
    html = run_html(analyser, many)
    assert html.count("<details><summary>Evidence") == 10
    assert "And 2 more" in html


def test_the_analyser_shows_itself(
    analyser: TraceAnalyser, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert analyser._repr_html_() == run_html(analyser, analyser.diagnose())
    monkeypatch.setattr(notebook, "_MOST_TASKS", 5)
    assert analyser._repr_html_() == run_html(analyser, None), "a large run's are asked for"


def test_an_empty_run(tmp_path: Path) -> None:
    analyser = TraceAnalyser(write_trace(tmp_path / "empty.msgpack"))
    assert "0 task runs of 0 functions" in analyser._repr_html_()
    assert "0 task runs of 0 functions" in run_text(analyser, analyser.diagnose())


def test_what_goes_wrong_is_shown(analyser: TraceAnalyser, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("<b>gone\ud800")

    monkeypatch.setattr(analyser, "diagnose", fail)
    assert analyser_html(analyser) == "<p>RuntimeError: &lt;b&gt;gone\\ud800</p>"


def test_hostile_text_is_text_and_can_be_sent(tmp_path: Path) -> None:
    failures = [
        compute(f"{name}-{number}", 1.0 + number, 0.5, 0, state="erred", exception=name, size=0)
        for number, name in enumerate([IMAGE, SURROGATE, LONG])
    ]
    analyser = TraceAnalyser(write_trace(tmp_path / "run.msgpack", *failures))
    html = run_html(analyser, analyser.diagnose(), IMAGE)
    text = run_text(analyser, analyser.diagnose(), SURROGATE)
    assert "<img" not in html
    assert "x&lt;img src=x onerror=alert(1)&gt;" in html
    assert len(html) < 50_000
    assert len(text) < 20_000
    for shown in (html, text):
        shown.encode()  # a message to the notebook is UTF-8: a lone surrogate would end it


def test_the_frame_is_a_whole_report_in_any_page(
    analyser: TraceAnalyser, browser: Any, tmp_path: Path
) -> None:
    """A page without any script of its own stands for each of the notebooks."""
    report = write_report(analyser, tmp_path / "report.html", title=IMAGE)
    frame = frame_html(report.read_text(encoding="utf-8"), IMAGE)
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{frame}", encoding="utf-8")

    tab = browser.new_page(accept_downloads=True)
    complaints: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", lambda dialog: complaints.append(dialog.message))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(page.as_uri())
    inner = tab.frames[1]
    inner.wait_for_selector("html[data-ready=whole]", timeout=DEADLINE * 1000)

    assert inner.text_content("h1") == IMAGE
    assert inner.evaluate("self.origin") == "null", "it reaches nothing of the notebook"
    inner.fill("#search", "fails")
    inner.wait_for_selector("#found:has-text('1')", timeout=DEADLINE * 1000)
    inner.click("#findings a >> nth=0")
    inner.click("#show-all")
    assert inner.url.startswith("about:srcdoc#")
    assert inner.text_content("h1") == IMAGE, "its links lead to its own places"
    assert complaints == []
    assert requests == [page.as_uri()]
    tab.close()


def test_the_frame_of_an_empty_run_is_as_low_as_what_it_shows(browser: Any, tmp_path: Path) -> None:
    analyser = TraceAnalyser(record(tmp_path / "run", [usage(1.7e9)]), progress=False)
    report = write_report(analyser, tmp_path / "report.html").read_text(encoding="utf-8")
    page = tmp_path / "notebook.html"
    frame = frame_html(report, "run", empty=True)
    page.write_text(f"<!doctype html><meta charset=utf-8>{frame}", encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.goto(page.as_uri())
    tab.frames[1].wait_for_selector("html[data-ready=whole]", timeout=DEADLINE * 1000)
    shown, room = tab.frames[1].evaluate("[document.body.offsetHeight, innerHeight]")
    assert abs(shown - room) < 80, "fonts differ"
    assert room < 600
    assert tab.frames[1].text_content("#findings") == "No task runs: there is nothing to judge."
    tab.close()


def test_of_an_empty_run_nothing_is_said_to_be_well(tmp_path: Path) -> None:
    analyser = TraceAnalyser(record(tmp_path / "run", [usage(1.7e9)]), progress=False)
    for words in (run_text(analyser, analyser.diagnose()), run_html(analyser, analyser.diagnose())):
        assert "No task runs: there is nothing to judge." in words
        assert "None of the known faults" not in words
