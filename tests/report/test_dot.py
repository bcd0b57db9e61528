"""The plan for Graphviz, as somebody else's library reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opened_pages import EVENTS, compute
from traces import write_trace

from dasfprof import TraceAnalyser

pydot = pytest.importorskip("pydot", reason="needs pydot: pip install 'dasfprof[test]'")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HOSTILE = 'odd"]; \\N -> {\n'


def test_nodes_and_edges_read_back(tmp_path: Path) -> None:
    path = tmp_path / "mine-TracePlugin-node-0.msgpack"
    odd = compute((HOSTILE, 0), 9.0, 0.5, 1, dependencies=[])
    analyser = TraceAnalyser(write_trace(path, *EVENTS, odd), progress=False)
    written = analyser.export(tmp_path / "plan.dot", title=HOSTILE)
    (graph,) = pydot.graph_from_dot_file(str(written))
    (computation,) = graph.get_subgraphs()
    labels = {int(node.get_name()): node.get_label() for node in computation.get_nodes()}
    plan, edges = analyser.plan(), analyser.plan_edges()
    assert sorted(labels) == list(range(len(plan)))
    for number, node in plan.iterrows():
        assert f"\\n{node['Tasks']} task" in labels[number]
        # A quote of a key's ends no label.
        assert len(re.findall(r'(?<!\\)"', labels[number])) == 2
    failed = [node for node in computation.get_nodes() if node.get_color() == '"#b3261e"']
    assert ["1 failed" in node.get_label() for node in failed] == [True]
    drawn = [(int(edge.get_source()), int(edge.get_destination())) for edge in graph.get_edges()]
    places = {name: number for number, name in enumerate(plan["Node"])}
    assert drawn == [
        (places[source], places[target])
        for source, target in zip(edges["From"], edges["To"], strict=True)
    ]
    assert graph.get_edges()[0].get_label() == '"6 MB"'
