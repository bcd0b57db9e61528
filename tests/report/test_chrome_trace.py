"""The exported Chrome trace, by an independent reading of its JSON."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from clusters import new_client
from exported_traces import ChromeTrace, analyser_of, at_scheduler
from hypothesis import given
from hypothesis import strategies as st
from opened_pages import LOAD, SUM, compute, held

import dasfprof
from dasfprof.report.documents import json_of
from dasfprof.report.formats.tracks import side_by_side, to_nanoseconds, trimmed
from dasfprof.text import count_of


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ChromeTrace:
    directory = tmp_path_factory.mktemp("trace")
    return ChromeTrace.of(analyser_of(directory / "run"), directory / "mine.json.gz")


#: Track, name (Dask does not treat 32 letters as a hash), start and duration (us) of task runs.
SLICES = [
    ("worker-node-0, thread 0", LOAD, 1e6, 2e6),
    ("worker-node-0, thread 0", SUM, 4e6, 1e6),
    ("worker-node-0, thread 1", "fails", 8e6, 0.5e6),
    ("worker-node-1, coroutines", "co", 5e6, 1e6),
    ("worker-node-1, coroutines (2)", "co", 5.5e6, 1e6),
    ("worker-node-1, thread 0", LOAD, 1e6, 1e6),
    ("worker-node-1, thread 0", LOAD, 3.5e6, 0.5e6),
    ("worker-node-1, thread 0", SUM, 6e6, 0.25e6),
    ("worker-node-1, thread 0", "again", 7e6, 0.1e6),
    ("worker-node-1, thread 0", "uses", 7.2e6, 0.1e6),
    ("worker-node-1, thread 0", "again", 7.4e6, 0.1e6),
    ("worker-node-1, thread 0", "uses", 7.6e6, 0.1e6),
]


def test_each_task_run_is_a_slice_of_its_thread(trace: ChromeTrace) -> None:
    slices = sorted(trace.of_kind("X", "task"), key=lambda event: (trace.track(event), event["ts"]))
    for event, (track, name, start, length) in zip(slices, SLICES, strict=True):
        assert (trace.track(event), event["name"]) == (track, name)
        # A float of Unix seconds has a resolution of a quarter of a microsecond.
        assert event["ts"] == pytest.approx(start, abs=0.5)
        assert event["dur"] == pytest.approx(length, abs=1.0)
    assert {trace.processes[event["pid"]] for event in slices} == {"node"}
    (failed,) = trace.of_kind("X", "erred")
    assert (failed["name"], failed["args"]["exception"]) == ("fails", "ValueError: <b>no</b>")


def test_a_slice_tells_all_that_is_known(trace: ChromeTrace) -> None:
    (event,) = (
        event for event in trace.of_kind("X", "task") if event["args"]["key"] == str((SUM, 0))
    )
    args = event["args"]
    # ready 20 ms and received 30 ms before executing, which is the start; done 10 ms after the end
    seconds = {"CPU (s)": 0.5, "Inqueue (s)": 0.02, "Running (s)": 1.0, "Finalizing (s)": 0.01}
    for name, value in {**seconds, "Preparing (s)": 0.01}.items():
        assert args.pop(name) == pytest.approx(value, abs=1e-5)
    assert args == {
        **{"key": str((SUM, 0)), "run id": 0, "worker": "worker-node-0", "state": "memory"},
        **{"type": "numpy.ndarray", "dtype": "float64", "shape": "(500, 500)"},
        **{"size (B)": 8, "input size (B)": 4_000_000},
    }


def test_arrows_lead_from_results_to_those_that_take_them(trace: ChromeTrace) -> None:
    arrows = [
        (source["args"]["key"], source["args"]["run id"], target["args"]["key"])
        for source, target in trace.arrows("dependency")
    ]
    pairs = [(0, 0), (1, 0), (1, 1), (2, 1)]
    taken = [(str((LOAD, load)), 0, str((SUM, total))) for load, total in pairs]
    assert sorted(arrows) == sorted([*taken, ("again-1", 1, "uses-1"), ("again-1", 2, "uses-2")])


def test_transfers_are_slices(trace: ChromeTrace) -> None:
    found = [
        (trace.track(event), event["name"], round(event["ts"]), round(event["dur"]))
        for event in trace.of_kind("X", "transfer")
    ]
    assert sorted(found) == [
        ("worker-node-0, transfers in", "from tcp://node:1", 3_200_000, 500_000),
        ("worker-node-0, transfers in (2)", "from tcp://node:1", 3_300_000, 600_000),
    ]
    facts = {"state": "success", "size (B)": 2_000_000, "keys": 1}
    seconds = {"network (s)": 0.25, "deserialise (s)": 0}
    assert trace.of_kind("X", "transfer")[0]["args"] == {**facts, **seconds}


def test_readings_are_counters_of_their_host(trace: ChromeTrace) -> None:
    counters: dict[str, list[tuple[int, float]]] = {}
    for event in trace.events:
        if event["ph"] == "C":
            assert trace.processes[event["pid"]] == "node"
            ((_, value),) = event["args"].items()
            counters.setdefault(event["name"], []).append((round(event["ts"]), value))
    assert counters == {
        "CPU, worker-node-0": [(100_000, 50.0), (5_000_000, 100.0)],
        "Memory, worker-node-0": [(100_000, 1e7), (5_000_000, 1e7)],
        "Results held, worker-node-0": [(0, 0), (8_000_000, 3000), (10_000_000, 5000)],
        "Results held, worker-node-1": [(5_000_000, 4000), (10_000_000, 4000)],
        "Tasks in memory, worker-node-0": [(0, 0), (8_000_000, 3), (10_000_000, 5)],
        "Tasks in memory, worker-node-1": [(5_000_000, 4), (10_000_000, 4)],
    }


def test_the_file_says_what_it_is_about(trace: ChromeTrace) -> None:
    about = trace.document["otherData"]
    (mark,) = trace.of_kind("i", "about")
    assert mark["args"] == about
    assert about["run"] == "my run"
    assert about["begin (Unix s)"] == 1_790_000_000.0
    assert about["begin (UTC)"] == "2026-09-21 14:13:20"
    assert sorted(trace.processes.values()) == ["head", "my run", "node"]
    orders = {
        event["pid"]: event["args"]["sort_index"]
        for event in trace.events
        if event["name"] == "process_sort_index"
    }
    assert trace.processes[min(orders, key=lambda pid: orders[pid])] == "my run"


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    analyser = analyser_of(tmp_path / "run")
    one, other = tmp_path / "one.json.gz", tmp_path / "other.json.gz"
    assert ChromeTrace.of(analyser, one).events == ChromeTrace.of(analyser, other).events
    assert one.read_bytes() == other.read_bytes()
    plain = ChromeTrace.of(analyser, tmp_path / "plain.json")
    assert plain.events == ChromeTrace(one).events


#: Keys, and their texts. That of a megabyte is truncated.
HOSTILE = {
    "half \udcff-1": "half \\udcff-1",
    "\ud83d\ude00 in halves-2": "\\ud83d\\ude00 in halves-2",
    **{same: same for same in ("\x00\x1b]0;x\x07\x7f\u2028-3", '"}],"x":[{"\\-5', "\U0001f600-6")},
    "</script><img src=x onerror=alert(1)>-4": "</script><img src=x onerror=alert(1)>-4",
}


def test_hostile_text_leaves_the_json_whole(tmp_path: Path) -> None:
    events = [
        compute(key, float(at), 0.5, 0, state="erred", exception=key, type=key, dtype=key)
        for at, key in enumerate([*HOSTILE, "k" * 1_000_000])
    ]
    trace = ChromeTrace.of(analyser_of(tmp_path / "run", events), tmp_path / "mine.json")
    slices = sorted(trace.of_kind("X", "task"), key=lambda event: float(event["ts"]))
    *shown, long = (event["args"]["key"] for event in slices)
    assert shown == [*HOSTILE.values()]
    assert (long[:3], len(long)) == ("kkk", 2000)
    json.dumps(trace.document, ensure_ascii=False).encode("utf-8")  # no lone surrogates remain


@given(st.text(st.characters(codec=None), max_size=30))
def test_any_text_is_json(text: str) -> None:
    read = json.loads(json_of(text))
    read.encode("utf-8")
    if not any("\ud800" <= sign <= "\udfff" for sign in text):
        assert read == text


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # from sums of such times
@pytest.mark.parametrize("time", [1e300, -1e300, 5e-324])
def test_times_beyond_any_clock(time: float, tmp_path: Path) -> None:
    events = [
        compute("now-1", 1.0, 1.0, 0),
        compute("then-1", time, 1.0, 0, dependencies=["now-1"]),
        compute("long-1", 3.0, abs(time), 1),
        held(time, 0, 3),
        at_scheduler("Worker Added", time, worker="a", name="a", host="h", nthreads=1),
        at_scheduler("Graph", time, client="c", tasks=1, wanted=1, stimulus="s"),
    ]
    analyser = analyser_of(tmp_path / "run", events)
    trace = ChromeTrace.of(analyser, tmp_path / "mine.json")
    slices = {event["name"] for event in trace.of_kind("X", "task")}
    assert slices <= {"now", "then", "long"}
    notes = trace.document["otherData"]["notes"]
    left_out = count_of(3 - len(slices), "task run") + " without a recorded time: not in this file."
    assert (left_out in notes) == (len(slices) < 3)
    assert all(0 <= event.get("ts", 0) < 1e16 for event in trace.events)
    assert analyser.export(tmp_path / "parquet", to="parquet").is_dir()


def test_a_run_without_anything(tmp_path: Path) -> None:
    trace = ChromeTrace.of(analyser_of(tmp_path / "run", []), tmp_path / "mine.json.gz")
    (about,) = (event for event in trace.events if event["ph"] != "M")
    assert (about["name"], trace.track(about)) == ("my run", "About")
    assert trace.document["otherData"]["run"] == "my run"


def test_clocks_that_disagree_turn_no_arrow_back(tmp_path: Path) -> None:
    events = [
        compute("early-1", 1.0, 1.0, 0),
        compute("takes-1", 1.5, 1.0, 1, dependencies=["early-1"]),
        compute("late-1", 5.0, 1.0, 0),
        compute("takes-2", 4.0, 0.5, 1, dependencies=["late-1"]),
    ]
    trace = ChromeTrace.of(analyser_of(tmp_path / "run", events), tmp_path / "mine.json")
    ((source, target),) = trace.arrows("dependency")
    assert (source["args"]["key"], target["args"]["key"]) == ("early-1", "takes-1")
    (begin,), (end,) = trace.of_kind("s", "dependency"), trace.of_kind("f", "dependency")
    assert begin["ts"] <= end["ts"]


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30)


@given(SPANS)
def test_spans_side_by_side_never_overlap_and_take_no_track_too_many(
    spans: list[tuple[int, int]],
) -> None:
    spans.sort()
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    stops = starts + np.array([length for _, length in spans], dtype=np.int64)
    places = side_by_side(starts, stops)
    for place in set(places.tolist()):
        rows = np.flatnonzero(places == place)
        assert (stops[rows[:-1]] <= starts[rows[1:]]).all()
    most = max((int(((starts <= at) & (at < stops)).sum()) for at in starts), default=0)
    assert len(set(places.tolist())) == most


def test_times_that_are_a_clock_s_grain_off_do_not_overlap() -> None:
    starts, stops = to_nanoseconds(np.array([-1.0, 1.0, 2.0]), np.array([1.0000005, 1.0, 3.0]))
    assert starts.tolist() == [0, 10**9, 2 * 10**9]
    assert stops.tolist() == [1_000_000_500, 10**9 + 1, 3 * 10**9]
    assert trimmed(starts, stops).tolist() == [10**9, 10**9 + 1, 3 * 10**9]


def test_a_real_run(tmp_path: Path) -> None:
    with (
        new_client(n_workers=2, threads_per_worker=1, processes=False) as client,
        dasfprof.profile(client, "real", directory=tmp_path) as run,
        dasfprof.step("double"),
    ):
        client.gather(client.map(abs, range(20), pure=False))
    trace = ChromeTrace.of(run.analyser(), tmp_path / "real.json.gz")
    slices = trace.of_kind("X", "task")
    assert Counter(event["name"] for event in slices) == {"abs": 20}
    assert {event["args"]["step"] for event in slices} == {"double"}
    (step,) = trace.of_kind("X", "step")
    assert (step["name"], trace.track(step), step["args"]["task runs"]) == ("double", "Steps", 20)
    assert step["ts"] <= min(event["ts"] for event in slices)
    assert step["ts"] + step["dur"] >= max(event["ts"] + event["dur"] for event in slices)
