"""Lines, fractions and categories from stack samples, calculated by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from traces import Plugin, T, row
from traces.in_memory import made_trace

from dasfprof import TraceAnalyser
from dasfprof.analysis.stack_samples import places
from dasfprof.analysis.stack_samples.spent import run_of_samples, samples_of
from dasfprof.analysis.under_way.state import Frame
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.profiles import CLIENT_SAMPLE, LOOP_SAMPLE, TASK_SAMPLE
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import STACK, TASK_UNDER_WAY

SITE = "/env/lib/python3.12/site-packages"
WORK, NORM = "/home/me/kmeans.py", f"{SITE}/numpy/linalg/_linalg.py"
STACKS = [
    (T, 0, [["step", WORK, 40]], -1),
    (T, 1, [["step", WORK, 41]], -1),
    (T, 2, [["norm", NORM, 2800]], 1),
    (T, 3, [["dot", f"{SITE}/numpy/_core/x.py", 5]], -1),  # without a line of the user
]


def sample(at: float, stack: int, **more: Any) -> tuple[Any, ...]:
    facts = {"activity": "running", "interval": 0.1, "cpu": 0.1, "run_queue": 0.0}
    return row(TASK_SAMPLE, timestamp=T + at, **{"thread": "7", "stack": stack, **facts, **more})


def compute(key: str, start: float, stop: float, thread: str = "7", **counted: float) -> Any:
    facts = {"key": key, "state": "memory", "thread": thread, **counted}
    return row(COMPUTE, timestamp=T + start, duration=stop - start, **facts)


RUNS = [compute("step-1", 0.0, 1.0), compute("load-1", 1.0, 2.0)]


def analyser(
    directory: Path, samples: list[Any], *more: Any, runs: Any = RUNS, stacks: Any = STACKS
) -> TraceAnalyser:
    Plugin(directory).write((STACK, stacks), (COMPUTE, runs), (TASK_SAMPLE, samples), *more)
    return TraceAnalyser(directory)


def by_line(asked: TraceAnalyser, function: str | None = None) -> pd.DataFrame:
    return asked.hot_lines(function).set_index("Line")


def seconds(table: pd.DataFrame, column: str) -> Any:
    """Return a column as a dict for an approximate comparison."""
    return pytest.approx(table[column].to_dict())


def test_lines_with_their_shares(tmp_path: Path) -> None:
    samples = [
        sample(0.1, 0),
        sample(0.2, 2, interval=0.2),
        sample(0.4, 2, interval=0.2),
        sample(0.5, 1),
        sample(0.6, -1, cpu=None, run_queue=None),
        sample(1.5, 3, interval=0.3),
    ]
    asked = analyser(tmp_path, samples)
    table = asked.hot_lines()
    assert table["Line"].tolist()[:2] == [41, 5]
    columns = ["Time (s)", "File", "Code", "Inside", "Samples", "Share (%)"]
    approx = pytest.approx
    lines = table.set_index("Line")
    told = [approx(0.5), WORK, "step", "norm (numpy)", 3, approx(50)]
    assert lines.loc[41, columns].tolist() == told
    assert (lines.loc[40, "Inside"], lines.loc[5, "Code"]) == ("", "dot")
    unknown = table[table["Line"].isna()]
    assert unknown[["Code", "Time (s)"]].values.tolist() == [["(unknown)", approx(0.1)]]
    assert asked.hot_lines("step")["Time (s)"].sum() == approx(0.7)
    assert asked.hot_lines(function="load")["Code"].tolist() == ["dot"]
    assert not len(asked.hot_lines(function="no such"))
    assert not len(asked.hot_lines(step="no such"))
    assert asked.hot_lines(by="function")["Code"].tolist()[:2] == ["norm", "dot"]
    libraries = asked.hot_lines(by="library").set_index("Library")["Time (s)"]
    assert (libraries["numpy"], libraries["(program)"]) == approx((0.7, 0.2))
    with pytest.raises(InvalidArgumentError, match="by='file'"):
        asked.hot_lines(by="file")  # type: ignore[arg-type]


def test_margins_are_wilsons(tmp_path: Path) -> None:
    """20 of 100 equal samples are 20 % with an interval of 13.3 % to 28.9 %."""
    samples = [sample(0.005 * n, 0 if n < 20 else 1) for n in range(100)]
    line = by_line(analyser(tmp_path, samples)).loc[40]
    assert line["Share (%)"] == pytest.approx(20)
    assert line["Margin (points)"] == pytest.approx((28.88 - 13.34) / 2, abs=0.02)


def test_time_on_a_core_belongs_to_the_lines_that_did_not_wait(tmp_path: Path) -> None:
    """A line computes for 40 ms and the next one sleeps for 60 ms: each interval contains both."""
    samples = [
        sample(0.1 * n, line, cpu=0.04, activity=("running", "waiting")[line])
        for n, line in enumerate([0, 0, 1, 1, 1] * 2)
    ]
    table = by_line(analyser(tmp_path, samples))
    assert seconds(table, "Computing (s)") == {40: 0.4, 41: 0.0}
    assert seconds(table, "Waiting (s)") == {40: 0.0, 41: 0.6}


def test_what_a_late_look_has_too_much_is_given_to_the_others(tmp_path: Path) -> None:
    """It counts for 0.1 s of the 0.25 s on a core that were measured before it."""
    samples = [*(sample(0.1 * n, 0, cpu=0.05) for n in range(1, 9)), sample(0.9, 1, cpu=0.25)]
    table = by_line(analyser(tmp_path, samples))
    assert seconds(table, "Computing (s)") == {40: 0.55, 41: 0.1}


#: A task run that computes for 0.75 s of a second, and one that sleeps for a second, as measured.
COUNTED = [
    compute("step-1", 0.0, 1.0, cpu=0.75, run_queue=0.125),
    compute("load-1", 1.0, 2.0, cpu=0.0, run_queue=0.0),
]


def test_what_a_run_computed_is_not_of_the_next_run_of_its_thread(tmp_path: Path) -> None:
    """Samples are at 0.45, 0.95, 1.45 and 1.95 s: the third covers time of the first task run.

    Half of the first task run was between its samples, which counted 0.3 s; it measured 0.75 s.
    """
    samples = [
        sample(0.45, 0, interval=0.5, cpu=None, run_queue=None),
        sample(0.95, 0, interval=0.5, cpu=0.3, run_queue=0.1),
        sample(1.45, 1, interval=0.5, cpu=0.4, activity="waiting"),
        sample(1.95, 1, interval=0.5, cpu=0.0, activity="waiting"),
    ]
    asked = analyser(tmp_path, samples, runs=COUNTED)
    table = by_line(asked)
    assert seconds(table, "Computing (s)") == {40: 0.75, 41: 0.0}
    assert seconds(table, "Waiting for CPU (s)") == {40: 0.125, 41: 0.0}
    assert seconds(table, "Waiting (s)") == {40: 0.125, 41: 1.0}
    assert table["Interpreter's Lock (s)"].sum() == pytest.approx(0.0)
    assert asked.hot_lines("load")["Computing (s)"].sum() == pytest.approx(0.0)


def test_what_the_kernel_does_not_tell(tmp_path: Path) -> None:
    untold = {"activity": None, "cpu": None, "run_queue": None}
    samples = [sample(0.1 * n + 0.05, n % 2, **untold) for n in range(10)]
    # One line may have computed while the other slept: 0.125 s are uncertain.
    table = analyser(tmp_path / "counted", samples, runs=COUNTED).hot_lines("step")
    assert table["Computing (s)"].sum() == pytest.approx(0.75)
    assert table["Uncertain (s)"].tolist() == pytest.approx([0.25, 0.25])
    table = analyser(tmp_path / "uncounted", samples).hot_lines()
    assert table["Time (s)"].sum() == pytest.approx(1.0)
    parts = ["Computing (s)", "Waiting for CPU (s)", "Interpreter's Lock (s)", "Waiting (s)"]
    assert table[[*parts, "Uncertain (s)"]].isna().to_numpy().all()


def test_threads_that_want_the_interpreters_lock(tmp_path: Path) -> None:
    samples = [sample(0.1 * n, 0, cpu=0.025, run_queue=0.005, activity="lock") for n in range(10)]
    (line,) = analyser(tmp_path, samples).hot_lines().to_dict("records")
    parts = ["Computing (s)", "Waiting for CPU (s)", "Interpreter's Lock (s)", "Waiting (s)"]
    assert [line[part] for part in parts] == pytest.approx([0.25, 0.05, 0.7, 0.0])


def test_what_lines_of_a_function_share_is_uncertain(tmp_path: Path) -> None:
    """A function computes for 0.3 s and waits for the GIL for 0.6 s.

    Each of its lines has a third of its time, but may have had twice that. A line with all time of
    the function has everything that was counted.
    """
    facts = {"cpu": 0.1 / 3, "activity": "lock"}
    samples = [sample(0.1 * n, line, **facts) for n, line in enumerate([0] * 6 + [1] * 3, 1)]
    samples += [sample(1.0 + 0.1 * n, 3, **facts) for n in range(1, 10)]
    asked = analyser(tmp_path, samples)
    table = by_line(asked)
    assert seconds(table, "Computing (s)") == {40: 0.2, 41: 0.1, 5: 0.3}
    # Line 40: at most what line 41 has, 0.3 s. Line 41: twice its third. Line 5, all of load: 0.
    assert seconds(table, "Uncertain (s)") == {40: 0.3, 41: 0.2, 5: 0.0}
    libraries = asked.hot_lines(by="library")
    assert libraries["Uncertain (s)"].tolist() == pytest.approx([0.0, 0.0])


def test_lines_of_a_function_that_computes_all_the_time_are_certain(tmp_path: Path) -> None:
    samples = [sample(0.1 * n, n % 2, cpu=0.099, run_queue=0.001) for n in range(1, 10)]
    samples.append(sample(0.95, 2, activity="waiting", cpu=0.0))
    table = analyser(tmp_path, samples).hot_lines()
    assert (table["Uncertain (s)"] < 0.025 * table["Time (s)"]).all()


def test_samples_belong_to_the_run_of_their_thread_and_time(tmp_path: Path) -> None:
    facts = {"key": "hangs-1", "state": "executing", "since": T + 5, "thread": "7", "stack": -1}
    open_run = row(TASK_UNDER_WAY, timestamp=T + 9, **facts)
    looks = (0.5, "7"), (1.5, "7"), (0.5, "8"), (6.0, "7"), (0.5, "9")
    samples = [sample(at, 0, thread=thread) for at, thread in looks]
    samples.append(sample(3.0, 0))  # between two task runs
    runs = [*RUNS, compute("other-1", 0.0, 2.0, thread="8")]
    asked = analyser(tmp_path, samples, (TASK_UNDER_WAY, [open_run]), runs=runs)
    for function in ("step", "load", "other", "hangs"):
        assert asked.hot_lines(function)["Samples"].sum() == 1, function
    assert asked.hot_lines()["Samples"].sum() == 6
    assert np.count_nonzero(run_of_samples(asked.run) < 0) == 2


def test_equal_threads_of_two_workers_are_two(tmp_path: Path) -> None:
    for number in (1, 2):
        run = (COMPUTE, [compute(f"of{number}-1", 0.0, 1.0)])
        samples = (TASK_SAMPLE, [sample(0.1 * n, 0) for n in range(1, 1 + number)])
        worker = {"name": number, "address": f"tcp://10.0.0.1:400{number}"}
        Plugin(tmp_path, **worker).write((STACK, STACKS[:1]), run, samples)
    for number in (1, 2):
        table = TraceAnalyser(tmp_path).hot_lines(f"of{number}")
        assert table["Samples"].tolist() == [number]


def test_tree_of_calls(tmp_path: Path) -> None:
    samples = [sample(0.1, 0), sample(0.2, 2), sample(0.3, 2), sample(0.4, 3), sample(0.5, -1)]
    table = analyser(tmp_path, samples).call_tree()
    assert table[["Depth", "Code"]].values.tolist() == [[0, "step"], [1, "norm"], [0, "dot"]]
    expected = {"Time (s)": [0.3, 0.2, 0.1], "Self (s)": [0.1, 0.2, 0.1], "Share (%)": [60, 40, 20]}
    assert {column: pytest.approx(table[column].tolist()) for column in expected} == expected
    few = analyser(tmp_path / "few", samples).call_tree(least=30)
    assert few["Code"].tolist() == ["step", "norm"]
    none = analyser(tmp_path / "none", []).call_tree()
    assert none.empty
    assert none.dtypes.equals(table.dtypes)


def test_what_the_client_did(tmp_path: Path) -> None:
    stacks = [
        (T, 0, [["main", "/home/me/run.py", 9]], -1),
        (T, 1, [["load", WORK, 41]], 0),
        (T, 2, [["_find_and_load", "<frozen importlib._bootstrap>", 1360]], 0),
        (T, 3, [["<module>", f"{SITE}/lightgbm/__init__.py", 3]], 2),
        (T, 4, [["<module>", f"{SITE}/pandas/__init__.py", 9]], 3),
    ]
    facts = {"activity": "running", "interval": 0.5, "cpu": 0.5, "run_queue": 0.0}
    looks = [(0.5, 0, "waiting"), (1.0, 0, "waiting"), (6.0, 4, "program")]
    looks += [(at, 1, "program") for at in (4.0, 4.5, 5.0)]
    samples = [
        row(CLIENT_SAMPLE, timestamp=T + at, stack=stack, phase=phase, **facts)
        for at, stack, phase in sorted(looks)
    ]
    Plugin(tmp_path, "StepRecorder").write((STACK, stacks), (CLIENT_SAMPLE, samples))
    Plugin(tmp_path).write((COMPUTE, [compute("step-1", 0.0, 2.0)]))
    table = TraceAnalyser(tmp_path).client_activity()
    assert table["Phase"].tolist() == ["program", "waiting", "program"]
    assert table["Line"].tolist() == [41, 9, 9]
    assert table["Time (s)"].tolist() == pytest.approx([1.5, 1.0, 0.5])
    assert table["Cluster Idle (s)"].tolist() == pytest.approx([1.5, 0.0, 0.5])


def test_blocked_loops(tmp_path: Path) -> None:
    run = [["Handle._run", "/env/lib/python3.12/asyncio/events.py", 88]]
    stacks = [
        (T, 0, [["<module>", "<string>", 1]], -1),
        (T, 1, run, 0),
        (T, 2, [["loads", f"{SITE}/cloudpickle/x.py", 7]], 1),
        (T, 3, [["EpollSelector.select", "/env/lib/python3.12/selectors.py", 468]], 0),
    ]

    def seen(at: float, since: float, stack: int, until: float | None = None, **more: Any) -> Any:
        facts = {"activity": "running", "interval": 0.1, "cpu": 0.1, "run_queue": 0.0}
        until = None if until is None else T + until
        facts |= {"until": until, "since": T + since, "stack": stack}
        return row(LOOP_SAMPLE, timestamp=T + at, **{**facts, **more})

    samples = [
        seen(1.1, 1.0, 2),
        seen(1.2, 1.0, 2),
        seen(1.35, 1.0, -1, until=1.3),
        seen(5.2, 5.0, 3, cpu=0.0, run_queue=0.1),
        seen(6.2, 6.0, 2, cpu=0.0, activity="lock"),
        seen(7.9, 7.0, 3),
        seen(9.5, 9.4, -1, until=9.45),  # it was never sampled
    ]
    Plugin(tmp_path).write((STACK, stacks), (LOOP_SAMPLE, samples))
    table = TraceAnalyser(tmp_path).loop_blocks()
    assert table["Duration (s)"].tolist() == pytest.approx([0.9, 0.3, 0.2, 0.2])
    assert table["Cause"].tolist() == ["unknown", "working", "no core", "lock"]
    assert table["Code"].tolist()[:2] == ["", "loads"]
    assert table["Line"].tolist()[1] == 7


def test_libraries() -> None:
    libraries = {
        NORM: "numpy",
        f"{SITE}/six.py": "six",
        "/usr/lib/python3/dist-packages/yaml/reader.py": "yaml",
        "/usr/lib/python3.11/json/decoder.py": "(Python)",
        "<frozen importlib._bootstrap>": "(Python)",
        "C:\\env\\Lib\\site-packages\\pandas\\io.py": "pandas",
        WORK: "(program)",
        "<ipython-input-3-x>": "(program)",
    }
    assert {file: places.library_of(file) for file in libraries} == libraries


def test_the_line_of_a_stack() -> None:
    mine, norm = Frame("step", WORK, 41), Frame("norm", NORM, 2800)
    assert places.line_of((mine, norm)) == (mine, "norm (numpy)")
    assert places.line_of((norm, mine)) == (mine, "")  # a callback of the user
    assert places.line_of((norm,)) == (norm, "")
    begin = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1)
    assert places.import_of((mine, norm)) is None
    assert places.import_of((mine, begin)) == ""


def test_the_line_of_a_pools_thread() -> None:
    lib = "/usr/lib/python3.13"
    waiting = (
        Frame("step", WORK, 41),
        Frame("Future.result", f"{lib}/concurrent/futures/_base.py", 451),
        Frame("Condition.wait", f"{lib}/threading.py", 359),
    )
    thread = Frame("_worker", f"{lib}/concurrent/futures/thread.py", 93)
    score, norm = Frame("score", WORK, 12), Frame("norm", NORM, 2800)
    assert places.line_of(waiting) == (waiting[0], "")
    sync = Frame("sync", "/x/site-packages/zarr/core/sync.py", 149)
    assert places.line_of((waiting[0], sync, waiting[2])) == (waiting[0], "sync (zarr)")
    assert places.line_of((*waiting, thread, score)) == (score, places.IN_POOL)
    # Without a line of the user in the pool's thread, it is the line of the task.
    assert places.line_of((*waiting, thread, norm)) == (waiting[0], places.IN_POOL)
    for inner in (score, norm):
        assert places.waited_for((*waiting, thread, inner)) == places.TASK_POOL
    assert places.waited_for((score,)) == places.UNKNOWN_WAIT


@pytest.mark.parametrize("question", ["hot_lines", "call_tree", "client_activity", "loop_blocks"])
def test_without_samples_answers_are_empty(question: str) -> None:
    analyser = TraceAnalyser(made_trace([], workers=[]))
    assert isinstance(getattr(analyser, question)(), pd.DataFrame)
    assert not len(getattr(analyser, question)())


def test_a_finding_cites_the_hottest_line(tmp_path: Path) -> None:
    runs = [compute(f"step-{n}", n, n + 0.9) for n in range(8)]
    runs += [compute(f"load-{n}", n + 0.9, n + 0.91) for n in range(8)]
    samples = [sample(0.05 + n * 0.1, 2 if n % 5 else 0) for n in range(80) if n % 10 < 9]
    findings = analyser(tmp_path, samples, runs=runs).diagnose().set_index("Rule")
    evidence = findings.loc["dominant-function", "Evidence"]
    assert f"at {WORK}:41 step, in norm (numpy): 100 % computing. " in evidence
    assert "(72 samples, ± " in evidence


def test_a_line_is_named_only_where_that_is_certain(tmp_path: Path) -> None:
    def named(samples: list[tuple[Any, ...]], **more: Any) -> str:
        directory = tmp_path / str(len([*tmp_path.iterdir()]))
        return places.hottest_line(analyser(directory, samples, **more).run, "step")

    assert named([]) == ""
    assert named([sample(0.01 * n, 0) for n in range(15)]) == ""
    lines = [(T, n, [["step", WORK, n]], -1) for n in range(10)]
    assert named([sample(0.005 * n, n % 10) for n in range(150)], stacks=lines) == ""
    assert named([sample(0.005 * n, -1) for n in range(150)]) == ""
    starved = [sample(0.005 * n, 1, cpu=0.05, run_queue=0.05) for n in range(150)]
    assert named(starved) == ""
    waits = {"cpu": 0.0, "activity": "waiting"}
    sleeping = [sample(0.005 * n, 1, **waits) for n in range(150)]
    assert named(sleeping).endswith(f" at {WORK}:41 step: 100 % waiting. ")
    # A quarter of a line's samples are not in Python code of a library, such as time.sleep.
    words = named([sample(0.005 * n, 2 if n % 4 else 1, **waits) for n in range(160)])
    assert words.endswith(f"at {WORK}:41 step, 75 % of that in norm (numpy): 100 % waiting. ")
    shared = [sample(0.005 * n, n % 4 // 3, cpu=0.03, activity="lock") for n in range(150)]
    words = named(shared, stacks=lines[:2], runs=RUNS[:1])
    assert words.endswith(": 100 % computing or waiting for the GIL. ")


def test_samples_weigh_no_more_than_the_runs_of_their_function(tmp_path: Path) -> None:
    """The first sample after a pause covers 1.5 s, but its task took 1 s."""
    samples = [sample(0.1, 0, interval=1.5, cpu=1.5), sample(0.7, 1, interval=0.5, cpu=0.5)]
    found, _ = samples_of(analyser(tmp_path, [*samples, sample(1.5, 3)]).run)
    assert found.interval.tolist() == pytest.approx([0.75, 0.25, 0.1])
    assert found.cpu[1:].tolist() == pytest.approx([0.25, 0.1])
