"""Growing memory is reported only if it grows steadily, with the functions that hold it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from diagnosed_plans import Cases, assert_found, found
from traces import Plan, Task, filled

from dasfprof.analysis.model.memory_growth import growth_by_runs
from dasfprof.analysis.numeric.significance import Course, drift_of

MB = 1_000_000
ROUNDS = 13

CASES = Cases()
finds, spares = CASES.finds, CASES.spares


def rounds(
    unmanaged: Callable[[int], int],
    *,
    results: Callable[[int], int] = lambda _: 0,
    number: Callable[[int], int] = lambda _: 0,
    kept: int = 0,
    names: str = "a",
    **more: Any,
) -> Plan:
    """Plan one computation per second on two workers, and their memory after each, in MB."""
    tasks, used, held = [], [], []
    for k in range(ROUNDS):
        about = {"arrival": k, **dict.fromkeys(("cause", "graph"), f"update-graph-{k}")}
        about |= {"size": kept * MB, "released": None if kept else k + 0.35}
        for w in (0, 1):
            tasks.append(Task(f"{names[k % len(names)]}-{2 * k + w}", w, k, k + 0.3, **about))
            size, beside = results(k) * MB, unmanaged(k) * MB
            facts = {"spilled_size": 0, "state": "running", "tasks": number(k), "size": size}
            # Its process has more memory while a task runs.
            for at, own, executing in ((0.1, 500 * MB, 1), (0.5, 0, 0), (0.8, 3 * MB, 0)):
                used.append((w, k + at, {"memory": beside + size + own}))
                held.append((w, k + at, {**facts, "executing": executing}))
    facts = {"threads": 1, "memory_limit": 1000 * MB, "hosts": ("node1", "node2"), **more}
    graphs = [float(k) for k in range(ROUNDS)]
    whose = {"graphs": graphs, "clients": ["c"] * ROUNDS}
    return Plan(tasks, used=used, held=held, releases=True, **{**whose, **facts})


def steady(k: int) -> int:
    return 100 + 10 * k + (k % 2)


def figures(table: pd.DataFrame, memory: str) -> dict[str, Any]:
    return table[table["Memory"].str.startswith(memory)].squeeze(axis="index").to_dict()


def test_a_steady_rise_is_told_with_its_interval(tmp_path: Path) -> None:
    table = rounds(steady).write(tmp_path).memory_growth()
    told = figures(table, "unmanaged")
    # There are 12 intervals between 13 computations. The minimum of each counts.
    assert told["Compared"] == "11 computations"
    assert (told["At First (MB)"], told["At Last (MB)"]) == (200.0, 422.0)
    # For two workers, the changes are 22 and 18 MB in turn, six of them 22.
    changes = np.array([22.0, 18.0] * 5 + [22.0])
    error = (
        2.228 * changes.std(ddof=1) / np.sqrt(11)
    )  # Student's t with 10 degrees of freedom, from a table
    assert told["Each (MB)"] == pytest.approx(222 / 11)
    assert told["At Least (MB)"] == pytest.approx(222 / 11 - error, abs=0.001)
    assert told["At Most (MB)"] == pytest.approx(222 / 11 + error, abs=0.001)
    assert told["Verdict"] == "Rises by 20.2 MB with each computation."
    assert figures(table, "results in memory")["Verdict"] == "No steady rise."
    by_worker = rounds(steady).write(tmp_path / "again").memory_growth("worker")
    each = by_worker[by_worker["Memory"].str.startswith("unmanaged")]["Each (MB)"]
    assert each.tolist() == pytest.approx([111 / 11] * 2)


@pytest.mark.parametrize(
    ("unmanaged", "begin"),
    [
        (lambda k: 100 + min(k, 3) * 60, "Rose at first: of 360 MB 0 B"),  # plateau
        (lambda k: 100 + round(100 * np.log(k + 1)), "No steady rise"),  # slower and slower
        (lambda k: 400 if k > 6 else 100, "No steady rise"),  # a step
        (lambda k: 100 + 200 * (k % 3), "No steady rise"),
        (lambda k: 900 - 10 * k, "No steady rise"),
    ],
)
def test_what_looks_alike_is_no_steady_rise(tmp_path: Path, unmanaged: Any, begin: str) -> None:
    plan = rounds(unmanaged)
    assert not found(plan, tmp_path / "diagnosed", "memory-growth")
    verdict = figures(plan.write(tmp_path / "told").memory_growth(), "unmanaged")["Verdict"]
    assert verdict.startswith(begin)


def test_random_walks() -> None:
    """They are rarely reported as growth, and then the interval contains their drift."""
    random = np.random.default_rng(1)
    walks = np.cumsum(random.normal(size=(400, 20)), axis=1)
    scattered = random.normal(size=(400, 20))
    for values in (walks, scattered):
        rises = sum(drift_of(one).course is Course.RISES for one in values)
        assert rises / 400 < 0.025
    drifting = walks + 2.0 * np.arange(20)
    rises = sum(drift_of(one).course is Course.RISES for one in drifting)
    assert rises / 400 > 0.9
    random = np.random.default_rng(2)
    steps = random.integers(1, 5, size=15).astype(float)
    inside = 0
    for _ in range(400):
        changes = 3.0 * steps + random.normal(size=15) * np.sqrt(steps)
        drift = drift_of(np.append(0.0, np.cumsum(changes)), steps)
        inside += drift.least <= 3.0 <= drift.most
    assert inside / 400 == pytest.approx(0.95, abs=0.03)


def test_of_several_functions_only_those_that_ran_alone_are_told_apart(tmp_path: Path) -> None:
    analyser = rounds(lambda k: 100 + 20 * (k // 2), names="ab").write(tmp_path)
    growths = {growth.function: growth.drift for growth in growth_by_runs(analyser.run)}
    # Runs of a, in even computations, leave 20 MB on each worker. Runs of b leave nothing.
    assert growths["a"].each == pytest.approx(20.0 * MB)
    assert growths["b"].each == pytest.approx(0.0)
    assert growths["b"].course is Course.OPEN


def test_results_that_stay_are_told_as_what_they_are(tmp_path: Path) -> None:
    plan = rounds(lambda _: 100, results=lambda k: 20 * (k + 1), number=lambda k: k + 1, kept=20)
    expected = {"of": "results", "severity": "low", "function": "a", "wanted": True}
    assert_found(plan, tmp_path / "diagnosed", "memory-growth", **expected, of_function=440.0 * MB)
    told = figures(plan.write(tmp_path / "told").memory_growth(), "results of a")
    assert (told["At First (MB)"], told["At Last (MB)"]) == (40.0, 480.0)
    assert told["Why Held"] == "for the client"


def test_the_scheduler_and_the_client_have_processes_of_their_own(tmp_path: Path) -> None:
    plan = rounds(
        lambda _: 100,
        scheduler_memory=[(k + 0.4, (200 + 12 * k) * MB) for k in range(ROUNDS)],
        client_memory=[(k + 0.4, 300 * MB) for k in range(ROUNDS)],
    )
    table = plan.write(tmp_path / "told").memory_growth()
    assert figures(table, "process of the scheduler")["Each (MB)"] == pytest.approx(12.0)
    assert figures(table, "process of the client")["Verdict"] == "No steady rise."
    expected = {"of": "scheduler", "each": 12.0 * MB}
    assert_found(plan, tmp_path / "diagnosed", "memory-growth", **expected)


def test_one_long_or_few_computations_do_not_tell(tmp_path: Path) -> None:
    plan = rounds(steady)
    plan.tasks, plan.used = plan.tasks[: 2 * 6], [one for one in plan.used if one[1] < 6]
    table = plan.write(tmp_path / "few").memory_growth()
    # One computation takes 5.3 s. It is split into 20 windows, few of which have a sample.
    assert table.empty or (table["Verdict"] != "Rises").all()
    plan = rounds(steady)
    for task in plan.tasks:
        task.arrival = 0.0
    plan.graphs, plan.clients = (0.0,), ["c"]
    table = plan.write(tmp_path / "long").memory_growth()
    assert set(table["Compared"]) <= {"19 windows of 615 ms", "nothing"}
    assert not found(plan, tmp_path / "diagnosed", "memory-growth")


def staying(memory: int, results: int = 0, last: int | None = None, **more: Any) -> Plan:
    """Plan 2 s with tasks, and 4 s in which a worker has this memory and these results."""
    tasks = filled(["parse"], 0.5, count=4, workers=1, threads=1)
    state = {"spilled_size": 0, "tasks": 1, "ready": 0, "state": "running"}
    held = [(0, 0.5, {**state, "executing": 1, "size": 0})]
    held += [(0, at, {**state, "executing": 0, "size": results, **more}) for at in (2.5, 4.0, 6.0)]
    used = [(0, 0.0, {"memory": 100 * MB})]
    sizes = [memory] * 3 + [memory if last is None else last]
    used += [
        (0, at, {"memory": size}) for at, size in zip((1.0, 2.6, 4.0, 5.9), sizes, strict=True)
    ]
    facts = {"workers": 1, "threads": 1, "memory_limit": 2000 * MB}
    return Plan(tasks, held=held, used=used, **facts)


# Freed objects lie between live results, whose release at the end frees everything.
BETWEEN = staying(900 * MB, results=MB)
BETWEEN.held.append((0, 6.1, {**BETWEEN.held[-1][2], "size": 0}))
BETWEEN.used.append((0, 6.1, {"memory": 120 * MB}))
# fmt: off
# From 111 MB after the second computation to 220 MB after the last, with 11 runs per worker.
finds("memory-growth", "unmanaged memory that grows", rounds(steady), of="unmanaged", function="a",
    each=20.2 * MB, first=200.0 * MB, last=422.0 * MB, share=0.11, a_run=9.91 * MB, runs=22,
    computations=11)
# Results that Dask considers small are not a leak.
finds("memory-growth", "small results that grow", rounds(steady, number=lambda k: 5 * k),
    results=110, a_run=None, function=None)
finds("memory-growth", "memory that stays", staying(900 * MB), severity="medium", of="stays",
    left=800.0 * MB, share=0.4, limit=2000.0 * MB)
# Dask assumes 28 bytes for an integer, and writes more.
finds("memory-growth", "results that are larger on disk", staying(900 * MB, results=280,
    spilled_size=1190), left=800.0 * MB, results=0.0)
finds("memory-growth", "memory that is given back at the end", BETWEEN, left=799.0 * MB)
# fmt: on
for name, plan in {
    "results explain it": staying(900 * MB, results=700 * MB),
    "running tasks may need it": staying(900 * MB, executing=1),
    "little memory": staying(250 * MB),
    "memory that is freed late": staying(900 * MB, last=150 * MB),
}.items():
    spares(name, plan, "memory-growth")

test_a_fault_is_found, test_what_looks_alike_is_not_found = CASES.tests()
