"""Stragglers: planned ones with causes, and a naive search on random runs."""

import random
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import Plugin, T, row

from dasfprof import TraceAnalyser
from dasfprof.analysis.model.stragglers import measure_slowness
from dasfprof.schema.tasks import COMPUTE

W = "worker-node1-"


class Cluster:
    """Workers with consecutive tasks, on as many threads as needed."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path / "run"
        self.rows: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
        self.now: dict[tuple[str, int], float] = {}
        self.count = 0

    def run(self, seconds: float, worker: int = 0, host: str = "node1", **values: Any) -> None:
        """Run a task of function f, which uses the CPU for all of its thread's time."""
        place = (host, worker)
        begin = self.now.get(place, T)
        values = {"key": f"f-{self.count}", "duration": seconds, "cpu": seconds, **values}
        values = {"disk_read": 0.0, "deserialize": 0.0, "done": begin + seconds, **values}
        rows = self.rows.setdefault(place, [])
        values = {"run_id": self.count, "executing": begin, "timestamp": begin, **values}
        rows.append(row(COMPUTE, state="memory", **values))
        self.count += 1
        self.now[place] = begin + seconds

    def table(self) -> list[dict[str, Any]]:
        for number, ((host, worker), rows) in enumerate(self.rows.items()):
            address = f"tcp://{host}:{4000 + number}"
            Plugin(self.path, host=host, name=worker, address=address).write((COMPUTE, rows))
        return TraceAnalyser(self.path).stragglers().to_dict("records")

    def causes(self) -> list[str]:
        return [found["Cause"] for found in self.table()]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def healthy(cluster: Cluster, count: int = 20, **values: Any) -> None:
    """Run tasks of 1 s, plus or minus 0.05 s."""
    for number in range(count):
        cluster.run(1.0 + (number % 3 - 1) * 0.05, **values)


def test_a_straggler_by_hand(cluster: Cluster) -> None:
    healthy(cluster)
    cluster.run(5.0, cpu=5.0, input_size=2_000_000)
    healthy(cluster, 20, input_size=2_000_000)
    (found,) = cluster.table()
    # Seven of 0.95 s, seven of 1 s and six of 1.05 s are before it.
    figures = {"Start (s)": 7 * 0.95 + 7 + 6 * 1.05, "Elapsed (s)": 5.0, "Median (s)": 1.0}
    figures |= {"Times Median": 5.0, "Excess (s)": 4.0, "Expected for its Input (s)": 1.0}
    figures |= {"Input Size (MB)": 2.0, "Median Input Size (MB)": 2.0}
    assert {name: found.pop(name) for name in figures} == pytest.approx(figures)
    names = {"Task Key": "f-20", "Function": "f", "Host": "node1", "Worker": W + "0", "Run ID": 20}
    assert found == {**names, "Cause": "computed longer"}


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"cpu": 1.0}, "blocked"),
        ({"cpu": None}, "unknown"),
        ({"cpu": 5.0}, "computed longer"),
        ({"duration": 1.0, "cpu": 1.0, "disk_read": 3.0}, "spill"),
        ({"duration": 1.0, "cpu": 1.0, "deserialize": 3.0}, "deserialising"),
        ({"duration": 1.0, "cpu": 1.0}, "worker overhead"),
    ],
)
def test_causes_within_the_run(cluster: Cluster, values: dict[str, Any], cause: str) -> None:
    healthy(cluster)
    cluster.run(5.0, **values)
    assert cluster.causes() == [cause]


def test_the_first_run_on_a_worker(tmp_path: Path) -> None:
    two, follows, layers = (Cluster(tmp_path / name) for name in ("two", "follows", "layers"))
    for worker in (0, 1):
        two.run(4.0, worker)
        healthy(two, worker=worker)
    assert two.causes() == ["first run on that worker"] * 2
    # Dask gives the thread to the next task before it knows the outcome of the previous one.
    follows.run(1.0, done=T + 1.0002)
    follows.run(5.0)
    healthy(follows)
    assert follows.causes() == ["computed longer"]
    # The first task run of another layer is not the first one on its worker.
    layer(layers, 0, *[1.0] * 10)
    layer(layers, 1, 5.0, *[1.0] * 10)
    assert layers.causes() == ["computed longer"]


def test_a_larger_input(tmp_path: Path) -> None:
    one, several = Cluster(tmp_path / "one"), Cluster(tmp_path / "several")
    healthy(one, input_size=1_000_000)
    one.run(4.5, input_size=4_000_000)  # in proportion to its input
    one.run(9.5, input_size=4_000_000)  # more than that
    # The function takes eight times as long for inputs of twice the size; one task run takes
    # longer.
    healthy(several, 30, input_size=1_000_000)
    for seconds in (*[8.0] * 6, 20.0):
        several.run(seconds, input_size=2_000_000)
    for cluster, larger, expected in ((one, 1, 4.0), (several, 6, 8.0)):
        found = cluster.table()
        assert [line["Cause"] for line in found] == ["computed longer", *["larger input"] * larger]
        inputs = [line["Expected for its Input (s)"] for line in found]
        assert inputs == pytest.approx([expected] * (1 + larger))


def layer(cluster: Cluster, number: int, *seconds: float, **values: Any) -> None:
    """Run a layer with tasks of function f that take these seconds."""
    for chunk, length in enumerate(seconds):
        cluster.run(length, key=(f"f-{number:032x}", chunk), **values)


def test_a_straggler_of_its_layer(cluster: Cluster) -> None:
    # The mean of x, of x ** 2, and of x ** 3, the third one with unspilled inputs.
    for number, seconds in enumerate((1.0, 1.2, 9.0)):
        layer(cluster, number, *[seconds] * 10)
    layer(cluster, 3, 1.0, 1.0, 4.0, 1.0, 1.0, 1.0)
    (found,) = cluster.table()
    assert found["Task Key"] == str(("f-" + "0" * 31 + "3", 2))
    assert (found["Median (s)"], found["Excess (s)"]) == pytest.approx((1.0, 3.0))
    assert found["Cause"] == "computed longer"


def test_layers_of_few_runs_have_none(cluster: Cluster) -> None:
    for number in range(10):
        layer(cluster, number, 1.0, 1.0, 1.0, 1.0 if number else 6.0)
    assert cluster.table() == []


@pytest.mark.parametrize("slow", [[("node1", 3)], [("node2", 0), ("node2", 1)]])
def test_a_slow_worker_or_host(slow: list[tuple[str, int]], cluster: Cluster) -> None:
    for worker in (0, 1, 2):
        healthy(cluster, worker=worker)
    for host, worker in slow:
        for _ in range(8):
            cluster.run(3.0, worker, host)
    found = cluster.table()
    assert {(line["Host"], line["Cause"]) for line in found} == {(slow[0][0], "slow worker")}
    assert len(found) == 8 * len(slow)


def test_time_outside_of_functions_is_overhead(cluster: Cluster) -> None:
    noise = random.Random(1)
    for seconds in [noise.lognormvariate(0, 0.8) for _ in range(60)]:
        cluster.run(max(seconds, 0.05), duration=0.05, cpu=0.05)
    assert set(cluster.causes()) == {"worker overhead"}


def test_what_is_short_or_rare_is_none(cluster: Cluster) -> None:
    healthy(cluster, 4)
    cluster.run(500.0, key="g-1")
    cluster.run(1.0, key="g-2")
    for number in range(8):
        cluster.run(0.01, key=f"h-{number}")
    cluster.run(1.0, key="h-9")  # of 506 s
    assert cluster.table() == []


_run = st.tuples(st.sampled_from("fg"), st.integers(1, 80), st.integers(0, 2))


@examples(9)
@given(st.lists(_run, min_size=1, max_size=40))
def test_random_runs_against_a_naive_search(runs: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory))
        for number, (name, eighths, worker) in enumerate(runs):
            cluster.run(eighths / 8, worker, key=f"{name}-{number}")
        found = cluster.table()
    wall = max(cluster.now.values()) - T
    expected = {}
    for name in "fg":
        times = [eighths / 8 for other, eighths, _ in runs if other == name]
        if len(times) < 5:
            continue
        middle = median(times)
        deviation = median([abs(time - middle) for time in times])
        for number, (other, eighths, _) in enumerate(runs):
            time = eighths / 8
            slow = time > max(2 * middle, middle + 3 * deviation) and time > wall / 100
            if other == name and slow:
                expected[f"{name}-{number}"] = time - middle
    assert {line["Task Key"]: line["Excess (s)"] for line in found} == expected
    assert [line["Excess (s)"] for line in found] == sorted(expected.values(), reverse=True)


_seconds = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 20))


@examples(9)
@given(st.lists(_seconds, min_size=1, max_size=60))
def test_slowness_against_loops(runs: list[tuple[int, int, int]]) -> None:
    function, place, seconds = (np.array(column) for column in zip(*runs, strict=True))
    slowness = measure_slowness(function, place, seconds.astype(float))
    for pair in range(len(slowness.runs)):
        f, p = int(slowness.function[pair]), int(slowness.place[pair])
        here = [s for g, q, s in runs if (g, q) == (f, p)]
        there = [s for g, q, s in runs if g == f and q != p]
        others = [
            median([s for g, r, s in runs if (g, r) == (f, q)])
            for q in range(4)
            if q != p and any((g, r) == (f, q) for g, r, _ in runs)
        ]
        assert slowness.runs[pair] == len(here)
        assert slowness.median[pair] == median(here)
        if not others:
            assert np.isnan(slowness.median_elsewhere[pair])
            continue
        if slowness.slow[pair]:
            assert slowness.median_elsewhere[pair] == median(others)
        # Statistic of Mann and Whitney: the number of pairs in which the run on this worker is
        # slower.
        wins = sum((h > t) + (h == t) / 2 for h in here for t in there)
        n, m = len(here), len(there)
        z = (wins - n * m / 2) / (n * m * (n + m + 1) / 12) ** 0.5
        assert slowness.z[pair] == pytest.approx(z, abs=1e-9)
        slow = median(here) >= 1.5 * median(others) and z >= 3.3 and n >= 6 and m >= 6
        assert bool(slowness.slow[pair]) == slow
