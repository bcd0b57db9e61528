"""Rules about what few tasks may have at a time, on runs planned by hand: locks, units, threads."""

from __future__ import annotations

from pathlib import Path

from diagnosed_plans import found
from traces import Plan, Task, filled

CLIENT = "/x/distributed/client.py"


def in_lock(waits: bool) -> Plan:
    """Plan 16 tasks of four threads: each holds a lock for 0.25 s, in turn or each its own."""
    tasks, locks = [], []
    since = [0.0] * 4
    for number in range(16):
        lane, stop = number % 4, 0.25 * (number + 1) if waits else 0.25 * (number // 4 + 1)
        begin = since[lane]
        tasks.append(Task(f"write-{number}", lane // 2, begin, stop, cpu=0.01, thread=lane % 2))
        name = "output.nc" if waits else f"part {lane}"
        locks.append((lane // 2, name, begin, stop - 0.25, stop))
        since[lane] = stop
    return Plan(tasks, locks=locks)


def test_tasks_that_wait_for_a_lock_of_the_cluster(tmp_path: Path) -> None:
    findings = found(in_lock(waits=True), tmp_path)

    finding = findings["cluster-lock"]
    # The first four wait 0, 0.25, 0.5 and 0.75 s, all others 0.75 s: 10.5 s of 16 s.
    assert "Lock 'output.nc'" in finding["Finding"]
    assert "for 10.5 s in all, 66 % of the threads' time" in finding["Finding"]
    assert "held 16 times, 250 ms each, 4 s in all" in finding["Evidence"]
    assert (finding["Severity"], finding["Cause"]) == ("high", None)
    for other in ("blocked-tasks", "waits-in-turn"):
        assert other not in findings or findings[other]["Cause"] == "cluster-lock"
    assert not [one for one in findings.values() if "threads_per_worker" in one["Suggestion"]]


def test_locks_that_nobody_waits_for_are_none(tmp_path: Path) -> None:
    assert "cluster-lock" not in found(in_lock(waits=False), tmp_path)


def test_who_seceded_waits_for_a_lock_without_a_thread(tmp_path: Path) -> None:
    plan = in_lock(waits=True)
    for task in plan.tasks:
        task.seceded = task.start + 0.01

    assert "cluster-lock" not in found(plan, tmp_path)


def in_others(queue: bool, seceded: bool = False) -> Plan:
    """Plan 3 tasks that last as long as 16 others of one thread, which all can run from 0 on."""
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
    findings = found(in_others(queue=True), tmp_path)

    finding = findings["waits-for-tasks"]
    assert "Tasks of direct wait for other tasks" in finding["Finding"]
    # They keep three of four threads for 4 s; each other one waits for all those before it.
    assert "12 s of thread time, 75 % of all" in finding["Finding"]
    assert "waited 30 s in all for a thread" in finding["Evidence"]
    assert "secede() in direct" in finding["Suggestion"]
    assert (finding["Severity"], finding["Cause"]) == ("high", None)
    assert not [one for one in findings.values() if "threads_per_worker" in one["Suggestion"]]


def test_a_wait_for_others_that_have_threads_costs_nothing(tmp_path: Path) -> None:
    assert "waits-for-tasks" not in found(in_others(queue=False), tmp_path)


def test_who_seceded_keeps_no_thread(tmp_path: Path) -> None:
    assert "waits-for-tasks" not in found(in_others(queue=True, seceded=True), tmp_path)


def asking_for_gpu(at_once: int) -> Plan:
    """Plan 24 tasks that are ready at 0, of which so many run on a worker of three threads."""
    tasks = filled(["call"], 0.25, count=24, threads=at_once)
    for task in tasks:
        task.sent = task.received = task.ready = 0.0
        task.cpu, task.annotations = 0.001, {"resources": {"GPU": 1}}
    return Plan(tasks, threads=3)


def test_tasks_that_wait_for_units_of_a_resource(tmp_path: Path) -> None:
    findings = found(asking_for_gpu(at_once=1), tmp_path)

    finding = findings["resource-limit"]
    assert "resource 'GPU': a worker runs 1 of those" in finding["Finding"]
    # Of 3 s two threads of each worker idle, until 0.5 s before the end: then one, and none.
    assert "for 10.5 s (58 % of the threads' time)" in finding["Finding"]
    assert (finding["Severity"], finding["Cause"]) == ("high", None)
    assert findings["blocked-tasks"]["Cause"] == "resource-limit"
    assert not [one for one in findings.values() if "threads_per_worker" in one["Suggestion"]]


def test_a_resource_that_all_threads_have_is_no_limit(tmp_path: Path) -> None:
    assert "resource-limit" not in found(asking_for_gpu(at_once=3), tmp_path)


def test_tasks_that_queue_for_no_resource_are_none_of_it(tmp_path: Path) -> None:
    plan = asking_for_gpu(at_once=1)
    for task in plan.tasks:
        task.annotations = {"priority": 1}

    assert "resource-limit" not in found(plan, tmp_path)
