"""Rules about limits on parallel tasks, on planned runs: locks, resources, and threads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import assert_found, found
from traces import Plan, Task, filled

CLIENT = "/x/distributed/client.py"


def in_lock(waits: bool, seceded: float | None = None) -> Plan:
    """Plan 16 tasks on four threads that hold a common lock or separate ones for 0.25 s."""
    tasks, locks = [], []
    since = [0.0] * 4
    for number in range(16):
        lane, stop = number % 4, 0.25 * (number + 1) if waits else 0.25 * (number // 4 + 1)
        begin = since[lane]
        task = Task(f"write-{number}", lane // 2, begin, stop, cpu=0.01, thread=lane % 2)
        task.seceded = None if seceded is None else begin + seceded
        tasks.append(task)
        name = "output.nc" if waits else f"part {lane}"
        locks.append((lane // 2, name, begin, stop - 0.25, stop))
        since[lane] = stop
    return Plan(tasks, locks=locks)


def test_tasks_that_wait_for_a_lock_of_the_cluster(tmp_path: Path) -> None:
    # The first four wait for 0, 0.25, 0.5 and 0.75 s, and all others for 0.75 s: 10.5 s of 16 s.
    expected = {"severity": "high", "cause": None, "kind": "Lock", "name": "output.nc"}
    expected |= {"waited": 10.5, "share": 0.656, "times": 16, "each": 0.25, "held": 4.0}
    findings = assert_found(in_lock(waits=True), tmp_path, "distributed-lock", **expected)
    for other in ("blocked-tasks", "shared-bottleneck"):
        assert other not in findings or findings[other]["Cause"] == "distributed-lock"


def in_others(queue: bool, seceded: bool = False) -> Plan:
    """Plan 3 tasks that take as long as 16 others on one thread, which are runnable from 0."""
    others = filled(["train"], 0.25, count=16, workers=1, threads=1)
    for task in others:
        task.worker, task.thread = 1, 1
        task.sent = task.runnable = 0.0 if queue else task.start
    outer = [Task(f"direct-{n}", n // 2, 0.0, 4.0, cpu=0.01, thread=n % 2) for n in range(3)]
    for task in outer:
        task.seceded = 0.01 if seceded else None
    stands = [("direct", "/home/me/direct.py", 3), ("wait", CLIENT, 5900)]
    stands += [("sync", "/x/distributed/utils.py", 400), ("Event.wait", "/x/threading.py", 660)]
    return Plan([*outer, *others], stands={"direct": stands})


def test_tasks_that_keep_their_threads_while_they_wait_for_others(tmp_path: Path) -> None:
    # They occupy three of four threads for 4 s. Each other task waits for all previous ones.
    expected = {"severity": "high", "cause": None, "function": "direct", "kept": 12.0}
    expected |= {"share": 0.75, "queued": 30.0}
    assert_found(in_others(queue=True), tmp_path, "missing-secede", **expected)


def asking_for_gpu(at_once: int) -> Plan:
    """Plan 24 tasks that are ready at 0, `at_once` parallel ones per worker of three threads."""
    tasks = filled(["call"], 0.25, count=24, threads=at_once)
    for task in tasks:
        task.sent = task.received = task.ready = 0.0
        task.cpu, task.annotations = 0.001, {"resources": {"GPU": 1}}
    return Plan(tasks, threads=3)


def test_tasks_that_wait_for_units_of_a_resource(tmp_path: Path) -> None:
    # Two threads of each worker are idle for 3 s until 0.5 s before the end, then one, and none.
    expected = {"severity": "high", "cause": None, "resource": "GPU", "most": 1}
    expected |= {"idle": 10.5, "share": 0.583}
    findings = assert_found(asking_for_gpu(at_once=1), tmp_path, "resource-limit", **expected)
    assert findings["blocked-tasks"]["Cause"] == "resource-limit"


def changed(plan: Plan, **more: Any) -> Plan:
    """Return the same plan with other facts about its tasks."""
    return replace(plan, tasks=[replace(task, **more) for task in plan.tasks])


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (in_lock(waits=False), "distributed-lock"),  # no task waits
        (in_lock(waits=True, seceded=0.01), "distributed-lock"),  # without a thread
        (in_others(queue=False), "missing-secede"),  # the other tasks have threads
        (in_others(queue=True, seceded=True), "missing-secede"),
        (asking_for_gpu(at_once=3), "resource-limit"),  # all threads have a unit
        (changed(asking_for_gpu(at_once=1), annotations={"priority": 1}), "resource-limit"),
    ],
)
def test_what_looks_alike_is_not_found(plan: Plan, rule: str, tmp_path: Path) -> None:
    assert not found(plan, tmp_path, rule)


def throttled(seconds: float, quota: float = 1.0, **more: Any) -> Plan:
    """Plan 16 tasks of 1 s that wait for CPU, in a control group with this throttled time."""
    tasks = [replace(task, run_queue=0.6) for task in filled(["sum"], 1.0, count=16)]
    used = [
        (worker, at, {"throttled_seconds": 100.0 + seconds * at / 4, "num_fds": 90})
        for worker in (0, 1)
        for at in (0.0, 4.0)
    ]
    return Plan(tasks, used=used, limits={"cpu_group": "/pod", "cpu_quota": quota, **more})


def test_a_group_whose_cpu_quota_is_used_up(tmp_path: Path) -> None:
    expected = {"severity": "high", "stopped": 2.0, "share": 0.5, "quota": 1.0, "workers": 2}
    expected |= {"threads": 4, "waited": 2.4, "settings": [{"threads_per_worker": 1}]}
    findings = assert_found(throttled(2.0), tmp_path / "1", "cpu-quota", **expected)
    assert findings.get("cpu-oversubscribed", {"Cause": "cpu-quota"})["Cause"] == "cpu-quota"
    # The throttled time of a group is a sum over its cores.
    expected = {"stopped": 1.0, "settings": []}
    assert_found(throttled(4.0, 4.0), tmp_path / "4", "cpu-quota", **expected)
    assert not found(throttled(0.1), tmp_path / "rarely", "cpu-quota")


def test_open_files_near_their_limit(tmp_path: Path) -> None:
    near, *far = (throttled(0.0, descriptor_limit=limit) for limit in (100, 1024, None))
    assert_found(near, tmp_path / "near", "descriptor-limit", files=90, limit=100, workers=2)
    for number, plan in enumerate(far):
        assert not found(plan, tmp_path / str(number), "descriptor-limit")
