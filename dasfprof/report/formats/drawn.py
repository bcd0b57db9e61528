"""`DrawnRun`: a run as slices, arrows, marks and counters on tracks, for viewers."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.links import find_links
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.task_runs import LOST
from dasfprof.database.columns import Array
from dasfprof.report.documents import shown
from dasfprof.report.formats.tracks import (
    RUN,
    Arrows,
    Mark,
    Slices,
    ThreadTracks,
    Tracks,
    items_of,
    lay_out,
    nanoseconds,
    step_marks,
    to_nanoseconds,
    trimmed,
    user_event_marks,
)
from dasfprof.report.page.link_data import received_transfers
from dasfprof.report.page.resource_data import metrics_of
from dasfprof.text import count_of, format_date

#: Number of decimals of seconds in the arguments of slices.
_DECIMALS = 6
#: Function that returns JSON-compatible values for some slices, with None for unknown values.
Listed = Callable[[slice], list[Any]]


def _texts(codes: Array, texts: Iterable[object]) -> Listed:
    """Return a function that lists the texts of rows. Its argument is a Python slice of the rows.

    `codes` has the index of each row's text in `texts`, or -1 if the row has no text. Missing and
    empty texts are listed as None.
    """
    listed = np.array([*(shown(str(text)) or None for text in texts), None], dtype=object)
    return lambda part: list(listed[codes[part]])


def _categories(column: pd.Series[Any], rows: Array) -> Listed:
    return _texts(column.cat.codes.to_numpy()[rows], column.cat.categories)


def _counts(values: Array) -> Listed:
    """Return a function that lists integers of rows. Its argument is a Python slice of the rows.

    `values` has one value per row, such as a run_id or a number of bytes. NaN and infinity are
    listed as None.
    """
    return lambda part: [int(n) if np.isfinite(n) else None for n in values[part].tolist()]


def _seconds(values: Array) -> Listed:
    rounded = np.round(values, _DECIMALS)
    return lambda part: [n if np.isfinite(n) else None for n in rounded[part].tolist()]


def _numbers(table: pd.DataFrame, rows: Array, sizes: Any, seconds: Any) -> dict[str, Listed]:
    """Return functions that list the numbers in columns of a table, by the columns' labels.

    `rows` has the row of the table for each slice in the viewer. `sizes` has the labels of integer
    columns, and `seconds` has the labels of columns with durations, both by column name. Columns
    that the table lacks are left out.
    """
    # Older traces lack some columns.
    return {
        label: listed(table[name].to_numpy(dtype=float)[rows])
        for labels, listed in ((sizes, _counts), (seconds, _seconds))
        for name, label in labels.items()
        if name in table
    }


@dataclass(frozen=True)
class LabelledSlices:
    """Slices, each with a name and arguments. Masks mark unfinished and failed slices."""

    slices: Slices
    names: Listed
    #: Functions that list the arguments, by label.
    arguments: dict[str, Listed]
    #: Masks of unfinished and failed slices.
    open: Array
    failed: Array


#: State of task runs that failed.
FAILED = "erred"
#: Labels of the arguments in bytes, by column of `Trace.tasks`.
_SIZES = {"size": "size (B)", "input_size": "input size (B)"}
_SECONDS = {"cpu": "CPU (s)", "run_queue": "Waited for a core (s)"}
_NAMES = ("worker", "step", "state", "type", "dtype", "exception")


def _place_tasks(run: Run, tracks: Tracks) -> Slices:
    """Place task runs on the tracks of their threads."""
    begins, durations = run.recorded["start"], run.task_runs["duration"].to_numpy()
    placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(durations))
    threads = ThreadTracks(run, placed, begins[placed])
    rows = placed[threads.order]
    starts, stops = to_nanoseconds(begins[rows], begins[rows] + durations[rows])
    numbers = np.zeros(len(rows), dtype=np.int64)
    for facts, first, end in zip(threads.facts, threads.offsets, threads.offsets[1:], strict=False):
        stops[first:end] = trimmed(starts[first:end], stops[first:end])
        worker, thread = facts["worker"], facts["thread"]
        process = tracks.process(threads.hosts[worker])
        kind = "coroutines" if thread is None else f"thread {thread}"
        name = f"{threads.workers[worker]}, {kind}"
        # Overlapping coroutines need several tracks.
        numbers[first:end] = lay_out(tracks, process, name, starts[first:end], stops[first:end])
    return Slices(rows, starts, stops, numbers)


def _task_slices(run: Run, tracks: Tracks) -> LabelledSlices:
    """Return slices for finished and unfinished task runs."""
    slices, tasks = _place_tasks(run, tracks), run.task_runs
    rows, states = slices.rows, tasks["state"]
    codes, shapes = pd.factorize(tasks["shape"].to_numpy(dtype=object))
    key_ids = tasks["key_id"].to_numpy()[rows]
    arguments: dict[str, Listed] = {
        "key": lambda part: list(map(shown, run.keys.texts(key_ids[part]))),
        "run id": _counts(tasks["run_id"].to_numpy(dtype=float)[rows]),
        **{name: _categories(tasks[name], rows) for name in _NAMES},
        "shape": _texts(codes[rows], shapes),
        **_numbers(tasks, rows, _SIZES, _SECONDS),
        **{f"{name} (s)": _seconds(spent[rows]) for name, spent in run.statuses.items()},
    }
    # Slices of unfinished task runs have no end, unless their workers died.
    is_open = (rows >= len(run.tasks)) & (states != LOST).to_numpy(dtype=bool)[rows]
    has_failed = (states == FAILED).to_numpy(dtype=bool)[rows]
    names = _categories(tasks["function"], rows)
    return LabelledSlices(slices, names, arguments, is_open, has_failed)


def _on_workers(
    run: Run, tracks: Tracks, what: str, spans: tuple[Array, Array, Array, Array]
) -> Slices:
    """Place time ranges on tracks of their workers. The titles of these tracks end in `what`.

    `spans` has four arrays with one item per time range: its row in a table of the trace, the index
    of its worker in `run.named`, and its start and end in seconds.
    """
    rows, numbers, begins, ends = spans
    starts, stops = to_nanoseconds(begins, ends)
    of_slices, titles = np.zeros(len(rows), dtype=np.int64), run.named.titles()
    for number in pd.unique(numbers).tolist():
        at = np.flatnonzero(numbers == number)
        process = tracks.process(str(run.named.hosts[number]))
        title = f"{titles[number]}, {what}"
        of_slices[at] = lay_out(tracks, process, title, starts[at], stops[at])
    return Slices(rows, starts, stops, of_slices)


def _function_slices(run: Run, tracks: Tracks) -> LabelledSlices:
    """Return slices for functions outside of tasks, on tracks of their workers."""
    calls = run.worker_functions
    begins = run.on_one_clock(calls["start"], calls["worker_id"])
    ends = begins + np.maximum(calls["duration"].to_numpy(dtype=float), 0.0)
    placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(ends))
    numbers = run.named.numbers(calls)
    rows = placed[np.lexsort((begins[placed], run.named.ranks()[numbers[placed]]))]
    spans = rows, numbers[rows], begins[rows], ends[rows]
    slices = _on_workers(run, tracks, "functions outside tasks", spans)
    arguments, none = {"state": _categories(calls["state"], rows)}, np.zeros(len(rows), dtype=bool)
    return LabelledSlices(slices, _categories(calls["function"], rows), arguments, none, none)


#: Labels of the arguments of transfers, by column of `Trace.transfers`.
_TRANSFER_SIZES = {"size": "size (B)", "keys": "keys"}
_TRANSFER_SECONDS = {"network": "network (s)", "deserialize": "deserialise (s)"}


def _transfer_slices(run: Run, tracks: Tracks) -> LabelledSlices:
    """Return slices for transfers, each on a track of its receiver and named after its sender."""
    received, names = received_transfers(run)
    rows, receivers, sources = (received[name].to_numpy() for name in ("row", "receiver", "source"))
    begins = received["begin"].to_numpy()
    spans = rows, receivers, begins, begins + received["duration"].to_numpy()
    slices = _on_workers(run, tracks, "transfers in", spans)
    labels = _texts(sources, [f"from {name}" for name in names])
    arguments = {
        "state": _categories(run.transfers["state"], rows),
        **_numbers(run.transfers, rows, _TRANSFER_SIZES, _TRANSFER_SECONDS),
    }
    none = np.zeros(len(rows), dtype=bool)
    return LabelledSlices(slices, labels, arguments, none, none)


@dataclass(frozen=True)
class Counter:
    """The samples of one resource of a worker, host or device over time, for a viewer."""

    process: int
    name: str
    #: ``%``, ``B``, ``B/s``, or empty for numbers.
    unit: str
    #: Nanoseconds since the start of the run, and the values.
    times: Array
    values: Array


class DrawnRun:
    """A run in the form that viewers need: slices, arrows, marks and counters on tracks.

    A viewer shows each host as a process, with tracks for the threads of workers, for transfers,
    and for functions outside of tasks. It shows the run as a process with tracks for the steps of
    the pipeline and for user events.
    """

    def __init__(self, run: Run, title: str) -> None:
        self._trace = run
        self.tracks = Tracks(title)
        self._about = self.tracks.add(RUN, "About")
        for host in sorted(set(run.named.hosts.tolist())):
            self.tracks.process(host)
        self._steps = step_marks(run, self.tracks)
        self._user_events = user_event_marks(run, self.tracks)
        self.tasks = _task_slices(run, self.tracks)
        self.transfers = _transfer_slices(run, self.tracks)
        self.functions = _function_slices(run, self.tracks)
        self._links, rows = find_links(run), self.tasks.slices.rows
        self._first_links = np.searchsorted(self._links.row, np.arange(len(run.task_runs) + 1))
        #: For each row of `Run.slots`, its slice, or -1 if it has none. The last item is for -1.
        self._slice_of_row = np.full(len(run.slots.times) + 1, -1)
        finished = np.flatnonzero(rows < len(run.tasks))
        self._slice_of_row[rows[finished]] = finished

    def about(self) -> dict[str, Any]:
        """Return the run's name, its start, and notes on missing data."""
        trace, timeless = self._trace, len(self._trace.task_runs) - len(self.tasks.slices)
        notes = [note.text for note in trace.notes]
        if timeless:
            left_out = count_of(timeless, "task run")
            notes.append(f"{left_out} without a recorded time: not in this file.")
        about: dict[str, Any] = {"run": self.tracks.title, "notes": notes}
        if np.isfinite(trace.begin):
            about |= {"begin (UTC)": format_date(trace.begin), "begin (Unix s)": trace.begin}
        return about

    def marks(self) -> Iterator[Mark]:
        """Yield a mark that describes the file, then the marks of steps and of user events."""
        about = self.about()
        return chain(
            [Mark(self._about, 0, None, about["run"], "about", about)],
            self._steps,
            self._user_events,
        )

    def dependencies(self, part: slice) -> Arrows:
        """Return arrows to the task runs in `part`, from the task runs that made their inputs."""
        slices, targets = self.tasks.slices, np.arange(part.start, part.stop)
        rows = slices.rows[targets]
        counts = self._first_links[rows + 1] - self._first_links[rows]
        links, of_target = items_of(self._links.producer, self._first_links[rows], counts)
        made, to = self._slice_of_row[links], targets[of_target]
        made, to = made[made >= 0], to[made >= 0]
        arrival = slices.starts[to]
        # Usually an arrow starts where its task run ends. If clocks differ, the arrow might then
        # arrive before it starts. Such an arrow starts earlier within the task run, or is left out
        # if it would have to start before the task run.
        leaving = np.minimum(slices.stops[made] - 1, arrival)
        drawn = leaving >= slices.starts[made]
        return Arrows(made[drawn], to[drawn], leaving[drawn], arrival[drawn])

    def counters(self) -> Iterator[Counter]:
        """Yield the resource samples as one counter for each time series."""
        for metric in metrics_of(self._trace):
            for series in metric.series:
                if not len(series.times):
                    continue
                name = f"{metric.label.split(' of ')[0]}, {series.label}"
                process = self.tracks.process(series.host)
                times = nanoseconds(series.times)
                yield Counter(process, name, metric.unit, times, series.values)


#: Compression level of zlib. Higher levels take much longer and save little space.
_LEVEL = 3


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed if its name ends in ``.gz``."""
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        # Do not store a name or a time in the file, so that equal runs result in equal files.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
