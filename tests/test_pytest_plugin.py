"""Fixture `dasfprof_run`: it records what a test computes, and its assertions are right."""

import time
from pathlib import Path

import pytest
from clusters import new_client
from traces import Plan, Task
from traces.noisy import Noisy

import dasfprof
from dasfprof.errors import InvalidArgumentError
from dasfprof.pytest_plugin import (
    Profile,
    ProfiledTest,
    dasfprof_run,  # noqa: F401  (a fixture here, also where dasfprof is not installed)
)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_block_of_a_test_is_profiled(dasfprof_run: Profile) -> None:  # noqa: F811
    with new_client(n_workers=1, processes=False) as client:
        with dasfprof_run(client) as run:
            assert client.submit(nap, 0.25).result() == 0.25
        with dasfprof_run() as other:  # the current client
            with dasfprof.step("late"):
                futures = client.map(nap, [0.1, 0.15])
            client.gather(futures)
    assert 0.25 <= run.time_in("nap") <= run.seconds
    assert other.time_in("late") == other.time_in("nap") >= 0.25
    assert len(run.analyser.trace.tasks) == 1
    with pytest.raises(InvalidArgumentError, match=r"no function .*'nup' ran\..*nap"):
        run.time_in("nup")


def test_findings_fail_a_test(tmp_path: Path) -> None:
    tasks = [Task(f"f-{n}", n % 2, 0.5 * n, 0.5 * n + 0.4) for n in range(8)]
    tasks.append(Task("f-9", 0, 4.0, 5.0, state="erred", exception="ValueError('no')"))
    Plan(tasks).write_files(tmp_path / "run")
    run = ProfiledTest(tmp_path / "run")
    gravest = run.analyser.diagnose()["Severity"].iloc[0]
    with pytest.raises(AssertionError, match=r"ValueError|failed"):
        run.assert_no_finding(gravest)
    with pytest.raises(InvalidArgumentError, match="high, medium, low, info"):
        run.assert_no_finding("grave")


def test_a_run_is_compared_with_a_stored_baseline(tmp_path: Path) -> None:
    for number in range(5):
        Noisy().write(tmp_path / "baseline" / str(number), number)
    same = ProfiledTest(Noisy().write(tmp_path / "same", 7))
    slower, *others = (
        ProfiledTest(Noisy(times={"clean": 3.0}).write(tmp_path / f"slower-{n}", 8 + n))
        for n in range(3)
    )
    same.assert_not_slower(tmp_path / "baseline")
    slower.assert_not_slower(tmp_path / "baseline")  # a single run is never certain to be slower
    slower.assert_not_slower(tmp_path / "baseline", limit=5.0, others=others)
    with pytest.raises(AssertionError, match="Certain to be slower by more than 10 %"):
        slower.assert_not_slower(tmp_path / "baseline", others=others)
