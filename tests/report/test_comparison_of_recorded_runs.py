"""Comparisons of runs recorded on worker processes: verdict, sums, gate, page and history."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import dasfprof
from dasfprof.cli.main import cli
from dasfprof.handles.comparison import RunComparison

pytestmark = pytest.mark.whole_program

#: Runs of each kind; of 252 ways to divide ten runs, two are as far apart as five and five can be.
RUNS = 5
LEAST_P = 2 / 252
#: Seconds. Tasks sleep: what else the machine does matters little.
LOAD, CLEAN, SLOWER = 0.05, 0.1, 0.3


def load(number: int) -> int:
    time.sleep(LOAD)
    return number


def clean(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def fail(number: int) -> int:
    raise ValueError(f"no {number}")


@dataclass
class Recorded:
    """Where the runs of each kind are, and what a clock in the program said of each."""

    directory: Path
    seconds: dict[str, list[float]]

    def compare(self, before: str, after: str) -> RunComparison:
        return dasfprof.compare(self.directory / before, self.directory / after)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """Kinds in turn, so that a machine that gets slower does so for all."""
    place = tmp_path_factory.mktemp("recorded")
    kinds = {"before": CLEAN, "again": CLEAN, "after": SLOWER}
    done = Recorded(place, {kind: [] for kind in kinds})
    with LocalCluster(n_workers=2, threads_per_worker=2) as cluster, Client(cluster) as client:
        _compute(client, CLEAN)  # what is imported and connected at first use
        for number in range(RUNS):
            for kind, seconds in kinds.items():
                with dasfprof.profile(client, name=f"{kind}-{number}", directory=place / kind):
                    begin = time.perf_counter()
                    _compute(client, seconds)
                    done.seconds[kind].append(time.perf_counter() - begin)
        with dasfprof.profile(client, name="failed", directory=place / "failed"):
            client.submit(fail, 3).exception()
    yield done


def _compute(client: Client, seconds: float) -> None:
    loaded = [dask.delayed(load)(number) for number in range(8)]
    cleaned = [dask.delayed(clean)(one, seconds) for one in loaded]
    client.gather(client.compute(cleaned))


@pytest.mark.slow  # one run of ten that is held up turns it over
def test_the_slower_function_is_named(recorded: Recorded) -> None:
    comparison = recorded.compare("before", "after")
    verdict = comparison.verdict
    assert (verdict.kind, verdict.certain, verdict.p) == ("slower", True, LEAST_P)
    assert "clean takes" in comparison.sentences[1]
    functions = comparison.functions.set_index("Function")
    assert functions["Changed"].to_dict()["clean"] == "slower"
    change = float(functions["Change (%)"]["clean"])
    assert change == pytest.approx((SLOWER / CLEAN - 1) * 100, rel=0.1)
    assert float(functions["p"]["clean"]) < 0.01


def test_wall_times_are_within_those_of_the_programs(recorded: Recorded) -> None:
    comparison = recorded.compare("before", "after")
    walls = comparison.runs.groupby("Side", sort=False)["Wall Time (s)"].apply(list)
    for kind, sleeps in (("before", LOAD + CLEAN), ("after", LOAD + SLOWER)):
        # Eight of each on four threads: two after the other.
        assert all(2 * sleeps <= wall for wall in walls[kind])
        assert all(
            wall <= taken for wall, taken in zip(walls[kind], recorded.seconds[kind], strict=True)
        )


@pytest.mark.parametrize("pair", [("before", "after"), ("before", "again")])
def test_differences_sum_to_the_whole(recorded: Recorded, pair: tuple[str, str]) -> None:
    comparison = recorded.compare(*pair)
    for by in ("function", "step"):
        sums = comparison.waterfall(by)[["Before (s)", "After (s)"]].sum()
        np.testing.assert_allclose(sums, comparison.verdict.means, atol=1e-3)


@pytest.mark.slow  # one run of ten that is held up turns it over
def test_where_nothing_changed_the_gate_stays_open(recorded: Recorded) -> None:
    again = recorded.compare("before", "again")
    assert again.functions["Tasks"].tolist() == ["same", "same"]
    for pair, code in (
        (("before", "after"), 3),
        (("before", "again"), 0),
        (("after", "before"), 0),
    ):
        sides = [str(recorded.directory / side) for side in pair]
        done = CliRunner().invoke(cli, ["compare", "--fail-if-slower", "20%", *sides])
        assert done.exit_code == code, done.output


def test_the_history_of_all(recorded: Recorded) -> None:
    table = dasfprof.history(recorded.directory, progress=False)
    seconds: dict[str, Any] = {
        kind: table[table["Directory"] == str(recorded.directory / kind)]["Wall Time (s)"].tolist()
        for kind in recorded.seconds
    }
    for kind, walls in seconds.items():
        runs = recorded.compare(kind, "failed").runs
        assert sorted(walls) == pytest.approx(
            sorted(runs[runs["Side"] == "before"]["Wall Time (s)"].tolist())
        )
    assert table["Failed"].sum() == 1
