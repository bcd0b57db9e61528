"""The plan of a run for Graphviz: its nodes, what they took, and what they handed to each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dasfprof.report.documents import without_surrogates
from dasfprof.text import clean, count_of, elide, format_duration, format_size

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

_FAILED, _ON_PATH = "#b3261e", "#2f6fb3"


def write_dot(analyser: Analyser, path: Path, title: str) -> None:
    """Write the plan as a graph: a cluster a computation, failed nodes red, critical path bold."""
    plan, edges = analyser.plan(), analyser.plan_edges()
    numbers = {name: number for number, name in enumerate(plan["Node"])}
    lines = [
        f"digraph {_quoted(title)} {{",
        f"  label={_quoted(title)};",
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
        '  edge [color="#8a929e", fontname="sans-serif", fontsize=10];',
    ]
    for computation, nodes in plan.groupby("Computation"):
        lines += [f"  subgraph cluster_{computation} {{", f'    label="Computation {computation}";']
        lines += [f"    {numbers[node['Node']]} [{_look(node)}];" for _, node in nodes.iterrows()]
        lines.append("  }")
    for _, edge in edges.iterrows():
        size = edge["Size (MB)"]
        look = [f"label={_quoted(format_size(size * 1e6))}"] if size > 0 else []
        look += [f'color="{_ON_PATH}"', "penwidth=3"] if edge["On Path"] else []
        lines.append(f"  {numbers[edge['From']]} -> {numbers[edge['To']]} [{', '.join(look)}];")
    path.write_text(without_surrogates("\n".join([*lines, "}", ""])), encoding="utf-8")


def _look(node: pd.Series[Any]) -> str:
    """Return the attributes of a node."""
    tasks, seconds = node["Tasks"], format_duration(node["Thread Time (s)"])
    label = [
        node["Function"],
        node["Line"],
        elide(node["Text"], 60),
        f"{count_of(tasks, 'task')}, {seconds}",
    ]
    label += [f"{node['Failed']} failed"] if node["Failed"] else []
    label += [f"{node['Again']} again"] if node["Again"] else []
    on_path = node["Critical Path (s)"] > 0
    look = [f"label={_quoted(*filter(None, label))}"]
    look += [f'color="{_FAILED}"'] if node["Failed"] else []
    look += [f'color="{_ON_PATH}"'] if on_path and not node["Failed"] else []
    return ", ".join([*look, *(["penwidth=3"] if on_path else [])])


def _quoted(*texts: str) -> str:
    """Write lines of text as Graphviz takes them: without what has a meaning there."""
    lines = [clean(text).replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return '"' + "\\n".join(lines) + '"'
