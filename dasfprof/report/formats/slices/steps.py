"""The steps of the user's pipeline as slices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.report.formats.slices.marks import Mark
from dasfprof.report.formats.slices.tracks import (
    RUN,
    Slices,
    Tracks,
    side_by_side,
    to_nanoseconds,
)


class StepSlices:
    """The steps of a run, one in another on tracks below each other.

    A step lasts from when the client entered it until it left it. One that only annotations or
    spans tell of lasts from its first task run to the end of its last.

    Parameters
    ----------
    run
        The run.
    tracks
        Gets as many tracks as there were steps at a time.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        spans = pd.concat([_entered(run), _told_by_tasks(run)], ignore_index=True)
        spans = spans[np.isfinite(spans["start"])].sort_values("start", kind="stable")
        self._names: list[str] = spans["step"].tolist()
        self._counts = _task_counts(run)
        stops = spans["stop"].fillna(run.seconds).to_numpy()
        starts, ends = to_nanoseconds(spans["start"].to_numpy(), stops)
        places = side_by_side(starts, ends)
        count = int(places.max(initial=-1)) + 1
        titles = [f"Steps ({place + 1})" if place else "Steps" for place in range(count)]
        ids = [tracks.add(RUN, title) for title in titles]
        numbers = np.array(ids, dtype=np.int64)[places]
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
    steps = run.trace.steps
    if not len(steps):
        return pd.DataFrame({"step": [], "start": [], "stop": []}).astype({"step": object})
    start = run.since(steps["start"])
    return pd.DataFrame({"step": steps["step"], "start": start, "stop": start + steps["duration"]})


def _told_by_tasks(run: Run) -> pd.DataFrame:
    """Return the steps that task runs name and the client did not enter."""
    start, tasks = run.all.recorded["start"], run.all.tasks
    runs = pd.DataFrame(
        {
            "step": tasks["step"].astype(object),
            "start": start,
            "stop": start + tasks["duration"].to_numpy(),
        }
    )
    known = set(run.trace.steps["step"]) if len(run.trace.steps) else set()
    runs = runs[runs["step"].notna() & ~runs["step"].isin(known)]
    return runs.groupby("step", as_index=False, sort=False).agg({"start": "min", "stop": "max"})


def _task_counts(run: Run) -> dict[str, int]:
    steps = run.all.tasks["step"].cat
    counts = np.bincount(steps.codes.to_numpy() + 1, minlength=len(steps.categories) + 1)[1:]
    return dict(zip(map(str, steps.categories), counts.tolist(), strict=True))
