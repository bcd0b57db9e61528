"""What happened to the whole run at one moment: graphs arrived, workers came and went."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.report.formats.perfetto.tracks import whole_nanoseconds
from dasfprof.report.json_text import json_text, json_texts


def graph_events(trace: Trace, place: str) -> Iterator[str]:
    """Yield an instant for each graph of tasks that arrived at the scheduler."""
    graphs = trace.graphs
    if "tasks" not in graphs:
        return
    clients = json_texts(graphs["client"].astype(object))
    told = zip(
        graphs["time"].tolist(), graphs["tasks"].tolist(), graphs["wanted"].tolist(), clients,
        strict=True,
    )  # fmt: skip
    for time, tasks, wanted, client in told:
        args = f'"client":{client},"tasks":{int(tasks)},"results wanted":{int(wanted)}'
        if np.isfinite(time):
            at = _microseconds(trace, time)
            yield _instant(place, at, f"graph of {int(tasks)} tasks", args)


def life_events(trace: Trace, place: str) -> Iterator[str]:
    """Yield an instant for each worker that joined (or was first seen), and one where it left."""
    workers = trace.workers
    named = NamedWorkers(trace)
    titles = named.titles()
    for number, life in zip(named.of_lives.tolist(), workers.to_dict("records"), strict=True):
        if life["kind"] != "worker":
            continue
        joined = np.isfinite(life["joined"])
        begin = life["joined"] if joined else life["first_seen"]
        what = "joined" if joined else "first seen"
        title = titles[number]
        args = f'"address":{json_text(str(life["address"]))},"host":{json_text(life["host"])}'
        if np.isfinite(begin):
            yield _instant(place, _microseconds(trace, begin), f"{title} {what}", args)
        if np.isfinite(life["left"]):
            args += f',"reason":{json_text(str(life["left_reason"]))}'
            yield _instant(place, _microseconds(trace, life["left"]), f"{title} left", args)


def _instant(place: str, at: float, name: str, args: str) -> str:
    about = f'"name":{json_text(name, 400)},"cat":"run","args":{{{args}}}'
    return f'{{"ph":"i","s":"t",{place},"ts":{at:.3f},{about}}}'


def _microseconds(trace: Trace, time: float) -> float:
    """Return microseconds from the trace's start; earlier times become 0."""
    return float(whole_nanoseconds(np.array([time - trace.begin]))[0]) / 1000
