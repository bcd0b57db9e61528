"""`diagnose()` and the rules about overhead, balance and parallelism, on planned runs.

Runs have two workers with two threads by default. Rules find their faults, but nothing in similar
healthy runs.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from diagnosed_plans import Cases, assert_found, found
from refuters import refute
from refuters.figures import without_units
from traces import Plan, Task, compute, filled, managed, usage, write_as_dasf

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis import RULES, diagnose
from dasfprof.analysis.diagnosis.registry import Advice, Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples import loop_blocks

COLUMNS = ["Severity", "Finding", "Seconds at stake (s)", "Evidence", "Suggestion"]
COLUMNS += ["Rule", "Function", "Worker", "Start (s)", "Stop (s)", "Cause"]
SAID = ("", "It is so.", "See it.", ["Change it."])
CASES = Cases()
finds, spares = CASES.finds, CASES.spares
NAN = float("nan")


def test_a_healthy_run_has_no_finding(tmp_path: Path) -> None:
    table = Plan(filled(["load", "clean", "save"], 1.0)).write(tmp_path).diagnose()
    assert table.empty
    assert table.columns.tolist() == COLUMNS


def test_an_empty_trace_has_none_but_of_the_trace(tmp_path: Path) -> None:
    assert set(found(Plan([], resources=False), tmp_path)) <= {"incomplete-trace"}


def stating(*findings: tuple[Any, ...]) -> dict[str, Any]:
    """Return rules with these names that have findings with these potential savings and advice."""

    def one(slug: str, seconds: float, *advice: Advice) -> Any:
        parts = ["Change it.", *advice]
        return lambda run: iter([Finding(slug, "It is so.", "See it.", parts, seconds=seconds)])

    return {finding[0]: one(*finding) for finding in findings}


def diagnosed(directory: Path, *findings: tuple[Any, ...], **how: Any) -> pd.DataFrame:
    """Diagnose a run of 16 s with rules that have these findings."""
    trace = Plan(filled(["load"], 4.0)).write(directory).run
    return diagnose(trace, stating(*findings), **how)


def test_no_symptom_stands_above_what_is_worth_more(tmp_path: Path) -> None:
    seconds = {"load-imbalance": 2.0, "client-bound": 6.0, "spilling": 5.0, "stragglers": 3.0}
    table = diagnosed(tmp_path, *seconds.items())
    told = table[["Rule", "Cause", "Seconds at stake (s)", "Severity"]].values.tolist()
    assert told == [
        ["client-bound", None, 6.0, "high"],
        ["spilling", None, 5.0, "high"],
        ["stragglers", "spilling", 3.0, "low"],
        ["load-imbalance", "client-bound", 2.0, "low"],
    ]
    causes = "client-bound, spilling, stragglers"
    assert table.iloc[-1]["Evidence"].endswith(f"This may be a consequence of {causes}.")
    # Gaps of the client explain idle workers; spilling may cause stragglers.
    assert table["Suggestion"].tolist()[2:] == [
        "Change it.",
        "Follow the advice of client-bound first, because it may be the cause.",
    ]


@pytest.mark.parametrize(
    ("seconds", "ranked"),
    [
        # A cause comes before its symptoms even if they cost more,
        (
            {"stragglers": 4.0, "poor-placement": 2.0},
            [("poor-placement", "", "medium"), ("stragglers", "poor-placement", "low")],
        ),
        # but not if it costs hardly anything.
        (
            {"stragglers": 9.0, "poor-placement": 1.0},
            [("stragglers", "", "high"), ("poor-placement", "", "medium")],
        ),
        # The most severe is not a symptom of a lesser one, nor of one of unknown seconds.
        (
            {"tasks-too-small": 1.0, "client-bound": 10.0},
            [("client-bound", "", "high"), ("tasks-too-small", "", "medium")],
        ),
        (
            {"paused-workers": 5.0, "memory-growth": NAN},
            [("paused-workers", "", "high"), ("memory-growth", "", "info")],
        ),
        (
            {"paused-workers": NAN, "memory-growth": NAN},
            [("memory-growth", "", "info"), ("paused-workers", "memory-growth", "info")],
        ),
    ],
)
def test_ranks(seconds: dict[str, float], ranked: list[Any], tmp_path: Path) -> None:
    table = diagnosed(tmp_path, *seconds.items())[["Rule", "Cause", "Severity"]]
    assert [*table.fillna("").itertuples(index=False, name=None)] == ranked


def test_what_was_measured_is_said_where_no_seconds_are_at_stake(tmp_path: Path) -> None:
    trace = Plan(filled(["load"], 4.0)).write(tmp_path).run
    measured = Finding("load-imbalance", *SAID[1:], costs=3.0)
    (row,) = diagnose(trace, {"load-imbalance": lambda run: iter([measured])}).to_dict("records")
    assert "This cost about 3 s of the run." in row["Evidence"]
    assert math.isnan(row["Seconds at stake (s)"])
    assert row["Severity"] == "medium"


MORE = Advice("more-threads", "Take ten threads.", promises=True)
FEWER = Advice("fewer-threads", "Take one thread.")


def test_advice_that_another_finding_refutes_is_not_given(tmp_path: Path) -> None:
    table = diagnosed(tmp_path, ("blocked-tasks", 3.0, MORE), ("spilling", 2.0)).set_index("Rule")
    assert "Take ten threads." not in table.loc["blocked-tasks", "Suggestion"]
    assert "Do not add threads per worker" in table.loc["blocked-tasks", "Suggestion"]
    # Its potential savings depend on that setting.
    assert pd.isna(table.loc["blocked-tasks", "Seconds at stake (s)"])
    assert table.loc["spilling", "Suggestion"] == "Change it."
    assert table.loc["spilling", "Seconds at stake (s)"] == 2.0


EXCLUDED = {
    # Findings about memory, about tasks that wait for the same thing or for each other, and about
    # missing cores, workers or tasks: more threads would not help.
    "more-threads": """killed-worker-errors paused-workers spilling host-memory-full
        per-process-lock distributed-lock gil-contention shared-bottleneck resource-limit
        missing-secede cpu-oversubscribed no-workers client-bound sequential-submission
        too-few-tasks serial-chain poor-placement load-imbalance""",
    "share-memory": "per-process-lock gil-contention",
}


@pytest.mark.parametrize(
    ("kind", "other"), [(kind, rule) for kind in EXCLUDED for rule in EXCLUDED[kind].split()]
)
def test_which_finding_excludes_which_advice(kind: str, other: str, tmp_path: Path) -> None:
    assert other in RULES
    trace = Plan(filled(["load"], 4.0)).write(tmp_path).run
    advised = ("transfer-bound", 3.0, Advice(kind, "Do that."))
    for others, is_given in (["slow-startup"], True), (["slow-startup", other], False):
        table = diagnose(trace, stating(advised, *((rule, 2.0) for rule in others)))
        assert ("Do that." in " ".join(table["Suggestion"])) is is_given


@pytest.mark.parametrize("refuted", [False, True])
def test_fewer_threads_are_not_advised_beside_more(refuted: bool, tmp_path: Path) -> None:
    # If more threads are excluded for another reason, fewer are advised again.
    findings = ("blocked-tasks", 3.0, MORE), ("tasks-too-small", 2.0, FEWER), ("spilling", 1.0)
    text = " ".join(diagnosed(tmp_path, *findings[: 2 + refuted])["Suggestion"])
    assert ("Take one thread." in text) == refuted
    assert ("Take ten threads." in text) != refuted


@pytest.mark.parametrize("seconds", [(4.0, 4.0, 4.0), (5.0, 4.0, 3.0), (3.0, 5.0, 4.0)])
def test_causes_make_no_ring(seconds: tuple[float, ...], tmp_path: Path) -> None:
    # Each of these rules has the next one among its symptoms, and the last one has the first.
    ring = ("gil-contention", "cpu-oversubscribed", "tasks-too-small")
    assert all(ring[n] in RULES[ring[n - 1]].causes for n in range(3))
    table = diagnosed(tmp_path, *zip(ring, seconds, strict=True))
    assert pd.isna(table["Cause"].iloc[0])
    assert table["Severity"].iloc[0] == "high"
    assert table["Seconds at stake (s)"].iloc[0] == max(seconds)


def test_what_costs_nothing_to_speak_of_is_shown_if_asked(tmp_path: Path) -> None:
    small = {"load-imbalance": 0.09, "spilling": 0.1, "paused-workers": NAN, "lost-workers": 0.01}
    table = diagnosed(tmp_path / "unasked", *small.items())
    assert {*table["Rule"]} == small.keys() - {"load-imbalance"}
    assert {*diagnosed(tmp_path / "asked", *small.items(), least=0.0)["Rule"]} == small.keys()


def test_a_rule_that_fails_is_told_and_takes_no_other(tmp_path: Path) -> None:
    def broken(run: RunFigures) -> Any:
        raise ZeroDivisionError("no workers")

    needs = [[], *([f"step-{n}"] for n in range(9))]
    steps = [Task(f"step-{n}", 0, n, n + 1, dependencies=keys) for n, keys in enumerate(needs)]
    trace = Plan(steps).write(tmp_path).run
    table = diagnose(trace, {"broken": broken, **RULES}).set_index("Rule")
    assert "serial-chain" in table.index
    failed = table.loc["rule-failed"]
    assert failed["Severity"] == "info"
    assert "broken" in failed["Finding"] and "no workers" in failed["Evidence"]


def test_severity() -> None:
    for seconds, lasts, limits, severity in (
        (20.0, 100.0, {}, "high"),
        (19.9, 100.0, {}, "medium"),
        (4.9, 100.0, {}, "low"),
        (NAN, 100.0, {}, "info"),
        (90.0, 100.0, {"at_most": "medium"}, "medium"),
        (0.1, 100.0, {"at_least": "medium"}, "medium"),
        (NAN, 100.0, {"at_least": "high"}, "high"),
        (0.0, 100.0, {"at_least": "low", "at_most": "low"}, "low"),
        (0.9, 100.0, {"at_least": "high"}, "medium"),
        (1.0, 100.0, {"at_least": "high"}, "high"),
        # A finding below one second is not of severity high because of its fraction of the run,
        (0.9, 1.0, {}, "medium"),
        (1.0, 1.0, {}, "high"),
        # but what is severe for another reason stays so from a twentieth of the run.
        (0.9, 18.0, {"at_least": "high"}, "high"),
    ):
        finding = Finding(*SAID, seconds=seconds, **limits)  # type: ignore[arg-type]
        assert finding.severity_in(lasts) == severity, (seconds, lasts, limits)
        symptom = finding.beneath(finding, ["spilling"])
        assert symptom.severity_in(lasts) in ("low", "info")
        assert symptom.figures == {"may_follow_from": ("spilling",)}


def test_symptoms_are_of_rules() -> None:
    for slug, rule in RULES.items():
        assert {*rule.causes, *rule.explains} <= RULES.keys()
        assert slug not in rule.causes


# fmt: off
# Each task takes 2 ms, and 8 ms until its thread has the next one: 0.8 of 2 s on 4 threads.
SMALL = [Task(f"inc-{n}{thread}", n % 2, at, at + 0.002, done=at + 0.01, thread=2 * thread + n % 2)
    for n in range(400) for thread in (0, 1) for at in [n // 2 * 0.01]]
finds("tasks-too-small", "small tasks", Plan(SMALL), severity="high", function="inc", seconds=1.6,
    median=0.002, settings=[{"batch": 67}])
# One thread: each task runs for 2 ms. It is received 6 ms after the previous one ended, and starts
# 2 ms later.
LATE = [Task(f"inc-{n}", 0, sent + 0.008, sent + 0.01, runnable=sent, sent=sent,
    received=sent + 0.006, executing=sent + 0.006) for n in range(200) for sent in [0.01 * n]]
finds("tasks-too-small", "small tasks that are received late", Plan(LATE, workers=1, threads=1),
    seconds=1.6, handling=0.8)
finds("slow-dispatch", "receiving small tasks late", Plan(LATE, workers=1, threads=1), seconds=1.2,
    cause="tasks-too-small")
# Each of 40 tasks computes for 1 ms, and takes 0.2 s to be handled.
HANDLED = [Task(f"inc-{n}", n % 2, at + 0.1, at + 0.101, ready=at, executing=at, done=at + 0.199)
    for n in range(40) for at in [n // 2 * 0.2]]
finds("tasks-too-small", "many tasks do not explain what is far more than handling them",
    Plan(HANDLED, threads=1), costly=True, seconds=NAN, settings=[])
# A tree of a dataframe: eight partitions, and three consecutive tasks that combine them.
for size, reduced in ((50_000_000, 5e7), (1000, None)):
    tasks = filled(["part"], 0.5, count=8)
    before = [f"part-{n}" for n in range(8)]
    for number in range(3):
        key, begin = f"groupbyaggregation-tree-{number}", 1.0 + 2.0 * number
        tasks.append(Task(key, 0, begin, begin + 2.0, size=size, dependencies=before))
        before = [key]
    finds("serial-chain", f"a reduction into one partition of {size} bytes", Plan(tasks),
        function="groupbyaggregation-tree", reduced=reduced)
# Small tasks next to it are not work that could be spread.
TINY = Task("small-0", 1, 0.0, 0.001)
SINGLE = [Task("read-0", 0, 0.0, 5.0), Task("sum-0", 0, 5.0, 5.01, dependencies=["read-0"]), TINY]
finds("too-few-tasks", "a single task is not an imbalance", Plan(SINGLE, threads=1), tasks=1,
    begins=True, absent={"load-imbalance"})
# The client submits the second task after the first one, so both could not run in parallel.
IN_TURN = [Task(f"count-{n}", 0, 5.0 * n, 5.0 * n + 5.0, runnable=5.0 * n) for n in (0, 1)]
finds("too-few-tasks", "single tasks one after another are not an imbalance",
    Plan([*IN_TURN, TINY], threads=1), absent={"load-imbalance"})
# Two parallel tasks on four threads: half of the threads are idle for 6 s.
FITS = [Task(f"fit-{n}", n % 2, 3.0 * turn, 3.0 * turn + 3, size=50_000_000, runnable=3.0 * turn,
    dependencies=["fit-0", "fit-1"] if turn else []) for n in range(4) for turn in [n // 2]]
finds("too-few-tasks", "too few tasks", Plan(FITS), function="fit", seconds=3.0, times=3.0)
# It takes 4 s of 4.4 s on each thread, and would save half of that if it were twice as fast.
finds("dominant-function", "a slow function", Plan(filled(["load"], 0.1) + filled(["fit"], 1.0,
    since=0.4)), severity="low", function="fit", faster=2.0, alone=True)
# fmt: on


def test_a_single_small_task_is_nothing_to_worry_about(tmp_path: Path) -> None:
    table = found(Plan([Task("inc", 0, 0.0, 57e-6, done=0.02)]), tmp_path)
    assert "tasks-too-small" not in table
    assert {finding["Severity"] for finding in table.values()} <= {"low", "info"}


def test_tasks_that_can_become_three_times_as_large_keep_a_third_of_the_overhead(
    tmp_path: Path,
) -> None:
    run = Plan(LATE[:9], workers=1, threads=1).write(tmp_path).run
    table = diagnose(run, {"tasks-too-small": RULES["tasks-too-small"]}, least=0.0)
    assert table["Seconds at stake (s)"].tolist() == pytest.approx([9 * 0.008 * 2 / 3], rel=0.02)


def test_a_chain(tmp_path: Path) -> None:
    # Four threads load for 2 s, then one task after another runs for 8 s.
    tasks = filled(["load"], 0.5)
    before = [task.key for task in tasks]
    for n in range(8):
        start = 2.0 + n
        one = Task(f"step-{n}", 0, start, start + 1, runnable=start, dependencies=before)
        tasks.append(one)
        before = [one.key]
    # One of four threads is busy for 8 s, so three quarters of the thread time are lost.
    expected = {"severity": "high", "function": "step", "seconds": 6.0, "tasks": 8}
    findings = assert_found(Plan(tasks), tmp_path, "serial-chain", **expected, start=2.0, stop=10.0)
    assert findings.keys() - {"serial-chain"} <= {"load-imbalance"}
    assert "pairwise" in findings["serial-chain"]["Suggestion"]


def test_a_chain_of_to_csv_is_its_argument(tmp_path: Path) -> None:
    tasks = [Task(f"write_csv-{n}", 0, n, n + 1.0, runnable=n) for n in range(8)]
    for before, task in itertools.pairwise(tasks):
        task.dependencies = [before.key]
    tasks.append(Task("part-0", 1, 0.0, 0.5))
    chain = assert_found(Plan(tasks), tmp_path, "serial-chain", function="write_csv")
    assert chain["serial-chain"]["Suggestion"].startswith("Leave out single_file=True")


COMPUTES = []
for number in range(6):
    at, read, apply = 4.0 * number, f"read-{number}", f"apply-{number}"
    COMPUTES += [
        Task(read, 0, at, at + 0.4, arrival=at),
        Task(apply, 0, at + 0.4, at + 3.6, arrival=at, dependencies=[read]),
        Task(f"sum-{number}", 0, at + 3.6, at + 4.0, arrival=at, dependencies=[apply]),
    ]
GRAPHS = [4.0 * number for number in range(6)]
spares("computes one after another", Plan(COMPUTES, graphs=GRAPHS), "serial-chain")


def fat(size: int) -> Plan:
    tasks = [replace(task, size=1_000_000) for task in filled(["load"], 0.5, count=12)]
    return Plan([*tasks, Task("load-12", 1, 1.5, 6.5, size=size)])


def test_a_fat_partition(tmp_path: Path) -> None:
    # The other threads are idle for the 4.5 s that it takes longer than others. Split evenly, four
    # threads would share this work.
    expected = {"severity": "high", "function": "load", "seconds": 4.5 - 4.5 / 4, "size": 2e7}
    expected |= {"times": 20.0, "usual": 1e6, "worker": "worker-node1-1", "start": 1.5, "stop": 6.5}
    expected |= {"absent": {"stragglers"}}
    findings = assert_found(fat(20_000_000), tmp_path, "data-skew", **expected)
    assert all(findings[rule]["Severity"] == "low" for rule in findings.keys() - {"data-skew"})


@pytest.mark.parametrize(
    ("function", "of_key", "joined"),
    [("hashjoinp2p", True, True), ("unpack", True, False), ("rechunk-p2p", False, False)],
)
def test_a_hot_key_is_not_split(function: str, of_key: bool, joined: bool, tmp_path: Path) -> None:
    tasks = [Task(f"hand-{n}", n % 2, 0.0, 0.5, thread=n // 2, size=10) for n in range(4)]
    barrier = Task("shuffle-barrier-1", 0, 0.5, 0.6, dependencies=[task.key for task in tasks])
    tasks.append(barrier)
    for number, task in enumerate(fat(20_000_000).tasks):
        times = {"start": task.start + 0.6, "stop": task.stop + 0.6}
        key = f"{function}-{number}"
        tasks.append(replace(task, key=key, dependencies=[barrier.key], **times))
    findings = assert_found(Plan(tasks), tmp_path, "data-skew", of_key=of_key, joined=joined)
    assert "partition_size" not in findings["data-skew"]["Suggestion"]


# fmt: off
finds("stragglers", "a straggler", fat(1_000_000), severity="high", function="load", longest=5.0,
    median=0.5, key="load-12", cause=None, absent={"data-skew"})
# Two passes over an array. In the second one, tasks take ten times as long, and one even longer.
PASSES = [Task((f"mean-{0:032x}", n), 0, n * 0.1, n * 0.1 + 0.1) for n in range(10)]
PASSES += [Task((f"mean-{1:032x}", n), 0, 1.0 + n, 2.0 + n) for n in range(10)]
PASSES.append(Task((f"mean-{1:032x}", 10), 0, 11.0, 17.0))
finds("stragglers", "a straggler among layers", Plan(PASSES), tasks=1, function="mean",
    longest=6.0, median=1.0)
# One task of load sleeps for 4.5 s. Three of fit unspill inputs for 1.5 s each.
MIXED = [Task(f"{name}-{n}", worker, n / 2, n / 2 + 0.5)
    for worker, name in enumerate(("load", "fit")) for n in range(12)]
MIXED += [Task(f"fit-{n}", 1, at + 1.5, at + 2, executing=at, disk_read=1.5)
    for n, at in enumerate((6.0, 8.0, 10.0), 12)] + [Task("load-12", 0, 6.0, 11.0, cpu=0.5)]
# fmt: on


def test_stragglers_of_several_causes(tmp_path: Path) -> None:
    facts = without_units(
        found(Plan(MIXED, threads=1), tmp_path, "stragglers")["stragglers"]["Figures"]
    )
    assert (facts["function"], facts["tasks"], facts["cause"]) == ("load", 4, "blocked")
    assert facts["by_function"] == {"fit": 3, "load": 1}


def test_stragglers_of_which_only_the_scheduler_tells(tmp_path: Path) -> None:
    """Facts about its thread that were not recorded are not guessed."""
    fat(1_000_000).write(tmp_path)
    files = [path for path in tmp_path.iterdir() if "-TracePlugin-" not in path.name]
    findings = TraceAnalyser(files, progress=False).findings()
    assert not refute(files, findings)
    (own,) = (one for one in findings if one.rule == "stragglers")
    assert own.figures["cause"] == "unknown"


def test_the_finding_shows_what_the_table_of_stragglers_shows(tmp_path: Path) -> None:
    # The additional time of the last but one is CPU wait. The last one waited for one of six
    # seconds.
    tasks = [Task(f"load-{n}", 0, n * 0.5, n * 0.5 + 0.5) for n in range(12)]
    tasks.append(Task("load-12", 0, 6.0, 12.0, run_queue=5.5))
    tasks.append(Task("load-13", 0, 12.0, 18.0, run_queue=1.0))
    expected = {"key": "load-13", "longest": 5.0, "median": 0.5}
    assert_found(Plan(tasks, threads=1), tmp_path, "stragglers", **expected)
    table = TraceAnalyser(tmp_path, progress=False).stragglers()
    shown = table[["Task Key", "Elapsed (s)", "Median (s)", "Cause"]].values.tolist()
    assert shown == [["load-13", pytest.approx(5.0), pytest.approx(0.5), "computed longer"]]


def two_speeds(slow: set[int], workers: int = 4, waits: bool = False, **of_slow: Any) -> list[Task]:
    """Plan workers, some of which take twice as long for the same number of tasks."""
    tasks = []
    for worker in range(workers):
        seconds, facts = (1.0, of_slow) if worker in slow else (0.5, {})
        facts = {"run_queue": seconds - 0.5 if waits else 0.0, **facts}
        tasks += [
            Task(
                f"f-{worker}{lane}{n}", worker, n * seconds, (n + 1) * seconds, thread=lane, **facts
            )
            for lane in (0, 1)
            for n in range(8)
        ]
    return tasks


def test_a_slow_worker(tmp_path: Path) -> None:
    # 16 task runs take 0.5 s longer on two threads, while the other threads are idle for 4 s.
    expected = {"severity": "high", "worker": "worker-node1-1", "seconds": 4.0, "workers": 2}
    plan = Plan(two_speeds({1}, 2))
    findings = assert_found(plan, tmp_path, "slow-worker", **expected, slow_workers=1)
    assert all(findings[rule]["Severity"] == "low" for rule in findings.keys() - {"slow-worker"})


# fmt: off
finds("slow-worker", "a slow host", Plan(two_speeds({2, 3}), workers=4, hosts=[*"aabb"]), host="b",
    worker=None, function="f", times=2.0, seconds=4.0, slow_workers=2)
finds("slow-worker", "a worker with partitions that are as large", Plan(two_speeds({3}), workers=4))
spares("a worker with larger partitions", Plan(two_speeds({3}, size=2000), workers=4),
    "slow-worker")
spares("a worker that waits for cores", Plan(two_speeds({1}, 2, waits=True)), "slow-worker")
# fmt: on


def test_imbalance_and_placement(tmp_path: Path) -> None:
    # All tasks are ready on the first worker from the start, except two on the second.
    tasks = [
        Task(f"f-{thread}{n}", 0, float(n), n + 1.0, ready=0.0, thread=thread)
        for thread in (0, 1)
        for n in range(8)
    ]
    tasks += [Task(f"f-9{thread}", 1, 0.0, 1.0, thread=thread) for thread in (0, 1)]
    # Two threads are idle for 6 s while at least two tasks are ready elsewhere, before the last
    # round.
    expected = {"severity": "high", "worker": "worker-node1-0", "seconds": 3.0}
    findings = assert_found(
        Plan(tasks), tmp_path, "poor-placement", **expected, others={"load-imbalance"}
    )
    imbalance = findings["load-imbalance"]
    assert (imbalance["Severity"], imbalance["Cause"]) == ("low", "poor-placement")


def behind_a_long_one(annotations: Any = None, dependencies: Sequence[str] = ()) -> Plan:
    """Plan 12 tasks that are ready behind a long one, while the other worker is idle."""
    tasks = [Task("part-0", 0, 0.0, 1.0, annotations={}), Task("part-1", 1, 0.0, 1.0)]
    tasks.append(Task("long-0", 0, 1.0, 7.0, ready=1.0, annotations={}))
    tasks[1].annotations = {}
    facts = {"ready": 1.0, "runnable": 1.0, "annotations": annotations or {}}
    for n in range(12):
        at = 7.0 + n / 2
        tasks.append(Task(f"short-{n}", 0, at, at + 0.5, dependencies=dependencies, **facts))
    return Plan(tasks, threads=1)


# fmt: off
finds("poor-placement", "tasks that ask for a worker",
    behind_a_long_one({"workers": ["tcp://node1:1"]}), asked=True, settings=[])
finds("poor-placement", "tasks that wait where their inputs are",
    behind_a_long_one(dependencies=["part-0"]), asked=False, queued=None, settings=[])
finds("poor-placement", "tasks that could run anywhere and were sent ahead", behind_a_long_one(),
    queued=True, seconds=NAN, settings=[{"distributed.scheduler.worker-saturation": "1.0"}])
# Consecutive tasks on each thread of the first worker, and one task of a second on the other.
LANES = [Task(f"f-{thread}{n}", 0, float(n), n + 1.0, ready=float(n), thread=thread)
    for thread in (0, 1) for n in range(8)] + [Task("f-99", 1, 7.0, 8.0)]
finds("load-imbalance", "a worker that has nothing to do", Plan(LANES))
spares("a worker that joins late", Plan(LANES, joined=[0.0, 6.0]), "load-imbalance")
# fmt: on


def parts(*arrivals: float, **more: Any) -> Plan:
    """Plan graphs with four tasks of 1 s that arrive at these times."""
    tasks = []
    for number, at in enumerate(arrivals):
        stimulus = f"update-graph-{number}" if "clients" in more else None
        facts = {"arrival": at, "graph": stimulus, "cause": stimulus}
        made = filled([f"part{number}"], 1.0, count=4, since=at)
        tasks += [replace(task, **facts) for task in made]
    return Plan(tasks, graphs=arrivals, **more)


def after_others(joined: float) -> Plan:
    """Plan graphs at 0 and 6 s. Two workers join at this time, after the first two left at 1 s."""
    left = [(n, 1.0, "retire-workers-1") for n in (0, 1)]
    joins = [0.0, 0.0, joined, joined]
    plan = parts(0.0, 6.0, clients="aa", workers=4, joined=joins, left=left)
    for task in plan.tasks[4:]:
        task.worker += 2
    return plan


# fmt: off
# Two gaps of 2 s in 7 s.
finds("client-bound", "gaps of the client", parts(0.0, 3.0, 6.0), alone=True, seconds=4.0, gaps=2,
    longest=2.0)
# A call from 1 to 4 s first prepares and then waits. Its tasks are known at 3 s.
for waiting, is_late in ((2.9, True), (1.1, False)):
    calls = [(1.0, 4.0, "compute", {"waiting": waiting, "receiving": 0.05})]
    finds("client-bound", f"a client that waits for {waiting} s in a gap",
        parts(0.0, 3.0, client_calls=calls), waits=is_late)
# Actor calls from 1 to 4 s, two of them in parallel, and from 4.5 to 4.75 s.
ACTED = [(0, 1.0, 3.0), (1, 2.0, 4.0), (0, 4.5, 4.75)]
finds("client-bound", "no calls of actors", parts(0.0, 5.0), seconds=4.0)
finds("client-bound", "calls of actors", parts(0.0, 5.0, calls=ACTED), seconds=0.75)
spares("a call of an actor all the time", parts(0.0, 5.0, calls=[(0, 1.0, 5.0)]), "client-bound")
finds("client-bound", "one client that submits late", parts(0.0, 6.0, clients="aa"), seconds=5.0,
    client="", sampled=False)
spares("gaps until another client submits", parts(0.0, 6.0, clients="ab"), "client-bound")
# From 1 to 6 s, no task is submitted, and until 3 s, there is no worker.
finds("client-bound", "gaps in a part of which there is no worker", after_others(3.0), waited=3.0,
    longest=3.0)
spares("gaps in most of which there is no worker", after_others(5.5), "client-bound")
# The graph arrives at 0, both workers join at 6 s, and the run ends at 8 s.
finds("no-workers", "a time without workers", Plan(filled(["fit"], 2.0, count=4, since=6.0),
    joined=[6.0, 6.0]), severity="medium", seconds=6.0, share=0.75, start=0.0, stop=6.0)
spares("a time without workers and without tasks", after_others(6.0), "no-workers")
# fmt: on


def importing(first: float, *, later: float = 0.1, **of_first: Any) -> list[Task]:
    """Plan two workers with one thread, whose first of 20 task runs take longer than the others."""
    tasks = []
    for worker in (0, 1):
        tasks.append(Task(f"fit-{worker}0", worker, 0.0, first, **of_first))
        for n in range(1, 20):
            stop = first + n * later
            tasks.append(Task(f"fit-{worker}{n}", worker, stop - later, stop))
    return tasks


def sent_early(*lags: float) -> Plan:
    """Plan four tasks that are assigned at 0 and received at 5 s, and blocks of event loops."""
    tasks = [replace(task, sent=0.0) for task in filled(["fit"], 1.0, count=4, since=5.0)]
    state = {"state": "running"}
    held = [(n, at, {**state, "loop_lag": at - 0.5}) for n in (0, 1) for at in lags]
    return Plan(tasks, held=[*((n, 0.0, state) for n in (0, 1) if lags), *held])


# fmt: off
IMPORTS = importing(4.0) + [Task(f"sum-{n}", n % 2, at, at) for n in range(40)
    for at in [5.9 + n // 2 / 1000]]
# Two of four threads are idle meanwhile.
finds("warm-up", "an import on each worker", Plan(IMPORTS), severity="low", function="fit",
    seconds=7.8 / 4, lost=7.8, took=4.0, usual=0.1, runs=2, workers=2,
    absent={"stragglers", "dominant-function"})
spares("larger first partitions", Plan(importing(4.0, size=900_000)), "warm-up")
# Three of 19 later task runs take as long.
OFTEN = importing(4.0)
for lane in (OFTEN[:20], OFTEN[20:]):
    for n in (5, 9, 13):
        for task in lane[n + 1 :]:
            task.start, task.stop = task.start + 3.9, task.stop + 3.9
        lane[n].stop += 3.9
spares("a function that takes long at times", Plan(OFTEN), "warm-up")
# 38 task runs of 0.5 s, and 2 first runs that count as 0.5 s.
finds("dominant-function", "a function that is slow by its median", Plan(importing(4.0, later=0.5)
    + [Task(f"sum-{n}", n % 2, 0.0, 0.01, thread=2 + n) for n in range(4)]), median=0.5, tasks=40,
    lasted=20.0)
# The event loops of both workers are blocked from 0.5 s to 4.9 s of 5 s, or they are not.
for lags, blocked in (((1.0, 2.0, 3.0, 4.0, 4.9), 0.88), ((), 0.0)):
    finds("slow-dispatch", f"event loops that are blocked for {blocked}", sent_early(*lags),
        seconds=5.0, longest=5.0, blocked=blocked, absent={"scheduler-bound"})
# fmt: on


def test_imports_as_the_first_tasks_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While both event loops import, four tasks are in transit for 5 s of a run of 6 s."""

    def blocks(run: Run) -> list[loop_blocks.LoopBlock]:
        facts = (run.begin, run.begin + 5.0, True, None, "", "sklearn", "working", 99)
        return [loop_blocks.LoopBlock(at, *facts) for at in run.tasks["worker_id"].unique()]

    monkeypatch.setattr(loop_blocks, "loop_blocks", blocks)
    (finding,) = sent_early().write(tmp_path).findings()
    assert (finding.rule, finding.severity) == ("warm-up", "low")
    assert finding.seconds == pytest.approx(5.0)
    assert finding.figures["share"] == pytest.approx(1.0)
    assert finding.figures["libraries"] == {"sklearn": pytest.approx(10.0)}
    assert "client.run(lambda: __import__('sklearn'), wait=False)" in finding.row()["Suggestion"]


UNSCHEDULED = Plan(filled(["load", "clean"], 1.0), scheduler=False)
facts = {"alone": True, "kinds": ["no-scheduler-file"]}
finds("incomplete-trace", "a run without a file of the scheduler", UNSCHEDULED, **facts)


test_a_fault_is_found, test_what_looks_alike_is_not_found = CASES.tests()


def test_no_rule_fails_on_a_trace_of_dasf(tmp_path: Path) -> None:
    events = [compute(f"f-{n}", 10.0 + n, 0.9, "worker-a-0") for n in range(20)]
    events += [managed(10.0 + n, "worker-a-0", n) for n in range(20)]
    events += [usage(10.0 + n, time=1e9 + n) for n in range(20)]
    run = RunFigures(TraceAnalyser(write_as_dasf(tmp_path / "dasf", events)).run)
    for rule in RULES.values():
        list(rule(run))
