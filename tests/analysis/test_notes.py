"""Notes on a trace are records: rules go by their kind, never by words that a name may hold."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from traces import Plugin, row

from dasfprof import FileDatabase, InstantEvent, TraceAnalyser
from dasfprof.analysis.trace.gaps import NoteKind
from dasfprof.schema.events import Schema
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, GRAPH


def test_a_run_whose_name_holds_a_rules_words_keeps_its_warnings(tmp_path: Path) -> None:
    Plugin(tmp_path, "ResourceMonitor").write((RESOURCE_USAGE, [row(RESOURCE_USAGE)]))
    written = Plugin(tmp_path).write((COMPUTE, [row(COMPUTE, key="a-1")]), close=False)
    name = "GPU-load, step of the pipeline, inputs of unknown size-TracePlugin-node1-0.msgpack"
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


LATER = Schema("I", "Pause", (("timestamp", "float"),), (("reason", "text"),))


def test_events_that_only_a_later_version_knows_are_counted_and_named(tmp_path: Path) -> None:
    pauses = [row(LATER, timestamp=100.0 + i, reason="memory") for i in range(3)]
    path = Plugin(tmp_path).write((COMPUTE, [row(COMPUTE, key="a-1")]), (LATER, pauses))
    trace = TraceAnalyser(path, progress=False).trace
    (note,) = [note for note in trace.notes if note.kind == "unknown-events"]
    assert (note.subject, len(trace.tasks), len(trace.events)) == (path.name, 1, 0)
    expected = "3 events of kinds that this version of dasfprof does not know: Pause (3)."
    assert note.text == f"{path.name}: {expected}"


def test_events_of_user_code_are_not_unknown(tmp_path: Path) -> None:
    with FileDatabase(tmp_path / "mine.msgpack") as database:
        database.record(InstantEvent("Pause", 100.0))
    trace = TraceAnalyser(tmp_path / "mine.msgpack", progress=False).trace
    assert len(trace.events) == 1
    assert not [note for note in trace.notes if note.kind == "unknown-events"]
