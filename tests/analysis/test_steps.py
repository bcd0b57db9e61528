"""Steps of the pipeline in the analysis: attribution of tasks, and tables by step."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lined_runs
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import Plugin, T
from traces.in_memory import key_table

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis.ranking import located
from dasfprof.analysis.diagnosis.registry import Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.trace.steps import KeyLayers, LayerSteps, inherited_steps
from dasfprof.schema.steps import STEP, STEP_END, STEP_LAYER

LOAD, SUM, REST = (
    f"{name}-{digit * 32}" for name, digit in (("load", "a"), ("sum", "b"), ("x", "c"))
)
#: Stimuli of graphs that were submitted in the step "fit", and in no step.
FIT, NONE = lined_runs.FIRST, lined_runs.SECOND


def write_run(directory: Path, runs: Sequence[tuple[Any, float, float, str]]) -> None:
    """Write task runs: key, start, seconds, and graph."""
    lined = [(key, [], start, seconds, graph) for key, start, seconds, graph in runs]
    lined_runs.write_run(directory, lined, step=("fit",), input_size=1_000_000)


@pytest.fixture
def analyser(tmp_path: Path) -> TraceAnalyser:
    """Write ten task runs: 4 built in "load", 3 of unknown layers in a graph of "fit", 3 others."""
    runs: list[tuple[Any, float, float, str]] = [((LOAD, n), n, 1.0, FIT) for n in range(4)]
    runs += [((SUM, n), 4.0 + n, 2.0, FIT) for n in range(3)]
    runs += [((REST, n), 10.0 + 4 * n, 4.0, NONE) for n in range(3)]
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
    names = ["Duration (s)", "Num Tasks (chunks)", "Functions", "First Start (s)", "Last End (s)"]
    load = table.loc["load"]
    assert load[[*names, "Entered", "Time in Client (s)"]].tolist() == [4.0, 4, 1, 0.0, 4.0, 2, 2.0]
    assert load["Mean Throughput (MB/s)"] == pytest.approx(1.0)
    assert table.loc["load/inner", "Num Tasks (chunks)"] == 0
    assert math.isnan(table.loc["load/inner", "Mean Task time (s)"])
    assert pd.isna(table.loc["fit", "Entered"])


def test_every_table_groups_by_step(analyser: TraceAnalyser) -> None:
    seconds, counts = ({"load": n, "fit": m, "(no step)": k} for n, m, k in ((4, 6, 12), (4, 3, 3)))
    accounts = analyser.time_accounting(by="step")
    busy = accounts[accounts["Busy"]].groupby("Step")["Thread Time (s)"].sum()
    assert busy.to_dict() == pytest.approx(seconds)
    total = analyser.time_accounting()["Thread Time (s)"].sum()
    assert accounts["Thread Time (s)"].sum() == pytest.approx(total)
    status = analyser.per_step_status().set_index("Step")["Running (s)"]
    assert status.to_dict() == pytest.approx(seconds)
    path, total = (analyser.critical_path_summary(by=by) for by in ("step", "function"))
    assert path["Duration (s)"].sum() == pytest.approx(total["Duration (s)"].sum())
    assert set(path["Step"]) <= seconds.keys()
    imbalance = analyser.imbalance(by="step").set_index("Step")["Num Tasks (chunks)"]
    assert imbalance.to_dict() == counts
    assert analyser.processed_tasks(by="step").set_index("Step")["Total"].to_dict() == counts
    # The last column of tables of task runs is their step.
    in_steps = {"load": 4, "fit": 3, np.nan: 3}
    tables = analyser.per_task_status(), analyser.per_task_bottleneck(), analyser.processed_tasks()
    for table in (*tables, analyser.critical_path(), analyser.stragglers()):
        assert table.columns[-1] == "Step"
    for table in tables:
        assert table["Step"].value_counts(dropna=False).to_dict() == in_steps


def test_findings_tell_the_step_of_their_function(tmp_path: Path) -> None:
    # Three of four seconds of a function are in a step, all of another one, and none of a third.
    keys = [("fit", n) for n in range(4)] + [("load", 0), ("x", 0)]
    write_run(
        tmp_path, [(key, n, 1.0, FIT if n in (0, 1, 2, 4) else NONE) for n, key in enumerate(keys)]
    )
    run = RunFigures(TraceAnalyser(tmp_path, progress=False).run)

    def told(function: str | None) -> str:
        return located(Finding.of("It is.", "Seen.", "", function=function), run).evidence

    assert told("fit") == "Seen. fit ran in the step fit (75 % of its time)."
    assert told("load") == "Seen. load ran in the step fit."
    assert told("x") == told("nowhere") == told(None) == "Seen."


def test_steps_of_odd_names_and_of_keys_that_run_again(tmp_path: Path) -> None:
    odd, again = tmp_path / "odd", tmp_path / "again"
    write_run(odd, [((LOAD, 0), 0.0, 1.0, ""), ((REST, 0), 1.0, 1.0, "")])
    Plugin(odd, "StepRecorder").write(
        (STEP, [(T, 1, -1, "(no step)"), (T, 2, 99, "orphan")]), (STEP_LAYER, [(T, 1, LOAD, [])])
    )
    analyser = TraceAnalyser(odd, progress=False)
    table = analyser.per_step_bottleneck().set_index("Step")
    assert table["Num Tasks (chunks)"].to_dict() == {"(no step)": 2, "orphan": 0}
    assert analyser.processed_tasks(by="step")["Total"].tolist() == [2]
    key = "again-" + "d" * 32
    runs = [
        (key, 0.0, 1.0, FIT),
        (key, 6.0, 1.0, "worker-lost-1"),
        ("new", 8.0, 1.0, "worker-lost-1"),
    ]
    write_run(again, runs)
    steps = TraceAnalyser(again, progress=False).trace.tasks["step"].astype(object)
    assert steps.where(steps.notna(), None).tolist() == ["fit", "fit", None]


def test_identities_of_layers_and_of_keys_of_fused_tasks() -> None:
    token, uuid = "0123456789abcdef" * 2, "01234567-89ab-cdef-0123-456789abcdef"
    layers = [f"mul-{token}", f"inc-{uuid}", "mine", "mine-3", "other-3"]
    keys = [(f"add-mul-{token}", 0, 1), f"add-mul-{token}", f"inc-{uuid}", ("mine", 0), "mine"]
    keys += [("mine-3", 1), "mine-3", "mine-4", ("mine-4", 0), ("unknown", 0), 17, f"x-{uuid}-3"]
    identities = KeyLayers(key_table(layers), key_table(keys))
    known = identities.of_layers.tolist()
    assert known[0] == known[1] > 0  # the same digits
    assert len(set(known[1:])) == 4
    found = identities.of_keys.tolist()
    expected = [known[0]] * 3 + [known[2]] * 2 + [known[3]] * 2
    assert found[:7] == expected
    assert not set(found[7:]) & set(known)


STEPS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 20)), max_size=20)
Rows = list[tuple[int, int, int]]


@given(STEPS, st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 4), st.integers(-1, 21))))
def test_step_of_a_layer_against_a_search(built: Rows, wanted: Rows) -> None:
    # A client builds a layer in only one step.
    built = list({(layer, time): (layer, step, time) for layer, step, time in built}.values())

    def search(layer: int, computed: int, arrival: int) -> int:
        builders = sorted((time, step) for other, step, time in built if other == layer)
        if computed in [step for _, step in builders]:
            return computed
        before = [step for time, step in builders if time <= arrival]
        return before[-1] if before else builders[0][1] if builders else -1

    def columns(rows: Rows) -> tuple[Any, ...]:
        layers, steps, times = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return layers.astype(np.uint64), steps, T + times

    found = LayerSteps(*columns(built)).find(*columns(wanted))
    assert found.tolist() == [search(*row) for row in wanted]


def test_a_layer_inherits_the_nearest_step_that_was_fused_into_it() -> None:
    derived = {10: [11], 11: [1, 2], 20: [3], 30: [30, 31], 31: [30]}
    built = {1: 100, 2: 200, 3: 300}
    # 11 and 1 were fused into 10; 3 has its own tasks; 30 and 31 form a cycle.
    assert inherited_steps(derived, built, ran={10, 20, 3, 30}) == {10: 100}
    assert inherited_steps(derived, built, ran={10, 11, 1}) == {11: 200}
