"""The trace in Perfetto's own format, read by Perfetto's own classes, against the Chrome trace."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_traces import ChromeTrace, analyser_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from opened_pages import BEGIN, SUM, compute

from dasfprof import EventProfiler, TraceAnalyser, export
from dasfprof.report.formats.protobuf import Rows, joined, messages, number

schema = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="needs perfetto: pip install 'dasfprof[test]'",
)


@dataclass
class Slice:
    """A slice or an instant, with its names in place of their numbers."""

    track: str
    name: str
    categories: tuple[str, ...]
    start: int
    args: dict[str, Any]
    #: Nanoseconds; None: an instant, or a slice that does not end.
    stop: int | None = None
    leaving: list[int] = field(default_factory=list)
    arriving: list[int] = field(default_factory=list)


class PerfettoTrace:
    """A trace in Perfetto's format, read packet by packet."""

    def __init__(self, path: Path) -> None:
        trace = schema.Trace()
        trace.ParseFromString(path.read_bytes())
        self.processes: dict[int, str] = {}
        self.tracks: dict[int, str] = {}
        self.counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.units: dict[str, str] = {}
        self.slices: list[Slice] = []
        self._texts: dict[tuple[str, int], str] = {}
        self._open: dict[int, Slice] = {}
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            self._take(packet)

    def _take(self, packet: Any) -> None:
        for kind, texts in packet.interned_data.ListFields():
            for text in texts:
                value = text.str.decode() if hasattr(text, "str") else text.name
                self._texts[kind.name, text.iid] = value
        if packet.HasField("clock_snapshot"):
            self.clocks = {
                clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks
            }
        about = packet.track_descriptor
        if about.HasField("process"):
            self.processes[about.uuid] = about.process.process_name
        elif about.HasField("thread"):
            assert about.thread.pid in (1, *self.processes)
            self.tracks[about.uuid] = about.thread.thread_name
        elif about.HasField("counter"):
            assert self.processes[about.parent_uuid] == "node"
            self.tracks[about.uuid] = about.name
            unit = about.counter.unit_name
            self.units[about.name] = unit or schema.CounterDescriptor.Unit.Name(about.counter.unit)
        if packet.HasField("track_event"):
            self._take_event(packet.timestamp, packet.track_event)

    def _take_event(self, time: int, event: Any) -> None:
        track = self.tracks[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            self.counters[track].append((time, event.double_counter_value))
        elif event.type == event.TYPE_SLICE_END:
            self._open.pop(event.track_uuid).stop = time
        else:
            categories = [self._texts["event_categories", iid] for iid in event.category_iids]
            found = Slice(
                track,
                event.name or self._texts["event_names", event.name_iid],
                (*categories, *event.categories),
                time,
                {
                    each.name or self._texts["debug_annotation_names", each.name_iid]: self.value(
                        each
                    )
                    for each in event.debug_annotations
                },
                leaving=list(event.flow_ids),
                arriving=list(event.terminating_flow_ids),
            )
            self.slices.append(found)
            if event.type == event.TYPE_SLICE_BEGIN:
                self._open[event.track_uuid] = found

    def value(self, told: Any) -> Any:
        if told.dict_entries:
            return {entry.name: self.value(entry) for entry in told.dict_entries}
        if told.array_values:
            return [self.value(item) for item in told.array_values]
        kind = told.WhichOneof("value")
        value = getattr(told, kind)
        return (
            self._texts["debug_annotation_string_values", value] if kind.endswith("iid") else value
        )

    def of_kind(self, kind: str) -> list[Slice]:
        return [found for found in self.slices if kind in found.categories]

    def arrows(self, kind: str) -> Iterator[tuple[Slice, Slice]]:
        sources = {number: found for found in self.slices for number in found.leaving}
        for target in self.of_kind(kind):
            yield from ((sources[number], target) for number in target.arriving)


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return analyser_of(tmp_path_factory.mktemp("trace") / "run")


@pytest.fixture(scope="module")
def trace(analyser: TraceAnalyser, tmp_path_factory: pytest.TempPathFactory) -> PerfettoTrace:
    path = tmp_path_factory.mktemp("perfetto") / "mine.pftrace"
    return PerfettoTrace(export(analyser, path, title="my run"))


@pytest.fixture(scope="module")
def chrome(analyser: TraceAnalyser, tmp_path_factory: pytest.TempPathFactory) -> ChromeTrace:
    """The same run in the other format, whose values are tested by hand."""
    return ChromeTrace.of(analyser, tmp_path_factory.mktemp("chrome") / "mine.json")


def test_slices_and_instants_are_those_of_the_chrome_trace(
    trace: PerfettoTrace, chrome: ChromeTrace
) -> None:
    wanted = []
    for event in chrome.events:
        if event["ph"] in "XBi":
            begin = round(event["ts"] * 1000)
            stop = begin + round(event["dur"] * 1000) if "dur" in event else None
            categories = tuple(event["cat"].split(","))
            place = (chrome.track(event), event["name"], categories, begin, stop)
            wanted.append((*place, sorted(event["args"])))
    found = [
        (each.track, each.name, each.categories, each.start, each.stop, sorted(each.args))
        for each in trace.slices
        if each.categories != ("about",)
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


def test_calls_of_actors_are_slices_of_the_worker_that_has_them(trace: PerfettoTrace) -> None:
    found = [
        (one.track, one.name, one.start, one.stop, one.args) for one in trace.of_kind("actor call")
    ]
    track, actor = "worker-node-1, calls of actors", {"actor": "Counter-5"}
    # Two at a time lie side by side.
    assert sorted(found, key=lambda one: one[2]) == [
        (track, "Counter.add", 4_000_000_000, 4_500_000_000, {**actor, "state": "success"}),
        (f"{track} (2)", "Counter.get", 4_250_000_000, 4_750_000_000, {**actor, "state": "failed"}),
    ]


def test_a_slice_tells_all_that_is_known(trace: PerfettoTrace) -> None:
    (found,) = (each for each in trace.of_kind("task") if each.args["key"] == str((SUM, 0)))
    args = found.args
    seconds = {"CPU (s)": 0.5, "Inqueue (s)": 0.02, "Running (s)": 1.0, "Finalizing (s)": 0.01}
    for name, value in {**seconds, "Preparing (s)": 0.01}.items():
        assert args.pop(name) == pytest.approx(value, abs=1e-5)
    assert args == {
        "key": str((SUM, 0)),
        "run id": 0,
        "worker": "worker-node-0",
        "state": "memory",
        "type": "numpy.ndarray",
        "dtype": "float64",
        "shape": "(500, 500)",
        "size (B)": 8,
        "input size (B)": 4_000_000,
    }


@pytest.mark.parametrize(("kind", "of"), [("dependency", "task"), ("transfer", "transfer")])
def test_arrows_are_those_of_the_chrome_trace(
    trace: PerfettoTrace, chrome: ChromeTrace, kind: str, of: str
) -> None:
    found = [(source.args["key"], target.start) for source, target in trace.arrows(of)]
    wanted = [
        (source["args"]["key"], round(target["ts"] * 1000))
        for source, target in chrome.arrows(kind)
    ]
    assert sorted(found) == sorted(wanted)
    assert found
    for source, target in trace.arrows(of):
        assert source.start < target.start, "which of two is the first, Perfetto tells by time"


def test_readings_are_those_of_the_chrome_trace(trace: PerfettoTrace, chrome: ChromeTrace) -> None:
    wanted = defaultdict(list)
    for event in chrome.events:
        if event["ph"] == "C":
            (value,) = event["args"].values()
            wanted[event["name"]].append((round(event["ts"] * 1000), value))
    assert dict(trace.counters) == wanted
    assert trace.units["CPU, worker-node-0"] == "%"
    assert trace.units["Memory, worker-node-0"] == "UNIT_SIZE_BYTES"


def test_the_file_says_what_it_is_about(trace: PerfettoTrace, chrome: ChromeTrace) -> None:
    assert trace.processes == chrome.processes
    (about,) = trace.of_kind("about")
    # A list without items cannot be told from nothing.
    assert about.args == {name: v for name, v in chrome.document["otherData"].items() if v != []}
    assert trace.clocks == {6: 0, 1: round(BEGIN * 1e9)}


def test_equal_runs_give_equal_files(analyser: TraceAnalyser, tmp_path: Path) -> None:
    one, other = (export(analyser, tmp_path / f"{name}.pftrace.gz") for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_blocks_of_slices_make_no_difference(
    analyser: TraceAnalyser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = export(analyser, tmp_path / "whole.pftrace").read_bytes()
    monkeypatch.setattr("dasfprof.report.formats.perfetto._BLOCK", 1)
    by_one = PerfettoTrace(export(analyser, tmp_path / "by_one.pftrace"))
    assert sorted(map(repr, by_one.slices)) == sorted(
        map(repr, PerfettoTrace(tmp_path / "whole.pftrace").slices)
    )
    assert (tmp_path / "by_one.pftrace").stat().st_size == len(whole)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    keys = ["half \udcff-1", "\x00\x1b]0;x\x07\x7f-2", "k" * 1_000_000, "\U0001f600-4", "-5"]
    events = [
        compute(key, float(at), 0.5, 0, state="erred", exception=key, type=key)
        for at, key in enumerate(keys)
    ]
    path = export(analyser_of(tmp_path / "run", events), tmp_path / "mine.pftrace")
    tasks = sorted(PerfettoTrace(path).of_kind("task"), key=lambda each: each.start)
    shown = [each.args["key"] for each in tasks]
    assert shown[0] == "half \\udcff-1"
    assert shown[1] == keys[1]
    assert (shown[2][:3], len(shown[2])) == ("kkk", 2000)
    assert shown[3:] == keys[3:]
    assert [each.args["exception"] for each in tasks] == shown


def test_a_run_without_anything(tmp_path: Path) -> None:
    path = export(analyser_of(tmp_path / "run", []), tmp_path / "mine.pftrace", title="my run")
    assert [found.name for found in PerfettoTrace(path).slices] == ["my run"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of sums of such times
@pytest.mark.parametrize("time", [1e300, -1e300, 1e18, 5e-324])
def test_times_beyond_any_clock(time: float, tmp_path: Path) -> None:
    events = [
        compute("now-1", 1.0, 1.0, 0),
        compute("then-1", time, 1.0, 0, dependencies=["now-1"], size=2**63 - 1),
        compute("long-1", 3.0, abs(time), 1),
    ]
    path = export(analyser_of(tmp_path / "run", events), tmp_path / "mine.pftrace")
    assert {found.name for found in PerfettoTrace(path).of_kind("task")} <= {"now", "then", "long"}


def test_values_of_user_code_keep_their_types(tmp_path: Path) -> None:

    values = {"b": True, "i": -3, "big": 10**30, "f": 0.5, "s": "é", "n": None, "l": [1, {"x": 2}]}
    profiler = EventProfiler(tmp_path / "mine.msgpack")
    profiler.record_instant_event("told", BEGIN, args=values)
    profiler.close()
    analyser = TraceAnalyser(str(tmp_path / "mine.msgpack"), progress=False)
    (found,) = PerfettoTrace(export(analyser, tmp_path / "mine.pftrace")).of_kind("own")
    assert found.args == {**values, "big": str(10**30), "n": "null"}
    assert json.dumps(found.args["l"]) == json.dumps(values["l"])


@given(arrays.arrays(np.uint64, st.integers(0, 20)), st.integers(0, 2**64 - 1))
def test_columns_are_written_as_protocol_buffers_are(values: Any, more: int) -> None:
    rows = [Rows.constant(number(10, 7), len(values)), Rows.constant(b"\x40", len(values))]
    written = joined(messages(1, [*rows, Rows.varints(values)]))
    wanted = schema.Trace()
    for value in values.tolist():
        wanted.packet.add(trusted_packet_sequence_id=7, timestamp=value)
    read = schema.Trace()
    read.ParseFromString(written + b"\x0a\x00")
    wanted.packet.add()
    assert read == wanted
    assert schema.TracePacket(timestamp=more).SerializeToString() == number(8, more)
