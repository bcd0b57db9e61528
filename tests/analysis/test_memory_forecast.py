"""Memory on other workers is foretold as worked out by hand, or not at all where nothing tells."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import Task
from traces import held_results as planned

from dasfprof.errors import InvalidArgumentError

MB = 1_000_000


def test_against_values_by_hand(tmp_path: Path) -> None:
    table = planned().write(tmp_path).memory_forecast([1, 2, 4]).set_index("Workers")
    # All eight results come to the worker that has the last task, however many there are.
    assert table["Results (MB)"].tolist() == pytest.approx([80.0] * 3)
    assert table["Process (MB)"].tolist() == pytest.approx([180.0] * 3)
    assert table["Results at Least (MB)"].tolist() == pytest.approx([80.0 * 0.93] * 3)
    assert table["Process at Most (MB)"].tolist() == pytest.approx([180.0 * 1.12] * 3)
    assert table["Limit (MB)"].tolist() == [200.0] * 3
    assert table["Spilled at Most (MB)"].tolist() == pytest.approx([180.0 * 1.12 - 0.6 * 200] * 3)
    assert table["Free Disk (MB)"].isna().all()
    assert table["Verdict"].str.startswith("May not fit").all()


def test_the_least_free_disk_is_shown(tmp_path: Path) -> None:
    plan = planned()
    plan.disks = [(0, 1.0, {"free": 900 * MB}), (1, 2.0, {"free": 40 * MB})]
    analyser = plan.write(tmp_path)
    assert analyser.memory_forecast([2])["Free Disk (MB)"].tolist() == [40.0]
    assert set(analyser.cluster_sizing()["Free Disk (MB)"]) == {40.0}


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [
        (400 * MB, "Fits."),  # 201.6 MB at most, of 60 %: 240 MB
        (300 * MB, "Fits, but may spill."),
        (230 * MB, "May not fit without spilling"),  # a worker pauses at 184 MB
        (200 * MB, "May not fit: at most"),  # and is killed at 190 MB
        (160 * MB, "Would not fit: a worker must spill at least 6.4 MB"),  # 158.4 less 152 MB
    ],
)
def test_whether_that_fits(tmp_path: Path, limit: int, verdict: str) -> None:
    (row,) = planned().write(tmp_path).memory_forecast([2], memory_limit=limit).to_dict("records")
    assert row["Verdict"].startswith(verdict)


def test_results_that_go_one_by_one_need_less(tmp_path: Path) -> None:
    """Each is used at once: a worker has one, or with two threads two; and what is being made."""
    tasks = []
    for n in range(8):
        begin = 2.0 * (n // 2)
        part = Task(f"load-{n}", n % 2, begin, begin + 1, size=10 * MB, wanted=False)
        part.released = begin + 2.02
        use = Task(f"use-{n}", n % 2, begin + 1, begin + 2, size=0, dependencies=[part.key])
        use.released = 9.0
        tasks += [part, use]
    held = [
        (w, at, {"size": size * MB, "spilled_size": 0, "tasks": 1, "state": "running"})
        for w in (0, 1)
        for at, size in ((0.0, 0), (1.5, 10), (3.5, 10), (5.5, 10), (7.5, 10))
    ]
    used = [(w, at, {"memory": 100 * MB + facts["size"]}) for w, at, facts in held]
    plan = dataclasses.replace(planned(), tasks=tasks, held=held, used=used, transfers=[])
    analyser = plan.write(tmp_path)
    (one,) = analyser.memory_forecast([2]).to_dict("records")
    (two,) = analyser.memory_forecast([2], threads=2).to_dict("records")
    assert one["Results (MB)"] == pytest.approx(10.0, rel=0.01)
    assert two["Results (MB)"] == pytest.approx(20.0, rel=0.01)


def test_what_nothing_tells_is_not_foretold(tmp_path: Path) -> None:
    for name, plan, why in (
        ("releases", dataclasses.replace(planned(), releases=False), "when they were released"),
        ("samples", planned(resources=False), "no samples of workers"),
    ):
        (row,) = plan.write(tmp_path / name).memory_forecast([2]).to_dict("records")
        assert row["Verdict"].startswith("Not predicted") and why in row["Verdict"]
        assert np.isnan(row["Process (MB)"])


def test_a_replay_that_is_off_foretells_nothing(tmp_path: Path) -> None:
    plan = planned()
    plan.held = [(w, at, {**facts, "size": 3 * facts["size"]}) for w, at, facts in plan.held]
    (row,) = plan.write(tmp_path).memory_forecast([2]).to_dict("records")
    assert "has up to 80 MB of results on the fullest worker" in row["Verdict"]


@pytest.mark.parametrize(
    "arguments", [{"workers": [0]}, {"workers": 3}, {"threads": 0}, {"memory_limit": -1}]
)
def test_numbers_out_of_range(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        planned().write(tmp_path).memory_forecast(**arguments)
