"""`diagnose()` and the rules about overhead, balance and parallelism, on runs planned by hand.

Two workers of two threads, unless said; every rule fires on its fault, and none on its twin.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from diagnosed_plans import assert_found, found
from refuters import refute
from refuters.figures import without_units
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
    assert set(found(Plan([], resources=False), tmp_path)) <= {"incomplete-trace"}


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


def test_no_symptom_stands_above_what_is_worth_more(tmp_path: Path) -> None:
    table = diagnosed(
        tmp_path,
        ("load-imbalance", 2.0),
        ("client-bound", 6.0),
        ("spilling", 5.0),
        ("stragglers", 3.0),
    )

    told = table[["Rule", "Cause", "Seconds at stake (s)", "Severity"]].values.tolist()
    assert told == [
        ["client-bound", None, 6.0, "high"],
        ["spilling", None, 5.0, "high"],
        ["stragglers", "spilling", 3.0, "low"],
        ["load-imbalance", "client-bound", 2.0, "low"],
    ]
    last = table.iloc[-1]
    causes = "client-bound, spilling, stragglers"
    assert last["Evidence"].endswith(f"This may be a consequence of {causes}.")
    # Gaps of the client explain idle workers; spilling may cause stragglers.
    assert table["Suggestion"].tolist()[2:] == [
        "Change it.",
        "Follow the advice of client-bound first, because it may be the cause.",
    ]


def test_a_cause_without_seconds_does_not_outweigh_a_symptom_that_has_some(tmp_path: Path) -> None:
    grows = ("memory-growth", math.nan)
    weighed = diagnosed(tmp_path / "weighed", ("paused-workers", 5.0), grows)
    assert weighed.set_index("Rule").loc["paused-workers", ["Cause", "Severity"]].tolist() == [
        None,
        "high",
    ]
    equal = diagnosed(tmp_path / "equal", ("paused-workers", math.nan), grows)
    assert equal.set_index("Rule").loc["paused-workers", "Cause"] == "memory-growth"


def test_what_was_measured_is_said_where_no_seconds_are_at_stake(tmp_path: Path) -> None:
    def measured(run: RunFigures) -> Any:
        return iter([Finding("load-imbalance", *SAID[1:], costs=3.0)])

    trace = Plan(filled(["load"], 4.0)).write(tmp_path).run
    (row,) = diagnose(trace, {"load-imbalance": measured}).to_dict("records")
    words = "This cost about 3 s of the run. It is unknown how much of this a change would save."
    assert row["Evidence"] == f"See it. {words}"
    assert math.isnan(row["Seconds at stake (s)"])
    assert row["Severity"] == "medium"


def test_what_explains_others_comes_first_though_they_cost_more(tmp_path: Path) -> None:
    table = diagnosed(tmp_path, ("stragglers", 4.0), ("poor-placement", 2.0))
    assert table[["Rule", "Cause"]].values.tolist() == [
        ["poor-placement", None],
        ["stragglers", "poor-placement"],
    ]


def test_what_costs_hardly_anything_explains_nothing_that_costs_much(tmp_path: Path) -> None:
    table = diagnosed(tmp_path, ("stragglers", 9.0), ("poor-placement", 1.0))
    assert table["Rule"].tolist() == ["stragglers", "poor-placement"]
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
        "Change it. Do not add threads per worker, because workers spill because memory runs out."
    )
    # What it promised was to be gained by that.
    assert pd.isna(table.loc["blocked-tasks", "Seconds at stake (s)"])
    assert table.loc["spilling", "Suggestion"] == "Change it."
    assert table.loc["spilling", "Seconds at stake (s)"] == 2.0


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        # Where memory ran out, or nearly.
        *(
            ("more-threads", rule)
            for rule in ("killed-worker-errors", "paused-workers", "spilling")
        ),
        *(("more-threads", rule) for rule in ("host-memory-full",)),
        # Where tasks wait for one thing, or for each other.
        *(
            ("more-threads", rule)
            for rule in ("per-process-lock", "distributed-lock", "gil-contention")
        ),
        *(("more-threads", rule) for rule in ("shared-bottleneck", "resource-limit")),
        ("more-threads", "missing-secede"),
        # Where no core, no worker or no task is left for them.
        *(("more-threads", rule) for rule in ("cpu-oversubscribed", "no-workers", "client-bound")),
        *(
            ("more-threads", rule)
            for rule in ("sequential-submission", "too-few-tasks", "serial-chain")
        ),
        *(("more-threads", rule) for rule in ("poor-placement", "load-imbalance")),
        *(("share-memory", rule) for rule in ("per-process-lock", "gil-contention")),
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
    assert advised("slow-startup")
    assert not advised("slow-startup", other)


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
    table = diagnosed(tmp_path, ("tasks-too-small", 1.0), ("client-bound", 10.0))

    assert table["Rule"].tolist() == ["client-bound", "tasks-too-small"]
    assert table["Cause"].isna().all()
    assert table["Severity"].tolist() == ["high", "medium"]


@pytest.mark.parametrize("seconds", [(4.0, 4.0, 4.0), (5.0, 4.0, 3.0), (3.0, 5.0, 4.0)])
def test_causes_make_no_ring(seconds: tuple[float, ...], tmp_path: Path) -> None:
    # Each of these rules has the next among its symptoms, and the last the first.
    ring = ("gil-contention", "cpu-oversubscribed", "tasks-too-small")
    assert all(ring[n] in RULES[ring[n - 1]].causes for n in range(3))
    table = diagnosed(tmp_path, *zip(ring, seconds, strict=True))

    assert pd.isna(table["Cause"].iloc[0])
    assert table["Severity"].iloc[0] == "high"
    assert table["Seconds at stake (s)"].iloc[0] == max(seconds)


def test_what_costs_nothing_to_speak_of_is_shown_if_asked(tmp_path: Path) -> None:
    small = ("load-imbalance", 0.09), ("spilling", 0.1), ("paused-workers", float("nan"))
    small += (("lost-workers", 0.01),)

    table = diagnosed(tmp_path / "unasked", *small)
    assert set(table["Rule"]) == {"lost-workers", "spilling", "paused-workers"}
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
    assert symptom.evidence == "See it. This may be a consequence of spilling."
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


def in_turns(seconds: float, lag: float, number: int, **more: Any) -> list[Task]:
    """Plan tasks on two workers in turn, each of which holds its thread for longer than it runs."""
    return [
        Task(f"inc-{n}", n % 2, begin, begin + seconds, done=begin + seconds + lag, **more)
        for n in range(number)
        for begin in [n // 2 * (seconds + lag)]
    ]


def test_small_tasks(tmp_path: Path) -> None:
    # Each takes 2 ms, and 8 ms until its thread has the next: 0.8 of 4 threads' 2 s.
    tasks = [
        replace(task, thread=2 * thread + n % 2, key=f"{task.key}{thread}")
        for n, task in enumerate(in_turns(0.002, 0.008, 400))
        for thread in (0, 1)
    ]
    expected = {"severity": "high", "function": "inc", "seconds": 1.6, "median": 0.002}
    assert_found(Plan(tasks), tmp_path, "tasks-too-small", **expected, settings=[{"batch": 67}])


def test_small_tasks_that_are_received_late(tmp_path: Path) -> None:
    # One thread: each task takes 2 ms, 6 ms on its way from the end of the one before, 2 ms more.
    tasks = []
    for n in range(200):
        sent = 0.01 * n
        times = {"sent": sent, "received": sent + 0.006, "executing": sent + 0.006}
        tasks.append(Task(f"inc-{n}", 0, sent + 0.008, sent + 0.01, runnable=sent, **times))
    plan = Plan(tasks, workers=1, threads=1)
    findings = assert_found(plan, tmp_path, "tasks-too-small", seconds=1.6, handling=0.8)
    late = findings["slow-dispatch"]
    assert late["Seconds at stake (s)"] == pytest.approx(1.2, rel=0.02)
    assert late["Cause"] == "tasks-too-small"


def test_many_tasks_do_not_explain_what_is_far_more_than_handling_them(tmp_path: Path) -> None:
    # Each of 40 tasks computes for 1 ms, and takes 0.2 s to be handled.
    tasks = [
        Task(f"inc-{n}", n % 2, begin + 0.1, begin + 0.101, ready=begin, executing=begin)
        for n in range(40)
        for begin in [n // 2 * 0.2]
    ]
    tasks = [replace(task, done=task.start + 0.099) for task in tasks]
    expected = {"costly": True, "seconds": float("nan"), "settings": []}
    assert_found(Plan(tasks, threads=1), tmp_path, "tasks-too-small", **expected)


def test_a_single_small_task_is_nothing_to_worry_about(tmp_path: Path) -> None:
    table = found(Plan([Task("inc", 0, 0.0, 57e-6, done=0.02)]), tmp_path)
    assert "tasks-too-small" not in table
    assert {finding["Severity"] for finding in table.values()} <= {"low", "info"}


@pytest.mark.parametrize(("size", "reduced"), [(50_000_000, 5e7), (1000, None)])
def test_a_reduction_into_one_partition(tmp_path: Path, size: int, reduced: float | None) -> None:
    # A dataframe's tree: eight partitions, and three tasks that put them together, one by one.
    tasks = filled(["part"], 0.5, count=8)
    before = [f"part-{n}" for n in range(8)]
    for number in range(3):
        key, begin = f"groupbyaggregation-tree-{number}", 1.0 + 2.0 * number
        tasks.append(Task(key, 0, begin, begin + 2.0, size=size, dependencies=before))
        before = [key]
    expected = {"function": "groupbyaggregation-tree", "reduced": reduced}
    assert_found(Plan(tasks), tmp_path, "serial-chain", **expected)


def test_a_single_task_is_no_imbalance(tmp_path: Path) -> None:
    # Small ones beside it are no work that could be spread.
    tasks = [Task("read-0", 0, 0.0, 5.0), Task("sum-0", 0, 5.0, 5.01, dependencies=["read-0"])]
    plan = Plan([*tasks, Task("small-0", 1, 0.0, 0.001)], threads=1)
    expected = {"tasks": 1, "begins": True, "absent": {"load-imbalance"}}
    assert_found(plan, tmp_path, "too-few-tasks", **expected)


def test_single_tasks_one_after_another_are_no_imbalance(tmp_path: Path) -> None:
    # The client submits the second one after the first: it could not run on the other worker then.
    tasks = [Task(f"count-{n}", 0, 5.0 * n, 5.0 * n + 5.0, runnable=5.0 * n) for n in (0, 1)]
    plan = Plan([*tasks, Task("small-0", 1, 0.0, 0.001)], threads=1)
    assert_found(plan, tmp_path, "too-few-tasks", absent={"load-imbalance"})


def test_a_chain(tmp_path: Path) -> None:
    # Four threads load for 2 s, then one task after another runs for 8 s.
    tasks = filled(["load"], 0.5)
    before = [task.key for task in tasks]
    for n in range(8):
        start = 2.0 + n
        one = Task(f"step-{n}", 0, start, start + 1, runnable=start, dependencies=before)
        tasks.append(one)
        before = [one.key]
    # One of four threads is busy for 8 s: three quarters of that are lost.
    expected = {"severity": "high", "function": "step", "seconds": 6.0, "tasks": 8}
    findings = assert_found(Plan(tasks), tmp_path, "serial-chain", **expected, start=2.0, stop=10.0)
    assert findings.keys() - {"serial-chain"} <= {"load-imbalance"}


def test_computes_one_after_another_with_one_long_task_each_are_no_chain(tmp_path: Path) -> None:
    tasks = []
    for n in range(6):
        read, apply, total = f"read-{n}", f"apply-{n}", f"sum-{n}"
        start = 4.0 * n
        tasks += [
            Task(read, 0, start, start + 0.4, arrival=start),
            Task(apply, 0, start + 0.4, start + 3.6, arrival=start, dependencies=[read]),
            Task(total, 0, start + 3.6, start + 4.0, arrival=start, dependencies=[apply]),
        ]
    plan = Plan(tasks, graphs=tuple(4.0 * n for n in range(6)))
    assert "serial-chain" not in found(plan, tmp_path)


def test_too_few_tasks(tmp_path: Path) -> None:
    # Two tasks at a time on four threads: half of the threads idle for 6 s.
    tasks = [
        Task(f"fit-{n}", n % 2, n // 2 * 3.0, n // 2 * 3.0 + 3, size=50_000_000) for n in range(4)
    ]
    for task in tasks[2:]:
        task.runnable, task.dependencies = 3.0, ["fit-0", "fit-1"]
    expected = {"function": "fit", "seconds": 3.0, "times": 3.0}
    assert_found(Plan(tasks), tmp_path, "too-few-tasks", **expected)


def test_a_slow_function(tmp_path: Path) -> None:
    tasks = filled(["load"], 0.1) + [
        replace(task, start=task.start + 0.4, stop=task.stop + 0.4) for task in filled(["fit"], 1.0)
    ]
    # 4 s of 4.4 on each thread: half of that, were it twice as fast.
    expected = {"severity": "low", "function": "fit", "faster": 2.0, "alone": True}
    assert_found(Plan(tasks), tmp_path, "dominant-function", **expected)


# --- partitions and stragglers -------------------------------------------------------------------


def fat(size: int) -> Plan:
    tasks = [replace(task, size=1_000_000) for task in filled(["load"], 0.5, count=12)]
    return Plan([*tasks, Task("load-12", 1, 1.5, 6.5, size=size)])


def test_a_fat_partition(tmp_path: Path) -> None:
    # The other threads idle for the 4.5 s that it takes longer than others. Split evenly, that is
    # what four threads do.
    expected = {"severity": "high", "function": "load", "seconds": 4.5 - 4.5 / 4, "size": 2e7}
    expected |= {"times": 20.0, "usual": 1e6, "worker": "worker-node1-1", "start": 1.5, "stop": 6.5}
    expected |= {"absent": {"stragglers"}}
    findings = assert_found(fat(20_000_000), tmp_path, "data-skew", **expected)
    assert all(findings[rule]["Severity"] == "low" for rule in findings.keys() - {"data-skew"})


@pytest.mark.parametrize(
    ("function", "of_key", "joined"),
    [("hashjoinp2p", True, True), ("unpack", True, False), ("rechunk-p2p", False, False)],
)
def test_a_hot_key_is_not_split_by_smaller_partitions(
    function: str, of_key: bool, joined: bool, tmp_path: Path
) -> None:
    tasks = [Task(f"hand-{n}", n % 2, 0.0, 0.5, thread=n // 2, size=10) for n in range(4)]
    handed = [f"hand-{n}" for n in range(4)]
    tasks.append(Task("shuffle-barrier-1", 0, 0.5, 0.6, dependencies=handed))
    tasks += [
        replace(
            task,
            key=f"{function}-{number}",
            start=task.start + 0.6,
            stop=task.stop + 0.6,
            dependencies=["shuffle-barrier-1"],
        )
        for number, task in enumerate(fat(20_000_000).tasks)
    ]
    findings = assert_found(Plan(tasks), tmp_path, "data-skew", of_key=of_key, joined=joined)
    suggestion = findings["data-skew"]["Suggestion"]
    assert ("all rows of a key" in suggestion) == of_key
    assert ("broadcast=True" in suggestion) == joined
    assert "partition_size" not in suggestion


def test_a_straggler(tmp_path: Path) -> None:
    expected = {"severity": "high", "function": "load", "longest": 5.0, "median": 0.5}
    expected |= {"key": "load-12", "cause": None, "absent": {"data-skew"}}
    assert_found(fat(1_000_000), tmp_path, "stragglers", **expected)


def test_stragglers_of_which_only_the_scheduler_tells(tmp_path: Path) -> None:
    """What nobody noted of its thread is not guessed."""
    fat(1_000_000).write(tmp_path)
    files = [path for path in tmp_path.iterdir() if "-TracePlugin-" not in path.name]
    findings = TraceAnalyser(files, progress=False).findings()
    assert not refute(files, findings)

    (own,) = (one for one in findings if one.rule == "stragglers")
    assert own.figures["cause"] == "unknown"


def test_the_finding_shows_what_the_table_of_stragglers_shows(tmp_path: Path) -> None:
    # The last but one waited for a core for all that it took longer; the last for a second of six.
    tasks = [Task(f"load-{n}", 0, n * 0.5, n * 0.5 + 0.5) for n in range(12)]
    tasks.append(Task("load-12", 0, 6.0, 12.0, run_queue=5.5))
    tasks.append(Task("load-13", 0, 12.0, 18.0, run_queue=1.0))
    expected = {"key": "load-13", "longest": 5.0, "median": 0.5}
    assert_found(Plan(tasks, threads=1), tmp_path, "stragglers", **expected)
    table = TraceAnalyser(tmp_path, progress=False).stragglers()
    shown = table[["Task Key", "Elapsed (s)", "Median (s)", "Cause"]].values.tolist()
    assert shown == [["load-13", pytest.approx(5.0), pytest.approx(0.5), "computed longer"]]


def test_a_straggler_among_layers(tmp_path: Path) -> None:
    # Two passes over an array: in the second each task has ten times as much to do, and one more.
    tasks = [Task((f"mean-{0:032x}", n), 0, n * 0.1, n * 0.1 + 0.1) for n in range(10)]
    tasks += [Task((f"mean-{1:032x}", n), 0, 1.0 + n, 2.0 + n) for n in range(10)]
    tasks.append(Task((f"mean-{1:032x}", 10), 0, 11.0, 17.0))
    expected = {"tasks": 1, "function": "mean", "longest": 6.0, "median": 1.0, "by_layer": True}
    assert_found(Plan(tasks), tmp_path, "stragglers", **expected)


def test_stragglers_of_several_causes(tmp_path: Path) -> None:
    # One of load sleeps for 4.5 s; three of fit read inputs back from disk for 1.5 s each.
    tasks = [
        Task(f"{f}-{n}", w, n / 2, n / 2 + 0.5)
        for w, f in enumerate(("load", "fit"))
        for n in range(12)
    ]
    tasks.append(Task("load-12", 0, 6.0, 11.0, cpu=0.5))
    for n in range(3):
        at = 6.0 + 2 * n
        tasks.append(Task(f"fit-{12 + n}", 1, at + 1.5, at + 2, executing=at, disk_read=1.5))
    findings = found(Plan(tasks, threads=1), tmp_path)
    facts = without_units(findings["stragglers"]["Figures"])
    assert (facts["function"], facts["tasks"], facts["cause"]) == ("load", 4, "blocked")
    assert facts["by_function"] == {"fit": 3, "load": 1}


# --- workers -------------------------------------------------------------------------------------


def two_speeds(slow: set[int], workers: int = 4, waits: bool = False, **of_slow: Any) -> list[Task]:
    """Plan workers of which some take twice as long for as many tasks."""
    return [
        Task(
            f"f-{worker}{thread}{n}",
            worker,
            n * seconds,
            (n + 1) * seconds,
            thread=thread,
            run_queue=seconds - 0.5 if waits else 0.0,
            **(of_slow if worker in slow else {}),
        )
        for worker in range(workers)
        for thread in (0, 1)
        for n in range(8)
        for seconds in [1.0 if worker in slow else 0.5]
    ]


def test_a_slow_worker(tmp_path: Path) -> None:
    # 16 runs take 0.5 s longer each, on two threads; the others idle for the 4 s.
    expected = {"severity": "high", "worker": "worker-node1-1", "seconds": 4.0, "workers": 2}
    expected |= {"addresses": ["tcp://10.0.0.1:4001"]}
    findings = assert_found(Plan(two_speeds({1}, 2)), tmp_path, "slow-worker", **expected)
    assert all(findings[rule]["Severity"] == "low" for rule in findings.keys() - {"slow-worker"})


def test_a_slow_host(tmp_path: Path) -> None:
    plan = Plan(two_speeds({2, 3}), workers=4, hosts=["a", "a", "b", "b"])
    expected = {"host": "b", "worker": None, "function": "f", "times": 2.0, "seconds": 4.0}
    addresses = [f"tcp://10.0.0.1:400{n}" for n in (2, 3)]
    assert_found(plan, tmp_path, "slow-worker", **expected, addresses=addresses)


@pytest.mark.parametrize("larger", [True, False])
def test_a_worker_with_larger_partitions_is_not_slow(tmp_path: Path, larger: bool) -> None:
    tasks = two_speeds({3}, size=2_000_000 if larger else 1_000_000)
    for task in tasks:
        task.size = max(task.size, 1_000_000)

    assert ("slow-worker" in found(Plan(tasks, workers=4), tmp_path)) is not larger


def test_waits_for_cores_make_no_worker_slow(tmp_path: Path) -> None:
    assert "slow-worker" not in found(Plan(two_speeds({1}, 2, waits=True)), tmp_path)


def test_imbalance_and_placement(tmp_path: Path) -> None:
    # All tasks are ready on the first worker from the begin; the second has but two.
    tasks = [
        Task(f"f-{thread}{n}", 0, float(n), n + 1.0, ready=0.0, thread=thread)
        for thread in (0, 1)
        for n in range(8)
    ]
    tasks += [Task(f"f-9{thread}", 1, 0.0, 1.0, thread=thread) for thread in (0, 1)]
    # Two threads idle while two tasks at least are ready elsewhere, for 6 s; then the last turn.
    expected = {"severity": "high", "worker": "worker-node1-0", "seconds": 3.0}
    findings = assert_found(Plan(tasks), tmp_path, "poor-placement", **expected)
    imbalance = findings["load-imbalance"]
    assert (imbalance["Severity"], imbalance["Cause"]) == ("low", "poor-placement")


@pytest.mark.parametrize(
    ("annotations", "dependencies", "facts"),
    [
        ({"workers": ["tcp://node1:1"]}, [], {"asked": True, "settings": []}),
        # They wait where their inputs are.
        ({}, ["part-0"], {"asked": False, "queued": None, "settings": []}),
        # What could run anywhere was sent ahead.
        (
            {},
            [],
            {"queued": True, "seconds": float("nan")}
            | {"settings": [{"distributed.scheduler.worker-saturation": "1.0"}]},
        ),
    ],
)
def test_why_tasks_wait_behind_a_long_one(
    annotations: dict[str, Any], dependencies: list[str], facts: dict[str, Any], tmp_path: Path
) -> None:
    """12 tasks are ready on one of two workers behind a long one; the other idles."""
    tasks = [Task("part-0", 0, 0.0, 1.0), Task("part-1", 1, 0.0, 1.0)]
    tasks.append(Task("long-0", 0, 1.0, 7.0, ready=1.0))
    tasks = [replace(task, annotations={}) for task in tasks]
    for n in range(12):
        start = 7.0 + n / 2
        one = Task(f"short-{n}", 0, start, start + 0.5, ready=1.0, dependencies=dependencies)
        tasks.append(replace(one, runnable=1.0, annotations=annotations))
    assert_found(Plan(tasks, threads=1), tmp_path, "poor-placement", **facts)


@pytest.mark.parametrize(("joined", "told"), [([], True), ([0.0, 6.0], False)])
def test_imbalance_compares_workers_that_were_there(
    joined: list[float], told: bool, tmp_path: Path
) -> None:
    # A task after the other on each thread of the first worker; the second has one of a second.
    tasks = [
        Task(f"f-{thread}{n}", 0, float(n), n + 1.0, ready=float(n), thread=thread)
        for thread in (0, 1)
        for n in range(8)
    ]
    plan = Plan([*tasks, Task("f-99", 1, 7.0, 8.0)], joined=joined)
    assert ("load-imbalance" in found(plan, tmp_path)) is told


# --- the client ----------------------------------------------------------------------------------


def parts(*arrivals: float, **more: Any) -> Plan:
    """Plan graphs of four tasks of 1 s that arrive at these times."""
    tasks = [
        replace(task, start=task.start + at, stop=task.stop + at, arrival=at)
        for number, at in enumerate(arrivals)
        for task in filled([f"part{number}"], 1.0, count=4)
    ]
    return Plan(tasks, graphs=arrivals, **more)


def test_gaps_of_the_client(tmp_path: Path) -> None:
    # Two gaps of 2 s in 7 s.
    expected = {"alone": True, "seconds": 4.0, "gaps": 2, "longest": 2.0}
    assert_found(parts(0.0, 3.0, 6.0), tmp_path, "client-bound", **expected)


@pytest.mark.parametrize(("waiting", "late"), [(2.9, True), (1.1, False)])
def test_a_client_that_waits_in_a_gap_has_sent_its_graph(
    tmp_path: Path, waiting: float, late: bool
) -> None:
    """A call from 1 to 4 s prepares first, and waits then; its tasks are known at 3 s."""
    facts = {"waiting": waiting, "receiving": 0.05}
    plan = parts(0.0, 3.0, client_calls=[(1.0, 4.0, "compute", facts)])
    assert_found(plan, tmp_path, "client-bound", waits=late)


@pytest.mark.parametrize(
    ("calls", "facts"),
    [
        (None, {"knows_calls": False}),
        ([], {"knows_calls": True, "seconds": 4.0, "calls": 0}),
        # 1 to 4 s, two of them side by side; then 4.5 to 4.75.
        (
            [(0, 1.0, 3.0), (1, 2.0, 4.0), (0, 4.5, 4.75)],
            {"seconds": 0.75, "called": 3.25},
        ),
        ([(0, 1.0, 5.0)], None),
    ],
)
def test_calls_of_actors_are_no_gaps(
    calls: list[tuple[int, float, float]] | None, facts: dict[str, Any] | None, tmp_path: Path
) -> None:
    plan = parts(0.0, 5.0, calls=calls)
    if facts is None:
        assert not found(plan, tmp_path, "client-bound")
    else:
        assert_found(plan, tmp_path, "client-bound", **facts)


# --- over time -----------------------------------------------------------------------------------


def test_degradation(tmp_path: Path) -> None:
    tasks, begin = [], 0.0
    for turn in range(12):
        seconds = 1.0 + 0.2 * turn
        for lane in range(4):
            worker, thread = divmod(lane, 2)
            name = f"store-{turn}{lane}"
            tasks.append(Task(name, worker, begin, begin + seconds, thread=thread))
        begin += seconds
    # 25.2 s in 12 turns; were none to take longer than the first five do on average, 1.04 s: 12.44.
    # Nothing is promised, because later tasks may have more to do.
    expected = {"function": "store", "severity": "low", "costs": 12.72, "seconds": float("nan")}
    assert_found(Plan(tasks), tmp_path, "slowing-functions", **expected)


@pytest.mark.parametrize(
    ("seconds", "degrades"),
    [
        # The mean of x, of x ** 2 and of x ** 3: fewer and fewer tasks of mean_chunk start.
        ([0.5, 1.0, 2.0], False),
        ([0.2 + 0.05 * number for number in range(20)], True),
    ],
)
def test_a_function_degrades_only_from_pass_to_pass(
    seconds: list[float], degrades: bool, tmp_path: Path
) -> None:
    """Passes over an array, steps of the graph, in four lanes: the seconds of their tasks."""
    tasks, begin = [], 0.0
    for number, length in enumerate(seconds):
        for chunk in range(40 // len(seconds) * 4):
            turn, lane = divmod(chunk, 4)
            worker, thread = divmod(lane, 2)
            start, key = begin + turn * length, (f"mean_chunk-{number:032x}", chunk)
            tasks.append(Task(key, worker, start, start + length, thread=thread))
        begin += 40 // len(seconds) * length
    findings = found(Plan(tasks), tmp_path)
    assert ("slowing-functions" in findings) is degrades
    assert not degrades or findings["slowing-functions"]["Function"] == "mean_chunk"


def test_nothing_is_said_without_a_scheduler_s_file_of_what_it_tells(tmp_path: Path) -> None:
    plan = Plan(filled(["load", "clean"], 1.0), scheduler=False)
    expected = {"alone": True, "kinds": ["no-scheduler-file"]}
    assert_found(plan, tmp_path, "incomplete-trace", **expected)


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_fails_on_a_trace_of_dasf(rule: str, trace_of_dasf: RunFigures) -> None:
    list(RULES[rule](trace_of_dasf))


@pytest.fixture(scope="module")
def trace_of_dasf(tmp_path_factory: pytest.TempPathFactory) -> RunFigures:
    events = [compute(f"f-{n}", 10.0 + n, 0.9, "worker-a-0") for n in range(20)]
    events += [managed(10.0 + n, "worker-a-0", n) for n in range(20)]
    events += [usage(10.0 + n, time=1e9 + n) for n in range(20)]
    directory = write_as_dasf(tmp_path_factory.mktemp("dasf"), events)
    return RunFigures(TraceAnalyser(directory).run)
