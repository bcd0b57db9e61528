"""`DrawnRun`: all that viewers draw of a run, laid out on tracks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.open_runs import LOST
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.database.columns import Array
from dasfprof.report.documents import shown
from dasfprof.report.formats.tracks import (
    RUN,
    Arrows,
    Mark,
    OwnEventMarks,
    Producers,
    Slices,
    StepSlices,
    ThreadTracks,
    Tracks,
    items_of,
    lay_out,
    to_nanoseconds,
    trimmed,
    whole_nanoseconds,
)
from dasfprof.report.page.link_data import ReceivedTransfers
from dasfprof.report.page.resource_data import metrics_of
from dasfprof.text import count_of, format_date

#: Of seconds that are told of slices.
_DECIMALS = 6


@dataclass(frozen=True)
class Names:
    """A text of each row."""

    label: str
    #: The distinct texts.
    texts: Sequence[str]
    #: The text of each row; -1: there is none.
    codes: Array

    @classmethod
    def of(cls, label: str, column: pd.Series[Any]) -> Names:
        """Take a categorical column; empty texts are left out as NA is."""
        texts = [str(text) for text in column.cat.categories]
        codes = column.cat.codes.to_numpy().astype(np.int64)
        empty = np.array([*(not text for text in texts), False])
        return cls(label, texts, np.where(empty[codes], -1, codes))

    @cached_property
    def _shown(self) -> Array:
        return np.array([*map(shown, self.texts), None], dtype=object)

    def listed(self, part: slice) -> list[Any]:
        """Return the texts of some rows, None where there is none."""
        return list(self._shown[self.codes[part]])

    def taken(self, rows: Array) -> Names:
        """Return them of some of the rows."""
        return Names(self.label, self.texts, self.codes[rows])


@dataclass(frozen=True)
class Numbers:
    """A number of each row."""

    label: str
    #: NaN where it is not known.
    values: Array
    #: Whether they are counts, without decimals.
    whole: bool

    def listed(self, part: slice) -> list[Any]:
        """Return the numbers of some rows, None where they are not known."""
        values = self.values[part]
        told = values if self.whole else np.round(values, _DECIMALS)
        found = told.astype(object)
        found[~np.isfinite(told)] = None
        return list(found)

    def taken(self, rows: Array) -> Numbers:
        """Return them of some of the rows."""
        return Numbers(self.label, self.values[rows], self.whole)


#: What can be told.
Argument = Names | Numbers


def numbers(table: pd.DataFrame, labels: dict[str, str], *, whole: bool) -> list[Argument]:
    """Return the table's columns of numbers that have labels; older recorders lack some."""
    return [
        Numbers(label, table[name].to_numpy(dtype=None if whole else float), whole)
        for name, label in labels.items()
        if name in table
    ]


#: The state of task runs that raised.
FAILED = "erred"
#: Args of slices that are numbers of bytes, by the column of `Trace.tasks` that has them.
_SIZES = {"size": "size (B)", "input_size": "input size (B)"}
_SECONDS = {"cpu": "CPU (s)", "run_queue": "Waited for a core (s)"}
_NAMES = ("worker", "step", "state", "type", "dtype", "exception")


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

    def __init__(self, run: Run, tracks: Tracks, ended: int) -> None:
        self._trace = run
        open_ = np.arange(len(run.tasks)) >= ended
        open_ &= (run.tasks["state"] != LOST).to_numpy(dtype=bool)
        begins, durations = run.recorded["start"], run.tasks["duration"].to_numpy()
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(durations))
        threads = ThreadTracks(run, placed, begins[placed])
        rows = placed[threads.order]
        starts, stops = to_nanoseconds(begins[rows], begins[rows] + durations[rows])
        numbers = np.zeros(len(rows), dtype=np.int64)
        for facts, first, end in zip(
            threads.facts, threads.offsets, threads.offsets[1:], strict=False
        ):
            stops[first:end] = trimmed(starts[first:end], stops[first:end])
            worker, thread = facts["worker"], facts["thread"]
            process = tracks.process(threads.hosts[worker])
            kind = "coroutines" if thread is None else f"thread {thread}"
            name = f"{threads.workers[worker]}, {kind}"
            numbers[first:end] = lay_out(tracks, process, name, starts[first:end], stops[first:end])
        #: Where and when each ran.
        self.slices = Slices(rows, starts, stops, numbers)
        #: Which of the slices had not ended.
        self.open = open_[rows]
        #: Which of the slices failed.
        self.failed = (run.tasks["state"] == FAILED).to_numpy(dtype=bool)[rows]

    def functions(self) -> Names:
        """Return what each slice is called: its function."""
        return Names.of("name", self._trace.tasks["function"]).taken(self.slices.rows)

    def keys(self, part: slice) -> Array:
        """Return the keys of some of the slices as text."""
        rows = self.slices.rows[part]
        return self._trace.keys.texts(self._trace.tasks["key_id"].to_numpy()[rows])

    def arguments(self) -> list[Argument]:
        """Return all else that is known of the slices."""
        tasks = self._trace.tasks
        codes, shapes = pd.factorize(tasks["shape"].to_numpy(dtype=object))
        told: list[Argument] = [
            Numbers("run id", tasks["run_id"].to_numpy(), True),
            *(Names.of(name, tasks[name]) for name in _NAMES),
            Names("shape", [str(shape) for shape in shapes], codes),
            *numbers(tasks, _SIZES, whole=True),
            *numbers(tasks, _SECONDS, whole=False),
        ]
        statuses = self._trace.statuses.items()
        told += [Numbers(f"{name} (s)", spent, False) for name, spent in statuses]
        return [argument.taken(self.slices.rows) for argument in told]

    def failures(self, part: slice, keys: Array) -> Iterator[Mark]:
        """Yield a mark at the end of each failed one of some of the slices, given their keys."""
        slices, exceptions = self.slices, self._trace.tasks["exception"]
        for row in np.flatnonzero(self.failed[part]).tolist():
            number = part.start + row
            text = exceptions.iloc[slices.rows[number]]
            args = {"key": keys[row], "exception": "" if pd.isna(text) else str(text)}
            end = int(slices.stops[number]) - 1
            yield Mark(int(slices.tracks[number]), end, None, FAILED, "error", args)


def _of_workers(
    workers: NamedWorkers, numbers: Array, starts: Array, stops: Array, *, what: str, tracks: Tracks
) -> Array:
    """Add the tracks that spans of workers, given by their numbers, need; return those of each."""
    found, titles = np.zeros(len(numbers), dtype=np.int64), workers.titles()
    for number in pd.unique(numbers).tolist():
        own = np.flatnonzero(numbers == number)
        process = tracks.process(str(workers.hosts[number]))
        title = f"{titles[number]}, {what}"
        found[own] = lay_out(tracks, process, title, starts[own], stops[own])
    return found


class ActorCallSlices:
    """The calls of actors, or the functions outside of tasks, on tracks of their workers.

    Parameters
    ----------
    run
        The run.
    tracks
        Gets as many tracks a worker as it had calls at a time.
    calls
        The rows of its calls of actors, or of its functions.
    what
        What they are, for the tracks' names.
    """

    def __init__(
        self, run: Run, tracks: Tracks, calls: pd.DataFrame, what: str = "calls of actors"
    ) -> None:
        self._trace, workers = run, run.named
        self._calls = calls
        begins = run.on_one_clock(calls["start"], calls["worker_id"])
        ends = begins + np.maximum(calls["duration"].to_numpy(dtype=float), 0.0)
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(ends))
        numbers = workers.numbers(calls)
        rows = placed[np.lexsort((begins[placed], workers.ranks()[numbers[placed]]))]
        starts, stops = to_nanoseconds(begins[rows], ends[rows])
        of_slices = _of_workers(workers, numbers[rows], starts, stops, what=what, tracks=tracks)
        #: Where and when each was.
        self.slices = Slices(rows, starts, stops, of_slices)

    def names(self) -> Names:
        """Return what each slice is called: the actor's class and the method, or the function."""
        calls = self._calls
        if "function" in calls:
            return Names.of("name", calls["function"]).taken(self.slices.rows)
        codes, functions = self._trace.keys.functions()
        actors = np.array(functions, dtype=object)[codes[calls["key_id"].to_numpy()]]
        names = [
            f"{actor}.{method}"
            for actor, method in zip(actors, calls["method"].astype(object), strict=True)
        ]
        places, texts = pd.factorize(np.array(names, dtype=object))
        return Names("name", [str(text) for text in texts], places).taken(self.slices.rows)

    def arguments(self) -> list[Argument]:
        """Return all else that is known of the slices."""
        calls = self._calls
        if "function" in calls:
            return [Names.of("state", calls["state"]).taken(self.slices.rows)]
        places, texts = pd.factorize(self._trace.keys.texts(calls["key_id"].to_numpy()))
        told = [Names("actor", [str(text) for text in texts], places)]
        told.append(Names.of("state", calls["state"]))
        return [argument.taken(self.slices.rows) for argument in told]


#: Args of a transfer, by the column of `Trace.transfers` that has them.
_TRANSFER_SIZES = {"size": "size (B)", "keys": "keys"}
_TRANSFER_SECONDS = {"network": "network (s)", "deserialize": "deserialise (s)"}


class TransferSlices:
    """The transfers of a trace on tracks of the workers that received them.

    Parameters
    ----------
    trace
        The trace.
    tracks
        Gets as many tracks a worker as it had transfers at a time.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        self._trace = run
        workers = run.named
        self._found = found = ReceivedTransfers.of(run, workers)
        rows, begins = found.rows, found.begins
        starts, stops = to_nanoseconds(begins, begins + found.durations)
        of_slices = _of_workers(
            workers, found.receivers, starts, stops, what="transfers in", tracks=tracks
        )
        #: Where and when each was.
        self.slices = Slices(rows, starts, stops, of_slices)

    def names(self) -> Names:
        """Return what each slice is called: where it came from."""
        names = [f"from {name}" for name in self._found.names]
        return Names("name", names, self._found.sources)

    def arguments(self) -> list[Argument]:
        """Return all else that is known of the slices."""
        table = self._trace.transfers
        told = [
            Names.of("state", table["state"]),
            *numbers(table, _TRANSFER_SIZES, whole=True),
            *numbers(table, _TRANSFER_SECONDS, whole=False),
        ]
        return [argument.taken(self.slices.rows) for argument in told]

    def arrows(self, producers: Producers, part: slice) -> Arrows:
        """Return the arrows to some of the slices from the task runs whose results they moved."""
        counts, ids = self._trace.transfer_keys
        counts = np.maximum(counts, 0)
        rows = self.slices.rows[part]
        keys, of_row = items_of(ids, (np.cumsum(counts) - counts)[rows], counts[rows])
        to = part.start + of_row
        made = producers.of_keys(keys, self.slices.starts[to])
        return Arrows.between(producers.slices, made, self.slices, to)


def graph_marks(run: Run, track: int) -> Iterator[Mark]:
    """Yield an instant for each graph of tasks that arrived at the scheduler."""
    graphs = run.graphs
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
        self._about = self.tracks.add(RUN, "About")
        for host in sorted(set(run.named.hosts.tolist())):
            self.tracks.process(host)
        self._steps = StepSlices(run, self.tracks)
        self._own = OwnEventMarks(run, self.tracks)
        self._graphs, self._lives = self.tracks.add(RUN, "Graphs"), self.tracks.add(RUN, "Workers")
        self.tasks = TaskSlices(run, self.tracks, ended)
        self.transfers = TransferSlices(run, self.tracks)
        self.calls = ActorCallSlices(run, self.tracks, run.actor_calls)
        self.functions = ActorCallSlices(
            run, self.tracks, run.worker_functions, "functions outside tasks"
        )
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
        """Yield what the file is about, steps, events of user code, graphs, workers' lives."""
        about = self.about()
        return chain(
            [Mark(self._about, 0, None, about["run"], "about", about)],
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
