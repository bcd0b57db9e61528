"""The imbalance of functions, compared with calculations by hand and with naive loops."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import Plugin, T, compute, record, row, usage

from dasfprof import TraceAnalyser
from dasfprof.schema.tasks import CLOCK, COMPUTE


def written(path: Path, workers: list[list[tuple[str, float]]]) -> TraceAnalyser:
    """Write task runs (key, seconds) of each worker."""
    for name, runs in enumerate(workers):
        rows = [
            row(COMPUTE, key=key, run_id=i, state="memory", timestamp=T + i, duration=seconds)
            for i, (key, seconds) in enumerate(runs)
        ]
        clock = [row(CLOCK, timestamp=T)]
        Plugin(path, name=name, address=f"tcp://n:100{name}").write((COMPUTE, rows), (CLOCK, clock))
    return TraceAnalyser(path)


def test_by_hand(tmp_path: Path) -> None:
    first = [("f-1", 3.0), ("f-2", 3.0), ("g-1", 1.0)]
    analyser = written(tmp_path / "run", [first, [("f-3", 2.0), ("g-2", 1.0)], [("g-3", 1.0)], []])
    table = analyser.imbalance()
    assert table["Function"].tolist() == ["f", "g"]
    f, g = table.to_dict("records")
    # By thread, with two per worker: 3, 1, 0 and 0 seconds of f, a mean of 1.
    assert (f["Duration (s)"], f["Num Tasks (chunks)"]) == (8.0, 3)
    assert (f["Workers"], f["Workers with Tasks"]) == (4, 2)
    assert f["Max/Mean of Workers"] == 3.0
    assert f["Imbalance (%)"] == pytest.approx(100 * (1 - 8 / (4 * 6)))
    assert f["Lost to Imbalance (s)"] == 2.0
    assert (f["Busiest Worker"], f["Host"]) == ("worker-node1-0", "node1")
    assert f["Max/Mean of Tasks"] == pytest.approx(3 / (8 / 3))
    assert g["Max/Mean of Workers"] == pytest.approx(4 / 3)
    assert g["Imbalance (%)"] == pytest.approx(25.0)


def test_without_known_threads(tmp_path: Path) -> None:
    events = [compute("f-1", T, 3.0, "w0"), compute("f-2", T, 1.0, "w1")]
    (line,) = TraceAnalyser(record(tmp_path / "run", events)).imbalance().to_dict("records")
    assert (line["Max/Mean of Workers"], line["Lost to Imbalance (s)"]) == (1.5, 1.0)
    assert not len(TraceAnalyser(record(tmp_path / "idle", [usage(1.0)])).imbalance())


_seconds = st.integers(0, 64).map(lambda eighths: eighths / 8)
_task = st.tuples(st.sampled_from(["f-1", "g-2", "h-3"]), _seconds)


@examples(9)
@given(st.lists(st.lists(_task, max_size=8), min_size=1, max_size=4))
def test_random_runs(workers: list[list[tuple[str, float]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = written(Path(directory, "run"), workers).imbalance()
    found: dict[str, dict[str, Any]] = {line["Function"]: line for line in table.to_dict("records")}
    assert set(found) == {key[0] for runs in workers for key, _ in runs}
    for name, line in found.items():
        loads = [sum(s for key, s in runs if key[0] == name) for runs in workers]
        tasks = [s for runs in workers for key, s in runs if key[0] == name]
        mean, most = sum(loads) / len(loads), max(loads)
        assert line["Duration (s)"] == sum(loads)
        assert line["Lost to Imbalance (s)"] == pytest.approx((most - mean) / 2)
        assert line["Lost to Imbalance (s)"] >= 0
        if most:
            assert line["Imbalance (%)"] == pytest.approx(100 * (1 - mean / most))
            assert 0 <= line["Imbalance (%)"] < 100
            assert line["Max/Mean of Workers"] == pytest.approx(most / mean)
            assert line["Max/Mean of Tasks"] == pytest.approx(max(tasks) * len(tasks) / sum(tasks))
