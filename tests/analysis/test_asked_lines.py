"""The requesting line of a result is reported if only one call can have submitted its graph."""

from pathlib import Path
from typing import Any

from traces import Plan, Task

from dasfprof.analysis.model.steps import asked_lines


def planned(**more: Any) -> Plan:
    """Plan five graphs with one task each, submitted 0.1 s before they arrive, and client calls."""
    graphs = [1.0, 2.0, 3.0, 4.0, 5.0]
    tasks = [
        Task(f"a-{n}", 0, at + 0.1, at + 0.3, arrival=at, graph=f"update-graph-{n}", wanted=True)
        for n, at in enumerate(graphs)
    ]
    sent = [{"at": at - 0.1, "since": 0.0, "start": at - 0.2} for at in graphs]
    calls = [
        (0.8, 0.95, "persist", {"line": 11}),
        # The first of many short calls with others among them, and the wait for one call.
        (1.7, 4.0, "submit", {"line": 12, "calls": 9}),
        (2.85, 2.95, "map", {"line": 13}),
        (3.0, 3.5, "wait", {"line": 14}),
        (4.8, 5.6, "compute", {"line": 15, "file": "/other/lib.py"}),
    ]
    facts = {"graphs": graphs, "clients": ["c"] * 5, "graphs_sent": sent, "client_calls": calls}
    return Plan(tasks, workers=1, **{**facts, **more})


#: Calls during the third graph: `submit` or `map`.
LINES = ["mine.py:11", "mine.py:12", "", "mine.py:12", "lib.py:15"]


def test_the_call_that_was_under_way(tmp_path: Path) -> None:
    assert asked_lines(planned().write(tmp_path).run).tolist() == LINES


def test_graphs_that_were_not_recorded_shift_nothing(tmp_path: Path) -> None:
    plan = planned()
    plan.graphs_sent = plan.graphs_sent[1:]
    assert set(asked_lines(plan.write(tmp_path / "graphs").run)) == {""}
    assert set(asked_lines(planned(client_calls=[]).write(tmp_path / "calls").run)) == {""}


def test_graphs_of_another_client_are_not_its(tmp_path: Path) -> None:
    plan = planned(clients=["c", "c", "other", "c", "c"])
    plan.graphs_sent = [one for n, one in enumerate(plan.graphs_sent) if n != 2]
    assert asked_lines(plan.write(tmp_path).run).tolist() == LINES
