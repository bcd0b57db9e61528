"""Workers that die at the same age are reported as such, and other deaths keep their causes."""

import time
from pathlib import Path
from typing import Any

import dask
import pytest
from clusters import new_client, wait_until
from refuters import refute
from traces.events import T
from traces.plans import Plan, Task

import dasfprof

GB = 10**9


def plan_of(lives: dict[int, tuple[float, float, int]]) -> Plan:
    """Return a run from start, death and memory of workers; worker 0 starts last."""
    begin = max(started for started, *_ in lives.values()) + 5.0
    end = max(died for _, died, _ in lives.values()) + 5.0
    starts = [begin, *(started for started, *_ in lives.values())]
    tasks = [Task("fit-0", 0, begin + 1.0, end)]
    tasks += [
        Task(f"fit-{n}", n, started + 1.0, started + 2.0) for n, (started, *_) in lives.items()
    ]
    usual = {"duration": 1.0, "state": "released", "waiting": T}
    where = {n: {"run_id": 100 + n, "worker": f"tcp://10.0.0.1:400{n}"} for n in lives}
    lost = [
        {"key": f"fit-9{n}", "timestamp": T + died - 1.0, **where[n], **usual}
        for n, (_, died, _) in lives.items()
    ]
    return Plan(
        tasks,
        workers=len(starts),
        threads=1,
        unseen=lost,
        joined=starts,
        left=[(n, died, "handle-worker-cleanup") for n, (_, died, _) in lives.items()],
        killed=[*lives],
        used=[(n, died - 0.5, {"memory": memory}) for n, (_, died, memory) in lives.items()],
        memory_sizes=[{"memory_limit": 2 * GB, "started": T + start} for start in starts],
        memory_limit=2 * GB,
    )


#: Two generations of workers, which live for 30 s each.
AGED = {1: (0.0, 30.0, GB // 10), 2: (0.1, 30.4, GB // 10), 3: (31.0, 61.2, GB // 10)}


def lost_workers(plan: Plan, directory: Path) -> Any:
    analyser = plan.write(directory)
    faults = refute(directory, analyser.findings())
    assert not [fault for fault in faults if fault.startswith("lost-workers")]
    findings = analyser.diagnose().set_index("Rule")
    return findings.loc["lost-workers"]


def test_the_finding_begins_with_the_age_and_another_death_keeps_its_cause(tmp_path: Path) -> None:
    finding = lost_workers(plan_of(AGED), tmp_path / "aged")
    assert "killed or lost at the same age of 30 s to 30.3 s" in finding["Finding"]
    assert "--lifetime" in finding["Suggestion"]
    lives = {**AGED, 4: (32.0, 42.0, 19 * GB // 10)}
    finding = lost_workers(plan_of(lives), tmp_path / "other")
    assert "same age of 30 s to 30.3 s" in finding["Finding"]
    assert "(3), or killed because memory ran out (1)" in finding["Finding"]


@pytest.mark.parametrize(
    "lives",
    [
        {n: (0.0, 30.0 + n / 10, GB // 10) for n in (1, 2, 3)},  # together, as a host dies
        {n: (*life[:2], 3 * GB // 2) for n, life in AGED.items()},  # memory may have run out
        {**AGED, 4: (0.0, 60.0, GB // 10)},  # another worker became older
        {1: AGED[1], 2: (0.0, 45.0, GB // 10), 3: AGED[3]},  # two are no pattern
    ],
    ids=["together", "memory", "older", "two"],
)
def test_other_deaths_are_not_of_age(lives: dict[int, Any], tmp_path: Path) -> None:
    assert "same age" not in lost_workers(plan_of(lives), tmp_path)["Finding"]


def test_a_task_that_kills_each_worker_at_once_is_no_limit_of_age(tmp_path: Path) -> None:
    """Workers that completed no task may have died of their first task."""
    plan = plan_of(AGED)
    plan.tasks, plan.killed = plan.tasks[:1], []
    assert "same age" not in lost_workers(plan, tmp_path)["Finding"]


#: Program that ends its worker at an age, like a batch system.
PRELOAD = """
import os, signal, threading, time, psutil

def kill():
    time.sleep(max(psutil.Process().create_time() + {age} - time.time(), 0))
    os.kill(os.getpid(), signal.SIGKILL)

def dask_setup(worker):
    threading.Thread(target=kill, daemon=True).start()
"""


@pytest.mark.whole_program
def test_workers_that_are_killed_at_an_age(tmp_path: Path) -> None:
    preload = tmp_path / "kill_at_age.py"
    preload.write_text(PRELOAD.format(age=15))
    config = {"scheduler.allowed-failures": 1000, "worker.preload": [str(preload)]}
    with (
        dask.config.set({f"distributed.{name}": value for name, value in config.items()}),
        new_client(n_workers=2, threads_per_worker=1, memory_limit="4GB") as client,
        dasfprof.profile(client, directory=tmp_path, name="aged") as run,
    ):
        futures = client.map(time.sleep, [0.1 + n * 1e-9 for n in range(1000)])

        def deaths() -> int:
            run.flush()
            return int(run.analyser().trace.workers["left"].notna().sum())

        wait_until(lambda: deaths() >= 4, every=1.0)
        del futures
    analyser = run.analyser()
    finding = analyser.diagnose().set_index("Rule").loc["lost-workers"]
    assert "killed or lost at the same age of 15" in finding["Finding"]
    assert not refute(tmp_path, analyser.findings())
