"""Samples of stacks become lines, shares and splits: values worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from traces import Plugin, T, row
from traces.in_memory import made_trace

from dasfprof import TraceAnalyser
from dasfprof.analysis.stack_samples.places import (
    IN_POOL,
    TASK_POOL,
    UNKNOWN_WAIT,
    hottest_line,
    import_of,
    library_of,
    line_of,
    waited_for,
)
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
    (T, 3, [["dot", f"{SITE}/numpy/_core/x.py", 5]], -1),  # no line of the user's
]


def sample(at: float, stack: int, **more: Any) -> tuple[Any, ...]:
    facts = {"activity": "running", "interval": 0.1, "cpu": 0.1, "run_queue": 0.0}
    return row(TASK_SAMPLE, timestamp=T + at, **{"thread": "7", "stack": stack, **facts, **more})


def compute(
    key: str, start: float, stop: float, thread: str = "7", **counted: float
) -> tuple[Any, ...]:
    return row(
        COMPUTE,
        timestamp=T + start,
        duration=stop - start,
        key=key,
        state="memory",
        thread=thread,
        **counted,
    )


def analyser(directory: Path, samples: list[tuple[Any, ...]], *more: Any) -> TraceAnalyser:
    runs = [compute("step-1", 0.0, 1.0), compute("load-1", 1.0, 2.0)]
    Plugin(directory).write((STACK, STACKS), (COMPUTE, runs), (TASK_SAMPLE, samples), *more)
    return TraceAnalyser(directory)


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
    by_line = table.set_index("Line")
    assert by_line.loc[41, "Time (s)"] == pytest.approx(0.5)
    assert by_line.loc[41, "File"] == WORK
    assert by_line.loc[41, "Code"] == "step"
    assert by_line.loc[41, "Inside"] == "norm (numpy)"
    assert by_line.loc[41, "Samples"] == 3
    assert by_line.loc[41, "Share (%)"] == pytest.approx(50)
    assert by_line.loc[40, "Inside"] == ""
    assert by_line.loc[5, "Code"] == "dot"
    unknown = table[table["Line"].isna()]
    assert unknown["Code"].tolist() == ["(unknown)"]
    assert unknown["Time (s)"].tolist() == pytest.approx([0.1])
    of_step = asked.hot_lines("step")
    assert of_step["Time (s)"].sum() == pytest.approx(0.7)
    assert asked.hot_lines(function="load")["Code"].tolist() == ["dot"]
    assert not len(asked.hot_lines(function="no such"))
    assert not len(asked.hot_lines(step="no such"))
    functions = asked.hot_lines(by="function")
    assert functions["Code"].tolist()[:2] == ["norm", "dot"]
    libraries = asked.hot_lines(by="library").set_index("Library")["Time (s)"]
    assert libraries["numpy"] == pytest.approx(0.7)
    assert libraries["(program)"] == pytest.approx(0.2)
    with pytest.raises(InvalidArgumentError, match="by='file'"):
        asked.hot_lines(by="file")  # type: ignore[arg-type]


def test_margins_are_wilsons(tmp_path: Path) -> None:
    """20 of 100 samples of one weight: 20 % with an interval of 13.3 % to 28.9 %."""
    samples = [sample(0.005 * n, 0 if n < 20 else 1) for n in range(100)]
    table = analyser(tmp_path, samples).hot_lines().set_index("Line")
    assert table.loc[40, "Share (%)"] == pytest.approx(20)
    assert table.loc[40, "Margin (points)"] == pytest.approx((28.88 - 13.34) / 2, abs=0.02)


def test_time_on_a_core_belongs_to_the_lines_that_did_not_wait(tmp_path: Path) -> None:
    """A line computes for 40 ms, the next sleeps for 60 ms: each interval holds both."""
    samples = [
        sample(0.1 * n, line, cpu=0.04, activity=("running", "waiting")[line])
        for n, line in enumerate([0, 0, 1, 1, 1] * 2)
    ]
    table = analyser(tmp_path, samples).hot_lines().set_index("Line")
    assert table.loc[40, "Computing (s)"] == pytest.approx(0.4)
    assert table.loc[40, "Waiting (s)"] == pytest.approx(0.0)
    assert table.loc[41, "Computing (s)"] == pytest.approx(0.0)
    assert table.loc[41, "Waiting (s)"] == pytest.approx(0.6)


def test_what_a_late_look_has_too_much_is_given_to_the_others(tmp_path: Path) -> None:
    """Of 0.25 s on a core that were counted before it, it stands for 0.1 s."""
    samples = [sample(0.1 * n, 0, cpu=0.05) for n in range(1, 9)]
    samples.append(sample(0.9, 1, cpu=0.25))
    table = analyser(tmp_path, samples).hot_lines().set_index("Line")
    assert table["Computing (s)"].to_dict() == pytest.approx({40: 0.55, 41: 0.1})


def counted_runs(directory: Path, samples: list[tuple[Any, ...]]) -> TraceAnalyser:
    """A run that computes for 0.75 s of a second, and one that sleeps for another, by their own."""
    runs = [
        compute("step-1", 0.0, 1.0, cpu=0.75, run_queue=0.125),
        compute("load-1", 1.0, 2.0, cpu=0.0, run_queue=0.0),
    ]
    Plugin(directory).write((STACK, STACKS), (COMPUTE, runs), (TASK_SAMPLE, samples))
    return TraceAnalyser(directory)


def test_what_a_run_computed_is_not_of_the_next_run_of_its_thread(tmp_path: Path) -> None:
    """Looks at 0.45, 0.95, 1.45 and 1.95 s: the third has what the first run did since the second.

    Of the first run half was between its looks, of which 0.3 s were counted; it told 0.75 s.
    """
    samples = [
        sample(0.45, 0, interval=0.5, cpu=None, run_queue=None),
        sample(0.95, 0, interval=0.5, cpu=0.3, run_queue=0.1),
        sample(1.45, 1, interval=0.5, cpu=0.4, activity="waiting"),
        sample(1.95, 1, interval=0.5, cpu=0.0, activity="waiting"),
    ]
    asked = counted_runs(tmp_path, samples)
    table = asked.hot_lines().set_index("Line")
    assert table["Computing (s)"].to_dict() == pytest.approx({40: 0.75, 41: 0.0})
    assert table["Waiting for CPU (s)"].to_dict() == pytest.approx({40: 0.125, 41: 0.0})
    assert table["Waiting (s)"].to_dict() == pytest.approx({40: 0.125, 41: 1.0})
    assert table["Interpreter's Lock (s)"].sum() == pytest.approx(0.0)
    assert asked.hot_lines("load")["Computing (s)"].sum() == pytest.approx(0.0)


def test_lines_are_uncertain_where_the_kernel_does_not_tell_what_a_thread_did(
    tmp_path: Path,
) -> None:
    """One line may have computed and the other slept: 0.125 s were neither."""
    samples = [
        sample(0.1 * n + 0.05, n % 2, activity=None, cpu=None, run_queue=None) for n in range(10)
    ]
    table = counted_runs(tmp_path, samples).hot_lines("step")
    assert table["Computing (s)"].sum() == pytest.approx(0.75)
    assert table["Uncertain (s)"].tolist() == pytest.approx([0.25, 0.25])


def test_threads_that_want_the_interpreters_lock(tmp_path: Path) -> None:
    samples = [sample(0.1 * n, 0, cpu=0.025, run_queue=0.005, activity="lock") for n in range(10)]
    table = analyser(tmp_path, samples).hot_lines()
    assert table["Computing (s)"].tolist() == pytest.approx([0.25])
    assert table["Waiting for CPU (s)"].tolist() == pytest.approx([0.05])
    assert table["Interpreter's Lock (s)"].tolist() == pytest.approx([0.7])
    assert table["Waiting (s)"].tolist() == pytest.approx([0.0])


def test_what_lines_of_a_function_share_is_uncertain(tmp_path: Path) -> None:
    """A function that computes for 0.3 s and wants the interpreter's lock for 0.6 s.

    The table gives each of its lines a third of its time. A line may well have had twice that; one
    that has the whole function's time has all that was counted.
    """
    lines = [0] * 6 + [1] * 3
    samples = [
        sample(0.1 * n, line, cpu=0.1 / 3, activity="lock") for n, line in enumerate(lines, 1)
    ]
    samples += [sample(1.0 + 0.1 * n, 3, cpu=0.1 / 3, activity="lock") for n in range(1, 10)]
    asked = analyser(tmp_path, samples)
    table = asked.hot_lines().set_index("Line")
    assert table["Computing (s)"].to_dict() == pytest.approx({40: 0.2, 41: 0.1, 5: 0.3})
    # Of line 40 no more than line 41 has: 0.3 s; of 41 twice its third; of 5, the whole of load, 0.
    assert table["Uncertain (s)"].to_dict() == pytest.approx({40: 0.3, 41: 0.2, 5: 0.0})
    whole = asked.hot_lines(by="library").set_index("Library")
    assert whole["Uncertain (s)"].tolist() == pytest.approx([0.0, 0.0])


def test_lines_of_a_function_that_computes_all_the_time_are_certain(tmp_path: Path) -> None:
    samples = [sample(0.1 * n, n % 2, cpu=0.099, run_queue=0.001) for n in range(1, 10)]
    samples.append(sample(0.95, 2, activity="waiting", cpu=0.0))
    table = analyser(tmp_path, samples).hot_lines()
    assert (table["Uncertain (s)"] < 0.025 * table["Time (s)"]).all()


def test_what_the_kernel_does_not_count_is_unknown(tmp_path: Path) -> None:
    samples = [sample(0.1 * n, 0, cpu=None, run_queue=None, activity=None) for n in range(10)]
    table = analyser(tmp_path, samples).hot_lines()
    assert table["Time (s)"].tolist() == pytest.approx([1.0])
    parts = ["Computing (s)", "Waiting for CPU (s)", "Interpreter's Lock (s)", "Waiting (s)"]
    parts.append("Uncertain (s)")
    assert table[parts].isna().to_numpy().all()


def test_samples_belong_to_the_run_of_their_thread_and_time(tmp_path: Path) -> None:
    runs = [compute("other-1", 0.0, 2.0, thread="8")]
    open_run = row(
        TASK_UNDER_WAY,
        timestamp=T + 9,
        key="hangs-1",
        state="executing",
        since=T + 5,
        thread="7",
        stack=-1,
    )
    samples = [
        sample(0.5, 0),
        sample(1.5, 0),
        sample(0.5, 0, thread="8"),
        sample(3.0, 0),  # between two runs
        sample(6.0, 0),
        sample(0.5, 0, thread="9"),
    ]
    asked = analyser(tmp_path, samples, (COMPUTE, runs), (TASK_UNDER_WAY, [open_run]))
    for function, number in {"step": 1, "load": 1, "other": 1, "hangs": 1}.items():
        assert asked.hot_lines(function)["Samples"].sum() == number, function
    assert asked.hot_lines()["Samples"].sum() == 6
    assert np.count_nonzero(run_of_samples(asked.run) < 0) == 2


def test_equal_threads_of_two_workers_are_two(tmp_path: Path) -> None:
    for number in (1, 2):
        Plugin(tmp_path, name=number, address=f"tcp://10.0.0.1:400{number}").write(
            (STACK, STACKS[:1]),
            (COMPUTE, [compute(f"of{'ab'[number - 1]}-1", 0.0, 1.0)]),
            (TASK_SAMPLE, [sample(0.1 * n, 0) for n in range(1, 1 + number)]),
        )
    asked = TraceAnalyser(tmp_path)
    assert asked.hot_lines("ofa")["Samples"].tolist() == [1]
    assert asked.hot_lines("ofb")["Samples"].tolist() == [2]


def test_tree_of_calls(tmp_path: Path) -> None:
    samples = [sample(0.1, 0), sample(0.2, 2), sample(0.3, 2), sample(0.4, 3), sample(0.5, -1)]
    table = analyser(tmp_path, samples).call_tree()
    assert table["Depth"].tolist() == [0, 1, 0]
    assert table["Code"].tolist() == ["step", "norm", "dot"]
    assert table["Time (s)"].tolist() == pytest.approx([0.3, 0.2, 0.1])
    assert table["Self (s)"].tolist() == pytest.approx([0.1, 0.2, 0.1])
    assert table["Share (%)"].tolist() == pytest.approx([60, 40, 20])
    few = analyser(tmp_path / "few", samples).call_tree(least=30)
    assert few["Code"].tolist() == ["step", "norm"]
    none = analyser(tmp_path / "none", []).call_tree()
    assert none.empty
    assert none.dtypes.equals(table.dtypes)


def test_what_the_client_did(tmp_path: Path) -> None:
    main = [(T, 0, [["main", "/home/me/run.py", 9]], -1), (T, 1, [["load", WORK, 41]], 0)]
    lightgbm = [
        (T, 2, [["_find_and_load", "<frozen importlib._bootstrap>", 1360]], 0),
        (T, 3, [["<module>", f"{SITE}/lightgbm/__init__.py", 3]], 2),
        (T, 4, [["<module>", f"{SITE}/pandas/__init__.py", 9]], 3),
    ]

    def seen(at: float, stack: int, phase: str) -> tuple[Any, ...]:
        facts = {"activity": "running", "interval": 0.5, "cpu": 0.5, "run_queue": 0.0}
        return row(CLIENT_SAMPLE, timestamp=T + at, stack=stack, phase=phase, **facts)

    Plugin(tmp_path, "StepRecorder").write(
        (STACK, [*main, *lightgbm]),
        (
            CLIENT_SAMPLE,
            [
                seen(0.5, 0, "waiting"),
                seen(1.0, 0, "waiting"),
                *(seen(t, 1, "program") for t in (4.0, 4.5, 5.0)),
                seen(6.0, 4, "program"),
            ],
        ),
    )
    Plugin(tmp_path).write((COMPUTE, [compute("step-1", 0.0, 2.0)]))
    table = TraceAnalyser(tmp_path).client_activity()
    assert table["Phase"].tolist() == ["program", "waiting", "program"]
    assert table["Line"].tolist() == [41, 9, 9]
    assert table["Time (s)"].tolist() == pytest.approx([1.5, 1.0, 0.5])
    assert table["Cluster Idle (s)"].tolist() == pytest.approx([1.5, 0.0, 0.5])
    assert table["Importing"].tolist() == ["", "", "lightgbm"]


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
        seen(9.5, 9.4, -1, until=9.45),  # it was never looked at
    ]
    Plugin(tmp_path).write((STACK, stacks), (LOOP_SAMPLE, samples))
    table = TraceAnalyser(tmp_path).loop_blocks()
    assert table["Duration (s)"].tolist() == pytest.approx([0.9, 0.3, 0.2, 0.2])
    assert table["Cause"].tolist() == ["unknown", "working", "no core", "lock"]
    assert table["Code"].tolist()[:2] == ["", "loads"]
    assert table["Line"].tolist()[1] == 7


@pytest.mark.parametrize(
    ("file", "library"),
    [
        (NORM, "numpy"),
        (f"{SITE}/six.py", "six"),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", "yaml"),
        ("/usr/lib/python3.11/json/decoder.py", "(Python)"),
        ("<frozen importlib._bootstrap>", "(Python)"),
        ("C:\\env\\Lib\\site-packages\\pandas\\io.py", "pandas"),
        (WORK, "(program)"),
        ("<ipython-input-3-x>", "(program)"),
    ],
)
def test_libraries(file: str, library: str) -> None:
    assert library_of(file) == library


def test_the_line_of_a_stack() -> None:
    mine, norm = Frame("step", WORK, 41), Frame("norm", NORM, 2800)
    assert line_of((mine, norm)) == (mine, "norm (numpy)")
    assert line_of((norm, mine)) == (mine, "")  # a callback of the user's
    assert line_of((norm,)) == (norm, "")
    begin = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1)
    assert import_of((mine, norm)) is None
    assert import_of((mine, begin)) == ""


def test_the_line_of_a_pools_thread() -> None:
    lib = "/usr/lib/python3.13"
    waiting = (
        Frame("step", WORK, 41),
        Frame("Future.result", f"{lib}/concurrent/futures/_base.py", 451),
        Frame("Condition.wait", f"{lib}/threading.py", 359),
    )
    thread = Frame("_worker", f"{lib}/concurrent/futures/thread.py", 93)
    score, norm = Frame("score", WORK, 12), Frame("norm", NORM, 2800)
    assert line_of(waiting) == (waiting[0], "Condition.wait ((Python))")
    assert line_of((*waiting, thread, score)) == (score, IN_POOL)
    # Without a user's line in the pool's thread, it is that of the task.
    assert line_of((*waiting, thread, norm)) == (waiting[0], IN_POOL)
    assert waited_for((*waiting, thread, score)) == TASK_POOL
    assert waited_for((*waiting, thread, norm)) == TASK_POOL
    assert waited_for((score,)) == UNKNOWN_WAIT


@pytest.mark.parametrize("question", ["hot_lines", "call_tree", "client_activity", "loop_blocks"])
def test_without_samples_answers_are_empty(question: str) -> None:
    analyser = TraceAnalyser(made_trace([], workers=[]))
    assert isinstance(getattr(analyser, question)(), pd.DataFrame)
    assert not len(getattr(analyser, question)())


# --- in findings ----------------------------------------------------------------------------------


def test_a_finding_cites_the_hottest_line(tmp_path: Path) -> None:
    runs = [compute(f"step-{n}", n, n + 0.9) for n in range(8)]
    runs += [compute(f"load-{n}", n + 0.9, n + 0.91) for n in range(8)]
    samples = [sample(0.05 + n * 0.1, 2 if n % 5 else 0) for n in range(80) if n % 10 < 9]
    Plugin(tmp_path).write((STACK, STACKS), (COMPUTE, runs), (TASK_SAMPLE, samples))
    findings = TraceAnalyser(tmp_path).diagnose().set_index("Rule")
    evidence = findings.loc["dominant-function", "Evidence"]
    line = f"at {WORK}:41 step, in norm (numpy): 100 % computing. "
    assert line in evidence
    assert "(72 samples, ± " in evidence


def test_a_line_is_named_only_where_that_is_certain(tmp_path: Path) -> None:
    few = [sample(0.01 * n, 0) for n in range(15)]
    assert hottest_line(analyser(tmp_path / "few", few).run, "step") == ""
    many_lines = [(T, n, [["step", WORK, n]], -1) for n in range(10)]
    even = [sample(0.005 * n, n % 10) for n in range(150)]
    runs = [compute("step-1", 0.0, 1.0)]
    Plugin(tmp_path / "even").write((STACK, many_lines), (COMPUTE, runs), (TASK_SAMPLE, even))
    assert hottest_line(TraceAnalyser(tmp_path / "even").run, "step") == ""
    hidden = [sample(0.005 * n, -1) for n in range(150)]
    assert hottest_line(analyser(tmp_path / "hidden", hidden).run, "step") == ""
    sleeping = [sample(0.005 * n, 1, cpu=0.0, activity="waiting") for n in range(150)]
    words = hottest_line(analyser(tmp_path / "sleeps", sleeping).run, "step")
    assert words.endswith(f" at {WORK}:41 step: 100 % waiting. ")
    # A quarter of a line's samples are in no library's Python code, such as time.sleep.
    mixed = [sample(0.005 * n, 2 if n % 4 else 1, activity="waiting", cpu=0.0) for n in range(160)]
    words = hottest_line(analyser(tmp_path / "mixed", mixed).run, "step")
    assert words.endswith(f"at {WORK}:41 step, 75 % of that in norm (numpy): 100 % waiting. ")
    assert hottest_line(analyser(tmp_path / "none", []).run, "step") == ""
    lines = [(T, n, [["step", WORK, n]], -1) for n in range(2)]
    shared = [sample(0.005 * n, n % 4 // 3, cpu=0.03, activity="lock") for n in range(150)]
    Plugin(tmp_path / "lock").write((STACK, lines), (COMPUTE, runs), (TASK_SAMPLE, shared))
    words = hottest_line(TraceAnalyser(tmp_path / "lock").run, "step")
    assert words.endswith(": 100 % computing or waiting for the GIL. ")
    starved = [sample(0.005 * n, 1, cpu=0.05, run_queue=0.05) for n in range(150)]
    assert hottest_line(analyser(tmp_path / "starved", starved).run, "step") == ""


def test_samples_weigh_no_more_than_the_runs_of_their_function(tmp_path: Path) -> None:
    """The first sample after a pause stands for 1.5 s, of a task that took 1 s."""
    samples = [sample(0.1, 0, interval=1.5, cpu=1.5), sample(0.7, 1, interval=0.5, cpu=0.5)]
    found, _ = samples_of(analyser(tmp_path, [*samples, sample(1.5, 3)]).run)
    assert found.interval.tolist() == pytest.approx([0.75, 0.25, 0.1])
    assert found.cpu[1:].tolist() == pytest.approx([0.25, 0.1])
