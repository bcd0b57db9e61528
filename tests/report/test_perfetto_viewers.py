"""Exported traces in the programs that people open them with: Perfetto and Chrome's viewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from exported_traces import MORE_EVENTS, ChromeTrace, analyser_of
from opened_pages import LOAD, SUM, compute
from opened_viewers import perfetto, read_by_chrome, until

from dasfprof import TraceAnalyser, export
from dasfprof.report.formats import FormatName

pytestmark = pytest.mark.whole_program


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return analyser_of(tmp_path_factory.mktemp("trace") / "run", MORE_EVENTS)


@pytest.mark.parametrize("to", ["perfetto", "chrome"])
def test_perfetto_finds_a_task_by_its_key(
    browser: Any, analyser: TraceAnalyser, to: FormatName, tmp_path: Path
) -> None:
    with perfetto(browser, export(analyser, tmp_path / "mine.gz", to=to)) as opened:
        assert opened.find(str((SUM, 1))) == 1
        opened.select_next_hit(
            f"Name\n{SUM}\n",
            "Duration\n250ms",
            "worker-node-1, thread 0",
            "Preceding Flows",
            "Arguments",
            str((SUM, 1)),
        )

        def before() -> str:
            return opened.text().partition("Preceding Flows")[2].partition("Arguments")[0]

        until(lambda: before().count(LOAD) == 2)  # they come one by one
        assert opened.find("again", at_least=2) == 2, "the runs of one function"


def test_perfetto_takes_hostile_text(browser: Any, tmp_path: Path) -> None:
    keys = ["half \udcff-1", "\x00\x1b]0;x\x07\x7f-2", '"}],<script>-3', "k" * 1_000_000, "plain-5"]
    events = [compute(key, float(at), 0.5, 0, exception=key) for at, key in enumerate(keys)]
    path = tmp_path / "mine.pftrace"
    with perfetto(browser, export(analyser_of(tmp_path / "run", events), path)) as opened:
        assert opened.find("plain-5") >= 1
        opened.select_next_hit("Duration\n500ms")


def test_chrome_s_viewer_reads_all_of_it(
    browser: Any, analyser: TraceAnalyser, tmp_path: Path
) -> None:
    trace = ChromeTrace.of(analyser, tmp_path / "mine.json.gz")
    read = read_by_chrome(browser, json.dumps(trace.document), tmp_path)
    assert read["warnings"] == []
    processes = {process["name"]: process for process in read["processes"]}
    assert processes.keys() >= {"my run", "node"}
    threads = {thread["name"]: thread["slices"] for thread in processes["node"]["threads"]}
    (found,) = (
        slice_ for slice_ in threads["worker-node-1, thread 0"] if slice_["key"] == str((SUM, 1))
    )
    assert (found["title"], found["category"]) == (SUM, "task")
    assert found["start"] == pytest.approx(6000, abs=0.001)  # milliseconds
    assert found["duration"] == pytest.approx(250, abs=0.001)
    assert "CPU, worker-node-0" in processes["node"]["counters"]
    arrows = [(begin, end) for begin, end, kind in read["arrows"] if kind == "dependency"]
    assert sorted(arrows) == sorted(
        (source["args"]["key"], target["args"]["key"])
        for source, target in trace.arrows("dependency")
    )
