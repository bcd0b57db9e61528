"""The rules about data, cores, devices, outcomes and the trace itself, on runs planned by hand.

Two workers of two threads, unless said; every rule fires on its fault, and not on its twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from diagnosed_plans import found
from traces import Plan, T, Task, filled

from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.diagnosis import diagnose
from dasfprof.analysis.diagnosis.registry import Advice, Finding
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.gaps import Note


def four_lanes(name: str, seconds: float, turns: int, **more: Any) -> list[Task]:
    """Plan equal tasks on four threads; gives them turn by turn."""
    tasks = filled([name], seconds, count=4 * turns)
    for task in tasks:
        for field, value in more.items():
            setattr(task, field, value)
    return tasks


def settings(finding: dict[str, Any]) -> list[dict[str, Any]]:
    """Give what a finding says to set."""
    return [change["settings"] for change in finding["Changes"]]


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


def test_few_bytes_do_not_explain_slow_transfers(tmp_path: Path) -> None:
    plan = moving(1.0)
    for place, (worker, start, stop, _, keys) in enumerate(plan.transfers):
        plan.transfers[place] = (worker, start, stop, 500, keys)
    finding = found(plan, tmp_path)["transfer-bound"]

    assert "Their bytes do not explain that: 4 transfers" in finding["Suggestion"]
    assert "took 1 s each" in finding["Suggestion"]
    assert "Move less" not in finding["Suggestion"]


@pytest.mark.parametrize("share", [0.9, 0.1])
def test_serialising_explains_slow_transfers_where_it_was_measured(
    tmp_path: Path, share: float
) -> None:
    plan = moving(1.0)
    for place, (worker, start, stop, _, keys) in enumerate(plan.transfers):
        plan.transfers[place] = (worker, start, stop, 500, keys)
    plan.serialised = [(0, stop, keys[0], share) for _, _, stop, _, keys in plan.transfers]
    finding = found(plan, tmp_path)["transfer-bound"]

    told = "Serialising them for other workers took 3.6 s." in finding["Evidence"]
    assert told == (share > 0.5)
    assert ("this trace cannot tell" in finding["Suggestion"]) != told
    assert "a cheaper __reduce__" in finding["Suggestion"]


def test_tasks_that_wait_while_results_are_serialised_are_not_too_small(tmp_path: Path) -> None:
    tasks = [Task(f"fit-{n}", 0, 0.1 * n, 0.1 * n + 0.001, done=0.1 * n + 0.1) for n in range(40)]
    small = found(Plan(tasks, workers=1, threads=1), tmp_path / "small")
    assert "tasks-too-small" in small
    serialised = [(0, 0.1 * n + 0.09, f"fit-{n}", 0.09) for n in range(40)]
    plan = Plan(tasks, workers=1, threads=1, serialised=serialised)
    assert "tasks-too-small" not in found(plan, tmp_path / "serialised")


def test_outputs_of_a_p2p_shuffle_cannot_be_moved(tmp_path: Path) -> None:
    # What it hands out is on the first worker, and waits there while the second idles.
    tasks = [Task(f"part-{n}", n, 0.0, 1.0) for n in (0, 1)]
    tasks.append(Task("shuffle-barrier-1", 0, 1.0, 1.1, dependencies=["part-0", "part-1"]))
    for n in range(12):
        start = 1.1 + n // 2
        task = Task(f"take-{n}", 0, start, start + 1, dependencies=["shuffle-barrier-1"])
        task.thread, task.ready, task.runnable = 1 + n % 2, 1.1, 1.1
        tasks.append(task)
    findings = found(Plan(tasks), tmp_path)

    suggestion = findings["poor-placement"]["Suggestion"]
    assert "a P2P shuffle decides which worker has which of its outputs" in suggestion
    assert not [one for one in findings.values() if "client.replicate()" in one["Suggestion"]]


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
    plan = holding(1e9, 0.25)
    plan.memory_limit = 400_000_000
    finding = found(plan, tmp_path)["spilling"]

    assert finding["Severity"] == "high"
    assert finding["Seconds at stake (s)"] == pytest.approx(1.0)  # a quarter of 4 s
    assert "2 GB were written" in finding["Finding"]
    assert "memory_limit of 500 MB" in finding["Suggestion"]  # 300 MB by 60 %
    assert settings(finding) == [{"memory_limit": 500_000_000}]
    assert finding["Changes"][0]["excludes"] == ["n_workers", "threads_per_worker", "processes"]


def test_no_limit_is_advised_in_place_of_an_unknown_one(tmp_path: Path) -> None:
    """Workers may have had more than their results alone let expect."""
    finding = found(holding(1e9, 0.25), tmp_path)["spilling"]

    assert "memory_limit" not in finding["Suggestion"]
    assert finding["Suggestion"].startswith("Use fewer threads a worker")
    assert settings(finding) == []


@pytest.mark.parametrize(("memory", "advised"), [(300_000_000, "429 MB"), (200_000_000, None)])
def test_spilling_for_want_of_memory_that_no_result_takes(
    memory: int, advised: str | None, tmp_path: Path
) -> None:
    """Results of 16 MB would do with a limit of 26.7 MB, of a process that has 300 MB."""
    plan = holding(1e9, 0.25)
    plan.memory_limit = 400_000_000
    plan.held = [(n, at, {**facts, "size": 16_000_000}) for n, at, facts in plan.held]
    plan.used = [(n, at, {"memory": memory}) for n in (0, 1) for at in (0.0, 3.9)]
    suggestion = found(plan, tmp_path)["spilling"]["Suggestion"]

    if advised is None:
        assert "memory_limit" not in suggestion
    else:  # by 70 %
        assert f"memory_limit of {advised} or more in place of 400 MB" in suggestion


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
    assert finding["Costs (s)"] == pytest.approx(2.0)
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

    assert findings.keys() == {"memory-pressure"}
    finding = findings["memory-pressure"]
    assert finding["Worker"] == "worker-node1-1"
    assert "920 MB of 1 GB" in finding["Finding"]
    assert "memory_limit of 1.15 GB" in finding["Suggestion"]  # 80 % of that are 920 MB


def test_what_queues_elsewhere_than_in_a_p2p_shuffle_can_be_moved(tmp_path: Path) -> None:
    # The outputs are taken at once; what queues for one worker is something else.
    tasks = [Task(f"part-{n}", n, 0.0, 1.0) for n in (0, 1)]
    tasks.append(Task("shuffle-barrier-1", 0, 1.0, 1.1, dependencies=["part-0", "part-1"]))
    tasks += [Task(f"take-{n}", n, 1.1, 1.2, dependencies=["shuffle-barrier-1"]) for n in (0, 1)]
    for n in range(12):
        start = 1.2 + n
        tasks.append(Task(f"fit-{n}", 0, start, start + 1, ready=1.2, runnable=1.2))
    findings = found(Plan(tasks, threads=1), tmp_path)

    assert "client.replicate()" in findings["poor-placement"]["Suggestion"]


def test_the_skew_of_a_join_comes_before_where_its_outputs_are(tmp_path: Path) -> None:
    # Of ten outputs one has 90 times the bytes of others; two more queue behind it meanwhile.
    tasks = [Task(f"part-{n}", n, 0.0, 1.0) for n in (0, 1)]
    tasks.append(Task("shuffle-barrier-1", 0, 1.0, 1.1, dependencies=["part-0", "part-1"]))
    begin = [1.1, 1.1]
    for n in range(12):
        worker, lasts = n % 2, 6.0 if n == 0 else 0.3
        task = Task(f"take-{n}", worker, begin[worker], begin[worker] + lasts, size=200_000)
        task.dependencies, task.ready, task.runnable = ["shuffle-barrier-1"], 1.1, 1.1
        task.size *= 90 if n == 0 else 1
        begin[worker] += lasts
        tasks.append(task)
    table = Plan(tasks, threads=1).write(tmp_path).diagnose()

    assert table["Rule"].tolist()[0] == "fat-partitions", table[["Rule", "Finding"]]
    assert table.set_index("Rule").loc["poor-placement", "Cause"] == "fat-partitions"
    assert not table["Suggestion"].str.contains("client.replicate|drop workers=").any()


# --- cores ---------------------------------------------------------------------------------------


def sampled_lanes(activities: Sequence[str]) -> list[tuple[int, int, float, dict[str, Any]]]:
    """Plan samples of the four threads, ten a second for 4 s, of half a core each."""
    counted = {"interval": 0.1, "cpu": 0.05, "run_queue": 0.0}
    return [
        (worker, thread, n / 10 + 0.05, {"activity": activities[n % len(activities)], **counted})
        for worker in (0, 1)
        for thread in (0, 1)
        for n in range(40)
    ]


def test_a_lock_that_samples_show(tmp_path: Path) -> None:
    # Two threads of each process compute half of the time each, and want the lock otherwise.
    plan = Plan(four_lanes("loop", 1.0, 4, cpu=0.5), sampled=sampled_lanes(["lock", "running"]))
    finding = found(plan, tmp_path)["lock-bound"]

    assert (finding["Severity"], finding["Function"]) == ("high", "loop")
    assert finding["Seconds at stake (s)"] == pytest.approx(2.0)  # half of 4 s
    assert "waiting for Python's global lock (GIL): 2 tasks at a time" in finding["Finding"]
    assert "by samples of stacks 50 % of it" in finding["Evidence"]
    assert "2 times as many workers with threads_per_worker=1" in finding["Suggestion"]
    # There were two of two threads.
    assert settings(finding) == [{"n_workers": 4, "threads_per_worker": 1, "processes": True}]
    assert finding["Changes"][0]["condition"] is None


def test_threads_that_sleep_wait_for_no_lock(tmp_path: Path) -> None:
    # The same times; nine of ten samples that do not run are asleep.
    waits = ["waiting", "running"] * 9 + ["lock", "running"]
    plan = Plan(four_lanes("digest", 1.0, 4, cpu=0.5), sampled=sampled_lanes(waits))

    assert "lock-bound" not in found(plan, tmp_path)


def test_without_samples_a_lock_and_a_sleep_are_alike(tmp_path: Path) -> None:
    finding = found(Plan(four_lanes("loop", 1.0, 4, cpu=0.5)), tmp_path)["lock-bound"]

    assert (finding["Severity"], finding["Function"]) == ("medium", "loop")
    assert "keep each other waiting" not in finding["Finding"]
    assert "the trace cannot tell these apart" in finding["Evidence"]
    assert finding["Suggestion"].startswith("Samples of stacks of a longer run")


def test_too_few_cores(tmp_path: Path) -> None:
    # The same CPU seconds, but the rest is spent waiting for a core.
    tasks = four_lanes("loop", 1.0, 4, cpu=0.5, run_queue=0.5)
    findings = found(Plan(tasks), tmp_path)

    assert findings.keys() == {"cpu-oversubscribed"}
    finding = findings["cpu-oversubscribed"]
    assert finding["Costs (s)"] == pytest.approx(2.0)
    assert "fewer threads" in finding["Suggestion"]
    assert settings(finding) == [{"threads_per_worker": "fewer"}]


@pytest.mark.parametrize(
    ("cores", "fewer"),
    [(2, {"threads_per_worker": 1}), (1, {"threads_per_worker": 1, "n_workers": 1})],
)
def test_no_more_threads_than_cores(cores: int, fewer: dict[str, int], tmp_path: Path) -> None:
    """Two workers have two threads each."""
    tasks = four_lanes("loop", 1.0, 4, cpu=0.5, run_queue=0.5)
    finding = found(Plan(tasks, cores=cores), tmp_path)["cpu-oversubscribed"]

    assert settings(finding) == [fewer]


def test_no_fewer_threads_where_there_are_cores_for_all(tmp_path: Path) -> None:
    # The same waits of four threads, on a host of eight cores.
    tasks = four_lanes("loop", 1.0, 4, cpu=0.5, run_queue=0.5)
    finding = found(Plan(tasks, cores=8), tmp_path)["cpu-oversubscribed"]

    assert "though there are 4 threads for 8 cores" in finding["Finding"]
    assert "un fewer threads" not in finding["Suggestion"]
    assert settings(finding) == []
    assert finding["Severity"] == "low"


def test_waits_cost_no_more_than_there_were_though_workers_came_late(tmp_path: Path) -> None:
    # The only two threads join at 12 s; each computes for 2 s and waits for a core for 2 s.
    tasks = [
        Task(f"loop-{n}{k}", 0, 12.0 + n, 13.0 + n, cpu=0.5, run_queue=0.5, thread=k)
        for n in range(4)
        for k in (0, 1)
    ]
    plan = Plan(tasks, workers=1, joined=[12.0])
    finding = found(plan, tmp_path)["cpu-oversubscribed"]

    assert finding["Costs (s)"] == pytest.approx(2.0)


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


ONE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@pytest.mark.parametrize(
    ("limits", "advice", "not_said"),
    [
        (None, "set OMP_NUM_THREADS=1, MKL_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 for", "though"),
        ({}, "set OMP_NUM_THREADS=1, MKL_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 for", "recorded"),
        ({**ONE, "MKL_NUM_THREADS": "4"}, "set MKL_NUM_THREADS=1 for", "OMP_NUM_THREADS"),
        (ONE, "threadpool_limits(1)", "of their own: set"),
    ],
)
def test_libraries_that_start_threads(
    tmp_path: Path, limits: dict[str, str] | None, advice: str, not_said: str
) -> None:
    """What is set already, as nannies do, is not advised."""
    tasks = four_lanes("solve", 1.0, 4, cpu=0.5, run_queue=0.5)
    used = [(n, at, {"process_cpu_seconds": at * 4}) for n in (0, 1) for at in (0.0, 4.0)]
    plan = Plan(tasks, used=used, thread_limits=limits)
    finding = found(plan, tmp_path)["cpu-oversubscribed"]

    assert advice in finding["Suggestion"]
    assert not_said not in finding["Suggestion"]
    assert ("not recorded" in finding["Suggestion"]) == (limits is None)
    unlimited = {name: "1" for name in ONE if (limits or {}).get(name) != "1"}
    assert settings(finding) == ([unlimited] if unlimited else [])


def test_an_event_loop_that_computes_is_no_librarys_thread(tmp_path: Path) -> None:
    """Each process uses a core more than its tasks: Dask's own thread may do that."""
    tasks = four_lanes("solve", 1.0, 4, cpu=0.5, run_queue=0.5)
    used = [(n, at, {"process_cpu_seconds": at * 1.9}) for n in (0, 1) for at in (0.0, 4.0)]
    finding = found(Plan(tasks, used=used), tmp_path)["cpu-oversubscribed"]

    assert "NUM_THREADS" not in finding["Suggestion"]


@pytest.mark.parametrize(("within", "named"), [(8.0, True), (0.0, False)])
def test_what_processes_compute_while_no_task_runs_is_no_librarys(
    tmp_path: Path, within: float, named: bool
) -> None:
    """The process uses 8 s of the CPU in other threads: while its tasks run, or afterwards."""
    tasks = four_lanes("solve", 1.0, 4, cpu=0.5, run_queue=0.5)
    cpu = {0.0: 0.0, 4.0: 8.0 + within, 8.0: 16.0}
    used = [
        (n, at, {"process_cpu_seconds": seconds, "service_cpu_seconds": 0.0})
        for n in (0, 1)
        for at, seconds in cpu.items()
    ]
    finding = found(Plan(tasks, used=used), tmp_path)["cpu-oversubscribed"]

    assert ("NUM_THREADS" in finding["Suggestion"]) is named


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
    assert pd.isna(finding["Seconds at stake (s)"])
    assert "this trace cannot tell" in finding["Suggestion"]
    assert "in place of 2" not in finding["Suggestion"]


def asking(**more: Any) -> Plan:
    """Plan 16 tasks that wait for the network for 1 s each, all of them ready at once."""
    tasks = four_lanes("ask", 1.0, 4, cpu=0.01)
    for task in tasks:
        task.ready = task.received = task.sent = 0.0
    network = [("ask", "/home/me/ask.py", 3), ("recv_into", "/lib/python3.13/socket.py", 700)]
    return Plan(tasks, stands={"ask": network}, **more)


def test_tasks_that_wait_for_the_network_may_wait_side_by_side(tmp_path: Path) -> None:
    finding = found(asking(), tmp_path)["blocked-tasks"]

    assert "threads_per_worker=20 in place of 2" in finding["Suggestion"]
    assert settings(finding) == [{"threads_per_worker": 20}]
    # All 16 at a time take 1 s in place of 4 s.
    assert finding["Seconds at stake (s)"] == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("refused", [0, 4])
def test_no_more_threads_for_what_is_turned_down(refused: int, tmp_path: Path) -> None:
    """A service that refuses one call of four may refuse more of them, if more come at once."""
    plan = asking()
    for first, again in zip(plan.tasks[:refused], plan.tasks[4:], strict=False):
        first.key, first.state, first.became = again.key, "erred", "released"
        first.exception = "ConnectionError('429 Too Many Requests')"
    finding = found(plan, tmp_path)["blocked-tasks"]

    assert ("threads_per_worker" in finding["Suggestion"]) == (not refused)
    assert ("25 % of its attempts failed" in finding["Suggestion"]) == bool(refused)
    assert pd.isna(finding["Seconds at stake (s)"]) == bool(refused)


def test_attempts_that_have_not_ended_do_not_speak_for_a_service(tmp_path: Path) -> None:
    plan = asking()
    for task in plan.tasks[:4]:
        task.state, task.exception = "erred", "ConnectionError('429 Too Many Requests')"
    plan.unseen = [{**unseen(n, "processing", 3.9, 4.0), "key": f"ask-9{n}"} for n in range(60)]
    suggestion = found(plan, tmp_path)["blocked-tasks"]["Suggestion"]

    assert "25 % of its attempts failed" in suggestion
    assert "threads_per_worker" not in suggestion


def test_no_more_threads_where_memory_is_nearly_full(tmp_path: Path) -> None:
    plan = asking(memory_limit=1000, used=[(0, at, {"memory": 900}) for at in (0.0, 4.0)])
    findings = found(plan, tmp_path)

    finding = findings["blocked-tasks"]
    assert "memory-pressure" in findings
    assert "in place of 2" not in finding["Suggestion"]
    assert "the memory of workers was nearly full" in finding["Suggestion"]
    assert settings(finding) == []
    assert pd.isna(finding["Seconds at stake (s)"])


def test_no_more_threads_where_the_others_of_the_process_work(tmp_path: Path) -> None:
    # Each process uses 6 s of the CPU in 4 s, and its two tasks at a time hardly any.
    used = [
        (n, at, {"process_cpu_seconds": 1.5 * at, "service_cpu_seconds": 0.0})
        for n in (0, 1)
        for at in (0.0, 4.0)
    ]
    finding = found(asking(used=used), tmp_path)["blocked-tasks"]

    assert "other threads of their processes work" in finding["Finding"]
    assert "threads_per_worker" not in finding["Suggestion"]


def test_tasks_that_wait_for_a_pool_of_their_own(tmp_path: Path) -> None:
    plan = asking()
    pool = ("Future.result", "/lib/python3.13/concurrent/futures/_base.py", 450)
    outside = [("step", "/home/me/ask.py", n) for n in range(3)]
    plan.stands["ask"] = [*outside, pool, ("Condition.wait", "/lib/python3.13/threading.py", 360)]
    finding = found(plan, tmp_path)["blocked-tasks"]

    assert "stand in concurrent.futures for 100 % of their time" in finding["Finding"]
    assert "threads_per_worker" not in finding["Suggestion"]


def in_turn(lanes: list[tuple[int, int]], turn: float, times: int) -> list[Task]:
    """Plan tasks of lanes (worker, thread) of which one at a time is served; all ask at once."""
    tasks: list[Task] = []
    since = dict.fromkeys(lanes, 0.0)
    for number in range(times * len(lanes)):
        worker, thread = lane = lanes[number % len(lanes)]
        stop = turn * (number + 1)
        name = f"ask-{worker}{thread}{number}"
        tasks.append(Task(name, worker, since[lane], stop, cpu=0.001, thread=thread))
        since[lane] = stop
    return tasks


def test_tasks_that_wait_in_turn(tmp_path: Path) -> None:
    tasks = in_turn([(0, 1), (0, 2), (1, 1), (1, 2)], 0.25, 5)
    findings = found(Plan(tasks), tmp_path)

    assert "served one at a time, every 250 ms" in findings["waits-in-turn"]["Finding"]
    assert "blocked-tasks" not in findings
    assert not [one for one in findings.values() if "threads_per_worker" in one["Suggestion"]]


def test_what_tasks_do_outside_of_a_lock_of_their_process_is_no_wait(tmp_path: Path) -> None:
    """Two threads a process: 0.4 s with its lock, and 0.12 s without, ten times each."""
    tasks = []
    for worker in (0, 1):
        since = {1: 0.0, 2: 0.0}
        for number in range(20):
            thread, stop = 1 + number % 2, 0.4 * (number + 1) + 0.12
            name = f"ask-{worker}{number}"
            tasks.append(Task(name, worker, since[thread], stop, cpu=0.001, thread=thread))
            since[thread] = stop
    finding = found(Plan(tasks), tmp_path)["process-lock"]

    # Alone each lasts 0.52 s: 5.2 s in place of 8.12 s.
    assert finding["Seconds at stake (s)"] == pytest.approx(2.92, abs=0.3)


def test_a_long_task_beside_short_ones_keeps_none_of_them_waiting(tmp_path: Path) -> None:
    # One thread runs 20 tasks of 0.25 s, the other five times one that lasts 1 s.
    tasks = [Task(f"ask-{n}", 0, n * 0.25, n * 0.25 + 0.25, cpu=0.001) for n in range(20)]
    tasks += [Task(f"ask-{20 + n}", 1, n + 0.1, n + 1.1, cpu=0.001) for n in range(5)]

    assert "waits-in-turn" not in found(Plan(tasks, threads=1), tmp_path)


def test_who_waits_in_turn_is_no_slow_worker(tmp_path: Path) -> None:
    # One of two workers is served two times for each time that the other is.
    lanes = [(0, 1), (0, 1), (1, 1)]
    tasks, since = [], {0: 0.0, 1: 0.0}
    for number in range(24):
        worker, stop = lanes[number % 3][0], 0.25 * (number + 1)
        tasks.append(Task(f"ask-{number}", worker, since[worker], stop, cpu=0.001))
        since[worker] = stop
    findings = found(Plan(tasks, threads=1), tmp_path)

    assert "slow-worker" not in findings or findings["slow-worker"]["Cause"] == "waits-in-turn"
    assert "waits-in-turn" in findings


def test_tasks_that_end_evenly_for_they_began_so_do_not_wait_in_turn(tmp_path: Path) -> None:
    # Four threads of 1 s a task, which began 0.25 s after each other.
    tasks = four_lanes("ask", 1.0, 5, cpu=0.01)
    for task in tasks:
        late = 0.25 * (2 * task.worker + task.thread)
        task.start, task.stop = task.start + late, task.stop + late
    findings = found(Plan(tasks), tmp_path)

    assert "waits-in-turn" not in findings
    assert "this trace cannot tell" in findings["blocked-tasks"]["Suggestion"]


def test_the_garbage_collector(tmp_path: Path) -> None:
    # 0.4 s of each second that 16 tasks compute, 6.4 s in all, on four threads: 1.6 s of 4.
    finding = found(Plan(four_lanes("parse", 1.0, 4, collecting=0.4)), tmp_path)[
        "garbage-collection"
    ]
    assert "takes 40 % of what parse computes" in finding["Finding"]
    assert finding["Evidence"].startswith("6.4 s of 16 s on the CPU in 16 tasks")
    assert finding["Seconds at stake (s)"] == pytest.approx(1.6, rel=0.1)
    assert "gc.freeze" in finding["Suggestion"]


@pytest.mark.parametrize(
    "tasks",
    [
        four_lanes("parse", 1.0, 4, collecting=0.15),
        # They wait for most of their time: the collector's share of the CPU costs little.
        four_lanes("fetch", 1.0, 4, cpu=0.1, collecting=0.04),
        # A function that is a small part of the run.
        [*four_lanes("sum", 5.0, 1), *four_lanes("parse", 0.1, 1, collecting=0.09)],
    ],
)
def test_a_garbage_collector_that_costs_little(tasks: list[Task], tmp_path: Path) -> None:
    assert "garbage-collection" not in found(Plan(tasks), tmp_path)


def test_a_lock_of_each_process(tmp_path: Path) -> None:
    # In both processes one of two tasks is served at a time, in the second one for longer.
    tasks = [*in_turn([(0, 1), (0, 2)], 0.25, 6), *in_turn([(1, 1), (1, 2)], 0.4, 6)]
    findings = found(Plan(tasks), tmp_path)

    assert "something else of which each has one" in findings["process-lock"]["Finding"]
    assert "threads_per_worker=1" in findings["process-lock"]["Suggestion"]
    assert findings["blocked-tasks"]["Cause"] == "process-lock"


def test_a_lock_of_the_process_in_samples(tmp_path: Path) -> None:
    plan = asking()
    plan.stands["ask"] = [
        ("ask", "/home/me/ask.py", 3),
        ("SerializableLock.__enter__", "/x/dask/utils.py", 1400),
    ]
    findings = found(plan, tmp_path)

    finding = findings["process-lock"]
    assert "wait for it for 100 % of their time" in finding["Finding"]
    assert "2 times as many workers with threads_per_worker=1" in finding["Suggestion"]
    assert "in place of 2" not in findings["blocked-tasks"]["Suggestion"]


def test_a_lock_of_the_cluster_is_none_of_the_process(tmp_path: Path) -> None:
    plan = asking()
    plan.stands["ask"] = [
        ("acquire", "/x/distributed/lock.py", 90),
        ("sync", "/x/distributed/utils.py", 400),
        ("acquire", "/lib/python3.13/threading.py", 400),
    ]
    findings = found(plan, tmp_path)

    assert "process-lock" not in findings
    assert "in place of 2" not in findings["blocked-tasks"]["Suggestion"]


def one_by_one(graphs: int) -> Plan:
    """Plan 12 tasks of 1 s, one after the other on two workers in turn, of so many graphs."""
    tasks = [Task(f"ask-{n}", n % 2, 1.0 * n, n + 1.0, cpu=0.01) for n in range(12)]
    for number, task in enumerate(tasks):
        task.arrival = float(number // (12 // graphs) * (12 // graphs))
        task.sent = task.runnable = task.received = task.start
    return Plan(tasks, threads=1, graphs=[task.arrival for task in tasks[:: 12 // graphs]])


def test_one_task_at_a_time(tmp_path: Path) -> None:
    findings = found(one_by_one(12), tmp_path)

    finding = findings["one-at-a-time"]
    assert "12 tasks came in 12 parts" in finding["Finding"]
    assert "for 12 s (100 % of the run)" in finding["Finding"]
    assert findings["blocked-tasks"]["Cause"] == "one-at-a-time"
    assert "threads_per_worker" not in findings["blocked-tasks"]["Suggestion"]


def in_rounds(width: int) -> Plan:
    """Plan 12 graphs on four threads, each when the one before has ended: tasks, and their sum.

    Each takes 2 s, of which the sum is the last; its tasks run side by side for as long.
    """
    tasks = []
    for turn in range(12):
        begin = 2.0 * turn
        for lane in range(width):
            worker, thread = divmod(lane, 2)
            task = Task(f"ask-{turn}{lane}", worker, begin, begin + 1.0, thread=thread, cpu=0.01)
            tasks.append(task)
        needs = [f"ask-{turn}{lane}" for lane in range(width)]
        total = Task(f"add-{turn}", 0, begin + 1.0, begin + 2.0, cpu=0.01, dependencies=needs)
        tasks.append(total)
        for task in tasks[-width - 1 :]:
            task.arrival = begin
            task.sent = task.runnable = task.received = task.start
    return Plan(tasks, graphs=[2.0 * turn for turn in range(12)])


def test_a_point_at_a_time(tmp_path: Path) -> None:
    """Tasks of one graph that wait for each other occupy one thread of four."""
    finding = found(in_rounds(1), tmp_path)["one-at-a-time"]

    assert "24 tasks came in 12 parts" in finding["Finding"]
    assert "for 24 s (100 % of the run)" in finding["Finding"]


def test_rounds_that_occupy_all_threads_are_not_little(tmp_path: Path) -> None:
    """That one task runs at their end is no fault of the client's."""
    assert "one-at-a-time" not in found(in_rounds(4), tmp_path)


def test_gaps_that_take_longer_than_the_tasks_are_told_of(tmp_path: Path) -> None:
    plan = one_by_one(12)
    for number, task in enumerate(plan.tasks):
        late = 2.0 * number
        task.start, task.stop, task.arrival = task.start + late, task.stop + late, number + late
        task.sent = task.runnable = task.received = task.start
    plan.graphs = [task.arrival for task in plan.tasks]
    findings = found(plan, tmp_path)

    assert "client-gaps" in findings
    assert "one-at-a-time" not in findings


def test_tasks_of_one_graph_do_not_come_one_at_a_time(tmp_path: Path) -> None:
    assert "one-at-a-time" not in found(one_by_one(1), tmp_path)


def test_tasks_that_wait_for_storage(tmp_path: Path) -> None:
    # Two processes read 100 MB a second each.
    used = [(n, at, {"process_io.read_size": at * 1e8}) for n in (0, 1) for at in (0.0, 4.0)]
    findings = found(Plan(four_lanes("read", 1.0, 4, cpu=0.1), used=used), tmp_path)

    assert findings.keys() == {"io-bound"}
    assert "800 MB are read and written" in findings["io-bound"]["Finding"]


def test_a_storage_that_turns_calls_down_is_not_asked_by_more_threads(tmp_path: Path) -> None:
    tasks = four_lanes("load", 1.0, 4, cpu=0.1, storage=0.8)
    assert "more threads" in found(Plan(tasks), tmp_path / "all")["io-bound"]["Suggestion"]
    for first, again in zip(tasks[:4], tasks[4:], strict=False):
        first.key, first.state, first.became = again.key, "erred", "released"
        first.exception = "OSError('503 Slow Down')"
    suggestion = found(Plan(tasks), tmp_path / "refused")["io-bound"]["Suggestion"]
    assert "more threads" not in suggestion
    assert "25 % of its attempts failed" in suggestion


def test_tasks_that_wait_in_calls_of_storage(tmp_path: Path) -> None:
    """Their calls are measured: whatever files their processes move."""
    findings = found(Plan(four_lanes("load", 1.0, 4, cpu=0.1, storage=0.8)), tmp_path)

    assert findings.keys() == {"io-bound"}
    finding = findings["io-bound"]
    said = "load uses the CPU for 10 % of its time, and waits in calls of fsspec for 80 % of it."
    assert said in finding["Finding"]
    assert "see storage()" in finding["Evidence"]
    # Of the 0.9 s that each waits, less than half is in such calls.
    plan = Plan(four_lanes("load", 1.0, 4, cpu=0.1, storage=0.4))
    assert found(plan, tmp_path / "less").keys() == {"blocked-tasks"}
    # Then files that all processes read are what is said, and nothing of such calls.
    plan.used = [(n, at, {"process_io.read_size": at * 1e8}) for n in (0, 1) for at in (0.0, 4.0)]
    said = found(plan, tmp_path / "files")["io-bound"]["Finding"]
    assert "while 800 MB are read and written" in said
    assert "fsspec" not in said


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
    assert finding["Costs (s)"] == pytest.approx(4.0)  # half of 8 s


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
    assert finding["Costs (s)"] == pytest.approx(3.0)  # between four turns


def test_deserialising(tmp_path: Path) -> None:
    tasks = four_lanes("apply", 1.0, 4)
    for task in tasks:
        task.executing, task.start, task.deserialize = task.start, task.start + 0.5, 0.5
    finding = found(Plan(tasks), tmp_path)["deserialising"]

    assert finding["Function"] == "apply"
    assert finding["Costs (s)"] == pytest.approx(2.0)
    assert "scatter" in finding["Suggestion"]


def test_deserialising_what_was_spilled_is_no_matter_of_arguments(tmp_path: Path) -> None:
    tasks = four_lanes("apply", 1.0, 4, disk_read_size=1_000_000)
    for task in tasks:
        task.executing, task.start, task.deserialize = task.start, task.start + 0.5, 0.5
    finding = found(Plan(tasks), tmp_path)["deserialising"]

    assert finding["Finding"].startswith("Deserialising inputs that were spilled")
    assert "16 MB were read back" in finding["Evidence"]
    assert "scatter" not in finding["Suggestion"]


# --- GPUs ----------------------------------------------------------------------------------------


def readings(utilization: float, memory: float = 1e9) -> list[tuple[float, dict[str, Any]]]:
    facts = {"name": "Stand-in", "memory_total": 10e9, "memory_used": memory}
    return [(float(at), {**facts, "utilization": utilization}) for at in range(5)]


def test_idle_gpus(tmp_path: Path) -> None:
    finding = found(Plan(four_lanes("fit", 1.0, 4), gpu=readings(25.0)), tmp_path)["gpu-idle"]

    assert finding["Severity"] == "medium"
    assert finding["Costs (s)"] == pytest.approx(3.0)  # three quarters of 4 s
    assert finding["Worker"] == "worker-node1-0"


def test_busy_gpus_are_what_tasks_may_wait_for(tmp_path: Path) -> None:
    plan = Plan(four_lanes("fit", 1.0, 4, cpu=0.1), gpu=readings(90.0))

    assert found(plan, tmp_path) == {}


def test_unused_gpus(tmp_path: Path) -> None:
    findings = found(Plan(four_lanes("fit", 1.0, 4), gpu=readings(0.0)), tmp_path)

    assert findings.keys() == {"gpu-idle"}
    assert findings["gpu-idle"]["Severity"] == "low"
    assert findings["gpu-idle"]["Figures"]["unused"]["value"] == 2


def test_full_gpus(tmp_path: Path) -> None:
    plan = Plan(four_lanes("fit", 1.0, 4), gpu=readings(90.0, memory=9.5e9))
    findings = found(plan, tmp_path)

    assert findings.keys() == {"gpu-memory-full"}
    assert "9.5 GB of 10 GB" in findings["gpu-memory-full"]["Finding"]


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


def test_errors_of_tasks_that_a_client_had_given_up_are_no_grave_matter(tmp_path: Path) -> None:
    tasks = filled(["fit"], 1.0)
    tasks[-1].state, tasks[-1].became = "erred", "released"
    tasks[-1].exception, tasks[-1].ended_by = "KeyError('shard')", "client-releases-keys-7"
    finding = found(Plan(tasks), tmp_path)["errors"]

    assert finding["Severity"] == "low"
    said = "A client had given these tasks up before the scheduler heard of their errors: nothing "
    assert finding["Suggestion"].startswith(said)


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
    assert "persist() the collection whose tasks are called load" in finding["Suggestion"]
    assert "No line that built it is recorded" in finding["Suggestion"]


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
    restart = findings["given-up-tasks"]
    assert "1 task was unfinished when a client restarted the workers" in restart["Finding"]


def test_a_restart_takes_tasks_off_their_threads_too(tmp_path: Path) -> None:
    tasks = filled(["fit"], 1.0)
    tasks[-1].state, tasks[-1].became, tasks[-1].ended_by = (
        "cancelled",
        "released",
        "client-restart-7",
    )
    waiting = {**unseen(0, "released", 0.5, 0.9), "end_cause": "client-restart-7"}
    restart = found(Plan(tasks, unseen=[waiting]), tmp_path)["given-up-tasks"]

    assert "2 tasks were unfinished when a client restarted the workers" in restart["Finding"]
    assert "1 of them was seen running, for 1 s in all" in restart["Evidence"]


def test_a_task_that_fails_before_its_worker_hears_of_the_restart_was_unfinished(
    tmp_path: Path,
) -> None:
    tasks = filled(["fit"], 1.0)
    tasks[-1].state, tasks[-1].became = "erred", "released"
    tasks[-1].exception, tasks[-1].ended_by = "OSError('flaky')", "client-restart-7"
    waiting = {**unseen(0, "released", 0.5, 0.9), "end_cause": "client-restart-7"}
    restart = found(Plan(tasks, unseen=[waiting]), tmp_path)["given-up-tasks"]

    assert "2 tasks were unfinished when a client restarted the workers" in restart["Finding"]
    assert "2 had been sent to a worker" in restart["Evidence"]
    assert "1 ended before its worker did, 1 of these in an error" in restart["Evidence"]


def test_what_died_is_told_apart_from_what_could_not_be_recorded(tmp_path: Path) -> None:
    left = [(1, 3.0, "handle-worker-cleanup")]
    Plan(filled(["fit"], 1.0), left=left, killed=[1]).write_files(tmp_path)
    trace = Run.of(Trace.from_database(tmp_path))
    failed = Note("caught-errors", "a file", "a file: 1 error caught while recording.")

    def advice(trace: Run) -> str:
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
    assert finding["Costs (s)"] == pytest.approx(0.5)
    assert finding["Suggestion"].startswith("The trace cannot tell what ended it.")


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
    assert finding["Costs (s)"] == pytest.approx((4.0 + 2 * 2.0) / 4)
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


def test_what_kills_workers_by_the_clock_is_no_want_of_memory(tmp_path: Path) -> None:
    """Four workers die at 73 MB of 2 GB, one each 3 s, of SIGKILL as far as anybody knows."""
    deaths = dict(zip(range(1, 5), (3.0, 6.1, 9.0, 12.1), strict=True))
    tasks = [Task(f"fit-{n}", 0, float(n), n + 1.0) for n in range(14)]
    tasks += [Task(f"fit-9{n}0", n, 0.0, 1.0) for n in deaths]
    lost = [
        {**unseen(worker, "released", at - 2, at), "worker": f"tcp://10.0.0.1:400{worker}"}
        for worker, at in deaths.items()
    ]
    used = [(n, at, {"memory": 73_000_000}) for n in range(5) for at in (0.0, deaths.get(n, 14.0))]
    left = [(worker, at, "handle-worker-cleanup") for worker, at in deaths.items()]
    plan = Plan(tasks, workers=5, threads=1, unseen=lost, left=left, killed=[*deaths], used=used)
    plan.memory_limit = 2_000_000_000
    finding = found(plan, tmp_path)["lost-workers"]

    assert "4 workers were lost one every 2.9 s to 3.1 s, with 73 MB of 2 GB" in finding["Evidence"]
    assert "evenly, as by a clock" in finding["Evidence"]
    assert "Nothing says that memory ran out" in finding["Suggestion"]


@pytest.mark.parametrize(
    ("deaths", "told"),
    [
        # Every 3 s, but for one that a busy host let wait.
        ((3.0, 6.1, 9.0, 12.0, 15.1, 21.1), "one every 2.9 s to 3.1 s, but for 1 gap"),
        ((3.0, 4.0, 9.0, 12.0, 13.0, 21.1), None),
        ((3.0, 6.0, 12.0), None),  # of two gaps one tells nothing
    ],
)
def test_a_clock_is_told_by_most_of_the_gaps(
    deaths: tuple[float, ...], told: str | None, tmp_path: Path
) -> None:
    tasks = [Task(f"fit-{n}", 0, float(n), n + 1.0) for n in range(24)]
    tasks += [Task(f"fit-9{n}0", n, 0.0, 1.0) for n in range(1, len(deaths) + 1)]
    lost = [
        {**unseen(n, "released", at - 2, at), "worker": f"tcp://10.0.0.1:400{n}"}
        for n, at in enumerate(deaths, 1)
    ]
    left = [(n, at, "handle-worker-cleanup") for n, at in enumerate(deaths, 1)]
    workers = {"workers": len(deaths) + 1, "threads": 1, "killed": [n for n, *_ in left]}
    finding = found(Plan(tasks, unseen=lost, left=left, **workers), tmp_path)["lost-workers"]

    assert ("as by a clock" in finding["Evidence"]) is (told is not None)
    assert told is None or f"6 workers were lost {told}" in finding["Evidence"]


def test_memory_that_ran_out_excludes_more_threads(tmp_path: Path) -> None:
    """The kernel counts a kill in the control group of both workers; no finding is needed."""

    advice = [Advice("more-threads", "Take ten threads.")]
    waits = Finding("blocked-tasks", "It waits.", "See it.", advice, seconds=2.0)
    for kills in (4, 5):
        used = [(0, at, {"memory": 10**8, "oom_kills": n}) for at, n in ((0.0, 4), (3.9, kills))]
        used += [(1, at, {"memory": 10**8, "oom_kills": 4}) for at in (0.0, 1.9)]
        trace = killed(used=used, memory_limit=10**9).write(tmp_path / str(kills)).run
        table = diagnose(trace, {"blocked-tasks": lambda run: iter([waits])})
        assert ("memory ran out on a worker" in table["Suggestion"].iloc[0]) is (kills == 5)


def test_the_kernel_counted_a_kill_for_want_of_memory(tmp_path: Path) -> None:
    """Another worker of its host counts one more in the control group that they share."""
    counts = {0: [(0.0, 4), (3.9, 5)], 1: [(0.0, 4), (1.9, 4)]}
    for told in (True, False):
        used = [
            (n, at, {"memory": 10**8, "oom_kills": kills if told else None})
            for n, seen in counts.items()
            for at, kills in seen
        ]
        plan = killed(used=used, memory_limit=1_000_000_000)
        finding = found(plan, tmp_path / str(told))["lost-workers"]

        assert ("killed as memory ran out" in finding["Finding"]) is told
        assert ("the kernel had killed 1 more" in finding["Evidence"].lower()) is told
        assert finding["Suggestion"].startswith("The trace cannot tell") is not told


# --- the trace -----------------------------------------------------------------------------------


def test_a_file_that_ends_early(tmp_path: Path) -> None:
    finding = found(Plan(filled(["fit"], 1.0), killed=[1]), tmp_path)["missing-evidence"]

    assert finding["Severity"] == "low"
    assert "ended without closing" in finding["Evidence"]


def test_no_samples(tmp_path: Path) -> None:
    finding = found(Plan(filled(["fit"], 1.0), resources=False), tmp_path)["missing-evidence"]

    assert "no resource samples" in finding["Evidence"]
