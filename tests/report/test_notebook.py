"""Display of a run in notebooks: figures, findings, and no markup from the trace."""

from html import escape
from pathlib import Path

from opened_pages import compute
from traces import record, usage, write_trace

from dasfprof import TraceAnalyser
from dasfprof.report.notebook import run_html, run_text

IMAGE = "x<img src=x onerror=alert(1)>"
SURROGATE = "half-\ud800-pair"
LONG = "long" * 300_000


def test_figures_and_findings(analyser: TraceAnalyser) -> None:
    """One of six task runs failed."""
    findings = analyser.diagnose()
    text = run_text(analyser, findings, "few tasks")
    html, folded = (run_html(analyser, findings, folded=it) for it in (False, True))
    name, words, *_ = text.splitlines()
    assert name == "few tasks  2026-09-21 14:13:20 UTC, 10 s"
    assert words.startswith("6 task runs of 3 functions, 1 failed, on 2 workers")
    assert escape(words) in html
    assert len(findings), "a task failed"
    for finding in findings.to_dict("records"):
        assert finding["Finding"] in text
        assert finding["Suggestion"] in text and finding["Suggestion"] in folded
        assert f">{finding['Severity']}</span>" in html
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in html
    assert "<b>no" not in html
    assert folded.count("<details>") == html.count("<details>") + 1


def test_without_findings(analyser: TraceAnalyser) -> None:
    none = analyser.diagnose().head(0)
    assert "No known problem was found." in run_html(analyser, none)
    assert "No known problem was found." in run_text(analyser, none)


def test_many_findings_are_counted(analyser: TraceAnalyser) -> None:
    findings = analyser.diagnose().head(1)
    many = findings.loc[findings.index.repeat(12)]
    html = run_html(analyser, many.assign(Severity="low"))
    assert html.count("<details><summary>Evidence") == 10
    assert "And 2 more" in html
    severe = run_html(analyser, many.assign(Severity=["high"] * 3 + ["medium"] * 8 + ["low"]))
    assert severe.count("<details><summary>Evidence") == 11


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
        shown.encode()  # messages to the notebook are UTF-8, which does not allow lone surrogates


def test_of_an_empty_run_nothing_is_said_to_be_well(tmp_path: Path) -> None:
    analyser = TraceAnalyser(record(tmp_path / "run", [usage(1.7e9)]), progress=False)
    for words in (run_text(analyser, analyser.diagnose()), run_html(analyser, analyser.diagnose())):
        assert "No task ran, so there is nothing to diagnose." in words
        assert "No known problem" not in words
