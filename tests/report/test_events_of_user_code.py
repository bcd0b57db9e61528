"""Events that user code recorded, in all displays and exports."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from exported_traces import ChromeTrace

from dasfprof import CompleteEvent, EventProfiler, TraceAnalyser
from dasfprof.cli.main import cli

T = 1.7e9
HOSTILE = "=cmd()</script><b>\ud800\x1b[2J"


def record(path: Path) -> Path:
    profiler = EventProfiler(path)
    for epoch in range(3):
        loss = {"loss": 0.5 - epoch / 10, "bad": float("nan"), "raw": b"\xff", "at": (1, 2)}
        profiler.record_complete_event("epoch", T + epoch, 1.5, args=loss, thread_id="gpu-1")
    profiler.record_instant_event("checkpoint", T + 2.5, args={"file": HOSTILE})
    profiler.record_duration_begin_event("fit", T, args={"model": "m"})
    profiler.record_duration_begin_event("fit", T + 1)
    profiler.record_duration_end_event("fit", T + 2, args={"inner": True})
    profiler.record_duration_end_event("fit", T + 4, args={"steps": 7})
    profiler.record_duration_begin_event("never left", T + 3)
    profiler.close()
    return path


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return TraceAnalyser(record(tmp_path_factory.mktemp("own") / "mine.msgpack"), progress=False)


def test_the_table_joins_what_begins_and_ends(analyser: TraceAnalyser) -> None:
    table = analyser.own_events().astype(object)
    rows = table.where(table.notna(), None).to_dict("records")
    told = [(row["Event"], row["Kind"], row["Start (s)"], row["Duration (s)"]) for row in rows]
    assert sorted(told, key=str) == [
        ("checkpoint", "instant", 2.5, None),
        *(("epoch", "span", begin, 1.5) for begin in (0.0, 1.0, 2.0)),
        *(("fit", "span", 0.0, 4.0), ("fit", "span", 1.0, 1.0)),
        ("never left", "begin", 3.0, None),
    ]
    args = {(row["Event"], row["Start (s)"]): json.loads(row["Args"] or "{}") for row in rows}
    assert args["fit", 0.0] == {"model": "m", "steps": 7}
    assert args["fit", 1.0] == {"inner": True}
    assert args["epoch", 1.0] == {"loss": 0.4, "bad": "nan", "raw": "b'\\xff'", "at": [1, 2]}
    assert (analyser.trace.begin, analyser.trace.end) == (T, T + 4)


def test_a_chrome_trace_has_slices_and_instants_with_their_args(
    analyser: TraceAnalyser, tmp_path: Path
) -> None:
    trace = ChromeTrace.of(analyser, tmp_path / "own.json")
    slices = trace.of_kind("X", "own")
    assert sorted((event["name"], event["ts"], event["dur"]) for event in slices) == [
        *(("epoch", begin, 1.5e6) for begin in (0, 1e6, 2e6)),
        *(("fit", 0, 4e6), ("fit", 1e6, 1e6)),
    ]
    instants = {event["name"]: event["args"] for event in trace.of_kind("i", "own")}
    assert instants.keys() == {"checkpoint", "never left (begin)"}
    assert instants["checkpoint"]["file"].startswith("=cmd()</script><b>")
    assert "Events of 0, gpu-1" in trace.tracks.values()
    for event in slices:
        assert trace.holder(event) is event, "slices of one track never lie over each other"


def test_csv_and_the_page_list_them(analyser: TraceAnalyser, tmp_path: Path) -> None:
    analyser.export(tmp_path / "csv", to="csv")
    with (tmp_path / "csv" / "own_events.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["Event"] for row in rows].count("epoch") == 3
    page = analyser.report(tmp_path / "own.html").read_text()
    facts = json.loads(page.partition('id="facts">')[2].partition("</script>")[0])
    columns = {c["label"]: c["values"] for c in facts["tables"]["events"]["columns"]}
    assert sorted(columns["Event"]) == sorted(row["Event"] for row in rows)
    assert facts["summary"]["events"] == {"epoch": 3, "fit": 2, "checkpoint": 1, "never left": 1}


def test_analyse_says_what_the_file_holds(tmp_path: Path) -> None:
    path = record(tmp_path / "mine.msgpack")
    done = CliRunner().invoke(cli, ["analyse", str(path)], catch_exceptions=False)
    assert done.exit_code == 0
    said = " ".join(done.output.split())
    assert "7 events recorded by user code: epoch 3, fit 2, checkpoint 1, never left 1." in said
    assert "\x1b[2J" not in done.output
    document = CliRunner().invoke(cli, ["analyse", "--json", str(path)], catch_exceptions=False)
    assert len(json.loads(document.stdout)["tables"]["own_events"]) == 7


def test_events_of_another_clock_do_not_stretch_a_run(tmp_path: Path) -> None:
    profiler = EventProfiler(tmp_path / "mine.msgpack")
    args: dict[str, Any] = {"key": "a-1", "dependencies": [], "state": "memory", "size": 1}
    profiler.database.record(
        CompleteEvent("Compute", T, 1.0, process_id="h", thread_id="worker-h-0", args=args)
    )
    profiler.record_complete_event("monotonic", 100.0, 1.0)
    profiler.record_complete_event("near", T + 2, 1.0)
    profiler.close()
    analyser = TraceAnalyser(tmp_path, progress=False)
    assert (analyser.trace.begin, analyser.trace.end) == (T, T + 3)
    (note,) = [note for note in analyser.trace.notes if note.kind == "clock"]
    assert note.text.startswith("1 event of user code more than a day from the run")
    drawn = analyser.export(tmp_path / "own.json", to="perfetto").read_text()
    assert '"near"' in drawn
    assert '"monotonic"' not in drawn
    assert set(analyser.own_events()["Event"]) == {"monotonic", "near"}
