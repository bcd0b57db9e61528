"""`Mark`: one of the few events that are drawn one by one; graphs and workers that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.analysis.model.run import Run
from dasfprof.report.formats.slices.tracks import whole_nanoseconds


@dataclass(frozen=True)
class Mark:
    """A slice or an instant on a track."""

    track: int
    #: Nanoseconds from the run's begin.
    time: int
    #: Nanoseconds; None: an instant.
    duration: int | None
    name: str
    category: str
    #: Values as JSON has them.
    args: dict[str, Any]


def graph_marks(run: Run, track: int) -> Iterator[Mark]:
    """Yield an instant for each graph of tasks that arrived at the scheduler."""
    graphs = run.trace.graphs
    if "tasks" not in graphs:
        return
    told = zip(
        graphs["time"].tolist(),
        graphs["tasks"].tolist(),
        graphs["wanted"].tolist(),
        graphs["client"].astype(object).tolist(),
        strict=True,
    )
    for time, tasks, wanted, client in told:
        args = {"client": str(client), "tasks": int(tasks), "results wanted": int(wanted)}
        if np.isfinite(time):
            yield _instant(run, track, time, f"graph of {int(tasks)} tasks", args)


def life_marks(run: Run, track: int) -> Iterator[Mark]:
    """Yield an instant for each worker that joined (or was first seen), and one where it left."""
    titles, lives = run.workers.titles(), run.trace.workers
    for number, life in zip(run.workers.of_lives.tolist(), lives.to_dict("records"), strict=True):
        if life["kind"] != "worker":
            continue
        joined = np.isfinite(life["joined"])
        begin = life["joined"] if joined else life["first_seen"]
        what = "joined" if joined else "first seen"
        title = titles[number]
        args = {"address": str(life["address"]), "host": life["host"]}
        if np.isfinite(begin):
            yield _instant(run, track, begin, f"{title} {what}", args)
        if np.isfinite(life["left"]):
            args = {**args, "reason": str(life["left_reason"])}
            yield _instant(run, track, life["left"], f"{title} left", args)


def _instant(run: Run, track: int, time: float, name: str, args: dict[str, Any]) -> Mark:
    """Return an instant; what is earlier than the run's start is at its start."""
    at = int(whole_nanoseconds(np.array([run.since(time)]))[0])
    return Mark(track, at, None, name, "run", args)
