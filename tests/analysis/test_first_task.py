"""Parts of the time to the first task: those of planned runs, and unknown ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnosed_plans import assert_found, found
from refuters import refute
from refuters.figures import without_units
from traces import Plan, Plugin, T, Task, row

from dasfprof import TraceAnalyser
from dasfprof.report.run_summary import start_in_words, summarise
from dasfprof.schema.profiles import CLIENT_SAMPLE
from dasfprof.schema.under_way import CLIENT_UNDER_WAY, STACK

#: Recording starts at 0. The first graph is pickled from 2 s and known at 3 s.
SENT: dict[str, Any] = {"since": 0.0, "start": 2.0, "at": 2.25, "optimising": 0.5}
PROGRAM = 1.5


def plan(*, turns: int = 4, **more: Any) -> Plan:
    """Plan four threads on two workers that join at 3.5 s, with tasks of a second from 3.75 s."""
    tasks = [
        Task(f"load-{4 * turn + lane}", lane // 2, 3.75 + turn, 4.75 + turn, thread=lane % 2)
        for turn in range(turns)
        for lane in range(4)
    ]
    for task in tasks:
        task.arrival = 3.0
    facts: dict[str, Any] = {"graphs": [3.0], "taken_up": [2.5], "joined": [3.5, 3.6]}
    return Plan(tasks, **{**facts, "graphs_sent": [SENT], **more})


def seconds(analyser: TraceAnalyser) -> dict[str, float]:
    table = analyser.time_to_first_task()
    return dict(zip(table["Stage"], table["Time (s)"], strict=True))


def test_each_stage(tmp_path: Path) -> None:
    analyser = plan().write(tmp_path)
    stages = {"Waiting for input": 0.0, "Program": PROGRAM, "Optimising": 0.5, "Pickling": 0.25}
    stages |= {"Sending": 0.25, "Scheduler": 0.5, "Waiting for workers": 0.5, "Starting": 0.25}
    assert seconds(analyser) == pytest.approx(stages, abs=1e-6)
    shares = analyser.time_to_first_task()["Share (%)"]
    assert shares.sum() == pytest.approx(100)
    assert shares[1] == pytest.approx(40)


def test_a_late_start_is_told(tmp_path: Path) -> None:
    # The scheduler has no task for 3 s. The last one is done 7.75 s after recording started.
    stages = {"program": 1.5, "optimising": 0.5, "pickling": 0.25, "sending": 0.25}
    stages |= {"scheduler": 0.5}
    expected = {"severity": "medium", "costs": 3.0, "late": 3.0, "share": 0.387}
    findings = assert_found(plan(), tmp_path, "slow-startup", **expected)
    told = without_units(findings["slow-startup"]["Figures"]["stages"])
    assert told == pytest.approx(stages, abs=1e-3)


def test_advice_on_what_takes_longest(tmp_path: Path) -> None:
    for place, change, words in (
        ("a", {"optimising": 1.9}, "number of partitions and layers that Dask has to optimize"),
        ("b", {"start": 0.5}, "large objects out of the graph: load them in tasks"),
    ):
        findings = found(plan(graphs_sent=[SENT | change]), tmp_path / place, "slow-startup")
        assert words in findings["slow-startup"]["Suggestion"]


def test_what_the_first_graph_carries_by_value_is_told(tmp_path: Path) -> None:
    value = {"kind": "argument", "name": "load", "tasks": 4, "why": "argument"}
    run = plan(sent_values=[{**value, "size": size} for size in (3_000_000, 1_000_000)])
    late = assert_found(run, tmp_path, "slow-startup", by_value=16e6, holds="load")["slow-startup"]
    # Pickling takes 0.25 s of 3 s, and the program's own code 1.5 s.
    assert "scatter" not in late["Suggestion"]


def test_a_brief_start_is_not_told(tmp_path: Path) -> None:
    # 3 s before the first graph, and 29.75 s from there to the end of the last task; then 0.08 s.
    assert not found(plan(turns=29), tmp_path / "long", "slow-startup")
    sent = {"since": 2.92, "start": 2.95, "at": 2.96, "optimising": 0.0}
    tasks = [Task(f"load-{n}", n, 3.01, 3.2, arrival=3.0) for n in range(2)]
    small = Plan(tasks, graphs=[3.0], taken_up=[2.98], graphs_sent=[sent], joined=[0.0, 0.0])
    assert not found(small, tmp_path / "short", "slow-startup")


def write_sampled(run: Plan, directory: Path, frames: list[Any], **facts: Any) -> TraceAnalyser:
    """Write a run with 20 samples of 0.1 s of its client before the first graph arrives."""
    facts |= {"activity": "running", "interval": 0.1, "cpu": 0.1, "stack": len(frames) - 1}
    samples = [
        row(CLIENT_SAMPLE, timestamp=T + 0.5 + 0.1 * n, run_queue=0.0, **facts) for n in range(20)
    ]
    run.write_files(directory)
    stacks = [(T, n, frame, n - 1) for n, frame in enumerate(frames)]
    Plugin(directory, "StepRecorder", host="laptop").write(
        (STACK, stacks), (CLIENT_SAMPLE, samples)
    )
    return TraceAnalyser(directory, progress=False)


@pytest.mark.parametrize(("library", "reported"), [("dask", False), ("sklearn", True)])
def test_imports_of_dask_before_the_first_task_are_not_reported(
    tmp_path: Path, library: str, reported: bool
) -> None:
    importing = [["_find_and_load", "<frozen importlib._bootstrap>", 1360]]
    module = [["<module>", f"/x/site-packages/{library}/base.py", 3]]
    run = plan(turns=1, graphs_sent=[{**SENT, "start": 2.9, "at": 2.95, "optimising": 0.0}])
    analyser = write_sampled(
        run, tmp_path, [[["main", "/mine.py", 7]], importing, module], phase="program"
    )
    suggestions = [
        each.suggestion[0] for each in analyser.findings() if each.rule == "slow-startup"
    ]
    assert [text.startswith("Import libraries") for text in suggestions] == [True] * reported


@pytest.mark.parametrize("is_traversed", [True, False])
def test_delayed_goes_over_the_items_of_a_dict(tmp_path: Path, is_traversed: bool) -> None:
    """Evidence are 20 samples of 0.1 s each before the first graph arrives."""
    run = plan(turns=1, graphs_sent=[{**SENT, "start": 2.9, "at": 2.95, "optimising": 0.0}])
    run.sent_values = [{"kind": "argument", "name": "load", "size": 1_000_000, "tasks": 32}]
    name = "unpack_collections" if is_traversed else "tokenize"
    frames = [["main", "/mine.py", 7]], [[name, "/x/site-packages/dask/delayed.py", 100]]
    findings = write_sampled(run, tmp_path, list(frames), phase="building").findings()
    (late,) = (one.to_dict() for one in findings if one.rule == "slow-startup")
    stake = late["Seconds at stake (s)"]
    assert stake == pytest.approx(2.0) if is_traversed else np.isnan(stake)
    assert ("traverse=False)" in late["Suggestion"]) == is_traversed
    # Wrapped values are embedded in only one task, so scatter() would not help.
    assert ("client.scatter()" in late["Suggestion"]) != is_traversed
    assert ("/mine.py:7 main." in late["Suggestion"]) == is_traversed


def test_nothing_is_guessed(tmp_path: Path) -> None:
    """Without the client's times, only those of the scheduler and the workers are known."""
    analyser = plan(graphs_sent=()).write(tmp_path)
    told = seconds(analyser)
    unknown = [stage for stage, spent in told.items() if np.isnan(spent)]
    assert unknown == ["Waiting for input", "Program", "Optimising", "Pickling", "Sending"]
    assert told["Scheduler"] == pytest.approx(0.5)
    assert "slow-startup" not in set(analyser.diagnose()["Rule"])


def test_another_host_s_clock_tells_no_sending(tmp_path: Path) -> None:
    analyser = plan(graphs_sent=[{**SENT, "host": "laptop"}]).write(tmp_path)
    told = seconds(analyser)
    assert np.isnan(told["Sending"])
    assert (told["Program"], told["Pickling"]) == pytest.approx((PROGRAM, 0.25))
    assert analyser.time_to_first_task()["Share (%)"].isna().all()
    # 1.5 + 0.5 + 0.25 + 0.5 s are known.
    assert late_by(analyser, tmp_path) == pytest.approx(2.75)


def late_by(analyser: TraceAnalyser, directory: Path) -> float:
    """Return how late the first graph is, according to a finding that no event contradicts."""
    findings = analyser.findings()
    assert not refute(directory, findings)
    (late,) = (one for one in findings if one.rule == "slow-startup")
    return float(without_units(late.figures)["late"])


def test_unknown_times(tmp_path: Path) -> None:
    # Unknown optimization counts as part of the program.
    told = seconds(plan(graphs_sent=[{**SENT, "optimising": None}]).write(tmp_path / "optimising"))
    assert told["Program"] == pytest.approx(2.0)
    assert np.isnan(told["Optimising"])
    # The times of this client do not belong to another client's graph.
    told = seconds(plan(graphs_sent=[{**SENT, "client": "other"}]).write(tmp_path / "other"))
    assert np.isnan(told["Program"])
    # Tasks that ran before recording started show nothing.
    early = plan()
    early.tasks.append(Task("old-0", 0, 0.5, 1.0, thread=3))
    analyser = early.write(tmp_path / "early")
    assert not len(analyser.time_to_first_task())
    assert start_in_words(summarise(analyser.run)) == ""


def test_time_at_a_prompt_is_its_user_s(tmp_path: Path) -> None:
    """According to samples, a notebook's kernel waits for its first cell until 1.25 s."""
    plan().write_files(tmp_path)
    kernel = ["run_forever", "/site-packages/ipykernel/kernelapp.py", 1]
    stacks = [
        row(STACK, number=0, frames=[kernel], parent=-1),
        row(STACK, number=1, frames=[kernel, ["run_code", "/IPython/shell.py", 2]], parent=-1),
    ]
    looks = [
        row(CLIENT_UNDER_WAY, timestamp=T + at, since=T + at, client="c", stack=stack)
        for at, stack in ((0.25, 0), (1.25, 1))
    ]
    Plugin(tmp_path, "StepRecorder", host="node2").write((STACK, stacks), (CLIENT_UNDER_WAY, looks))
    analyser = TraceAnalyser(tmp_path, progress=False)
    told = seconds(analyser)
    assert told["Waiting for input"] == pytest.approx(1.0)
    assert told["Program"] == pytest.approx(PROGRAM - 1.0)
    assert late_by(analyser, tmp_path) == pytest.approx(2.0)
