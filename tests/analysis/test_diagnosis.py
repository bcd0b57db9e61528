"""`diagnose()` and the rules about overhead, balance and parallelism, on runs planned by hand.

Two workers of two threads, unless said; every rule fires on its fault, and none on its twin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from diagnosed_plans import found
from refuters import refute
from traces import Plan, Task, compute, filled, managed, usage, write_as_dasf

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis import RULES, diagnose
from dasfprof.analysis.diagnosis.registry import Advice, Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures

COLUMNS = ["Severity", "Finding", "Seconds at stake (s)", "Evidence", "Suggestion"]
COLUMNS += ["Rule", "Function", "Worker", "Start (s)", "Stop (s)", "Cause"]
SAID = ("", "It is so.", "See it.", ["Change it."])


def test_a_healthy_run_has_no_finding(tmp_path: Path) -> None:
    table = Plan(filled(["load", "clean", "save"], 1.0)).write(tmp_path).diagnose()

    assert table.empty
    assert table.columns.tolist() == COLUMNS


def test_an_empty_trace_has_none_but_of_the_trace(tmp_path: Path) -> None:
    assert set(found(Plan([], resources=False), tmp_path)) <= {"missing-evidence"}


def test_the_gravest_comes_first(tmp_path: Path) -> None:
    tasks = filled(["load"], 1.0)
    tasks += [Task(f"step-{n}", 0, 4 + n, 5 + n, arrival=0.0) for n in range(10)]
    tasks[3].state, tasks[3].exception = "erred", "ValueError('no 3')"
    table = Plan(tasks).write(tmp_path).diagnose()

    assert table["Rule"].tolist()[0] == "errors"
    table = table[table["Cause"].isna()].iloc[1:]
    order = ["high", "medium", "low", "info"]
    ranks = [order.index(severity) for severity in table["Severity"]]
    assert ranks == sorted(ranks)
    for _, group in table.groupby("Severity"):
        assert group["Seconds at stake (s)"].fillna(0).is_monotonic_decreasing


def test_an_error_comes_before_all_that_costs_time(tmp_path: Path) -> None:
    # A run of a second whose tasks are too small, one of which fails.
    tasks = [
        Task(f"inc-{n}", n % 2, n // 2 * 0.01, n // 2 * 0.01 + 0.002, done=n // 2 * 0.01 + 0.01)
        for n in range(200)
    ]
    tasks[7].state, tasks[7].exception = "erred", "ValueError('no 7')"
    table = Plan(tasks, threads=1).write(tmp_path).diagnose()

    assert table["Rule"].iloc[0] == "errors"
    assert "tasks-too-small" in set(table["Rule"])
    assert "ValueError in inc" in table["Finding"].iloc[0]


def stating(*findings: tuple[str, float]) -> dict[str, Any]:
    """Give rules of these names that each find that so many seconds are at stake."""

    def one(slug: str, seconds: float) -> Any:
        return lambda run: iter(
            [Finding(slug, f"{slug} it is.", "See it.", ["Change it."], seconds=seconds)]
        )

    return {slug: one(slug, seconds) for slug, seconds in findings}


def diagnosed(directory: Path, *findings: tuple[str, float], **how: Any) -> pd.DataFrame:
    """Diagnose a run of 16 s by rules that find just these."""
    trace = Plan(filled(["load"], 4.0)).write(directory).run
    return diagnose(trace, stating(*findings), **how)


def test_symptoms_stand_beneath_their_cause_with_their_seconds(tmp_path: Path) -> None:
    table = diagnosed(
        tmp_path,
        ("imbalance", 2.0),
        ("client-gaps", 6.0),
        ("spilling", 5.0),
        ("straggling-tasks", 3.0),
    )

    told = table[["Rule", "Cause", "Seconds at stake (s)", "Severity"]].values.tolist()
    assert told == [
        ["client-gaps", None, 6.0, "high"],
        ["imbalance", "client-gaps", 2.0, "low"],
        ["spilling", None, 5.0, "high"],
        ["straggling-tasks", "spilling", 3.0, "low"],
    ]
    assert (
        table["Evidence"]
        .iloc[1]
        .endswith("It may follow from client-gaps, spilling, straggling-tasks.")
    )


def test_what_explains_others_comes_first_though_they_cost_more(tmp_path: Path) -> None:
    table = diagnosed(tmp_path, ("straggling-tasks", 4.0), ("poor-placement", 2.0))
    assert table[["Rule", "Cause"]].values.tolist() == [
        ["poor-placement", None],
        ["straggling-tasks", "poor-placement"],
    ]


def test_what_costs_hardly_anything_explains_nothing_that_costs_much(tmp_path: Path) -> None:
    table = diagnosed(tmp_path, ("straggling-tasks", 9.0), ("poor-placement", 1.0))
    assert table["Rule"].tolist() == ["straggling-tasks", "poor-placement"]
    assert table["Cause"].isna().all()


def advising(*rules: tuple[str, float, Advice | None]) -> dict[str, Any]:
    """Give rules that each find something and advise it."""

    def one(seconds: float, advice: Advice | None) -> Any:
        parts = ["Change it.", *([advice] if advice else [])]
        return lambda run: iter([Finding("", "It is.", "See it.", parts, seconds=seconds)])

    return {slug: one(seconds, advice) for slug, seconds, advice in rules}


MORE = Advice("more-threads", "Take ten threads.", promises=True)
FEWER = Advice("fewer-threads", "Take one thread.")


def test_advice_that_another_finding_refutes_is_not_given(tmp_path: Path) -> None:
    rules = advising(("blocked-tasks", 3.0, MORE), ("spilling", 2.0, None))
    trace = Plan(filled(["load"], 4.0)).write(tmp_path).run
    table = diagnose(trace, rules).set_index("Rule")

    assert table.loc["blocked-tasks", "Suggestion"] == (
        "Change it. More threads a worker would gain nothing: workers spill for want of memory."
    )
    # What it promised was to be gained by that.
    assert pd.isna(table.loc["blocked-tasks", "Seconds at stake (s)"])
    assert table.loc["spilling", "Suggestion"] == "Change it."
    assert table.loc["spilling", "Seconds at stake (s)"] == 2.0


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        # Where memory ran out, or nearly.
        *(("more-threads", rule) for rule in ("killed-workers", "memory-pressure", "spilling")),
        *(("more-threads", rule) for rule in ("host-memory-full",)),
        # Where tasks wait for one thing, or for each other.
        *(("more-threads", rule) for rule in ("process-lock", "cluster-lock", "lock-bound")),
        *(("more-threads", rule) for rule in ("waits-in-turn", "resource-limit")),
        ("more-threads", "waits-for-tasks"),
        # Where no core, no worker or no task is left for them.
        *(("more-threads", rule) for rule in ("cpu-oversubscribed", "no-workers", "client-gaps")),
        *(("more-threads", rule) for rule in ("one-at-a-time", "too-few-tasks", "serial-chain")),
        *(("more-threads", rule) for rule in ("poor-placement", "imbalance")),
        *(("share-memory", rule) for rule in ("process-lock", "lock-bound")),
    ],
)
def test_which_finding_excludes_which_advice(kind: str, other: str, tmp_path: Path) -> None:
    advice = Advice(kind, "Do that.")
    trace = Plan(filled(["load"], 4.0)).write(tmp_path).run

    def advised(*rules: str) -> bool:
        others = advising(*((rule, 2.0, None) for rule in rules))
        table = diagnose(trace, {**advising(("transfer-bound", 3.0, advice)), **others})
        return "Do that." in " ".join(table["Suggestion"])

    assert other in RULES
    assert advised("late-start")
    assert not advised("late-start", other)


def test_advice_that_nothing_refutes_is_given(tmp_path: Path) -> None:
    rules = advising(("blocked-tasks", 3.0, MORE), ("late-receipt", 2.0, None))
    trace = Plan(filled(["load"], 4.0)).write(tmp_path).run
    table = diagnose(trace, rules).set_index("Rule")

    assert table.loc["blocked-tasks", "Suggestion"] == "Change it. Take ten threads."
    assert table.loc["blocked-tasks", "Seconds at stake (s)"] == 3.0


@pytest.mark.parametrize("locked", [False, True])
def test_workers_do_not_share_memory_where_a_lock_keeps_threads_apart(
    locked: bool, tmp_path: Path
) -> None:
    share = Advice("share-memory", "Take fewer workers.")
    rules = advising(("transfer-bound", 3.0, share), ("imbalance", 2.0, None))
    rules |= advising(("process-lock", 1.0, None)) if locked else {}
    table = diagnose(Plan(filled(["load"], 4.0)).write(tmp_path).run, rules).set_index("Rule")

    assert ("Take fewer workers." in table.loc["transfer-bound", "Suggestion"]) != locked
    assert table.loc["transfer-bound", "Seconds at stake (s)"] == 3.0


@pytest.mark.parametrize("refuted", [False, True])
def test_fewer_threads_are_not_advised_beside_more(refuted: bool, tmp_path: Path) -> None:
    # Where more are refuted themselves, fewer are advised again.
    rules = advising(("blocked-tasks", 3.0, MORE), ("tasks-too-small", 2.0, FEWER))
    rules |= advising(("spilling", 1.0, None)) if refuted else {}
    trace = Plan(filled(["load"], 4.0)).write(tmp_path).run
    text = " ".join(diagnose(trace, rules)["Suggestion"])

    assert ("Take one thread." in text) == refuted
    assert ("Take ten threads." in text) != refuted


def test_the_gravest_is_no_symptom_of_a_lesser(tmp_path: Path) -> None:
    table = diagnosed(tmp_path, ("tasks-too-small", 1.0), ("client-gaps", 10.0))

    assert table["Rule"].tolist() == ["client-gaps", "tasks-too-small"]
    assert table["Cause"].isna().all()
    assert table["Severity"].tolist() == ["high", "medium"]


@pytest.mark.parametrize("seconds", [(4.0, 4.0, 4.0), (5.0, 4.0, 3.0), (3.0, 5.0, 4.0)])
def test_causes_make_no_ring(seconds: tuple[float, ...], tmp_path: Path) -> None:
    # Each of these rules has the next among its symptoms, and the last the first.
    ring = ("lock-bound", "cpu-oversubscribed", "tasks-too-small")
    assert all(ring[n] in RULES[ring[n - 1]].causes for n in range(3))
    table = diagnosed(tmp_path, *zip(ring, seconds, strict=True))

    assert pd.isna(table["Cause"].iloc[0])
    assert table["Severity"].iloc[0] == "high"
    assert table["Seconds at stake (s)"].iloc[0] == max(seconds)


def test_what_costs_nothing_to_speak_of_is_shown_if_asked(tmp_path: Path) -> None:
    small = ("imbalance", 0.09), ("spilling", 0.1), ("memory-pressure", float("nan"))
    small += (("lost-workers", 0.01),)

    table = diagnosed(tmp_path / "unasked", *small)
    assert set(table["Rule"]) == {"lost-workers", "spilling", "memory-pressure"}
    assert set(diagnosed(tmp_path / "asked", *small, least=0.0)["Rule"]) == {*dict(small)}


def test_a_rule_that_fails_is_told_and_takes_no_other(tmp_path: Path) -> None:
    def broken(run: RunFigures) -> Any:
        raise ZeroDivisionError("no workers")

    steps = [
        Task(f"step-{n}", 0, n, n + 1, dependencies=[f"step-{n - 1}"] if n else ())
        for n in range(10)
    ]
    trace = Plan(steps).write(tmp_path).run
    table = diagnose(trace, {"broken": broken, **RULES}).set_index("Rule")

    assert "serial-chain" in table.index
    assert table.loc["rule-failed", "Severity"] == "info"
    assert "broken" in str(table.loc["rule-failed", "Finding"])
    assert "no workers" in str(table.loc["rule-failed", "Evidence"])


@pytest.mark.parametrize(
    ("seconds", "limits", "severity"),
    [
        (20.0, {}, "high"),
        (19.9, {}, "medium"),
        (4.9, {}, "low"),
        (float("nan"), {}, "info"),
        (90.0, {"at_most": "medium"}, "medium"),
        (0.1, {"at_least": "medium"}, "medium"),
        (float("nan"), {"at_least": "high"}, "high"),
        (0.0, {"at_least": "low", "at_most": "low"}, "low"),
        (0.9, {"at_least": "high"}, "medium"),
        (1.0, {"at_least": "high"}, "high"),
    ],
)
def test_severity_in_a_run_of_100_seconds(
    seconds: float, limits: dict[str, Any], severity: str
) -> None:
    finding = Finding(*SAID, seconds=seconds, **limits)

    assert finding.severity_in(100.0) == severity
    symptom = finding.beneath(finding, ["spilling"])
    assert symptom.severity_in(100.0) in ("low", "info")
    assert symptom.evidence == "See it. It may follow from spilling."
    assert symptom.figures == {"may_follow_from": ("spilling",)}


def test_nothing_under_a_second_is_high_for_its_share() -> None:
    finding = Finding(*SAID, seconds=0.9)

    assert finding.severity_in(1.0) == "medium"
    assert Finding(*SAID, seconds=1.0).severity_in(1.0) == "high"
    # A twentieth of the run: what is grave for another reason stays so.
    assert Finding(*SAID, seconds=0.9, at_least="high").severity_in(18.0) == "high"


def test_symptoms_are_of_rules() -> None:
    for slug, rule in RULES.items():
        assert {*rule.causes, *rule.explains} <= RULES.keys()
        assert slug not in rule.causes


def test_small_tasks(tmp_path: Path) -> None:
    # Each takes 2 ms, and 8 ms until its thread has the next.
    tasks = [
        Task(f"inc-{n}", n % 2, n // 2 * 0.01, n // 2 * 0.01 + 0.002, done=n // 2 * 0.01 + 0.01)
        for n in range(400)
    ]
    tasks = [
        Task(**{**vars(task), "thread": n % 4, "key": f"{task.key}{thread}"})
        for n, task in enumerate(tasks)
        for thread in (0, 1)
    ]
    finding = found(Plan(tasks), tmp_path)["tasks-too-small"]

    assert (finding["Severity"], finding["Function"]) == ("high", "inc")
    # 0.8 of 4 threads' 2 s.
    assert finding["Seconds at stake (s)"] == pytest.approx(1.6, rel=0.02)
    assert "2 ms each" in finding["Finding"]
    assert "inputs into each task of inc, as a list" in finding["Suggestion"]


def test_small_tasks_that_are_received_late(tmp_path: Path) -> None:
    # One thread: each task takes 2 ms, 6 ms on its way from the end of the one before, 2 ms more.
    tasks = []
    for n in range(200):
        sent = 0.01 * n
        times = {"sent": sent, "received": sent + 0.006, "executing": sent + 0.006}
        tasks.append(Task(f"inc-{n}", 0, sent + 0.008, sent + 0.01, runnable=sent, **times))
    findings = found(Plan(tasks, workers=1, threads=1), tmp_path)

    assert findings["tasks-too-small"]["Seconds at stake (s)"] == pytest.approx(1.6, rel=0.02)
    assert "takes 80 % of the threads' time" in findings["tasks-too-small"]["Finding"]
    assert findings["late-receipt"]["Seconds at stake (s)"] == pytest.approx(1.2, rel=0.02)
    assert findings["late-receipt"]["Cause"] == "tasks-too-small"


def test_many_tasks_do_not_explain_what_is_far_more_than_handling_them(tmp_path: Path) -> None:
    # Each of 40 tasks computes for 1 ms, and takes 0.2 s to be handled.
    tasks = [
        Task(f"inc-{n}", n % 2, n // 2 * 0.2 + 0.1, n // 2 * 0.2 + 0.101, ready=n // 2 * 0.2)
        for n in range(40)
    ]
    for task in tasks:
        task.executing, task.done = task.ready, task.start + 0.099
    finding = found(Plan(tasks, threads=1), tmp_path)["tasks-too-small"]

    assert "Their number alone does not explain" in finding["Suggestion"]
    assert "inputs into each task" not in finding["Suggestion"]
    assert pd.isna(finding["Seconds at stake (s)"])


def test_a_single_small_task_is_nothing_to_worry_about(tmp_path: Path) -> None:
    table = found(Plan([Task("inc", 0, 0.0, 57e-6, done=0.02)]), tmp_path)
    assert "tasks-too-small" not in table
    assert {finding["Severity"] for finding in table.values()} <= {"low", "info"}


@pytest.mark.parametrize(("size", "advised"), [(50_000_000, "split_out="), (1000, "Break the")])
def test_a_reduction_into_one_partition(tmp_path: Path, size: int, advised: str) -> None:
    # A dataframe's tree: eight partitions, and three tasks that put them together, one by one.
    tasks = filled(["part"], 0.5, count=8)
    before = [f"part-{n}" for n in range(8)]
    for number in range(3):
        key, begin = f"groupbyaggregation-tree-{number}", 1.0 + 2.0 * number
        tasks.append(Task(key, 0, begin, begin + 2.0, size=size, dependencies=before))
        before = [key]
    finding = found(Plan(tasks), tmp_path)["serial-chain"]

    assert finding["Function"] == "groupbyaggregation-tree"
    assert advised in finding["Suggestion"]


def test_a_single_task_is_no_imbalance(tmp_path: Path) -> None:
    # Small ones beside it are no work that could be spread.
    tasks = [Task("read-0", 0, 0.0, 5.0), Task("sum-0", 0, 5.0, 5.01, dependencies=["read-0"])]
    tasks.append(Task("small-0", 1, 0.0, 0.001))
    findings = found(Plan(tasks, threads=1), tmp_path)

    assert "imbalance" not in findings
    assert "one file that cannot be split" in findings["too-few-tasks"]["Suggestion"]


def test_a_chain(tmp_path: Path) -> None:
    # Four threads load for 2 s, then one task after another runs for 8 s.
    tasks = filled(["load"], 0.5)
    before = [task.key for task in tasks]
    for number in range(8):
        start = 2.0 + number
        tasks.append(
            Task(f"step-{number}", 0, start, start + 1, runnable=start, dependencies=before)
        )
        before = [f"step-{number}"]
    findings = found(Plan(tasks), tmp_path)

    chain = findings["serial-chain"]
    assert (chain["Severity"], chain["Function"]) == ("high", "step")
    # One of four threads is busy for 8 s: three quarters of that are lost.
    assert chain["Seconds at stake (s)"] == pytest.approx(6.0)
    assert (chain["Start (s)"], chain["Stop (s)"]) == pytest.approx((2.0, 10.0))
    assert "8 tasks" in chain["Finding"]
    assert findings.keys() - {"serial-chain"} <= {"imbalance"}


def test_too_few_tasks(tmp_path: Path) -> None:
    # Two tasks at a time on four threads.
    tasks = [
        Task(f"fit-{n}", n % 2, n // 2 * 3.0, n // 2 * 3.0 + 3, size=50_000_000) for n in range(4)
    ]
    for task in tasks[2:]:
        task.runnable, task.dependencies = 3.0, ["fit-0", "fit-1"]
    finding = found(Plan(tasks), tmp_path)["too-few-tasks"]

    assert finding["Function"] == "fit"
    assert finding["Seconds at stake (s)"] == pytest.approx(3.0)  # half of the threads idle for 6 s
    assert "3 times as many partitions (12 tasks" in finding["Suggestion"]


def test_a_slow_function(tmp_path: Path) -> None:
    tasks = filled(["load"], 0.1)
    for number in range(16):
        turn, lane = divmod(number, 4)
        worker, thread = divmod(lane, 2)
        begin = 0.4 + turn
        tasks.append(Task(f"fit-{number}", worker, begin, begin + 1, thread=thread))
    finding = found(Plan(tasks), tmp_path)

    assert finding.keys() == {"dominating-function"}
    slow = finding["dominating-function"]
    assert (slow["Severity"], slow["Function"]) == ("medium", "fit")
    # 4 s of 4.4 on each thread: half of that, were it twice as fast.
    assert slow["Seconds at stake (s)"] == pytest.approx(2.0)


def fat(size: int) -> Plan:
    tasks = filled(["load"], 0.5, count=12)
    for task in tasks:
        task.size = 1_000_000
    tasks.append(Task("load-12", 1, 1.5, 6.5, size=size))
    return Plan(tasks)


def test_a_fat_partition(tmp_path: Path) -> None:
    findings = found(fat(20_000_000), tmp_path)

    finding = findings["fat-partitions"]
    assert (finding["Severity"], finding["Function"]) == ("high", "load")
    assert "20 MB, 20 times the median" in finding["Finding"]
    # The other threads idle for the 4.5 s that it takes longer than others. Split evenly, that is
    # what four threads do.
    assert finding["Seconds at stake (s)"] == pytest.approx(4.5 - 4.5 / 4)
    assert finding["Worker"] == "worker-node1-1"
    assert (finding["Start (s)"], finding["Stop (s)"]) == pytest.approx((1.5, 6.5))
    assert "partitions of about 1 MB" in finding["Suggestion"]
    assert "straggling-tasks" not in findings
    assert all(findings[rule]["Severity"] == "low" for rule in findings.keys() - {"fat-partitions"})


def test_a_straggler(tmp_path: Path) -> None:
    findings = found(fat(1_000_000), tmp_path)

    finding = findings["straggling-tasks"]
    assert (finding["Severity"], finding["Function"]) == ("high", "load")
    assert "up to 5 s in load, whose median is 500 ms" in finding["Finding"]
    assert "load-12" in finding["Evidence"]
    assert "fat-partitions" not in findings


def test_stragglers_of_which_only_the_scheduler_tells(tmp_path: Path) -> None:
    """What nobody noted of its thread is not guessed."""
    fat(1_000_000).write(tmp_path)
    files = [path for path in tmp_path.iterdir() if "-TracePlugin-" not in path.name]
    analyser = TraceAnalyser(files, progress=False)
    assert not refute(files, analyser.findings())
    findings = analyser.diagnose()

    (finding,) = findings[findings["Rule"] == "straggling-tasks"].to_dict("records")
    assert "up to 5 s in load, whose median is 500 ms" in finding["Finding"]
    assert "cause of those of load: unknown" in finding["Evidence"]


def test_the_finding_shows_what_the_table_of_stragglers_shows(tmp_path: Path) -> None:
    # The last but one waited for a core for all that it took longer; the last for a second of six.
    tasks = [Task(f"load-{n}", 0, n * 0.5, n * 0.5 + 0.5) for n in range(12)]
    tasks.append(Task("load-12", 0, 6.0, 12.0, run_queue=5.5))
    tasks.append(Task("load-13", 0, 12.0, 18.0, run_queue=1.0))
    finding = found(Plan(tasks, threads=1), tmp_path)["straggling-tasks"]
    table = TraceAnalyser(tmp_path, progress=False).stragglers()

    assert "up to 5 s in load, whose median is 500 ms" in finding["Finding"]
    shown = table[["Task Key", "Elapsed (s)", "Median (s)", "Cause"]].values.tolist()
    assert shown == [["load-13", pytest.approx(5.0), pytest.approx(0.5), "computed longer"]]


def test_a_straggler_among_layers(tmp_path: Path) -> None:
    # Two passes over an array: in the second each task has ten times as much to do, and one more.
    tasks = [Task((f"mean-{0:032x}", n), 0, n * 0.1, n * 0.1 + 0.1) for n in range(10)]
    tasks += [Task((f"mean-{1:032x}", n), 0, 1.0 + n, 2.0 + n) for n in range(10)]
    tasks.append(Task((f"mean-{1:032x}", 10), 0, 11.0, 17.0))
    finding = found(Plan(tasks), tmp_path)["straggling-tasks"]

    assert finding["Finding"].startswith("1 task held")
    assert "of their function in the same layer of the graph" in finding["Finding"]
    assert "6 s in mean, whose median in the same layer of the graph is 1 s" in finding["Finding"]


def test_stragglers_of_several_causes(tmp_path: Path) -> None:
    # One of load sleeps for 4.5 s; three of fit read inputs back from disk for 1.5 s each.
    tasks = [Task(f"load-{n}", 0, n * 0.5, n * 0.5 + 0.5) for n in range(12)]
    tasks.append(Task("load-12", 0, 6.0, 11.0, cpu=0.5))
    tasks += [Task(f"fit-{n}", 1, n * 0.5, n * 0.5 + 0.5) for n in range(12)]
    for n in range(3):
        begin = 6.0 + 2 * n
        tasks.append(
            Task(f"fit-{12 + n}", 1, begin + 1.5, begin + 2, executing=begin, disk_read=1.5)
        )
    finding = found(Plan(tasks, threads=1), tmp_path)["straggling-tasks"]

    assert finding["Function"] == "load"
    assert finding["Finding"].startswith("4 tasks")
    assert "3 of fit, 1 of load" in finding["Evidence"]
    assert "cause of those of load: blocked" in finding["Evidence"]
    assert "they waited without using the CPU" in finding["Suggestion"]


def test_a_slow_worker(tmp_path: Path) -> None:
    # The second worker takes twice as long for as many tasks.
    tasks = [
        Task(f"f-{worker}{thread}{n}", worker, n * s, n * s + s, thread=thread)
        for worker, s in ((0, 0.5), (1, 1.0))
        for thread in (0, 1)
        for n in range(8)
    ]
    findings = found(Plan(tasks), tmp_path)

    finding = findings["slow-worker"]
    assert (finding["Severity"], finding["Worker"]) == ("high", "worker-node1-1")
    # 16 runs take 0.5 s longer each, on two threads; the others idle for the 4 s.
    assert finding["Seconds at stake (s)"] == pytest.approx(4.0)
    assert "1 worker of 2" in finding["Evidence"]  # the scheduler is none
    assert 'retire_workers(["tcp://10.0.0.1:4001"])' in finding["Suggestion"]
    assert all(findings[rule]["Severity"] == "low" for rule in findings.keys() - {"slow-worker"})


def two_speeds(slow: set[int], **of_slow: Any) -> list[Task]:
    """Plan four workers of which some take twice as long for as many tasks."""
    return [
        Task(
            f"f-{worker}{thread}{n}",
            worker,
            n * seconds,
            (n + 1) * seconds,
            thread=thread,
            **(of_slow if worker in slow else {}),
        )
        for worker in range(4)
        for thread in (0, 1)
        for n in range(8)
        for seconds in [1.0 if worker in slow else 0.5]
    ]


def test_a_slow_host(tmp_path: Path) -> None:
    plan = Plan(two_speeds({2, 3}), workers=4, hosts=["a", "a", "b", "b"])
    finding = found(plan, tmp_path)["slow-worker"]

    assert finding["Finding"].startswith("Host b is slow: f takes 2 times as long there")
    assert finding["Worker"] is None
    assert finding["Seconds at stake (s)"] == pytest.approx(4.0)
    assert "10.0.0.1:4002" in finding["Suggestion"]
    assert "10.0.0.1:4003" in finding["Suggestion"]


def test_a_worker_with_larger_partitions_is_not_slow(tmp_path: Path) -> None:
    tasks = two_speeds({3}, size=2_000_000)
    for task in tasks:
        task.size = max(task.size, 1_000_000)

    assert "slow-worker" not in found(Plan(tasks, workers=4), tmp_path / "larger")
    assert "slow-worker" in found(Plan(two_speeds({3}), workers=4), tmp_path / "alike")


def test_waits_for_cores_make_no_worker_slow(tmp_path: Path) -> None:
    tasks = [
        Task(f"f-{worker}{thread}{n}", worker, n * s, n * s + s, thread=thread, run_queue=s - 0.5)
        for worker, s in ((0, 0.5), (1, 1.0))
        for thread in (0, 1)
        for n in range(8)
    ]

    assert "slow-worker" not in found(Plan(tasks), tmp_path)


def test_imbalance_and_placement(tmp_path: Path) -> None:
    # All tasks are ready on the first worker from the begin; the second has but two.
    tasks = [
        Task(f"f-{thread}{n}", 0, float(n), n + 1.0, ready=0.0, thread=thread)
        for thread in (0, 1)
        for n in range(8)
    ]
    tasks += [Task(f"f-9{thread}", 1, 0.0, 1.0, thread=thread) for thread in (0, 1)]
    findings = found(Plan(tasks), tmp_path)

    placed = findings["poor-placement"]
    assert (placed["Severity"], placed["Worker"]) == ("high", "worker-node1-0")
    # Two threads idle while two tasks at least are ready elsewhere, for 6 s; then the last turn.
    assert placed["Seconds at stake (s)"] == pytest.approx(3.0)
    assert findings["imbalance"]["Severity"] == "low"
    assert "poor-placement" in findings["imbalance"]["Evidence"]


def waiting_behind_a_long_one(annotations: dict[str, Any], dependencies: list[str]) -> Plan:
    """Plan 12 tasks that are ready on one of two workers behind a long one; the other idles."""
    tasks = [Task("part-0", 0, 0.0, 1.0), Task("part-1", 1, 0.0, 1.0)]
    tasks.append(Task("long-0", 0, 1.0, 7.0, ready=1.0))
    for n in range(12):
        start = 7.0 + n / 2
        one = Task(f"short-{n}", 0, start, start + 0.5, ready=1.0, dependencies=dependencies)
        one.runnable, one.annotations = 1.0, annotations
        tasks.append(one)
    for task in tasks[:3]:
        task.annotations = {}
    return Plan(tasks, threads=1)


def test_what_asked_for_its_worker_is_placed_there(tmp_path: Path) -> None:
    plan = waiting_behind_a_long_one({"workers": ["tcp://node1:1"]}, [])
    finding = found(plan, tmp_path)["poor-placement"]
    assert "drop workers= and resources=" in finding["Suggestion"]


def test_what_has_inputs_waits_where_they_are(tmp_path: Path) -> None:
    finding = found(waiting_behind_a_long_one({}, ["part-0"]), tmp_path)["poor-placement"]
    assert "they wait where inputs are" in finding["Evidence"]
    assert "client.rebalance()" in finding["Suggestion"]
    assert "drop workers=" not in finding["Suggestion"]


def test_what_could_run_anywhere_was_sent_ahead(tmp_path: Path) -> None:
    findings = found(waiting_behind_a_long_one({}, []), tmp_path)
    finding = findings["poor-placement"]
    assert "Few of them asked for a worker or have inputs" in finding["Evidence"]
    assert "workers=" not in finding["Suggestion"]
    assert pd.isna(finding["Seconds at stake (s)"])


def test_imbalance_compares_workers_that_were_there(tmp_path: Path) -> None:
    # A task after the other on each thread of the first worker; the second has one of a second.
    tasks = [
        Task(f"f-{thread}{n}", 0, float(n), n + 1.0, ready=float(n), thread=thread)
        for thread in (0, 1)
        for n in range(8)
    ]
    late = Plan([*tasks, Task("f-99", 1, 7.0, 8.0)], joined=[0.0, 6.0])
    there = Plan([*tasks, Task("f-99", 1, 7.0, 8.0)])

    assert "imbalance" in found(there, tmp_path / "there")
    assert "imbalance" not in found(late, tmp_path / "late")


def test_gaps_of_the_client(tmp_path: Path) -> None:
    tasks = []
    for number in range(3):
        for task in filled([f"part{number}"], 1.0, count=4):
            task.start, task.stop = task.start + 3 * number, task.stop + 3 * number
            task.arrival = 3.0 * number
            tasks.append(task)
    findings = found(Plan(tasks, graphs=(0.0, 3.0, 6.0)), tmp_path)

    assert findings.keys() == {"client-gaps"}
    finding = findings["client-gaps"]
    assert finding["Seconds at stake (s)"] == pytest.approx(4.0)  # two gaps of 2 s in 7 s
    assert "2 gaps" in finding["Finding"]
    assert finding["Stop (s)"] - finding["Start (s)"] == pytest.approx(2.0)


@pytest.mark.parametrize(("waiting", "late"), [(2.9, True), (1.1, False)])
def test_a_client_that_waits_in_a_gap_has_sent_its_graph(
    tmp_path: Path, waiting: float, late: bool
) -> None:
    """A call from 1 to 4 s prepares first, and waits then; its tasks are known at 3 s."""
    tasks = filled(["part0"], 1.0, count=4)
    for task in filled(["part1"], 1.0, count=4):
        task.start, task.stop, task.arrival = task.start + 3.0, task.stop + 3.0, 3.0
        tasks.append(task)
    facts = {"waiting": waiting, "receiving": 0.05}
    plan = Plan(tasks, graphs=(0.0, 3.0), client_calls=[(1.0, 4.0, "compute", facts)])
    finding = found(plan, tmp_path)["client-gaps"]

    assert finding["Finding"].startswith("Graphs come late") is late
    assert ("submit more in one go" in finding["Suggestion"]) is not late


def test_calls_of_actors_are_no_gaps(tmp_path: Path) -> None:
    tasks = filled(["part0"], 1.0, count=4)
    for task in filled(["part1"], 1.0, count=4):
        task.start, task.stop, task.arrival = task.start + 5.0, task.stop + 5.0, 5.0
        tasks.append(task)
    plan = Plan(tasks, graphs=(0.0, 5.0))

    unknown = found(plan, tmp_path / "unknown")["client-gaps"]
    assert "Calls of actors are not recorded" in unknown["Evidence"]

    plan.calls = []
    none = found(plan, tmp_path / "none")["client-gaps"]
    assert none["Seconds at stake (s)"] == pytest.approx(4.0)
    assert "actors" not in none["Evidence"]

    # 1 to 4 s, two of them side by side; then 4.5 to 4.75.
    plan.calls = [(0, 1.0, 3.0), (1, 2.0, 4.0), (0, 4.5, 4.75)]
    some = found(plan, tmp_path / "some")["client-gaps"]
    assert some["Seconds at stake (s)"] == pytest.approx(0.75)
    assert "3 calls of actors took 3.25 s then" in some["Evidence"]

    plan.calls = [(0, 1.0, 5.0)]
    assert "client-gaps" not in found(plan, tmp_path / "all")


@pytest.mark.parametrize(
    ("arguments", "severity"),
    [
        ("table: pandas.DataFrame (1000, 3); n: 5", "high"),
        ("n: int", "medium"),
        (None, "medium"),
        ("different", "medium"),
    ],
)
def test_degradation(tmp_path: Path, arguments: str | None, severity: str) -> None:
    """Tasks that are called with other numbers, or with what is unknown, may have more to do."""
    tasks, begin = [], 0.0
    for turn in range(12):
        seconds = 1.0 + 0.2 * turn
        for lane in range(4):
            worker, thread = divmod(lane, 2)
            key = f"store-{turn}{lane}"
            given = f"list of {turn}" if arguments == "different" else arguments
            task = Task(key, worker, begin, begin + seconds, thread=thread, arguments=given)
            tasks.append(task)
        begin += seconds
    findings = found(Plan(tasks), tmp_path)

    finding = findings["degrading-functions"]
    assert (finding["Severity"], finding["Function"]) == (severity, "store")
    certain = severity == "high"
    assert finding["Suggestion"].startswith("Look in store" if certain else "Run some of the last")
    assert ("cannot tell" in finding["Evidence"]) != certain
    # 25.2 s in 12 turns; were none to take longer than the first five do on average, 1.04 s: 12.44.
    # Nothing is promised where later tasks may have more to do.
    promised = pytest.approx(12.76) if certain else pytest.approx(float("nan"), nan_ok=True)
    assert finding["Seconds at stake (s)"] == promised


def passes(seconds: list[float]) -> Plan:
    """Plan passes over an array, steps of the graph, in four lanes: the seconds of their tasks."""
    tasks, begin = [], 0.0
    for number, length in enumerate(seconds):
        for chunk in range(40 // len(seconds) * 4):
            turn, lane = divmod(chunk, 4)
            worker, thread = divmod(lane, 2)
            start = begin + turn * length
            key = f"mean_chunk-{number:032x}", chunk
            tasks.append(Task(key, worker, start, start + length, thread=thread))
        begin += 40 // len(seconds) * length
    return Plan(tasks)


def test_a_function_that_does_other_work_in_later_passes_does_not_degrade(tmp_path: Path) -> None:
    # The mean of x, of x ** 2 and of x ** 3: fewer and fewer tasks of mean_chunk start.
    plan = passes([0.5, 1.0, 2.0])

    assert "degrading-functions" not in found(plan, tmp_path)


def test_a_function_that_gets_slower_from_pass_to_pass_degrades(tmp_path: Path) -> None:
    plan = passes([0.2 + 0.05 * number for number in range(20)])

    assert found(plan, tmp_path)["degrading-functions"]["Function"] == "mean_chunk"


def test_nothing_is_said_without_a_scheduler_s_file_of_what_it_tells(tmp_path: Path) -> None:
    tasks = filled(["load", "clean"], 1.0)
    findings = found(Plan(tasks, scheduler=False), tmp_path)

    assert findings.keys() == {"missing-evidence"}
    assert "scheduler" in findings["missing-evidence"]["Evidence"]


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_fails_on_a_trace_of_dasf(rule: str, tmp_path: Path) -> None:
    events = [compute(f"f-{n}", 10.0 + n, 0.9, "worker-a-0") for n in range(20)]
    events += [managed(10.0 + n, "worker-a-0", n) for n in range(20)]
    events += [usage(10.0 + n, time=1e9 + n) for n in range(20)]
    analyser = TraceAnalyser(write_as_dasf(tmp_path / "dasf", events))

    list(RULES[rule](RunFigures(analyser.run)))


def test_texts_are_sentences(tmp_path: Path) -> None:
    tasks = filled(["load"], 0.5)
    tasks += [Task(f"step-{n}", 0, 2 + n, 3 + n) for n in range(10)]
    table: pd.DataFrame = Plan(tasks).write(tmp_path).diagnose()

    for column in ("Finding", "Evidence", "Suggestion"):
        assert table[column].str.endswith(".").all()
