"""Notes on a trace are records: rules go by their kind, never by words that a name may hold."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from written_traces import Plugin, row

from dasfprof.analysis import TraceAnalyser
from dasfprof.analysis.trace.notes import NoteKind
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, GRAPH


def test_a_run_whose_name_holds_a_rules_words_keeps_its_warnings(tmp_path: Path) -> None:
    Plugin(tmp_path, "ResourceMonitor").write((RESOURCE_USAGE, [row(RESOURCE_USAGE)]))
    written = Plugin(tmp_path).write((COMPUTE, [row(COMPUTE, key="a-1")]), close=False)
    name = "GPU-load, step of the pipeline, inputs whose size-TracePlugin-node1-0.msgpack"
    written.rename(tmp_path / name)
    analyser = TraceAnalyser(tmp_path / "*.msgpack", progress=False)
    (note,) = [note for note in analyser.trace.notes if note.kind == "not-closed"]
    assert note.subject == name
    assert note.text.startswith(f"{name}: ")
    assert "ended without closing" in note.text
    assert any("ended without closing" in text for text in analyser.diagnose()["Evidence"])


def test_what_is_no_fault_of_a_trace_is_no_finding(tmp_path: Path) -> None:
    Plugin(tmp_path, "ResourceMonitor").write((RESOURCE_USAGE, [row(RESOURCE_USAGE)]))
    Plugin(tmp_path).write((COMPUTE, [row(COMPUTE, key="a-1")]))
    Plugin(tmp_path, "SchedulerPlugin").write((GRAPH, [row(GRAPH)]))
    analyser = TraceAnalyser(tmp_path / "*.msgpack", progress=False)
    kinds = {note.kind for note in analyser.trace.notes}
    assert "gpu" in kinds
    assert kinds <= set(get_args(NoteKind))
    assert not any("not whole" in text for text in analyser.diagnose()["Finding"])
