"""Events of user code as slices and instants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.own_events import json_value
from dasfprof.report.formats.slices.marks import Mark
from dasfprof.report.formats.slices.tracks import (
    RUN,
    Tracks,
    side_by_side,
    to_nanoseconds,
)


class OwnEventMarks:
    """The events of user code on tracks of the run, those of each process and thread on their own.

    Parameters
    ----------
    run
        The run.
    tracks
        Gets a track for each process and thread that the events name, more where spans overlap.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        events = run.trace.events
        # What is of another clock has no place in the picture: a note of the trace says so.
        drawn = (events["time"] >= run.begin) & (events["time"] <= run.trace.end)
        self._events = events[drawn].sort_values("time", kind="stable").reset_index(drop=True)
        starts = run.since(self._events["time"].to_numpy(dtype=float))
        spent = np.nan_to_num(self._events["duration"].to_numpy(dtype=float))
        self._starts, self._stops = to_nanoseconds(starts, starts + spent)
        self._tracks = np.zeros(len(starts), dtype=np.int64)
        for (process, thread), group in self._events.groupby(["process", "thread"], sort=True):
            self._place(f"Events of {process}, {thread}", group, tracks)

    def _place(self, title: str, group: pd.DataFrame, tracks: Tracks) -> None:
        rows = group.index.to_numpy()
        places = np.zeros(len(rows), dtype=np.int64)
        spans = (group["kind"] == "span").to_numpy()
        places[spans] = side_by_side(self._starts[rows[spans]], self._stops[rows[spans]])
        names = [title, *(f"{title} ({place + 1})" for place in range(1, int(places.max()) + 1))]
        ids = np.array([tracks.add(RUN, name) for name in names], dtype=np.int64)
        self._tracks[rows] = ids[places]

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
