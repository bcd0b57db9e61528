"""Transfers by pair, function and time: by hand, and random ones compared with naive loops."""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import Plugin, T, row

from dasfprof import TraceAnalyser
from dasfprof.schema.tasks import CLOCK, COMPUTE, RESULT_SERIALISED, TRANSFER

A, B, C = "tcp://10.0.0.1:4000", "tcp://10.0.0.2:4001", "tcp://10.0.0.9:4002"


def moved(start: float, source: str, keys: list[str], size: int, **values: Any) -> tuple[Any, ...]:
    values = {"duration": 0.5, "state": "success", "network": 0.25, "deserialize": 0.125, **values}
    return row(TRANSFER, timestamp=T + start, source=source, keys=keys, size=size, **values)


def ran(key: str, size: int) -> tuple[Any, ...]:
    return row(COMPUTE, timestamp=T, duration=0.5, key=key, state="memory", size=size)


@pytest.fixture
def analyser(tmp_path: Path) -> TraceAnalyser:
    runs = [ran("load-1", 30_000_000), ran("load-2", 10_000_000), ran("sum-1", 8)]
    to_a = [
        moved(1.0, B, ["load-1", "load-2"], 40_000_000),
        moved(2.0, B, ["load-1"], 30_000_000),  # repeated, because it had been released meanwhile
        moved(3.0, B, ["load-2"], 10_000_000, state="busy"),  # failed
        moved(4.0, C, ["far-1", "sum-1"], 1_000_000),  # the size of far-1 is unknown
    ]
    to_b = [moved(2.5, A, ["load-1"], 30_000_000, duration=3.0)]
    end = [row(CLOCK, timestamp=T + 6)]
    Plugin(tmp_path, host="n1", name=0, address=A).write((COMPUTE, runs), (TRANSFER, to_a))
    Plugin(tmp_path, host="n2", name=1, address=B).write((TRANSFER, to_b), (CLOCK, end))
    return TraceAnalyser(tmp_path)


def test_by_worker(analyser: TraceAnalyser) -> None:
    table = analyser.transfers()
    assert table.values.tolist() == [
        ["n2", "worker-n2-1", "n1", "worker-n1-0", 3, 3, 70.0, 1.0, 70.0, 0.75, 0.375, 1],
        ["n1", "worker-n1-0", "n2", "worker-n2-1", 1, 1, 30.0, 3.0, 10.0, 0.25, 0.125, 0],
        ["", C, "n1", "worker-n1-0", 1, 2, 1.0, 0.5, 2.0, 0.25, 0.125, 0],
    ]
    labels = "From Host|From Worker|To Host|To Worker|Transfers|Keys|Size (MB)|Time (s)"
    labels += "|Bandwidth (MB/s)|Network (s)|Deserialize (s)|Failed"
    assert list(table) == labels.split("|")


def test_by_function(analyser: TraceAnalyser) -> None:
    table = analyser.transfers("function").set_index("Function")
    assert table.index.tolist() == ["load", "far", "sum"]
    names = ["Keys Moved", "Moves", "Size (MB)", "Time (s)", "Moved Again (MB)", "Deserialize (s)"]
    assert table.loc["load", names].tolist() == [2, 4, 100.0, 4.0, 60.0, pytest.approx(3 * 0.125)]
    assert table.loc["load", "Share of Size (%)"] == pytest.approx(100 * 100 / 101)
    shared = table.loc[["far", "sum"], ["Size (MB)", "Deserialize (s)"]]
    assert shared.to_numpy().tolist() == [[0.5, 0.0625]] * 2  # evenly
    # From a recording without this fact.
    assert table["Serialize (s)"].isna().all()


def test_serialising(tmp_path: Path) -> None:
    # The third is for a client.
    rows = [
        row(RESULT_SERIALISED, timestamp=T + at, key="load-1", run_id=1, target=to, seconds=seconds)
        for at, to, seconds in ((1, B, 0.5), (2, B, 0.25), (3, None, 4.0))
    ]
    runs = [ran("load-1", 10), ran("sum-1", 10)]
    fetched = [moved(1.0, A, ["load-1", "sum-1"], 20)]
    Plugin(tmp_path, host="n1", name=0, address=A, serialising=True).write(
        (COMPUTE, runs), (RESULT_SERIALISED, rows)
    )
    Plugin(tmp_path, host="n2", name=1, address=B, serialising=True).write((TRANSFER, fetched))
    table = TraceAnalyser(tmp_path).transfers("function").set_index("Function")
    assert table["Serialize (s)"].to_dict() == {"load": 0.75, "sum": 0.0}


#: Start and duration, source, keys, bytes and target.
_message = st.tuples(
    *(st.integers(0, 80), st.integers(0, 40), st.sampled_from([A, B, C])),
    st.lists(st.sampled_from(["f-1", "f-2", "g-1"]), max_size=3, unique=True),
    *(st.integers(0, 10**6), st.sampled_from([0, 1])),
)


@examples(9)
@given(st.lists(_message, min_size=1, max_size=20))
def test_random_messages(messages: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name, address in enumerate((A, B)):
            rows = [
                moved(start / 8, source, keys, size, duration=duration / 8)
                for start, duration, source, keys, size, target in messages
                if target == name
            ]
            runs = [ran("f-1", 100), ran("f-2", 300)] if not name else []
            plugin = Plugin(Path(directory), name=name, address=address)
            plugin.write((TRANSFER, rows), (COMPUTE, runs), (CLOCK, [row(CLOCK, timestamp=T)]))
        analyser = TraceAnalyser(directory)
        pairs, functions = analyser.transfers(), analyser.transfers("function")
    labels = {A: "worker-node1-0", B: "worker-node1-1", C: C}
    expected: dict[Any, float] = defaultdict(float)
    again: dict[str, float] = defaultdict(float)
    seen: set[str] = set()
    of_functions: dict[str, float] = defaultdict(float)
    weights = {"f-1": 100, "f-2": 300}
    # Rows are in order of files, and in a file in order of writing; earlier starts count first.
    ordered = sorted(enumerate(messages), key=lambda item: (item[1][0], item[1][5], item[0]))
    for _, (_, _, source, keys, size, target) in ordered:
        expected[labels[source], f"worker-node1-{target}"] += size
        even = "g-1" in keys
        total = sum(1 if even else weights[key] for key in keys)
        for key in keys:
            share = size * (1 if even else weights[key]) / total
            of_functions[key[0]] += share
            if key in seen:
                again[key[0]] += share
            seen.add(key)
    for line in pairs.to_dict("records"):
        size = expected.pop((line["From Worker"], line["To Worker"]))
        assert line["Size (MB)"] == pytest.approx(size / 1e6)
    assert not expected
    sizes = dict(zip(functions["Function"], functions["Size (MB)"] * 1e6, strict=True))
    assert sizes == pytest.approx(dict(of_functions), abs=1e-6)
    repeats = dict(zip(functions["Function"], functions["Moved Again (MB)"] * 1e6, strict=True))
    assert repeats == pytest.approx({key: again[key] for key in repeats}, abs=1e-6)
