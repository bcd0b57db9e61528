"""Task runs as slices: where and when they ran, and all that is known of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.model.open_runs import LOST
from dasfprof.analysis.model.run import Run
from dasfprof.database.columns import Array
from dasfprof.report.formats.slices.arguments import Argument, Names, Numbers, seconds, sizes
from dasfprof.report.formats.slices.marks import Mark
from dasfprof.report.formats.slices.tracks import (
    Slices,
    Tracks,
    side_by_side,
    to_nanoseconds,
    trimmed,
)
from dasfprof.report.thread_tracks import ThreadTracks

#: The state of task runs that raised.
FAILED = "erred"
#: Args of slices that are numbers of bytes, by the column of `Trace.tasks` that has them.
_SIZES = {"size": "size (B)", "input_size": "input size (B)"}
_SECONDS = {"cpu": "CPU (s)", "run_queue": "Waited for a core (s)"}
_NAMES = ("worker", "step", "state", "type", "dtype", "exception")


class TaskSlices:
    """The task runs of a run on the tracks of their threads.

    Parameters
    ----------
    run
        The run. Slices of task runs that had not ended begin, and do not end, unless their worker
        was lost with them.
    tracks
        Gets a track for each thread, more where runs of one overlap, as coroutines do.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        self._runs, self._keys = run.all, run.trace.keys
        self._tasks = tasks = self._runs.tasks
        open_ = np.arange(len(tasks)) >= len(run.ended.tasks)
        open_ &= (tasks["state"] != LOST).to_numpy(dtype=bool)
        begins, durations = self._runs.recorded["start"], tasks["duration"].to_numpy()
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(durations))
        threads = ThreadTracks(run, placed, begins[placed])
        rows = placed[threads.order]
        starts, stops = to_nanoseconds(begins[rows], begins[rows] + durations[rows])
        numbers = np.zeros(len(rows), dtype=np.int64)
        for facts, first, end in zip(
            threads.facts, threads.offsets, threads.offsets[1:], strict=False
        ):
            stops[first:end] = trimmed(starts[first:end], stops[first:end])
            places = side_by_side(starts[first:end], stops[first:end])
            worker, thread = facts["worker"], facts["thread"]
            process = tracks.process(threads.hosts[worker])
            kind = "coroutines" if thread is None else f"thread {thread}"
            name = f"{threads.workers[worker]}, {kind}"
            more = [f"{name} ({place + 1})" for place in range(1, int(places.max()) + 1)]
            ids = np.array([tracks.add(process, title) for title in [name, *more]])
            numbers[first:end] = ids[places]
        #: Where and when each ran.
        self.slices = Slices(rows, starts, stops, numbers)
        #: Which of the slices had not ended.
        self.open = open_[rows]
        #: Which of the slices failed.
        self.failed = (tasks["state"] == FAILED).to_numpy(dtype=bool)[rows]

    def functions(self) -> Names:
        """Return what each slice is called: its function."""
        return Names.of("name", self._tasks["function"]).taken(self.slices.rows)

    def keys(self, part: slice) -> Array:
        """Return the keys of some of the slices as text."""
        rows = self.slices.rows[part]
        return self._keys.texts(self._tasks["key_id"].to_numpy()[rows])

    def arguments(self) -> list[Argument]:
        """Return all else that is known of the slices."""
        tasks = self._tasks
        codes, shapes = pd.factorize(tasks["shape"].to_numpy(dtype=object))
        told: list[Argument] = [
            Numbers("run id", tasks["run_id"].to_numpy(), True),
            *(Names.of(name, tasks[name]) for name in _NAMES),
            Names("shape", [str(shape) for shape in shapes], codes),
            *sizes(tasks, _SIZES),
            *seconds(tasks, _SECONDS),
        ]
        statuses = self._runs.statuses.items()
        told += [Numbers(f"{name} (s)", spent, False) for name, spent in statuses]
        return [argument.taken(self.slices.rows) for argument in told]

    def failures(self, part: slice, keys: Array) -> Iterator[Mark]:
        """Yield a mark at the end of each failed one of some of the slices, given their keys."""
        slices, exceptions = self.slices, self._tasks["exception"]
        for row in np.flatnonzero(self.failed[part]).tolist():
            number = part.start + row
            text = exceptions.iloc[slices.rows[number]]
            args = {"key": keys[row], "exception": "" if pd.isna(text) else str(text)}
            end = int(slices.stops[number]) - 1
            yield Mark(int(slices.tracks[number]), end, None, FAILED, "error", args)
