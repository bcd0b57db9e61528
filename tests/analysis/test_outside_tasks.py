"""Work outside tasks has a finding, which names its cause and the user's line."""

import time
from pathlib import Path
from typing import Any

import dask
import pytest
from clusters import new_client
from dask import delayed
from diagnosed_plans import assert_found, found
from distributed import Client
from refuters import refute
from test_diagnosis_rules import four_lanes
from traces import Plan, Task

import dasfprof

#: Seconds of work.
WORK = 1.0


def alive(until: float) -> list[tuple[int, float, dict[str, Any]]]:
    return [(worker, at, {"state": "running"}) for worker in (0, 1) for at in (0.0, until)]


def test_calls_of_actors_after_the_last_task(tmp_path: Path) -> None:
    plan = Plan(four_lanes("load", 0.5, 2), held=alive(8.0), calls=[(0, 2.0, 7.0)])
    expected = {"calls": 5.0, "functions": 0.0, "idle": 5.0}
    assert_found(plan, tmp_path / "calls", "work-outside-tasks", **expected)
    # Nothing is known about the client, so it is not blamed.
    plan.calls = []
    findings = found(plan, tmp_path / "client")
    assert "work-outside-tasks" not in findings
    assert findings["idle-threads"]["Figures"]["category"] == "Waiting for client"


@pytest.mark.parametrize(("until", "is_told"), [(3.0, False), (8.0, True)])
def test_a_client_that_goes_on_for_long(until: float, is_told: bool, tmp_path: Path) -> None:
    recording = 0.0, until, "recording", {"calls": 0}
    plan = Plan(four_lanes("load", 1.0, 2), held=alive(until), client_calls=[recording], calls=[])
    findings = found(plan, tmp_path)
    assert ("work-outside-tasks" in findings) is is_told
    assert "idle-threads" not in findings


def test_one_long_function_is_named_if_nothing_else_explains_it(tmp_path: Path) -> None:
    tasks = [*four_lanes("f", 4.0, 1), *(Task(f"g-{n}", 0, 4.0 + n, 5.0 + n) for n in range(2))]
    assert "dominant-function" in found(Plan(tasks), tmp_path / "alone")
    waits = [Task(f"f-{n}", n // 2, 0.0, 4.0, cpu=0.01, thread=1 + n % 2) for n in range(4)]
    findings = found(Plan([*waits, *tasks[4:]]), tmp_path / "waits")
    assert "blocked-tasks" in findings
    assert "dominant-function" not in findings


def spin() -> None:
    stop = time.perf_counter() + WORK
    while time.perf_counter() < stop:
        pass


def leave_threads_on(_: Client) -> None:
    with dask.config.set(scheduler="threads"):
        delayed(spin)().compute()


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda client: client.run(spin), "workers run test_outside_tasks.spin"),
        (leave_threads_on, "one of Dask's local schedulers"),
        (lambda _: spin(), "the client's program runs for"),
    ],
)
def test_where_the_work_of_a_program_is_done(work: Any, words: str, tmp_path: Path) -> None:
    with new_client(n_workers=1, threads_per_worker=2, processes=False) as client:
        with dasfprof.profile(client, directory=tmp_path) as run:
            work(client)
        findings = run.analyser(progress=False).findings()
    assert findings[0].rule == "work-outside-tasks"
    assert words in findings[0].text
    assert Path(__file__).name in findings[0].text + findings[0].evidence
    assert not refute(tmp_path, findings)
