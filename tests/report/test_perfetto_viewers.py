"""The exported trace in the programs that people open it with: Perfetto and Chrome's viewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from exported_traces import MORE_EVENTS, ChromeTrace, analyser_of
from opened_pages import LOAD, SUM, compute
from opened_viewers import perfetto, read_by_chrome


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trace")
    path = directory / "mine.json.gz"
    ChromeTrace.of(analyser_of(directory / "run", MORE_EVENTS), path)
    return path


def test_perfetto_finds_a_task_by_its_key(browser: Any, exported: Path) -> None:
    with perfetto(browser, exported) as opened:
        assert opened.find(str((SUM, 1))) == 1
        details = opened.select_next_hit(
            f"Name\n{SUM}\n",
            "Duration\n250ms",
            "worker-node-1, thread 0",
            "Preceding Flows",
            "Arguments",
            str((SUM, 1)),
        )
        before = details.partition("Preceding Flows")[2].partition("Arguments")[0]
        assert before.count(LOAD) == 2
        assert opened.find("again") == 2, "the runs of one function"


def test_perfetto_takes_hostile_text(browser: Any, tmp_path: Path) -> None:
    keys = ["half \udcff-1", "\x00\x1b]0;x\x07\x7f-2", '"}],<script>-3', "k" * 1_000_000, "plain-5"]
    events = [compute(key, float(at), 0.5, 0, exception=key) for at, key in enumerate(keys)]
    path = tmp_path / "mine.json.gz"
    ChromeTrace.of(analyser_of(tmp_path / "run", events), path)
    with perfetto(browser, path) as opened:
        assert opened.find("plain-5") >= 1
        opened.select_next_hit("Duration\n500ms")


def test_chrome_s_viewer_reads_all_of_it(browser: Any, exported: Path, tmp_path: Path) -> None:
    trace = ChromeTrace(exported)
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
