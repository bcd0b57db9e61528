"""Warm-up on workers, and assigned tasks that are not received, are not the scheduler's fault."""

from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import assert_found, found
from traces import Plan, Task

from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples import loop_blocks


def importing(first: float, *, later: float = 0.1, count: int = 20, **of_first: Any) -> list[Task]:
    """Plan two workers with one thread, whose first task runs take longer than the others."""
    tasks = []
    for worker in (0, 1):
        tasks.append(Task(f"fit-{worker}0", worker, 0.0, first, **of_first))
        for n in range(1, count):
            stop = first + n * later
            tasks.append(Task(f"fit-{worker}{n}", worker, stop - later, stop))
    return tasks


def test_an_import_on_each_worker(tmp_path: Path) -> None:
    tasks = importing(4.0)
    tasks += [Task(f"sum-{n}", n % 2, 5.9 + n // 2 / 1000, 5.9 + n // 2 / 1000) for n in range(40)]
    # Two of four threads are idle meanwhile.
    expected = {"severity": "low", "function": "fit", "seconds": 7.8 / 4, "lost": 7.8}
    expected |= {"took": 4.0, "usual": 0.1, "runs": 2, "workers": 2}
    others = {"stragglers", "dominant-function"}
    assert_found(Plan(tasks), tmp_path, "warm-up", **expected, absent=others)


def test_what_is_no_first_use(tmp_path: Path) -> None:
    # The first partition is larger.
    assert not found(Plan(importing(4.0, size=900_000)), tmp_path / "larger", "warm-up")
    # The function takes long at times: three of 19 later task runs take as long.
    tasks = importing(4.0)
    for lane in (tasks[:20], tasks[20:]):
        for n in (5, 9, 13):
            for task in lane[n + 1 :]:
                task.start, task.stop = task.start + 3.9, task.stop + 3.9
            lane[n].stop += 3.9
    assert not found(Plan(tasks), tmp_path / "often", "warm-up")


def test_a_function_that_is_slow_by_its_median_dominates(tmp_path: Path) -> None:
    tasks = importing(4.0, later=0.5)
    tasks += [Task(f"sum-{n}", n % 2, 0.0, 0.01, thread=2 + n) for n in range(4)]
    # 38 task runs of 0.5 s, and 2 first runs that count as 0.5 s.
    expected = {"median": 0.5, "tasks": 40, "lasted": 20.0}
    assert_found(Plan(tasks), tmp_path, "dominant-function", **expected)


def sent_early(**facts: Any) -> Plan:
    """Plan four tasks that are assigned at 0 and received at 5 s."""
    tasks = [
        Task(f"fit-{n}", n % 2, 5.0, 6.0, sent=0.0, received=5.0, thread=n // 2) for n in range(4)
    ]
    return Plan(tasks, **facts)


@pytest.mark.parametrize(("lags", "blocked"), [((1.0, 2.0, 3.0, 4.0, 4.9), 0.88), ((), 0.0)])
def test_tasks_that_a_loop_does_not_take_in(lags: Any, blocked: float, tmp_path: Path) -> None:
    """The event loops of both workers are blocked from 0.5 s to 4.9 s of 5 s, or they are not."""
    held = [(n, 0.0, {"state": "running"}) for n in (0, 1) if lags]
    held += [(n, at, {"state": "running", "loop_lag": at - 0.5}) for n in (0, 1) for at in lags]
    expected = {"seconds": 5.0, "longest": 5.0, "blocked": blocked, "absent": {"scheduler-bound"}}
    assert_found(sent_early(held=held), tmp_path, "slow-dispatch", **expected)


def test_imports_as_the_first_tasks_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While both event loops import, four tasks are in transit for 5 s of a run of 6 s."""

    def blocks(run: Run) -> list[loop_blocks.LoopBlock]:
        facts = (run.begin, run.begin + 5.0, True, None, "", "sklearn", "working", 99)
        return [loop_blocks.LoopBlock(at, *facts) for at in run.tasks["worker_id"].unique()]

    monkeypatch.setattr(loop_blocks, "loop_blocks", blocks)
    (finding,) = sent_early().write(tmp_path).findings()
    assert (finding.rule, finding.severity) == ("warm-up", "low")
    assert finding.seconds == pytest.approx(5.0)
    assert finding.figures["share"] == pytest.approx(1.0)
    assert finding.figures["libraries"] == {"sklearn": pytest.approx(10.0)}
    assert "client.run(lambda: __import__('sklearn'), wait=False)" in finding.row()["Suggestion"]
