"""Layers of a run and the data between them, calculated by hand."""

from pathlib import Path

import pandas as pd
import pytest
from lined_runs import FIRST, SECOND, Run, opened, write_run

from dasfprof import TraceAnalyser
from dasfprof.analysis.trace.tasks import P2P_BARRIER

LOAD, SCALE, SUM = (
    f"{name}-{digit * 32}" for name, digit in (("load", "1"), ("scale", "2"), ("sum", "3"))
)
LINES = [(-3.0, 10, LOAD, []), (-2.0, 20, SCALE, [LOAD]), (-1.0, 30, SUM, [SCALE])]


def columns(table: pd.DataFrame, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in table[list(names)].itertuples(index=False)]


def test_nodes_and_edges_of_two_computations(tmp_path: Path) -> None:
    """The second graph arrives after the first has ended, and computes `load` 0 again."""
    runs: list[Run] = [
        ((LOAD, 0), [], 0.0, 1.0, FIRST),
        ((LOAD, 1), [], 0.5, 1.0, FIRST),
        ((SUM, 0), [(LOAD, 0), (LOAD, 1)], 2.0, 2.0, FIRST),
        ((LOAD, 0), [], 6.0, 0.5, SECOND),
        ((SCALE, 0), [(LOAD, 0)], 7.0, 1.0, SECOND),
        ((SCALE, 1), [(LOAD, 0), (SUM, 0)], 8.0, 1.0, SECOND),
    ]
    analyser = opened(tmp_path, runs, LINES, kind="pandas.DataFrame", shape=(10, 3))
    plan, edges = analyser.plan(), analyser.plan_edges()
    assert columns(plan, "Node", "Computation", "Line", "Text", "Tasks", "Partitions", "Rows") == [
        ("1 load", 1, "pipeline.py:1", "text 1", 2, 2, 20),
        ("2 sum", 1, "pipeline.py:3", "text 3", 1, 1, 10),
        ("3 load", 2, "pipeline.py:1", "text 1", 1, 1, 10),
        ("4 scale", 2, "pipeline.py:2", "text 2", 2, 2, 20),
    ]
    assert plan["Thread Time (s)"].tolist() == pytest.approx([2.0, 2.0, 0.5, 2.0])
    assert plan["Share (%)"].sum() == pytest.approx(100)
    assert plan["Again"].tolist() == [0, 0, 1, 0]
    assert not plan[["Failed", "Unfinished"]].any(axis=None)
    # Results have 1, 2, 3 MB, and so on; `scale` uses the second result of `load` 0.
    assert columns(edges, "From", "To", "Size (MB)", "Tasks") == [
        ("1 load", "2 sum", 3.0, 1),
        ("2 sum", "4 scale", 3.0, 1),
        ("3 load", "4 scale", 4.0, 2),
    ]
    assert plan["Input (MB)"].tolist() == [0.0, 3.0, 0.0, 7.0]
    assert plan["Output (MB)"].tolist() == [3.0, 3.0, 4.0, 11.0]
    assert edges["On Path"].tolist() == [0, 0, 0]  # each was assigned with its graph
    path = analyser.critical_path_summary()["Duration (s)"].sum()
    assert plan["Critical Path (s)"].sum() == pytest.approx(path)


def test_a_graph_that_comes_before_the_last_has_ended_belongs_to_it(tmp_path: Path) -> None:
    runs: list[Run] = [((LOAD, 0), [], 0.0, 5.5, FIRST), ((SUM, 0), [(LOAD, 0)], 6.0, 1.0, SECOND)]
    plan = opened(tmp_path, runs).plan()
    assert plan["Computation"].tolist() == [1, 1]
    assert plan["Rows"].isna().all()


def test_futures_of_a_function_and_line_are_a_node(tmp_path: Path) -> None:
    """Their keys are not in a layer. Dependencies between them are an edge to the node itself."""
    keys = [f"inc-{digit * 32}" for digit in "1234"]
    runs: list[Run] = [
        (key, keys[:place][-1:], float(place), 1.0, FIRST) for place, key in enumerate(keys)
    ]
    lines = zip((10, 20, 20, 20), keys, strict=True)
    analyser = opened(tmp_path, runs, [(-1.0, line, key, []) for line, key in lines])
    nodes = columns(analyser.plan(), "Node", "Line", "Tasks")
    assert nodes == [("1 inc", "pipeline.py:1", 1), ("2 inc", "pipeline.py:2", 3)]
    edges = columns(analyser.plan_edges(), "From", "To", "Size (MB)", "Tasks")
    assert edges == [("1 inc", "2 inc", 1.0, 1), ("2 inc", "2 inc", 5.0, 2)]
    assert analyser.plan()["Input (MB)"].tolist() == [0.0, 1.0]


def test_what_a_shuffle_moves_is_not_the_size_of_its_tasks_results(tmp_path: Path) -> None:
    barrier = f"{P2P_BARRIER}-{'5' * 32}"
    runs: list[Run] = [
        ((LOAD, 0), [], 0.0, 1.0, FIRST),
        (barrier, [(LOAD, 0)], 1.0, 0.1, FIRST),
        ((SUM, 0), [barrier], 2.0, 1.0, FIRST),
    ]
    analyser = opened(tmp_path, runs)
    assert analyser.plan_edges()["Size (MB)"].isna().tolist() == [True, True]
    assert analyser.plan()["Input (MB)"].isna().tolist() == [False, True, True]


def test_without_a_scheduler_s_file(tmp_path: Path) -> None:
    runs: list[Run] = [((LOAD, 0), [], 0.0, 1.0, FIRST), ((SUM, 0), [(LOAD, 0)], 2.0, 1.0, FIRST)]
    write_run(tmp_path, runs)
    next(tmp_path.glob("*Scheduler*")).unlink()
    analyser = TraceAnalyser(tmp_path, progress=False)
    assert columns(analyser.plan(), "Node", "Computation") == [("1 load", 1), ("2 sum", 1)]
    assert columns(analyser.plan_edges(), "From", "To") == [("1 load", "2 sum")]
