"""The rules about data, cores, devices, outcomes and the trace itself, on runs planned by hand.

Two workers of two threads, unless said; every rule fires on its fault, and not on its twin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planned_runs import Plan, T, Task, filled, found


def four_lanes(name: str, seconds: float, turns: int, **more: Any) -> list[Task]:
    """Plan equal tasks on four threads; gives them turn by turn."""
    tasks = filled([name], seconds, count=4 * turns)
    for task in tasks:
        for field, value in more.items():
            setattr(task, field, value)
    return tasks


# --- data ----------------------------------------------------------------------------------------


def moving(seconds: float) -> Plan:
    """Two threads load; a third waits for so long for each of four results, and uses it."""
    plan = Plan(filled(["load"], 1.0, count=4, workers=1))
    begin = 2.0
    for number in range(4):
        key, ready = f"load-{number}", begin + seconds
        plan.tasks[number].size = 50_000_000
        plan.tasks.append(
            Task(
                f"use-{number}",
                1,
                ready,
                ready + 1,
                sent=begin,
                received=begin,
                ready=ready,
                dependencies=[key],
            )
        )
        plan.transfers.append((1, begin, ready, 50_000_000, [key]))
        begin = ready + 1
    return plan


def test_transfers(tmp_path: Path) -> None:
    finding = found(moving(1.0), tmp_path)["transfer-bound"]

    assert (finding["Severity"], finding["Function"]) == ("high", "load")
    # Of ten seconds, four are spent waiting for data.
    assert finding["Seconds at stake (s)"] == pytest.approx(4.0, rel=0.2)
    assert "200 MB were moved" in finding["Evidence"]
    assert "at 50 MB/s" in finding["Evidence"]


def test_short_transfers(tmp_path: Path) -> None:
    assert "transfer-bound" not in found(moving(0.05), tmp_path)


def holding(written: float, seconds: float) -> Plan:
    tasks = four_lanes("load", 1.0, 4)
    for task in tasks:
        task.executing, task.start = task.start, task.start + seconds
        task.disk_read = seconds
    facts = {"state": "running", "size": 300_000_000}
    held = [
        (worker, at, {**facts, "spill_write_size": at / 4 * written, "spill_read_size": 0.0})
        for worker in (0, 1)
        for at in (0.0, 2.0, 4.0)
    ]
    return Plan(tasks, held=held)


def test_spilling(tmp_path: Path) -> None:
    finding = found(holding(1e9, 0.25), tmp_path)["spilling"]

    assert finding["Severity"] == "high"
    assert finding["Seconds at stake (s)"] == pytest.approx(1.0)  # a quarter of 4 s
    assert "2 GB were written" in finding["Finding"]
    assert "memory_limit of 500 MB" in finding["Suggestion"]  # 300 MB by 60 %


@pytest.mark.parametrize(("written", "seconds"), [(0.0, 0.25), (1e9, 0.01)])
def test_no_spilling_to_speak_of(written: float, seconds: float, tmp_path: Path) -> None:
    assert "spilling" not in found(holding(written, seconds), tmp_path)


def test_paused_workers(tmp_path: Path) -> None:
    # The second worker pauses at 2 s, with its two threads idle until 6 s.
    tasks = [
        Task(f"load-{worker}{thread}{n}", worker, float(n), n + 1.0, thread=thread)
        for worker, turns in ((0, 6), (1, 2))
        for thread in (0, 1)
        for n in range(turns)
    ]
    states = {0: "running", 1: "running", 2: "paused", 3: "paused", 4: "paused", 5: "paused"}
    held = [(1, float(at), {"state": state, "size": 10**9}) for at, state in states.items()]
    held += [(0, float(at), {"state": "running"}) for at in range(7)]
    finding = found(Plan(tasks, held=held), tmp_path)["memory-pressure"]

    assert finding["Worker"] == "worker-node1-1"
    # Two of four threads, for four seconds.
    assert finding["Seconds at stake (s)"] == pytest.approx(2.0)
    assert (finding["Start (s)"], finding["Stop (s)"]) == (2.0, 5.0)


def test_a_host_without_memory(tmp_path: Path) -> None:
    total = {"host_memory_total": 10e9}
    used = [(0, 0.0, {**total, "host_memory_available": 5e9})]
    used += [(0, 2.0, {**total, "host_memory_available": 0.2e9})]
    finding = found(Plan(filled(["load"], 1.0), used=used), tmp_path)["host-memory-full"]

    assert "200 MB of 10 GB" in finding["Finding"]
    assert finding["Start (s)"] == 2.0


def test_a_worker_near_its_limit(tmp_path: Path) -> None:
    used = [
        (n, at, {"memory": 920_000_000 if n and at else 400_000_000})
        for n in (0, 1)
        for at in (0.0, 4.0)
    ]
    plan = Plan(filled(["load"], 1.0), used=used, memory_limit=1_000_000_000)
    findings = found(plan, tmp_path)

    assert findings.keys() == {"memory-near-limit"}
    finding = findings["memory-near-limit"]
    assert finding["Worker"] == "worker-node1-1"
    assert "920 MB of 1 GB" in finding["Finding"]
    assert "memory_limit of 1.15 GB" in finding["Suggestion"]  # 80 % of that are 920 MB


# --- cores ---------------------------------------------------------------------------------------


def test_a_lock(tmp_path: Path) -> None:
    # Two threads of each process compute half of the time each.
    finding = found(Plan(four_lanes("loop", 1.0, 4, cpu=0.5)), tmp_path)["lock-bound"]

    assert (finding["Severity"], finding["Function"]) == ("high", "loop")
    assert finding["Seconds at stake (s)"] == pytest.approx(2.0)  # half of 4 s
    assert "2 tasks at a time" in finding["Finding"]
    assert "2 times as many workers with threads_per_worker=1" in finding["Suggestion"]


def test_too_few_cores(tmp_path: Path) -> None:
    # The same CPU seconds, but the rest is spent waiting for a core.
    tasks = four_lanes("loop", 1.0, 4, cpu=0.5, run_queue=0.5)
    findings = found(Plan(tasks), tmp_path)

    assert findings.keys() == {"cpu-oversubscribed"}
    finding = findings["cpu-oversubscribed"]
    assert finding["Seconds at stake (s)"] == pytest.approx(2.0)
    assert "fewer threads" in finding["Suggestion"]


def test_libraries_that_start_threads(tmp_path: Path) -> None:
    tasks = four_lanes("solve", 1.0, 4, cpu=0.5, run_queue=0.5)
    used = [(n, at, {"process_cpu_seconds": at * 4}) for n in (0, 1) for at in (0.0, 4.0)]
    finding = found(Plan(tasks, used=used), tmp_path)["cpu-oversubscribed"]

    assert "OMP_NUM_THREADS=1" in finding["Suggestion"]


def test_sleeping_tasks(tmp_path: Path) -> None:
    findings = found(Plan(four_lanes("ask", 1.0, 4, cpu=0.01)), tmp_path)

    assert findings.keys() == {"blocked-tasks"}
    finding = findings["blocked-tasks"]
    assert (finding["Severity"], finding["Function"]) == ("medium", "ask")
    assert finding["Seconds at stake (s)"] == pytest.approx(3.96)
    assert "threads_per_worker=20 in place of 2" in finding["Suggestion"]


def test_tasks_that_wait_for_storage(tmp_path: Path) -> None:
    # Two processes read 100 MB a second each.
    used = [(n, at, {"process_io.read_size": at * 1e8}) for n in (0, 1) for at in (0.0, 4.0)]
    findings = found(Plan(four_lanes("read", 1.0, 4, cpu=0.1), used=used), tmp_path)

    assert findings.keys() == {"io-bound"}
    assert "800 MB are read and written" in findings["io-bound"]["Finding"]


def test_sleeping_tasks_on_a_busy_host_do_not_lack_cores(tmp_path: Path) -> None:
    tasks = four_lanes("ask", 1.0, 4, cpu=0.001, run_queue=0.4)

    assert found(Plan(tasks), tmp_path).keys() == {"blocked-tasks"}


# --- Dask itself ---------------------------------------------------------------------------------


def test_the_scheduler(tmp_path: Path) -> None:
    # Each task is runnable as the one before it ends, and is sent a second later.
    tasks = []
    for turn in range(4):
        for lane, task in enumerate(four_lanes(f"part{turn}", 1.0, 1)):
            task.start, task.stop = 2.0 * turn + 1, 2.0 * turn + 2
            task.runnable, task.thread = 2.0 * turn, lane % 2
            tasks.append(task)
    finding = found(Plan(tasks), tmp_path)["scheduler-bound"]

    assert finding["Severity"] == "high"
    assert finding["Seconds at stake (s)"] == pytest.approx(4.0)  # half of 8 s


def test_deserialising(tmp_path: Path) -> None:
    tasks = four_lanes("apply", 1.0, 4)
    for task in tasks:
        task.executing, task.start, task.deserialize = task.start, task.start + 0.5, 0.5
    finding = found(Plan(tasks), tmp_path)["deserialising"]

    assert finding["Function"] == "apply"
    assert finding["Seconds at stake (s)"] == pytest.approx(2.0)
    assert "scatter" in finding["Suggestion"]


# --- GPUs ----------------------------------------------------------------------------------------


def readings(utilization: float, memory: float = 1e9) -> list[tuple[float, dict[str, Any]]]:
    facts = {"name": "Stand-in", "memory_total": 10e9, "memory_used": memory}
    return [(float(at), {**facts, "utilization": utilization}) for at in range(5)]


def test_idle_gpus(tmp_path: Path) -> None:
    finding = found(Plan(four_lanes("fit", 1.0, 4), gpu=readings(25.0)), tmp_path)["gpu-idle"]

    assert finding["Severity"] == "medium"
    assert finding["Seconds at stake (s)"] == pytest.approx(3.0)  # three quarters of 4 s
    assert finding["Worker"] == "worker-node1-0"


def test_busy_gpus_are_what_tasks_may_wait_for(tmp_path: Path) -> None:
    plan = Plan(four_lanes("fit", 1.0, 4, cpu=0.1), gpu=readings(90.0))

    assert found(plan, tmp_path) == {}


def test_unused_gpus(tmp_path: Path) -> None:
    findings = found(Plan(four_lanes("fit", 1.0, 4), gpu=readings(0.0)), tmp_path)

    assert findings.keys() == {"gpu-unused"}
    assert findings["gpu-unused"]["Severity"] == "low"


def test_full_gpus(tmp_path: Path) -> None:
    plan = Plan(four_lanes("fit", 1.0, 4), gpu=readings(90.0, memory=9.5e9))
    findings = found(plan, tmp_path)

    assert findings.keys() == {"gpu-memory-full"}
    assert "9.5 of 10 GB" in findings["gpu-memory-full"]["Finding"]


# --- outcomes ------------------------------------------------------------------------------------


def test_failed_attempts(tmp_path: Path) -> None:
    # Every second attempt fails; its key succeeds in the next turn.
    tasks = four_lanes("fetch", 1.0, 8)
    for turn in range(0, 8, 2):
        for lane in range(4):
            failed, again = tasks[turn * 4 + lane], tasks[turn * 4 + lane + 4]
            failed.key = again.key
            failed.state, failed.became = "erred", "released"
            failed.exception = "ConnectionError('no answer')"
    findings = found(Plan(tasks), tmp_path)

    finding = findings["failed-attempts"]
    assert (finding["Severity"], finding["Function"]) == ("high", "fetch")
    assert finding["Seconds at stake (s)"] == pytest.approx(4.0, rel=0.02)
    assert "16 attempts failed" in finding["Finding"]
    assert "ConnectionError" in finding["Finding"]
    assert not findings.keys() & {"errors", "recomputation"}


def test_errors(tmp_path: Path) -> None:
    tasks = four_lanes("parse", 1.0, 4)
    tasks[5].state, tasks[5].exception = "erred", "ValueError('no 5')"
    finding = found(Plan(tasks), tmp_path)["errors"]

    assert (finding["Severity"], finding["Function"]) == ("high", "parse")
    assert "1 task ended in an error: ValueError" in finding["Finding"]
    assert "parse-5" in finding["Evidence"]
    assert finding["Start (s)"] == 1.0


def test_recomputation(tmp_path: Path) -> None:
    # The first turn is done again.
    tasks = four_lanes("load", 1.0, 4)
    for task, before in zip(tasks[12:], tasks[:4], strict=True):
        task.key = before.key
    findings = found(Plan(tasks), tmp_path)

    assert findings.keys() == {"recomputation"}
    finding = findings["recomputation"]
    assert finding["Function"] == "load"
    assert finding["Seconds at stake (s)"] == pytest.approx(1.0, rel=0.02)
    assert "persist() the collection that load makes" in finding["Suggestion"]


def unseen(number: int, state: str, sent: float, known: float) -> dict[str, Any]:
    return {
        "key": f"fit-9{number}",
        "timestamp": T + sent,
        "duration": known - sent,
        "run_id": 100 + number,
        "worker": "tcp://10.0.0.1:4001",
        "state": state,
        "waiting": T,
    }


def test_a_worker_that_was_lost(tmp_path: Path) -> None:
    tasks = filled(["fit"], 1.0)
    lost = [unseen(number, "released", 2.0, 3.0) for number in range(2)]
    left = [(1, 3.0, "handle-worker-cleanup")]
    finding = found(Plan(tasks, unseen=lost, left=left, killed=[1]), tmp_path)["lost-workers"]

    assert (finding["Severity"], finding["Worker"]) == ("high", "worker-node1-1")
    assert "1 worker left the cluster with 2 tasks on them, most of fit" in finding["Finding"]
    assert finding["Start (s)"] == 3.0


def test_tasks_that_do_not_end(tmp_path: Path) -> None:
    tasks = filled(["fit"], 1.0)
    plan = Plan(tasks, unseen=[unseen(0, "processing", 1.0, 1.0)])
    finding = found(plan, tmp_path)["unfinished-tasks"]

    assert (finding["Severity"], finding["Worker"]) == ("medium", "worker-node1-1")
    assert "has been on its worker for 3 s" in finding["Finding"]
    assert "Other tasks of fit take 1 s" in finding["Evidence"]


# --- the trace -----------------------------------------------------------------------------------


def test_a_file_that_ends_early(tmp_path: Path) -> None:
    finding = found(Plan(filled(["fit"], 1.0), killed=[1]), tmp_path)["missing-evidence"]

    assert finding["Severity"] == "low"
    assert "ended without closing" in finding["Evidence"]


def test_no_samples(tmp_path: Path) -> None:
    finding = found(Plan(filled(["fit"], 1.0), resources=False), tmp_path)["missing-evidence"]

    assert "no resource samples" in finding["Evidence"]
