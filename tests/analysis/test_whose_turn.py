"""Gaps, chains and waits without a culprit, or whose apparent culprit is not to blame."""

from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import assert_found, found
from traces import Plan, Task


def two_turns(*clients: str, begin: float = 6.0, joined: float | None = None) -> Plan:
    """Plan two graphs with four tasks of 1 s, the second of which arrives at `begin`.

    If other workers join, the first two leave at 1 s.
    """
    tasks = []
    for turn, at in enumerate((0.0, begin)):
        facts = {"arrival": at, **dict.fromkeys(("graph", "cause"), f"update-graph-{turn}")}
        tasks += [
            Task(f"part{turn}-{n}", n % 2, at, at + 1, thread=n // 2, **facts) for n in range(4)
        ]
    plan = Plan(tasks, graphs=(0.0, begin), clients=clients)
    if joined is not None:
        plan.workers, plan.joined = 4, [0.0, 0.0, joined, joined]
        plan.left = [(n, 1.0, "retire-workers-1") for n in (0, 1)]
        for task in tasks[4:]:
            task.worker += 2
    return plan


def test_one_client_that_submits_late(tmp_path: Path) -> None:
    expected = {"seconds": 5.0, "client": "", "sampled": False}
    assert_found(two_turns("a", "a"), tmp_path, "client-bound", **expected)


def test_gaps_while_another_client_or_workers_are_waited_for(tmp_path: Path) -> None:
    assert not found(two_turns("a", "b"), tmp_path / "other", "client-bound")
    turns = two_turns("a", "a", joined=5.5)
    finding = found(turns, tmp_path / "workers", "client-bound").get("client-bound")
    assert finding is None or finding["Seconds at stake (s)"] == pytest.approx(0.5)
    # From 1 to 6 s, no task is submitted, and until 3 s, there is no worker.
    plan = two_turns("a", "a", joined=3.0)
    assert_found(plan, tmp_path / "part", "client-bound", waited=3.0, longest=3.0)


def test_a_time_without_workers_costs_only_tasks_that_wait(tmp_path: Path) -> None:
    # The graph arrives at 0, both workers join at 6 s, and the run ends at 8 s.
    tasks = [Task(f"fit-{n}", n % 2, 6.0, 8.0, thread=n // 2) for n in range(4)]
    expected = {"severity": "medium", "seconds": 6.0, "share": 0.75, "start": 0.0, "stop": 6.0}
    plan = Plan(tasks, joined=[6.0, 6.0])
    assert_found(plan, tmp_path / "waits", "no-workers", **expected)
    assert not found(two_turns("a", "a", joined=6.0), tmp_path / "none", "no-workers")


@pytest.mark.parametrize("inputs", [True, False])
def test_only_tasks_with_inputs_make_a_chain(inputs: bool, tmp_path: Path) -> None:
    tasks = [Task(f"score-{n}", n % 2, n, n + 1.0, arrival=float(n)) for n in range(10)]
    for n, task in enumerate(tasks):
        task.dependencies = [f"score-{n - 1}"] if inputs and n else ()
        task.cause = f"task-finished-{n - 1}" if inputs and n else "update-graph-1"
    graphs = (0.0,) if inputs else tuple(map(float, range(10)))
    assert bool(found(Plan(tasks, graphs=graphs), tmp_path, "serial-chain")) is inputs


@pytest.mark.parametrize(("readers", "rule"), [((0,), "blocked-tasks"), ((0, 1), "io-bound")])
def test_storage_is_waited_for_where_all_read(readers: Any, rule: str, tmp_path: Path) -> None:
    tasks = [
        Task(f"ask-{n}{lane}", lane % 2, n, n + 1.0, cpu=0.01, thread=lane // 2)
        for n in range(4)
        for lane in range(4)
    ]
    used: list[tuple[int, float, dict[str, Any]]] = [
        (n, at, {"process_io.read_size": at * 1e8 * (n in readers)})
        for n in (0, 1)
        for at in (0.0, 4.0)
    ]
    assert found(Plan(tasks, used=used), tmp_path).keys() == {rule}
