"""Other programs on a busy host are named, and processes of the run are not."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diagnosed_plans import facts_of, found
from refuters import refute
from traces import Plan, Task, filled

#: PID in the headers of a plan's files.
OWN = os.getpid()
#: PID of an ancestor of it, and of two processes that do not belong to the run.
CLIENT, STRESS, EDITOR = OWN + 1, OWN + 2, OWN + 3


def process(pid: int, name: str, cores: float, **more: Any) -> dict[str, Any]:
    facts = {"pid": pid, "name": name, "owner": "ann", "cpu": 100 * cores, "memory": 10_000_000}
    return {**facts, "interval": 5.0, **more}


def waiting(*looks: list[dict[str, Any]], workers: int = 2) -> Plan:
    """Plan tasks with CPU wait for half of their time, and samples of their host every 5 s."""
    tasks: list[Task] = filled(["loop"], 1.0, count=16)
    for task in tasks:
        task.cpu = task.run_queue = 0.5
    seen = [(0, 5.0 * n, facts) for n, rows in enumerate(looks, 1) for facts in rows]
    return Plan(tasks, seen=seen, workers=workers)


def worker(cores: float = 1.0) -> dict[str, Any]:
    return process(OWN, "python", cores, ancestors=[CLIENT, 1234567])


def others(directory: Path, *looks: list[dict[str, Any]]) -> Any:
    """Return the figures about other programs in a finding about cores."""
    findings = found(waiting(*looks), directory, "cpu-oversubscribed")
    return facts_of(findings["cpu-oversubscribed"]).get("other_programs")


def test_a_program_that_takes_the_cores_is_named(tmp_path: Path) -> None:
    looks = [
        [worker(), process(STRESS, "stress", 1.5), process(EDITOR, "vim", 0.02)],
        [worker(), process(STRESS, "stress", 0.5), process(STRESS + 9, "stress", 0.3)],
    ]
    told = others(tmp_path, *looks)
    # (1.5 + 0.5 + 0.3) cores for 5 s each of 10 s. vim, with 0.01, is counted but not named.
    assert (told["host"], told["looks"]) == ("node1", 2)
    assert told["cores"] == pytest.approx(1.16)
    assert told["programs"] == pytest.approx({"stress of ann": 1.15})


def test_tasks_that_hardly_get_a_core_use_the_cpu(tmp_path: Path) -> None:
    plan = waiting([worker(), process(STRESS, "stress", 1.5)])
    for task in plan.tasks:
        task.cpu, task.run_queue = 0.02, 0.9
    share = facts_of(found(plan, tmp_path)["cpu-oversubscribed"])["share"]
    assert share == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize(("cores", "fewer"), [(2, True), (4, False)])
def test_fewer_threads_are_advised_only_if_there_are_more_than_cores(
    tmp_path: Path, cores: int, fewer: bool
) -> None:
    plan = replace(waiting([worker(), process(STRESS, "stress", 1.5)]), cores=cores)
    finding = found(plan, tmp_path)["cpu-oversubscribed"]
    assert finding["Suggestion"].startswith("Move other programs off the host (stress of ann)")
    assert (
        ("run fewer threads" in finding["Suggestion"])
        == fewer
        == bool(facts_of(finding)["settings"])
    )


def test_the_run_s_own_processes_are_no_other_programs(tmp_path: Path) -> None:
    # The client above the worker, and processes that the worker started, belong to the run.
    child = process(STRESS, "loky", 2.0, ancestors=[OWN + 5, OWN, CLIENT])
    looks = [worker(), process(CLIENT, "python", 1.0), child]
    assert others(tmp_path / "own", looks)["programs"] == {}
    # Other processes of the same shell do not.
    looks = [worker(), process(STRESS, "stress", 1.0, ancestors=[1234567])]
    cores = found(waiting(looks), tmp_path / "shell")["cpu-oversubscribed"]
    assert facts_of(cores)["other_programs"]["programs"] == {"stress of ann": 1.0}
    assert "Other programs used 1 core of node1 (in 1 sample)" in cores["Evidence"]
    assert others(tmp_path / "unseen") is None


def test_programs_by_cpu_and_memory(tmp_path: Path) -> None:
    looks = [
        [worker(), process(STRESS, "stress", 1.5), process(STRESS + 9, "stress", 0.5)],
        [worker(0.5), process(STRESS, "stress", 1.0, memory=50_000_000)],
    ]
    table = waiting(*looks).write(tmp_path).host_processes()
    stress, own = table.to_dict("records")
    names = {"Node": "node1", "Process": "stress", "Owner": "ann", "Whose": "other"}
    figures = {"Processes": 2, "Cpu Seconds": 15.0, "Cores": 1.5, "Memory Used (MB)": 50.0}
    assert {name: stress.pop(name) for name in names} == names
    assert stress == pytest.approx({**figures, "Looks": 2})
    assert (own["Process"], own["Whose"]) == ("python", "run")
    assert (own["Cpu Seconds"], own["Cores"]) == pytest.approx((7.5, 0.75))


def test_another_name_or_number_is_refuted(tmp_path: Path) -> None:
    looks = [[worker(), process(STRESS, "stress", 1.5)]]
    analyser = waiting(*looks).write(tmp_path)
    findings = analyser.findings()
    told = vars(findings[0].figures["other_programs"])
    for name, other in (("programs", {"yes of ann": 1.5}), ("cores", 2.0), ("host", "node2")):
        figures = {**findings[0].figures, "other_programs": {**told, name: other}}
        changed = replace(findings[0], figures=figures)
        assert refute(tmp_path, [changed, *findings[1:]])
    assert not refute(tmp_path, findings)


def test_other_programs_come_after_a_problem_of_the_run(tmp_path: Path) -> None:
    plan = replace(waiting([worker(), process(STRESS, "stress", 1.5)]), cores=4)
    alone = found(plan, tmp_path / "alone")
    assert [*alone] == ["cpu-oversubscribed"]
    assert alone["cpu-oversubscribed"]["Severity"] == "high"
    # After 1.5 s without tasks, the same tasks run again. CPU wait costs 4 s.
    plan.tasks += [
        replace(task, key=f"loop-{n}", arrival=5.5, start=task.start + 5.5, stop=task.stop + 5.5)
        for n, task in enumerate(plan.tasks, 16)
    ]
    both = found(replace(plan, graphs=(0.0, 5.5)), tmp_path / "both")
    severities = [(rule, finding["Severity"]) for rule, finding in both.items()]
    assert severities == [("client-bound", "medium"), ("cpu-oversubscribed", "low")]
