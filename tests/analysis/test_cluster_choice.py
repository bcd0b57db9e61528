"""The cheapest cluster that meets a deadline, calculated by hand, and runs without a prediction."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sizing_rates as rates
from traces import Plan, Task, held_results

from dasfprof import TraceAnalyser
from dasfprof.errors import InvalidArgumentError


def recorded(directory: Path, count: int = 48, seconds: float = 10, **about: Any) -> TraceAnalyser:
    """Write a run of equal tasks on two workers with one thread."""
    tasks = [
        Task(f"f-{n}", n % 2, n // 2 * seconds, (n // 2 + 1) * seconds, **about)
        for n in range(count)
    ]
    return Plan(tasks, threads=1).write(directory)


def test_the_fewest_workers_that_are_in_time(tmp_path: Path) -> None:
    """There are 48 tasks of 10 s: n workers take 10 s for each round of n tasks."""
    analyser = recorded(tmp_path)
    table = analyser.cluster_sizing(deadline=130.0, price=3.6)
    best = table.iloc[0]
    # Four workers take 120 s, and with 6 % more are still in time. Three take 160 s.
    assert best["Workers"] == 4
    columns = ["Likely (s)", "At Most (s)", "Cost"]
    assert best[columns].tolist() == pytest.approx([120, 120 * 1.06, 4 * 120 * 0.001], rel=0.02)
    assert best["Idle (%)"] == pytest.approx(0, abs=2)
    assert best["Verdict"].startswith("The cheapest cluster that is in time")
    (three,) = table[table["Workers"] == 3].to_dict("records")
    assert three["Verdict"].startswith("Too late by 30")
    # Five workers take ten rounds, in which two of fifty slots stay idle.
    (five,) = table[table["Workers"] == 5].to_dict("records")
    assert five["Idle (%)"] == pytest.approx(4, abs=2)
    assert five["Cost of Idle"] == pytest.approx(0.04 * five["Cost"], abs=0.02)
    assert five["Verdict"].startswith("In time, but costs")
    # The default deadline is the recorded duration of 240 s. Two workers may take 6 % longer.
    best = analyser.cluster_sizing(start_up=60).iloc[0]
    assert best["Workers"] == 3
    assert best["Likely (s)"] == pytest.approx(60 + 160, rel=0.02)
    # Start-up counts and is paid for: 70 s remain, and 8 workers take 60 s.
    best = analyser.cluster_sizing(deadline="130s", price=3.6, start_up="1 minute").iloc[0]
    assert best[["Workers", "Start-up (s)"]].tolist() == [8, 60]
    assert best["Cost"] == pytest.approx(8 * 120 * 0.001, rel=0.02)
    assert best["Idle (%)"] == pytest.approx(50, abs=2)
    # No number of workers meets this deadline.
    table = analyser.cluster_sizing(deadline=9.0)
    assert table["Verdict"].str.startswith("Too late").all()
    assert table["Workers"].max() == 200
    assert table["Cost"].isna().all()


def test_deadlines_are_met_for_little(tmp_path: Path) -> None:
    """Nine of ten runs meet deadlines, at most 15 % above the cheapest cost, by exact durations."""
    found = list(rates.sized("then_a_chain", tmp_path, (3, 20)))
    assert [one.chosen for one in found] == sorted(one.chosen for one in found)
    assert all(one.chosen >= one.just for one in found)
    assert np.mean([one.in_time for one in found]) >= 0.9
    assert max(one.cost for one in found) <= 1.15


def test_kinds_of_machines_and_their_prices(tmp_path: Path) -> None:
    kinds = [
        {"name": "small", "cores": 2, "price": 1.0},
        {"name": "large", "cores": 16, "price": 10.0, "memory": "64 GiB"},
        {"name": "fast", "cores": 2, "price": 3.0, "speed": 2},
    ]
    analyser = recorded(tmp_path)
    table = analyser.cluster_sizing(deadline=130.0, price=kinds)
    best = table.groupby("Kind", sort=False).first()
    assert best.index[0] == "small"
    # Machines with two workers of one thread each, as recorded.
    assert best["Machines"].to_dict() == {"small": 2, "large": 1, "fast": 1}
    assert best.loc[["small", "large"], "Workers"].tolist() == [4, 16]
    costs = {"small": 2 * 120 / 3600, "fast": 3 * 120 / 3600}
    assert best.loc[["small", "fast"], "Cost"].to_dict() == pytest.approx(costs, rel=0.02)
    assert best.loc["large", "Cost"] == pytest.approx(10 * 30 / 3600, rel=0.05)
    file = tmp_path / "kinds.csv"
    pd.DataFrame(kinds).to_csv(file, index=False)
    assert analyser.cluster_sizing(deadline=130.0, price=str(file)).equals(table)
    more = [{**kinds[0], "speed": 1}, {**kinds[1], "speed": 1}, kinds[2]]
    assert analyser.cluster_sizing(deadline=130.0, price=pd.DataFrame(more)).equals(table)


def test_memory_is_part_of_it(tmp_path: Path) -> None:
    """One worker has all results at the end, 180 MB plus at most 12 %, with any cluster."""
    analyser = held_results().write(tmp_path)
    best = analyser.cluster_sizing(deadline=20.0, memory_limit=400e6).iloc[0]
    assert best["Verdict"].startswith("The smallest cluster that is in time")
    assert best["Memory per Worker (MB)"] == pytest.approx(180 * 1.12 / 0.6, rel=0.01)
    little = analyser.cluster_sizing(deadline=20.0, memory_limit=100e6)
    assert not little["Verdict"].str.startswith("The least").any()
    assert little["Verdict"][0].startswith("Lacks memory: the fullest worker needs up to 202 MB")


def test_what_takes_turns_is_not_foretold(tmp_path: Path) -> None:
    analyser = recorded(tmp_path, 8, 1.0, annotations={"resources": {"GPU": 1}})
    table = analyser.cluster_sizing(deadline=3.0)
    assert table["Likely (s)"].isna().all()
    assert table["Verdict"][0].startswith("Cannot be predicted: tasks that require the resource")


def test_wrong_arguments(tmp_path: Path) -> None:
    analyser = recorded(tmp_path, 4)
    for arguments, words in (
        ({"deadline": 0}, "deadline=0"),
        ({"deadline": "soon"}, "deadline='soon'"),
        ({"deadline": 10, "start_up": -1}, "start_up=-1"),
        ({"deadline": 10, "price": -1.0}, "price=-1.0"),
        ({"deadline": 10, "price": [{"name": "a", "threads": 2}]}, "no price"),
        ({"deadline": 10, "price": [{"name": "a", "threads": 0, "price": 1}]}, "one thread"),
        ({"deadline": 10, "price": []}, "price has the columns none"),
        ({"deadline": 10, "price": "no.csv"}, "price='no.csv'"),
        ({"threads_per_worker": 0}, "threads_per_worker=0"),
        ({"memory_limit": -1.0}, "memory_limit=-1.0"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            analyser.cluster_sizing(**arguments)  # type: ignore[arg-type]
