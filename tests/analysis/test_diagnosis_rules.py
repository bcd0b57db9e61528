"""The rules about data, cores, devices, outcomes and the trace itself, on runs planned by hand.

Two workers of two threads, unless said; every rule fires on its fault, and not on its twin.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import found
from traces import Plan, T, Task, filled

from dasfprof.analysis import Trace, TraceAnalyser
from dasfprof.analysis.trace.notes import Note


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


@pytest.mark.parametrize(
    ("free", "more_room"), [((900_000_000, 80_000_000), True), ((900_000_000, 500_000_000), False)]
)
def test_the_disk_that_spilling_needs_at_once(
    free: tuple[int, int], more_room: bool, tmp_path: Path
) -> None:
    # The first worker has 100, 50 and 0 MB on disk, the second 0, 70 and 90 MB.
    plan = holding(1e9, 0.25)
    spilled = iter((100e6, 50e6, 0, 0, 70e6, 90e6))
    plan.held = [
        (n, at, {**facts, "spilled_size": int(next(spilled))}) for n, at, facts in plan.held
    ]
    plan.held = [(n, at + 0.5 * n, facts) for n, at, facts in plan.held]
    plan.disks = [
        (0, at, {"free": one, "device": "sda1"}) for at, one in zip((0.0, 3.0), free, strict=True)
    ]
    finding = found(plan, tmp_path)["spilling"]

    # Together 100 MB until 2 s, 50 until 2.5 s, 50 + 70 until 4 s, and 90 in the end.
    assert "had up to 100 MB of them on disk" in finding["Evidence"]
    assert "All workers of node1 had up to 120 MB on disk at once" in finding["Evidence"]
    assert f"had {free[1] // 10**6} MB free at least" in finding["Evidence"]
    assert ("more room" in finding["Suggestion"]) == more_room


def test_a_disk_that_nobody_read_is_not_recorded(tmp_path: Path) -> None:
    plan = holding(1e9, 0.25)
    plan.held = [(n, at, {**facts, "spilled_size": 10**8}) for n, at, facts in plan.held]
    finding = found(plan, tmp_path)["spilling"]

    assert "what was free on the disk to which they spill is not recorded" in finding["Evidence"]
    assert "more room" not in finding["Suggestion"]


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


def test_what_workers_do_after_the_run_is_no_part_of_it(tmp_path: Path) -> None:
    # The last task ends at 4 s; the workers pause at 5 s and live for 20 s.
    states = ((0.0, "running"), (4.0, "running"), (5.0, "paused"), (20.0, "paused"))
    held = [(n, at, {"state": state}) for n in (0, 1) for at, state in states]

    assert found(Plan(four_lanes("load", 1.0, 4), held=held), tmp_path) == {}


def test_a_host_without_memory(tmp_path: Path) -> None:
    total = {"host_memory_total": 10e9}
    used = [(0, 0.0, {**total, "host_memory_available": 5e9})]
    used += [(0, 2.0, {**total, "host_memory_available": 0.2e9})]
    finding = found(Plan(filled(["load"], 1.0), used=used), tmp_path)["host-memory-full"]

    assert "200 MB of 10 GB" in finding["Finding"]
    assert finding["Start (s)"] == 2.0


def test_a_host_that_tells_no_memory_is_not_full(tmp_path: Path) -> None:
    nothing = {"host_memory_total": 0.0, "host_memory_available": 0.0}
    used = [(0, at, nothing) for at in (0.0, 2.0)]

    assert found(Plan(filled(["load"], 1.0), used=used), tmp_path) == {}


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


def test_waits_cost_no_more_than_there_were_though_workers_came_late(tmp_path: Path) -> None:
    # The only two threads join at 12 s; each computes for 2 s and waits for a core for 2 s.
    tasks = [
        Task(f"loop-{n}{k}", 0, 12.0 + n, 13.0 + n, cpu=0.5, run_queue=0.5, thread=k)
        for n in range(4)
        for k in (0, 1)
    ]
    plan = Plan(tasks, workers=1, joined=[12.0])
    finding = found(plan, tmp_path)["cpu-oversubscribed"]

    assert finding["Seconds at stake (s)"] == pytest.approx(2.0)


def test_parents_that_seceded_neither_sleep_nor_dominate(tmp_path: Path) -> None:
    # Eight parents start 16 children and wait for them, 8 s each, of which they hold a thread for
    # 10 ms. Their results are that of all children.
    children = [
        Task(f"sort-{8 + task}", task % 2, 0.1 + task // 4, 1.1 + task // 4, thread=task // 2 % 2)
        for task in range(16)
    ]
    parents = [
        Task(f"sort-{n}", n % 2, n / 100, 8.0, cpu=0.005, seceded=0.01 + n / 100, size=20_000_000)
        for n in range(8)
    ]
    for parent in parents:
        parent.thread = 3 + int(parent.key[5:])
    findings = found(Plan([*parents, *children]), tmp_path)

    assert not findings.keys() & {"blocked-tasks", "dominating-function", "fat-partitions"}
    assert not findings.keys() & {"straggling-tasks", "lock-bound", "io-bound"}


def test_libraries_that_start_threads(tmp_path: Path) -> None:
    tasks = four_lanes("solve", 1.0, 4, cpu=0.5, run_queue=0.5)
    used = [(n, at, {"process_cpu_seconds": at * 4}) for n in (0, 1) for at in (0.0, 4.0)]
    finding = found(Plan(tasks, used=used), tmp_path)["cpu-oversubscribed"]

    assert "OMP_NUM_THREADS=1" in finding["Suggestion"]


def test_the_cpu_share_of_one_function_is_no_other_s(tmp_path: Path) -> None:
    # Of two functions that wait, 16 s with 1 % CPU and 8 s with 25 %, the first is told of.
    tasks = four_lanes("ask", 1.0, 4, cpu=0.01)
    for task in four_lanes("fetch", 1.0, 2, cpu=0.25):
        task.start, task.stop = task.start + 4.0, task.stop + 4.0
        tasks.append(task)
    plan = Plan(tasks)
    finding = found(plan, tmp_path / "waits")["blocked-tasks"]

    assert "ask uses the CPU for 1 % of its time" in finding["Finding"]
    assert "24 tasks, 24 s in all" in finding["Evidence"]
    plan.used = [
        (n, at, {"process_io.read_size": at * 100_000_000}) for n in (0, 1) for at in (0.0, 6.0)
    ]
    finding = found(plan, tmp_path / "reads")["io-bound"]
    assert "ask uses the CPU for 1 % of its time, while 1.2 GB are" in finding["Finding"]


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


def test_the_scheduler_hears_of_ends_late(tmp_path: Path) -> None:
    # A second passes until it knows that a turn has ended, and sends the next at once.
    tasks = []
    for turn in range(4):
        for lane, task in enumerate(four_lanes(f"part{turn}", 1.0, 1)):
            task.start, task.stop = 2.0 * turn, 2.0 * turn + 1
            task.done, task.known = task.stop, task.stop + 1
            task.runnable, task.thread = 2.0 * turn, lane % 2
            task.arrival = 2.0 * turn
            tasks.append(task)
    finding = found(Plan(tasks), tmp_path)["scheduler-bound"]

    assert "until it has heard that the last ones ended" in finding["Finding"]
    assert finding["Seconds at stake (s)"] == pytest.approx(3.0)  # between four turns


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


def test_errors_of_several_kinds_are_each_named(tmp_path: Path) -> None:
    tasks = four_lanes("parse", 1.0, 4)
    errors = ["OSError('2')", "KeyError('3')", "OSError('4')", "TypeError('5')", "ValueError('6')"]
    for task, error in zip(tasks[2:], errors, strict=False):
        task.state, task.exception = "erred", error
    # It began with another one and failed before that.
    tasks[3].stop -= 0.1
    finding = found(Plan(tasks), tmp_path)["errors"]
    assert finding["Finding"] == (
        "5 tasks ended in an error: KeyError in parse, OSError in parse, TypeError in parse and "
        "1 more kind."
    )


def test_errors(tmp_path: Path) -> None:
    tasks = four_lanes("parse", 1.0, 4)
    tasks[5].state, tasks[5].exception = "erred", "ValueError('no 5')"
    tasks[5].raised_at = "/home/me/work.py:7 parse"
    finding = found(Plan(tasks), tmp_path)["errors"]

    assert (finding["Severity"], finding["Function"]) == ("high", "parse")
    assert "1 task ended in an error: ValueError in parse." in finding["Finding"]
    assert "parse-5" in finding["Evidence"]
    assert "Raised at /home/me/work.py:7 parse." in finding["Evidence"]
    assert finding["Start (s)"] == 1.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (10.0, "So the limit is not too low: look at what they waited for"),
        (1.2, "Set the limit well above what they take, or give each task less to do."),
    ],
)
@pytest.mark.parametrize(("again", "rule"), [(False, "errors"), (True, "failed-attempts")])
def test_a_time_out_is_held_against_what_others_take(
    seconds: float, words: str, again: bool, rule: str, tmp_path: Path
) -> None:
    # Sixteen that end well take 1 s each, two of them 1.5 s; two run into a limit.
    tasks = four_lanes("ask", 1.0, 4)
    tasks[0].stop = tasks[1].stop = 1.5
    for number in (16, 17):
        late = Task(f"ask-{number}", 0, 4.0, 4.0 + seconds, state="erred", thread=number)
        late.exception = "TimeoutError('no answer')"
        tasks.append(late)
        if again:
            begin = 5.0 + seconds
            tasks.append(Task(late.key, 0, begin, begin + 1, thread=number))
            late.became = "released"
    finding = found(Plan(tasks), tmp_path)[rule]

    told = "those that ended well took 1 s (the median), 1.5 s at most; those that timed out had "
    assert told + f"run for {seconds:g} s (the median)." in finding["Suggestion"]
    assert words in finding["Suggestion"]


def test_a_limit_that_all_tasks_run_into_is_held_against_nothing(tmp_path: Path) -> None:
    tasks = four_lanes("ask", 1.0, 2, state="erred", exception="requests.ReadTimeout('5 s')")
    finding = found(Plan(tasks), tmp_path)["errors"]

    assert "none of its tasks ended well" in finding["Suggestion"]
    assert "had run for 1 s (the median). Run one without the limit." in finding["Suggestion"]


def test_recomputation(tmp_path: Path) -> None:
    # The first turn is done again.
    tasks = four_lanes("load", 1.0, 4)
    for task, before in zip(tasks[12:], tasks[:4], strict=True):
        task.key = before.key
    findings = found(Plan(tasks), tmp_path)

    assert findings.keys() == {"recomputation"}
    finding = findings["recomputation"]
    assert finding["Function"] == "load"
    # Four task runs of 1 s, on four threads.
    assert finding["Seconds at stake (s)"] == pytest.approx(1.0)
    assert "4 tasks, 4 s of thread time" in finding["Finding"]
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


def test_a_worker_whose_process_ended_by_a_restart_is_not_lost(tmp_path: Path) -> None:
    # Nannies kill them, and the scheduler only sees that they are gone.
    restarted = {**unseen(0, "released", 2.0, 2.9), "end_cause": "client-restart-7"}
    left = [(1, 3.0, "handle-worker-cleanup")]
    findings = found(Plan(filled(["fit"], 1.0), unseen=[restarted], left=left), tmp_path)

    assert "lost-workers" not in findings
    assert "1 task that had not ended" in findings["given-up-tasks"]["Finding"]


def test_what_died_is_told_apart_from_what_could_not_be_recorded(tmp_path: Path) -> None:
    left = [(1, 3.0, "handle-worker-cleanup")]
    Plan(filled(["fit"], 1.0), left=left, killed=[1]).write_files(tmp_path)
    trace = Trace.from_database(tmp_path)
    failed = Note("caught-errors", "a file", "a file: 1 error caught while recording.")

    def advice(trace: Trace) -> str:
        table = TraceAnalyser(trace).diagnose().set_index("Rule")
        return str(table.loc["missing-evidence", "Suggestion"])

    assert "Nothing needs to be changed" in advice(trace)
    more = advice(replace(trace, notes=(*trace.notes, failed)))
    assert more == "The logs of these processes tell what could not be recorded: please report it."


def test_a_worker_that_was_lost(tmp_path: Path) -> None:
    tasks = filled(["fit"], 1.0)
    lost = [unseen(number, "released", 2.0, 3.0) for number in range(2)]
    left = [(1, 3.0, "handle-worker-cleanup")]
    finding = found(Plan(tasks, unseen=lost, left=left, killed=[1]), tmp_path)["lost-workers"]

    assert (finding["Severity"], finding["Worker"]) == ("high", "worker-node1-1")
    assert "1 worker left the cluster with 2 tasks on it, most of fit" in finding["Finding"]
    assert finding["Start (s)"] == 3.0
    # Two of four threads are missed from 3 s to the end, at 4 s.
    assert finding["Seconds at stake (s)"] == pytest.approx(0.5)
    assert "often memory" in finding["Suggestion"]  # nothing tells


def killed(**more: Any) -> Plan:
    """Plan two workers of two threads, of which one dies at 2 s; what it had made is made again."""
    runs = [(0, n, n + 1.0, "") for n in range(2)] + [(1, n, n + 1.0, "") for n in range(2)]
    tasks = [
        Task(f"fit-{worker}{begin}{k}", worker, begin, end, thread=k, graph="update-graph-1")
        for worker, begin, end, _ in runs
        for k in (0, 1)
    ]
    tasks += [
        Task(task.key, 0, task.start + 2, task.stop + 2, thread=task.thread, arrival=2.0)
        for task in tasks
        if task.worker
    ]
    for task in tasks[8:]:
        task.graph = "handle-worker-cleanup-2"
    left = [(1, 2.0, "handle-worker-cleanup")]
    return Plan(tasks, unseen=[unseen(0, "released", 1.5, 2.0)], left=left, killed=[1], **more)


def test_what_was_lost_with_a_worker_is_no_want_of_persist(tmp_path: Path) -> None:
    findings = found(killed(), tmp_path)

    assert "recomputation" not in findings
    finding = findings["lost-workers"]
    assert "4 tasks ran again, for 4 s of thread time" in finding["Evidence"]
    # With it, these 4 s of thread time would not be, and four threads would have done the rest.
    assert finding["Seconds at stake (s)"] == pytest.approx((4.0 + 2 * 2.0) / 4)
    assert findings["missing-evidence"]["Suggestion"].startswith("Nothing needs to be changed")


def test_what_a_client_asks_for_again_is_computed_again_beside_a_lost_worker(
    tmp_path: Path,
) -> None:
    plan = killed()
    for task in plan.tasks[8:]:
        task.graph = "update-graph-2"
    findings = found(plan, tmp_path)

    assert "4 tasks, 4 s" in findings["recomputation"]["Finding"]
    assert "ran again" not in findings["lost-workers"]["Evidence"]


@pytest.mark.parametrize(("memory", "blamed"), [(100_000_000, False), (900_000_000, True)])
def test_memory_is_blamed_for_a_lost_worker_by_what_it_used(
    memory: int, blamed: bool, tmp_path: Path
) -> None:
    used = [(n, at, {"memory": memory}) for n in (0, 1) for at in (0.0, 1.9)]
    plan = killed(used=used, memory_limit=1_000_000_000)
    finding = found(plan, tmp_path)["lost-workers"]

    assert f"{memory // 1_000_000} MB of a limit of 1 GB" in finding["Evidence"]
    assert ("memory_limit" in finding["Suggestion"]) is blamed


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
