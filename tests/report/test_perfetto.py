"""Exported traces in Perfetto's UI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from exported_traces import MORE_EVENTS, analyser_of
from opened_pages import LOAD, SUM, compute
from opened_viewers import perfetto, until

from dasfprof import TraceAnalyser, export

pytestmark = pytest.mark.whole_program


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return analyser_of(tmp_path_factory.mktemp("trace") / "run", MORE_EVENTS)


def test_perfetto_finds_a_task_by_its_key(
    browser: Any, analyser: TraceAnalyser, tmp_path: Path
) -> None:
    with perfetto(browser, export(analyser, tmp_path / "mine.json.gz")) as opened:
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
    path = tmp_path / "mine.json"
    with perfetto(browser, export(analyser_of(tmp_path / "run", events), path)) as opened:
        assert opened.find("plain-5") >= 1
        opened.select_next_hit("Duration\n500ms")
