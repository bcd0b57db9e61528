"""Task runs as slices of a Chrome trace: where and when they ran, and all that is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.open_runs import LOST
from dasfprof.analysis.model.statuses import status_seconds
from dasfprof.analysis.model.times import recorded_times
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.formats.perfetto.tracks import (
    Slices,
    Tracks,
    side_by_side,
    to_nanoseconds,
    trimmed,
)
from dasfprof.report.json_text import json_text, json_texts
from dasfprof.report.thread_tracks import ThreadTracks

#: Characters of a key or of an exception's text that are worth showing.
_LONGEST = 2000
#: Args of slices that are numbers of bytes, by the column of `Trace.tasks` that has them.
_SIZES = {"size": "size (B)", "input_size": "input size (B)"}
#: Args that are seconds; traces of older recorders lack some.
_SECONDS = {"cpu": "CPU (s)", "run_queue": "Waited for a core (s)"}
#: Args that are names.
_NAMES = {
    "step": "step",
    "state": "state",
    "type": "type",
    "dtype": "dtype",
    "exception": "exception",
}
_FAILED = "erred"
#: A colour of the older viewer's; Perfetto chooses its own.
_FAILED_COLOUR = ',"cname":"terrible"'


class TaskSlices:
    """The task runs of a trace on the tracks of their threads.

    Parameters
    ----------
    trace
        The trace.
    tracks
        Gets a track for each thread, more where runs of one overlap, as coroutines do.
    ended
        The rows of the trace's task runs from this one on had not ended: their slices begin, and do
        not end, unless their worker was lost with them.
    """

    def __init__(self, trace: Trace, tracks: Tracks, ended: int) -> None:
        self._trace = trace
        self._open = np.arange(len(trace.tasks)) >= ended
        self._open &= (trace.tasks["state"] != LOST).to_numpy(dtype=bool)
        self._statuses = status_seconds(trace)
        begins, durations = recorded_times(trace)["start"], trace.tasks["duration"].to_numpy()
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(durations))
        threads = ThreadTracks(trace, placed, begins[placed])
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

    def events(self, part: slice, places: Array) -> Iterator[str]:
        """Yield the events of some of the slices; each failure has a second one where it ended.

        Parameters
        ----------
        part
            Which of the slices.
        places
            What `Tracks.places` gives.
        """
        slices, tasks = self.slices, self._trace.tasks
        rows = slices.rows[part]
        keys = json_texts(self._trace.keys.texts(tasks["key_id"].to_numpy()[rows]), _LONGEST)
        where = places[slices.tracks[part]]
        functions = tasks["function"].cat
        pieces: list[Iterable[str]] = [
            _phases(self._open[rows], where),
            microseconds("ts", slices.starts[part]),
            _durations(self._open[rows], slices.stops[part] - slices.starts[part]),
            named("name", functions.categories, functions.codes.to_numpy()[rows]),
            _categories(tasks["state"], rows),
            [f'"args":{{"key":{key}' for key in keys],
            [f',"run id":{number}' for number in tasks["run_id"].to_numpy()[rows].tolist()],
            _names_of(tasks["worker"], "worker", rows),
            *(_names_of(tasks[name], label, rows) for name, label in _NAMES.items()),
            _shapes(tasks["shape"].to_numpy(dtype=object)[rows]),
            *(sizes(label, tasks[name].to_numpy()[rows]) for name, label in _SIZES.items()),
            *(
                seconds(label, tasks[name].to_numpy()[rows])
                for name, label in _SECONDS.items()
                if name in tasks
            ),
            *(seconds(f"{name} (s)", spent[rows]) for name, spent in self._statuses.items()),
            ["}}"] * len(rows),
        ]
        yield from map("".join, zip(*pieces, strict=True))
        failed = np.flatnonzero((tasks["state"].iloc[rows] == _FAILED).to_numpy())
        exceptions = tasks["exception"].astype(object).iloc[rows[failed]].fillna("").tolist()
        ends = microseconds("ts", slices.stops[part][failed] - 1)
        for row, at, text in zip(failed.tolist(), ends, exceptions, strict=True):
            args = f'"key":{keys[row]},"exception":{json_text(text, _LONGEST)}'
            about = f'{at}"name":"{_FAILED}","cat":"error","args":{{{args}}}'
            yield f'{{"ph":"i","s":"t",{where[row]},{about}}}'


def _phases(open_: Array, where: Array) -> list[str]:
    """Write how each event begins: complete slices, and those that only begin."""
    phases = np.where(open_, "B", "X").tolist()
    return [f'{{"ph":"{phase}",{place},' for phase, place in zip(phases, where, strict=True)]


def _durations(open_: Array, lengths: Array) -> list[str]:
    written = microseconds("dur", lengths)
    for row in np.flatnonzero(open_).tolist():
        written[row] = ""
    return written


def microseconds(name: str, times: Array) -> list[str]:
    """Write times in nanoseconds as an event's field in microseconds."""
    return [f'"{name}":{time / 1000:.3f},' for time in times.tolist()]


def seconds(label: str, values: Array) -> list[str]:
    """Write seconds as an arg that is not the first; what is not known has none."""
    head = f",{json_text(label)}:"
    known = np.isfinite(values).tolist()
    return [
        f"{head}{value:.6g}" if there else ""
        for value, there in zip(values.tolist(), known, strict=True)
    ]


def sizes(label: str, values: Array) -> list[str]:
    """Write whole numbers as an arg that is not the first; what is not known has none."""
    head = f",{json_text(label)}:"
    known = np.isfinite(values).tolist()
    return [
        f"{head}{value:.0f}" if there else ""
        for value, there in zip(values.tolist(), known, strict=True)
    ]


def named(field: str, names: Iterable[Any], codes: Array) -> Array:
    """Write names, given as codes, as an event's field."""
    texts = [f'"{field}":{name},' for name in json_texts(names, _LONGEST)]
    pieces: Array = np.array(texts, dtype=object)[codes]
    return pieces


def _names_of(column: pd.Series[Any], label: str, rows: Array) -> Array:
    """Write a column of names as an arg; NA and empty ones have none."""
    texts = [
        f",{json_text(label)}:{text}" if text != '""' else ""
        for text in json_texts(column.cat.categories, _LONGEST)
    ]
    pieces: Array = np.array([*texts, ""], dtype=object)[column.cat.codes.to_numpy()[rows]]
    return pieces


def _categories(states: pd.Series[Any], rows: Array) -> Array:
    """Write the category of each event, and a colour for those that failed."""
    texts = [
        f'"cat":"task,{_FAILED}"{_FAILED_COLOUR},' if state == _FAILED else '"cat":"task",'
        for state in [*states.cat.categories, None]
    ]
    pieces: Array = np.array(texts, dtype=object)[states.cat.codes.to_numpy()[rows]]
    return pieces


def _shapes(shapes: Array) -> Array:
    codes, distinct = pd.factorize(shapes)
    texts = [f',"shape":{text}' for text in json_texts(distinct, _LONGEST)]
    pieces: Array = np.array([*texts, ""], dtype=object)[codes]
    return pieces
