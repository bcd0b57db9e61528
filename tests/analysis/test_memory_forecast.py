"""Predicted memory on other workers, calculated by hand, and runs without a prediction."""

import dataclasses
import math
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest
from clusters import new_client, wait_until
from distributed import get_worker, wait
from traces import Task
from traces import held_results as planned

import dasfprof
from dasfprof.analysis.run.memory_thresholds import MemoryThresholds, memory_thresholds

MB = 1_000_000


def test_against_values_by_hand(tmp_path: Path) -> None:
    plan = planned()
    plan.disks = [(0, 1.0, {"free": 900 * MB}), (1, 2.0, {"free": 40 * MB})]
    analyser = plan.write(tmp_path)
    table = analyser.memory_forecast([1, 2, 4]).set_index("Workers")
    # All eight results are on the worker with the last task, for any number of workers.
    expected = {"Results (MB)": 80.0, "Results at Least (MB)": 80.0 * 0.93, "Process (MB)": 180.0}
    expected |= {"Process at Most (MB)": 180.0 * 1.12, "Limit (MB)": 200.0, "Free Disk (MB)": 40.0}
    expected["Spilled at Most (MB)"] = 180.0 * 1.12 - 0.6 * 200
    for name, value in expected.items():
        assert table[name].tolist() == pytest.approx([value] * 3), name
    assert table["Verdict"].str.startswith("May not fit").all()
    # The minimum free disk space applies to all sizes; without samples, it is unknown.
    assert set(analyser.cluster_sizing()["Free Disk (MB)"]) == {40.0}
    table = planned().write(tmp_path / "unread").memory_forecast([2])
    assert table["Free Disk (MB)"].isna().all()


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
    """Each result is used at once: a worker has one per thread, and the one being computed."""
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
    off = planned()
    off.held = [(w, at, {**facts, "size": 3 * facts["size"]}) for w, at, facts in off.held]
    for name, plan, why in (
        ("releases", dataclasses.replace(planned(), releases=False), "when they were released"),
        ("samples", planned(resources=False), "no samples of workers"),
        ("off", off, "has up to 80 MB of results on the fullest worker"),
    ):
        (row,) = plan.write(tmp_path / name).memory_forecast([2]).to_dict("records")
        assert row["Verdict"].startswith("Not predicted") and why in row["Verdict"]
        assert np.isnan(row["Process (MB)"])


#: Dask does not spill or kill, and pauses workers late.
CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.97,
    "distributed.worker.memory.terminate": False,
}


def fill(share: float) -> np.ndarray:
    """Return the bytes that fill the worker's process to a fraction of its limit."""
    limit = get_worker().memory_manager.memory_limit
    return np.ones(int(share * limit - psutil.Process().memory_info().rss), dtype=np.uint8)


def test_forecasts_use_the_thresholds_of_the_recorded_workers(tmp_path: Path) -> None:
    with (
        dask.config.set(CONFIG),
        new_client(n_workers=1, threads_per_worker=1, memory_limit="400MB") as client,
        dasfprof.profile(client, directory=tmp_path, sample_interval=0.05) as run,
    ):
        filled = client.submit(fill, 0.9)
        wait(filled)

        def is_sampled() -> bool:
            run.flush()
            memory = run.analyser().trace.samples["memory"]
            return bool((memory > 0.88 * 400e6).any())

        wait_until(is_sampled)
    analyser = run.analyser()
    assert memory_thresholds(analyser.trace) == MemoryThresholds(
        target=math.inf, spill=math.inf, pause=0.97, terminate=math.inf
    )
    # A worker that never spills is not predicted to spill.
    (forecast,) = analyser.memory_forecast(workers=[1]).to_dict("records")
    assert forecast["Spilled at Most (MB)"] == 0
    assert "spill" not in forecast["Verdict"]


def test_a_share_near_the_limit_is_lower_where_dask_kills_sooner() -> None:
    assert MemoryThresholds(terminate=0.475).near(0.8) == pytest.approx(0.4)
    assert MemoryThresholds(terminate=math.inf).near(0.8) == 0.8
