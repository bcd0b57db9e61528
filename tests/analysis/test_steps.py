"""Steps of the pipeline in the analysis: which task belongs to which, and tables by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import Plugin, compute, record, row, write_as_dasf

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis.ranking import located
from dasfprof.analysis.diagnosis.registry import Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.trace.steps import LayerNames, LayerSteps, inherited_steps
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.steps import STEP, STEP_END, STEP_LAYER
from dasfprof.schema.tasks import COMPUTE, GRAPH, TASK_RUN, WORKER_ADDED

T = 1.7e9
ADDRESS = "tcp://10.0.0.1:4000"
LOAD, SUM, REST = (
    f"{name}-{digit * 32}" for name, digit in (("load", "a"), ("sum", "b"), ("x", "c"))
)


def write_run(directory: Path, runs: Sequence[tuple[Any, float, float, str]]) -> None:
    """Write runs: key, start, seconds, and the graph that each came with."""
    worker = [
        row(COMPUTE, timestamp=T + start, duration=seconds, key=key, run_id=n, state="memory",
            executing=T + start, done=T + start + seconds, input_size=1_000_000)
        for n, (key, start, seconds, _) in enumerate(runs)
    ]  # fmt: skip
    scheduler = [
        row(TASK_RUN, timestamp=T + start, duration=seconds, key=key, run_id=n, worker=ADDRESS,
            state="memory", waiting=T + start, start=T + start, stop=T + start + seconds,
            graph=graph, cause=graph, end_cause=f"task-finished-{n}")
        for n, (key, start, seconds, graph) in enumerate(runs)
    ]  # fmt: skip
    graphs = [
        row(GRAPH, timestamp=T, client="c", tasks=1, stimulus="update-graph-1", step=("fit",)),
        row(GRAPH, timestamp=T + 5, client="c", tasks=1, stimulus="update-graph-2"),
    ]
    Plugin(directory).write((COMPUTE, worker))
    Plugin(directory, "SchedulerPlugin").write(
        (TASK_RUN, scheduler),
        (GRAPH, graphs),
        (WORKER_ADDED, [row(WORKER_ADDED, timestamp=T, worker=ADDRESS, nthreads=2)]),
    )


@pytest.fixture
def analyser(tmp_path: Path) -> TraceAnalyser:
    """Ten task runs: 4 built in "load", 3 of unknown layers in a graph of "fit", 3 of nothing."""
    runs: list[tuple[Any, float, float, str]] = [
        ((LOAD, n), float(n), 1.0, "update-graph-1") for n in range(4)
    ]
    runs += [((SUM, n), 4.0 + n, 2.0, "update-graph-1") for n in range(3)]
    runs += [((REST, n), 10.0 + 4 * n, 4.0, "update-graph-2") for n in range(3)]
    write_run(tmp_path / "run", runs)
    Plugin(tmp_path / "run", "StepRecorder").write(
        (STEP, [(T - 2.0, 7, -1, "load"), (T - 1.0, 8, 7, "inner"), (T + 1.0, 9, -1, "load")]),
        (STEP_END, [(T - 0.5, 8), (T, 7)]),
        (STEP_LAYER, [(T - 1.5, 7, LOAD, [])]),
    )
    return TraceAnalyser(tmp_path / "run", progress=False)


def test_steps_of_task_runs_and_times_of_steps(analyser: TraceAnalyser) -> None:
    tasks, steps = analyser.trace.tasks, analyser.trace.steps
    assert tasks["step"].isna().sum() == 3
    assert tasks["step"].value_counts().to_dict() == {"load": 4, "fit": 3, "load/inner": 0}
    assert list(steps["step"]) == ["load", "load/inner", "load"]
    assert list(steps["parent"]) == [-1, 0, -1]
    np.testing.assert_allclose(steps["duration"], [2.0, 0.5, np.nan])
    (note,) = [note for note in analyser.trace.notes if note.kind == "steps"]
    assert note.text == "70 % of task runs belong to a step of the pipeline."
    assert set(analyser.trace.workers["kind"]) == {"worker", "scheduler"}


def test_bottleneck_by_hand(analyser: TraceAnalyser) -> None:
    table = analyser.per_step_bottleneck()
    assert list(table["Step"]) == ["(no step)", "fit", "load", "load/inner"]
    table = table.set_index("Step")
    load = table.loc["load"]
    assert (load["Duration (s)"], load["Num Tasks (chunks)"], load["Functions"]) == (4.0, 4, 1)
    assert (load["First Start (s)"], load["Last End (s)"]) == (0.0, 4.0)
    assert (load["Entered"], load["Time in Client (s)"]) == (2, 2.0)
    assert load["Mean Throughput (MB/s)"] == pytest.approx(1.0)
    assert table.loc["load/inner", "Num Tasks (chunks)"] == 0
    assert math.isnan(table.loc["load/inner", "Mean Task time (s)"])
    assert pd.isna(table.loc["fit", "Entered"])


def test_every_table_groups_by_step(analyser: TraceAnalyser) -> None:
    accounts = analyser.time_accounting(by="step")
    busy = accounts[accounts["Busy"]].groupby("Step")["Thread Time (s)"].sum()
    assert busy.to_dict() == pytest.approx({"load": 4.0, "fit": 6.0, "(no step)": 12.0})
    whole = analyser.time_accounting()["Thread Time (s)"].sum()
    assert accounts["Thread Time (s)"].sum() == pytest.approx(whole)
    status = analyser.per_step_status().set_index("Step")["Running (s)"]
    assert status.to_dict() == pytest.approx({"load": 4.0, "fit": 6.0, "(no step)": 12.0})
    path = analyser.critical_path_summary(by="step")
    assert path["Duration (s)"].sum() == pytest.approx(
        analyser.critical_path_summary()["Duration (s)"].sum()
    )
    assert set(path["Step"]) <= {"load", "fit", "(no step)"}
    imbalance = analyser.imbalance(by="step").set_index("Step")["Num Tasks (chunks)"]
    assert imbalance.to_dict() == {"load": 4, "fit": 3, "(no step)": 3}
    totals = analyser.processed_tasks(by="step").set_index("Step")["Total"]
    assert totals.to_dict() == {"load": 4, "fit": 3, "(no step)": 3}
    assert list(analyser.transfers(by="step")) == [
        "Step", *list(analyser.transfers(by="function"))[1:]
    ]  # fmt: skip
    for ask in (analyser.imbalance, analyser.critical_path_summary):
        with pytest.raises(InvalidArgumentError, match="by='node'"):
            ask(by="node")  # type: ignore[operator]


def test_tables_of_task_runs_end_in_their_step(analyser: TraceAnalyser) -> None:
    for table in (
        analyser.per_task_status(),
        analyser.per_task_bottleneck(),
        analyser.processed_tasks(),
    ):
        assert table.columns[-1] == "Step"
        assert table["Step"].value_counts(dropna=False).to_dict() == {
            "load": 4, "fit": 3, np.nan: 3
        }  # fmt: skip
    assert analyser.critical_path().columns[-1] == "Step"
    assert analyser.stragglers().columns[-1] == "Step"


def test_findings_tell_the_step_of_their_function(tmp_path: Path) -> None:
    # Of one function three of four seconds are in a step, and all of another's; a third has none.
    keys = [("fit", n) for n in range(4)] + [("load", 0), ("x", 0)]
    graphs = ["update-graph-1"] * 3 + ["update-graph-2", "update-graph-1", "update-graph-2"]
    runs = [
        (key, float(n), 1.0, graph) for n, (key, graph) in enumerate(zip(keys, graphs, strict=True))
    ]
    write_run(tmp_path, runs)
    run = RunFigures(TraceAnalyser(tmp_path, progress=False).run)

    def told(function: str | None) -> str:
        return located(Finding.of("", "It is.", "Seen.", "", function=function), run).evidence

    assert told("fit") == "Seen. fit ran in the step fit (75 % of its time)."
    assert told("load") == "Seen. load ran in the step fit."
    assert told("x") == told("nowhere") == told(None) == "Seen."


@pytest.mark.parametrize("write", [record, write_as_dasf])
def test_files_without_steps(write: Any, tmp_path: Path) -> None:
    directory = write(tmp_path / "run", [compute(f"f-{n}", T + n, 1.0, "w") for n in range(3)])
    analyser = TraceAnalyser(directory, progress=False)
    trace = analyser.trace
    assert trace.tasks["step"].isna().all()
    assert len(trace.steps) == 0
    assert not [note for note in trace.notes if note.kind == "steps"]
    assert "Step" not in analyser.per_task_bottleneck()
    assert "Step" not in analyser.processed_tasks()
    assert analyser.per_step_bottleneck()["Step"].tolist() == ["(no step)"]
    assert analyser.imbalance(by="step")["Step"].tolist() == ["(no step)"]
    assert set(analyser.time_accounting(by="step")["Step"]) <= {"(no step)", "(idle)"}


def test_an_empty_trace_has_no_steps(tmp_path: Path) -> None:
    Plugin(tmp_path / "run", "StepRecorder").write((STEP, [(T, 1, 99, "orphan")]))
    analyser = TraceAnalyser(tmp_path / "run", progress=False)
    assert list(analyser.trace.steps["step"]) == ["orphan"]
    assert analyser.per_step_bottleneck()["Step"].tolist() == ["orphan"]
    assert len(analyser.time_accounting(by="step")) == 0


def test_a_key_that_runs_again_keeps_the_step_of_its_graph(tmp_path: Path) -> None:
    runs = [("again-" + "d" * 32, 0.0, 1.0, "update-graph-1")]
    runs += [("again-" + "d" * 32, 6.0, 1.0, "worker-lost-1"), ("new", 8.0, 1.0, "worker-lost-1")]
    write_run(tmp_path / "run", runs)
    tasks = TraceAnalyser(tmp_path / "run", progress=False).trace.tasks
    assert tasks["step"].astype(object).where(tasks["step"].notna(), None).tolist() == [
        "fit", "fit", None
    ]  # fmt: skip


def test_step_called_as_the_rows_of_no_step(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [((LOAD, 0), 0.0, 1.0, ""), ((REST, 0), 1.0, 1.0, "")])
    Plugin(tmp_path / "run", "StepRecorder").write(
        (STEP, [(T, 1, -1, "(no step)")]), (STEP_LAYER, [(T, 1, LOAD, [])])
    )
    analyser = TraceAnalyser(tmp_path / "run", progress=False)
    assert analyser.per_step_bottleneck()["Num Tasks (chunks)"].tolist() == [2]
    assert analyser.processed_tasks(by="step")["Total"].tolist() == [2]


# --- layers --------------------------------------------------------------------------------------


def test_identities_of_layers_and_of_keys_of_fused_tasks() -> None:
    from dasfprof.analysis.trace.keys import KeyCollector, split_keys

    def table(keys: Sequence[Any]) -> Any:
        collector = KeyCollector()
        collector.add(split_keys(keys))
        return collector.finish()[0]

    token, uuid = "0123456789abcdef" * 2, "01234567-89ab-cdef-0123-456789abcdef"
    layers = [f"mul-{token}", f"inc-{uuid}", "mine", "mine-3", "other-3"]
    keys = [(f"add-mul-{token}", 0, 1), f"add-mul-{token}", f"inc-{uuid}", ("mine", 0), "mine"]
    keys += [("mine-3", 1), "mine-3", "mine-4", ("mine-4", 0), ("unknown", 0), 17, f"x-{uuid}-3"]
    names = LayerNames()
    known = names.identities(table(layers), new=True).tolist()
    assert known[0] == known[1] > 0  # the same digits
    assert len(set(known[1:])) == 4
    found = names.identities(table(keys)).tolist()
    expected = [known[0]] * 3 + [known[2]] * 2 + [known[3]] * 2
    assert found[:7] == expected
    assert not set(found[7:]) & set(known)


STEPS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 20)), min_size=0, max_size=20
)


@given(STEPS, st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 4), st.integers(-1, 21))))
def test_step_of_a_layer_against_a_search(
    built: list[tuple[int, int, int]], wanted: list[tuple[int, int, int]]
) -> None:
    # At one time a client builds a layer in one step.
    built = list({(layer, time): (layer, step, time) for layer, step, time in built}.values())

    def search(layer: int, computed: int, arrival: int) -> int:
        builders = sorted((time, step) for other, step, time in built if other == layer)
        if computed in [step for _, step in builders]:
            return computed
        before = [step for time, step in builders if time <= arrival]
        return before[-1] if before else builders[0][1] if builders else -1

    layers, steps, times = (np.array(x) for x in zip(*built, strict=True)) if built else ([],) * 3
    found = LayerSteps(
        np.array(layers, dtype=np.uint64),
        np.array(steps, dtype=np.int64),
        T + np.array(times, dtype=float),
    ).find(
        np.array([layer for layer, _, _ in wanted], dtype=np.uint64),
        np.array([step for _, step, _ in wanted], dtype=np.int64),
        T + np.array([time for _, _, time in wanted], dtype=float),
    )
    assert found.tolist() == [search(*row) for row in wanted]


def test_a_layer_inherits_the_nearest_step_that_was_fused_into_it() -> None:
    derived = {10: [11], 11: [1, 2], 20: [3], 30: [30, 31], 31: [30]}
    built = {1: 100, 2: 200, 3: 300}
    # 11 and 1 were fused into 10; 3 has tasks of its own; 30 and 31 go round in circles.
    assert inherited_steps(derived, built, ran={10, 20, 3, 30}) == {10: 100}
    assert inherited_steps(derived, built, ran={10, 11, 1}) == {11: 200}
