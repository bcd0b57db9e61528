"""First uses on workers, and tasks that were sent and not taken in: neither is the scheduler's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import found
from traces import Plan, Task


def importing(first: float, *, later: float = 0.1, count: int = 20, **of_first: Any) -> list[Task]:
    """Plan one thread of each of two workers, whose first run takes longer than the rest."""
    return [
        Task(
            f"fit-{worker}{n}",
            worker,
            0.0 if n == 0 else first + (n - 1) * later,
            first + n * later,
            **(of_first if n == 0 else {}),
        )
        for worker in (0, 1)
        for n in range(count)
    ]


def test_an_import_on_each_worker(tmp_path: Path) -> None:
    tasks = importing(4.0)
    tasks += [Task(f"sum-{n}", n % 2, 5.9 + n // 2 / 1000, 5.9 + n // 2 / 1000) for n in range(40)]
    findings = found(Plan(tasks), tmp_path)

    finding = findings["first-use"]
    assert (finding["Severity"], finding["Function"]) == ("high", "fit")
    assert "4 s against 100 ms" in finding["Finding"]
    assert "2 first runs on 2 of 2 workers: 7.8 s of thread time" in finding["Evidence"]
    # Of four threads, two of which idle meanwhile.
    assert finding["Seconds at stake (s)"] == pytest.approx(7.8 / 4)
    assert not findings.keys() & {"straggling-tasks", "dominating-function", "degrading-functions"}


def test_a_function_that_takes_long_now_and_then_has_no_first_use(tmp_path: Path) -> None:
    tasks = importing(4.0)
    for worker in (0, 1):  # three of 19 later runs take as long
        for n in (5, 9, 13):
            own = [task for task in tasks if task.worker == worker]
            for task in own[n + 1 :]:
                task.start, task.stop = task.start + 3.9, task.stop + 3.9
            own[n].stop += 3.9

    assert "first-use" not in found(Plan(tasks), tmp_path)


def test_a_first_partition_that_is_larger_is_no_first_use(tmp_path: Path) -> None:
    assert "first-use" not in found(Plan(importing(4.0, size=900_000)), tmp_path)


def test_a_function_that_is_slow_by_its_median_dominates(tmp_path: Path) -> None:
    tasks = importing(4.0, later=0.5)
    tasks += [Task(f"sum-{n}", n % 2, 0.0, 0.01, thread=2 + n) for n in range(4)]
    finding = found(Plan(tasks), tmp_path)["dominating-function"]

    assert "500 ms a task (the median)" in finding["Finding"]
    # 38 runs of 0.5 s, and 2 first ones that count as such.
    assert "40 tasks, 20 s in all" in finding["Evidence"]
    assert "vectorise" not in finding["Suggestion"]


def sent_early(**facts: Any) -> Plan:
    """Plan four tasks that are sent at 0 and taken in at 5 s."""
    tasks = [
        Task(f"fit-{n}", n % 2, 5.0, 6.0, sent=0.0, received=5.0, thread=n // 2) for n in range(4)
    ]
    return Plan(tasks, **facts)


def test_tasks_that_a_blocked_loop_does_not_take_in_are_not_at_the_scheduler(
    tmp_path: Path,
) -> None:
    lags = [(at, {"state": "running", "loop_lag": at - 0.5}) for at in (1.0, 2.0, 3.0, 4.0, 4.9)]
    held = [(n, at, facts) for n in (0, 1) for at, facts in [(0.0, {"state": "running"}), *lags]]
    findings = found(sent_early(held=held), tmp_path)

    finding = findings["late-receipt"]
    assert finding["Seconds at stake (s)"] == pytest.approx(5.0)
    assert "for up to 5 s, as the workers' event loops are blocked" in finding["Finding"]
    assert "For 88 % of this time the event loop" in finding["Evidence"]  # 0.5 to 4.9 s of 5 s
    assert "import" in finding["Suggestion"]
    assert "scheduler-bound" not in findings


def test_tasks_that_are_long_on_their_way_to_a_loop_that_answers(tmp_path: Path) -> None:
    findings = found(sent_early(), tmp_path)

    finding = findings["late-receipt"]
    assert "event loops are blocked" not in finding["Finding"]
    assert "client.scatter()" in finding["Suggestion"]
    assert "scheduler-bound" not in findings
