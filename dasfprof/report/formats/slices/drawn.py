"""`DrawnRun`: all that viewers draw of a run, laid out on tracks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array
from dasfprof.report.formats.slices.marks import (
    Mark,
    OwnEventMarks,
    StepSlices,
    graph_marks,
    life_marks,
)
from dasfprof.report.formats.slices.tasks import ActorCallSlices, TaskSlices, TransferSlices
from dasfprof.report.formats.slices.tracks import RUN, Arrows, Producers, Tracks, whole_nanoseconds
from dasfprof.report.resource_series import metrics_of
from dasfprof.text import count_of, format_date

# --- DrawnRun: all that viewers draw of a run, laid out on tracks ---------------------------------


@dataclass(frozen=True)
class Counter:
    """The readings of a resource."""

    process: int
    name: str
    #: ``%``, ``B``, ``B/s``, or empty for numbers.
    unit: str
    #: Nanoseconds from the run's begin, and what was read then.
    times: Array
    values: Array


class DrawnRun:
    """A run as slices, arrows, marks and counters.

    Hosts are processes; threads of workers, their transfers and calls of their actors are
    tracks of these. The run is a process too, whose tracks tell of the steps of the pipeline, of
    events that user code recorded, of graphs and of workers that come and go.

    Parameters
    ----------
    trace
        The run.
    title
        What to call it.
    """

    def __init__(self, run: Run, title: str) -> None:
        ended = len(run.tasks)
        self._trace = run = run.whole
        self.tracks = Tracks(title)
        for host in sorted(set(run.named.hosts.tolist())):
            self.tracks.process(host)
        self._steps = StepSlices(run, self.tracks)
        self._own = OwnEventMarks(run, self.tracks)
        self._graphs, self._lives = self.tracks.add(RUN, "Graphs"), self.tracks.add(RUN, "Workers")
        self.tasks = TaskSlices(run, self.tracks, ended)
        self.transfers = TransferSlices(run, self.tracks)
        self.calls = ActorCallSlices(run, self.tracks)
        self._producers = Producers(run, self.tasks.slices)

    def about(self) -> dict[str, Any]:
        """Return the run's name, its start, and notes on missing data."""
        trace, timeless = self._trace, len(self._trace.tasks) - len(self.tasks.slices)
        notes = [note.text for note in trace.notes]
        if timeless:
            left_out = count_of(timeless, "task run")
            notes.append(f"{left_out} without a recorded time: not in this file.")
        about: dict[str, Any] = {"run": self.tracks.title, "notes": notes}
        if np.isfinite(trace.begin):
            about |= {"begin (UTC)": format_date(trace.begin), "begin (Unix s)": trace.begin}
        return about

    def marks(self) -> Iterator[Mark]:
        """Yield steps, events of user code, graphs, and workers that come and go."""
        return chain(
            self._steps.marks(),
            self._own.marks(),
            graph_marks(self._trace, self._graphs),
            life_marks(self._trace, self._lives),
        )

    def dependencies(self, part: slice) -> Arrows:
        """Return the arrows to some of the task runs from those whose results they took."""
        slices = self.tasks.slices
        made, to = self._producers.of_inputs(np.arange(part.start, part.stop))
        return Arrows.between(slices, made, slices, to)

    def moves(self, part: slice) -> Arrows:
        """Return the arrows to some of the transfers from the runs whose results they moved."""
        return self.transfers.arrows(self._producers, part)

    def counters(self) -> Iterator[Counter]:
        """Yield the readings of resources, each of its host."""
        for metric in metrics_of(self._trace):
            for series in metric.series:
                if not len(series.times):
                    continue
                name = f"{metric.label.split(' of ')[0]}, {series.label}"
                process = self.tracks.process(series.host)
                times = whole_nanoseconds(series.times)
                yield Counter(process, name, metric.unit, times, series.values)


# --- opened: a file to write, compressed if its name says so --------------------------------------

#: zlib's: a higher one takes longer than all the rest and saves little.
_LEVEL = 3


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed if its name ends in ``.gz``."""
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        # Neither a name nor a time in it: equal runs give equal files.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
