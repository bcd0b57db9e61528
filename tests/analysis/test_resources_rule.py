"""Workers, threads and memory are only called unneeded where replay and forecast show it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnosed_plans import assert_found, found
from traces import Plan, Task

RULE = "resources-not-needed"
MB = 1_000_000


def rounds(width: int = 2, workers: int = 4, threads: int = 1, **more: Any) -> Plan:
    """Plan eight rounds of tasks, each submitted after the previous one. Results are kept."""
    usual = {"seconds": 5.0, "size": 1000, "limit": 1000 * MB, "host": 4000 * MB, "run_queue": 0.0}
    seconds, size, limit, host, run_queue = {**usual, **more}.values()
    tasks = []
    for n in range(8 * width):
        turn, lane = divmod(n, width)
        worker, thread = (n % workers, 0) if threads == 1 else (0, lane)
        begin = turn * seconds
        about = {"arrival": begin, "thread": thread, "size": size, "run_queue": run_queue}
        tasks.append(Task(f"load-{n}", worker, begin, begin + seconds, **about))
    held, used = [], []
    for worker in range(workers):
        for at in np.arange(0.0, 8 * seconds + 1, 0.5).tolist():
            count = sum(task.worker == worker and task.stop <= at for task in tasks)
            facts = {"size": count * size, "spilled_size": 0, "tasks": count, "state": "running"}
            held.append((worker, at, facts))
            memory = {"memory": 100 * MB + count * size, "host_memory_total": host}
            used.append((worker, at, memory))
    facts = {"memory_limit": limit, "releases": True, "held": held, "used": used}
    facts |= {"graphs": [turn * seconds for turn in range(8)]}
    return Plan(tasks, workers, threads, [f"node{n}" for n in range(workers)], **facts)


def test_workers_and_memory_that_a_run_did_not_need(tmp_path: Path) -> None:
    """Two of four workers have a task at a time. One worker would take 80 s."""
    expected = {"workers": 4, "likely": 40.0, "wall": 40.0, "busy": 0.5, "severity": "low"}
    # 100 MB and 12 %, of which Dask lets workers use 60 % before they spill.
    memory = {"process": 112.0 * MB, "enough": 112.0 * MB / 0.6, "limit": 1000.0 * MB}
    findings = assert_found(rounds(), tmp_path, RULE, **expected, **memory, waited=None)
    (change,) = findings[RULE]["Changes"]
    assert change["settings"]["n_workers"] == 2
    assert change["settings"].keys() == {"n_workers", "memory_limit"}
    assert findings[RULE]["Finding"].startswith("The run needed only 2 of 4 workers: ")


def test_threads_or_memory_that_a_run_did_not_need(tmp_path: Path) -> None:
    plan = rounds(workers=1, threads=4, host=1000 * MB)
    settings = [{"threads_per_worker": 2}]
    findings = assert_found(plan, tmp_path / "threads", RULE, settings=settings)
    assert "2 of 4 threads per worker" in findings[RULE]["Finding"]
    findings = assert_found(rounds(4), tmp_path / "memory", RULE, process=112.0 * MB, busy=1.0)
    (change,) = findings[RULE]["Changes"]
    assert change["settings"].keys() == {"memory_limit"}


@pytest.mark.parametrize(
    "about",
    [
        {"width": 4, "host": 1000 * MB},
        {"size": 60 * MB, "limit": 600 * MB, "host": 600 * MB},
        {"seconds": 3.0},
        {"run_queue": 1.0},
    ],
    ids=["all threads are busy", "memory of all workers is used", "short", "not calibrated"],
)
def test_runs_that_look_alike(about: dict[str, Any], tmp_path: Path) -> None:
    assert not found(rounds(**about), tmp_path, RULE)


def test_what_adaptive_scaling_cost(tmp_path: Path) -> None:
    """Two chains of 40 s. Until the second worker joined, the first one had tasks of both."""
    tasks = [Task("left-0", 0, 0.0, 5.0), Task("right-0", 0, 5.0, 10.0)]
    for n in range(1, 8):
        for worker, name in enumerate(("left", "right")):
            begin, before = 5.0 * (n + 1), [f"{name}-{n - 1}"]
            tasks.append(Task(f"{name}-{n}", worker, begin, begin + 5.0, dependencies=before))
    plan = rounds(host=1000 * MB)
    plan.tasks, plan.graphs, plan.joined = tasks, [0.0], [0.0, 10.0, 10.0, 10.0]
    for samples in (plan.held, plan.used):
        samples[:] = [each for each in samples if each[0] == 0 or each[1] >= 10.0]
    plan.changes = [(5.0, {"action": "adapt", "who": "adaptive", "workers": [], "number": 4})]
    expected = {"likely": 40.0, "wall": 45.0, "waited": 5.0, "settings": [{"n_workers": 2}]}
    assert_found(plan, tmp_path, RULE, **expected)
