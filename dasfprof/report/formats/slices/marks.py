"""Marks, events of user code and steps of the pipeline, as viewers draw them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.listed_events import json_value
from dasfprof.report.formats.slices.tracks import (
    RUN,
    Slices,
    Tracks,
    lay_out,
    to_nanoseconds,
    whole_nanoseconds,
)


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
    graphs = run.graphs
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
    workers = run.workers
    named = run.named
    titles = named.titles()
    for number, life in zip(named.of_lives.tolist(), workers.to_dict("records"), strict=True):
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
    """Return an instant; what is earlier than the trace's start is at its start."""
    at = int(whole_nanoseconds(run.since_begin([time]))[0])
    return Mark(track, at, None, name, "run", args)


class OwnEventMarks:
    """The events of user code on tracks of the run, those of each process and thread on their own.

    Parameters
    ----------
    trace
        The trace.
    tracks
        Gets a track for each process and thread that the events name, more where spans overlap.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        events = run.events
        # What is of another clock has no place in the picture: a note of the trace says so.
        drawn = (events["time"] >= run.begin) & (events["time"] <= run.end)
        self._events = events[drawn].sort_values("time", kind="stable").reset_index(drop=True)
        starts = run.since_begin(self._events["time"])
        spent = np.nan_to_num(self._events["duration"].to_numpy(dtype=float))
        self._starts, self._stops = to_nanoseconds(starts, starts + spent)
        self._tracks = np.zeros(len(starts), dtype=np.int64)
        for (process, thread), group in self._events.groupby(["process", "thread"], sort=True):
            self._place(f"Events of {process}, {thread}", group, tracks)

    def _place(self, title: str, group: pd.DataFrame, tracks: Tracks) -> None:
        rows = group.index.to_numpy()
        spans = rows[(group["kind"] == "span").to_numpy()]
        self._tracks[rows] = len(tracks.names())  # the first that is added
        self._tracks[spans] = lay_out(tracks, RUN, title, self._starts[spans], self._stops[spans])

    def marks(self) -> Iterator[Mark]:
        """Yield each row: a slice for a span, an instant for all else."""
        told = zip(
            self._events["name"].tolist(),
            self._events["kind"].tolist(),
            self._events["args"].tolist(),
            self._tracks.tolist(),
            self._starts.tolist(),
            (self._stops - self._starts).tolist(),
            strict=True,
        )
        for name, kind, args, track, start, duration in told:
            lasts = duration if kind == "span" else None
            title = name if kind in ("span", "instant") else f"{name} ({kind})"
            yield Mark(track, start, lasts, title, "own", json_value(args))


class StepSlices:
    """The steps of a run, one in another on tracks below each other.

    A step lasts from when the client entered it until it left it. One that only annotations or
    spans tell of lasts from its first task run to the end of its last.

    Parameters
    ----------
    trace
        The trace.
    tracks
        Gets as many tracks as there were steps at a time.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        spans = pd.concat([_entered(run), _told_by_tasks(run)], ignore_index=True)
        spans = spans[np.isfinite(spans["start"])].sort_values("start", kind="stable")
        self._names: list[str] = spans["step"].tolist()
        self._counts = _task_counts(run)
        stops = spans["stop"].fillna(run.wall).to_numpy()
        starts, ends = to_nanoseconds(spans["start"].to_numpy(), stops)
        numbers = lay_out(tracks, RUN, "Steps", starts, ends) if len(spans) else starts
        self._slices = Slices(np.arange(len(spans)), starts, ends, numbers)

    def marks(self) -> Iterator[Mark]:
        """Yield each step."""
        slices = self._slices
        told = zip(
            self._names,
            slices.tracks.tolist(),
            slices.starts.tolist(),
            (slices.stops - slices.starts).tolist(),
            strict=True,
        )
        for name, track, start, duration in told:
            args = {"step": name, "task runs": self._counts.get(name, 0)}
            yield Mark(track, start, duration, name, "step", args)


def _entered(run: Run) -> pd.DataFrame:
    """Return the steps that the client entered: ``step, start, stop``, from the trace's start."""
    steps = run.steps
    if not len(steps):
        return pd.DataFrame({"step": [], "start": [], "stop": []}).astype({"step": object})
    start = run.since_begin(steps["start"])
    return pd.DataFrame({"step": steps["step"], "start": start, "stop": start + steps["duration"]})


def _told_by_tasks(run: Run) -> pd.DataFrame:
    """Return the steps that task runs name and the client did not enter."""
    start = run.recorded["start"]
    runs = pd.DataFrame(
        {
            "step": run.tasks["step"].astype(object),
            "start": start,
            "stop": start + run.tasks["duration"].to_numpy(),
        }
    )
    known = set(run.steps["step"]) if len(run.steps) else set()
    runs = runs[runs["step"].notna() & ~runs["step"].isin(known)]
    return runs.groupby("step", as_index=False, sort=False).agg({"start": "min", "stop": "max"})


def _task_counts(run: Run) -> dict[str, int]:
    steps = run.tasks["step"].cat
    counts = np.bincount(steps.codes.to_numpy() + 1, minlength=len(steps.categories) + 1)[1:]
    return dict(zip(map(str, steps.categories), counts.tolist(), strict=True))
