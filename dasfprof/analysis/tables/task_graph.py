"""The task graph, as a networkx graph for people and their tools."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.progress import track


def create_annotated_task_graph(trace: Trace, *, progress: bool = False) -> nx.DiGraph[str]:
    """Return the task graph with what is known of each task; see `TraceAnalyser`."""
    tasks, texts = trace.tasks, trace.keys.texts(np.arange(len(trace.keys)))
    offsets, dependencies = trace.dependencies
    graph: nx.DiGraph[str] = nx.DiGraph()
    last = tasks.drop_duplicates("key_id", keep="last")
    columns = {
        "name": last["function"],
        "size": last["size"],
        "shape": last["shape"],
        "type": last["type"],
        "duration": last["duration"],
        "input_data_size": last["input_size"],
    }
    lists = [column.astype(object).tolist() for column in columns.values()]
    rows = zip(last["key_id"].tolist(), *lists, strict=True)
    bar = track(rows, "Creating annotated task graph", shown=progress, total=len(last), unit="task")
    for key_id, *values in bar:
        about: dict[str, Any] = dict(zip(columns, values, strict=True))
        seconds, size = about["duration"], about["input_data_size"]
        about["throughput"] = size / seconds if seconds > 0 else float("nan")
        graph.add_node(texts[key_id], **about)
    counts = np.diff(offsets)
    tasks_of = np.repeat(np.arange(len(counts)), counts)
    graph.add_edges_from(zip(texts[dependencies].tolist(), texts[tasks_of].tolist(), strict=True))
    return graph
