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

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.open_runs import LOST
from dasfprof.database.columns import Array
from dasfprof.report.documents import shown
from dasfprof.report.formats.tracks import (
    RUN,
    Arrows,
    Mark,
    Producers,
    Slices,
    ThreadTracks,
    Tracks,
    items_of,
    lay_out,
    step_marks,
    to_nanoseconds,
    trimmed,
    user_event_marks,
    whole_nanoseconds,
)
from dasfprof.report.page.link_data import ReceivedTransfers
from dasfprof.report.page.resource_data import metrics_of
from dasfprof.text import count_of, format_date

#: Decimals of seconds in arguments.
_DECIMALS = 6
#: Returns JSON-compatible values of some slices, or None for unknown values.
Listed = Callable[[slice], list[Any]]


def _texts(codes: Array, texts: Iterable[object]) -> Listed:
    """Return a function that lists the text of each slice. Empty texts and code -1 are unknown."""
    listed = np.array([*(shown(str(text)) or None for text in texts), None], dtype=object)
    return lambda part: list(listed[codes[part]])


def _categories(column: pd.Series[Any], rows: Array) -> Listed:
    return _texts(column.cat.codes.to_numpy()[rows], column.cat.categories)


def _counts(values: Array) -> Listed:
    """Return a function that lists integers. NaN is unknown."""
    return lambda part: [int(n) if np.isfinite(n) else None for n in values[part].tolist()]


def _seconds(values: Array) -> Listed:
    rounded = np.round(values, _DECIMALS)
    return lambda part: [n if np.isfinite(n) else None for n in rounded[part].tolist()]


def _numbers(table: pd.DataFrame, rows: Array, sizes: Any, seconds: Any) -> dict[str, Listed]:
    """Return the columns of sizes and seconds, by label. Older traces lack some of them."""
    return {
        label: listed(table[name].to_numpy(dtype=float)[rows])
        for labels, listed in ((sizes, _counts), (seconds, _seconds))
        for name, label in labels.items()
        if name in table
    }


@dataclass(frozen=True)
class LabelledSlices:
    """Slices with a name and arguments each."""

    slices: Slices
    names: Listed
    #: By label.
    arguments: dict[str, Listed]
    #: Masks of unfinished and failed slices.
    open: Array
    failed: Array


#: State of failed task runs.
FAILED = "erred"
#: Arguments of slices in bytes, by column of `Trace.tasks`.
_SIZES = {"size": "size (B)", "input_size": "input size (B)"}
_SECONDS = {"cpu": "CPU (s)", "run_queue": "Waited for a core (s)"}
_NAMES = ("worker", "step", "state", "type", "dtype", "exception")


def _place_tasks(run: Run, tracks: Tracks) -> Slices:
    """Place task runs on the tracks of their threads. Overlapping coroutines need several."""
    begins, durations = run.recorded["start"], run.tasks["duration"].to_numpy()
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
        numbers[first:end] = lay_out(tracks, process, name, starts[first:end], stops[first:end])
    return Slices(rows, starts, stops, numbers)


def _task_slices(run: Run, tracks: Tracks, ended: int) -> LabelledSlices:
    """Return the slices of task runs. Rows after the first `ended` rows are unfinished task runs.

    Unfinished slices have no end, unless their worker died.
    """
    slices, tasks = _place_tasks(run, tracks), run.tasks
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
    is_open = (rows >= ended) & (states != LOST).to_numpy(dtype=bool)[rows]
    has_failed = (states == FAILED).to_numpy(dtype=bool)[rows]
    names = _categories(tasks["function"], rows)
    return LabelledSlices(slices, names, arguments, is_open, has_failed)


def _on_workers(
    run: Run, tracks: Tracks, what: str, spans: tuple[Array, Array, Array, Array]
) -> Slices:
    """Place spans on tracks of workers.

    `spans` contains rows, numbers of named workers, and starts and ends in seconds.
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


def _call_slices(run: Run, tracks: Tracks, calls: pd.DataFrame, what: str) -> LabelledSlices:
    """Return calls of actors, or functions outside of tasks, on tracks of their workers."""
    begins = run.on_one_clock(calls["start"], calls["worker_id"])
    ends = begins + np.maximum(calls["duration"].to_numpy(dtype=float), 0.0)
    placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(ends))
    numbers = run.named.numbers(calls)
    rows = placed[np.lexsort((begins[placed], run.named.ranks()[numbers[placed]]))]
    slices = _on_workers(run, tracks, what, (rows, numbers[rows], begins[rows], ends[rows]))
    arguments = {"state": _categories(calls["state"], rows)}
    none = np.zeros(len(rows), dtype=bool)
    if "function" in calls:
        return LabelledSlices(slices, _categories(calls["function"], rows), arguments, none, none)
    codes, functions = run.keys.functions()
    key_ids = calls["key_id"].to_numpy()[rows]
    actors, methods = codes[key_ids].tolist(), calls["method"].astype(object).to_numpy()[rows]
    names = [
        shown(f"{functions[actor]}.{name}") for actor, name in zip(actors, methods, strict=True)
    ]
    keys = [shown(key) for key in run.keys.texts(key_ids)]
    arguments = {"actor": lambda part: keys[part], **arguments}
    return LabelledSlices(slices, lambda part: list(names[part]), arguments, none, none)


#: Arguments of transfers, by column of `Trace.transfers`.
_TRANSFER_SIZES = {"size": "size (B)", "keys": "keys"}
_TRANSFER_SECONDS = {"network": "network (s)", "deserialize": "deserialise (s)"}


def _transfer_slices(run: Run, tracks: Tracks) -> LabelledSlices:
    """Return the transfers on tracks of their receivers, named after their senders."""
    received, table = ReceivedTransfers.of(run, run.named), run.transfers
    rows, begins = received.rows, received.begins
    spans = rows, received.receivers, begins, begins + received.durations
    slices = _on_workers(run, tracks, "transfers in", spans)
    names = _texts(received.sources, [f"from {name}" for name in received.names])
    arguments = {
        "state": _categories(table["state"], rows),
        **_numbers(table, rows, _TRANSFER_SIZES, _TRANSFER_SECONDS),
    }
    none = np.zeros(len(rows), dtype=bool)
    return LabelledSlices(slices, names, arguments, none, none)


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
    """Yield instants at which workers joined (or were first seen), and at which they left."""
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
    """Return an instant, which is not before the start of the trace."""
    at = int(whole_nanoseconds(run.since_begin([time]))[0])
    return Mark(track, at, None, name, "run", args)


# --- DrawnRun: the contents of a run for viewers, laid out on tracks ------------------------------


@dataclass(frozen=True)
class Counter:
    """The samples of a resource."""

    process: int
    name: str
    #: ``%``, ``B``, ``B/s``, or empty for numbers.
    unit: str
    #: Nanoseconds since the start of the run, and the values.
    times: Array
    values: Array


class DrawnRun:
    """A run as slices, arrows, marks and counters.

    Hosts are processes. Their tracks are the threads of workers, transfers, and calls of actors.
    The run is a process as well. Its tracks are the steps of the pipeline, user events, graphs, and
    workers that join or leave.

    Parameters
    ----------
    trace
        The run.
    title
        Name of the run.
    """

    def __init__(self, run: Run, title: str) -> None:
        ended = len(run.tasks)
        self._trace = run = run.whole
        self.tracks = Tracks(title)
        self._about = self.tracks.add(RUN, "About")
        for host in sorted(set(run.named.hosts.tolist())):
            self.tracks.process(host)
        self._steps = step_marks(run, self.tracks)
        self._user_events = user_event_marks(run, self.tracks)
        self._graphs, self._lives = self.tracks.add(RUN, "Graphs"), self.tracks.add(RUN, "Workers")
        self.tasks = _task_slices(run, self.tracks, ended)
        self.transfers = _transfer_slices(run, self.tracks)
        self.calls = _call_slices(run, self.tracks, run.actor_calls, "calls of actors")
        outside = "functions outside tasks"
        self.functions = _call_slices(run, self.tracks, run.worker_functions, outside)
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
        """Yield marks of the file's description, steps, user events, graphs and workers."""
        about = self.about()
        return chain(
            [Mark(self._about, 0, None, about["run"], "about", about)],
            self._steps,
            self._user_events,
            graph_marks(self._trace, self._graphs),
            life_marks(self._trace, self._lives),
        )

    def failures(self, part: slice) -> Iterator[Mark]:
        """Yield a mark at the end of each failed task run among some slices."""
        tasks, slices = self.tasks, self.tasks.slices
        at = np.flatnonzero(tasks.failed[part])
        rows = slices.rows[part][at]
        keys = self._trace.keys.texts(self._trace.tasks["key_id"].to_numpy()[rows])
        exceptions = self._trace.tasks["exception"].iloc[rows].astype(object).tolist()
        for number, key, text in zip((part.start + at).tolist(), keys, exceptions, strict=True):
            args = {"key": key, "exception": "" if pd.isna(text) else str(text)}
            end = int(slices.stops[number]) - 1
            yield Mark(int(slices.tracks[number]), end, None, FAILED, "error", args)

    def dependencies(self, part: slice) -> Arrows:
        """Return the arrows to some task runs from the task runs whose results they used."""
        slices = self.tasks.slices
        made, to = self._producers.of_inputs(np.arange(part.start, part.stop))
        return Arrows.between(slices, made, slices, to)

    def moves(self, part: slice) -> Arrows:
        """Return the arrows to some transfers from the task runs whose results they contained."""
        counts, ids = self._trace.transfer_keys
        counts = np.maximum(counts, 0)
        slices = self.transfers.slices
        rows = slices.rows[part]
        keys, of_row = items_of(ids, (np.cumsum(counts) - counts)[rows], counts[rows])
        to = part.start + of_row
        made = self._producers.of_keys(keys, slices.starts[to])
        return Arrows.between(self.tasks.slices, made, slices, to)

    def counters(self) -> Iterator[Counter]:
        """Yield the resource samples, as one counter per series."""
        for metric in metrics_of(self._trace):
            for series in metric.series:
                if not len(series.times):
                    continue
                name = f"{metric.label.split(' of ')[0]}, {series.label}"
                process = self.tracks.process(series.host)
                times = whole_nanoseconds(series.times)
                yield Counter(process, name, metric.unit, times, series.values)


# --- opened: a file for writing, compressed if its name ends in .gz -------------------------------

#: Compression level of zlib. Higher levels take longer than everything else, and save little.
_LEVEL = 3


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed if its name ends in ``.gz``."""
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        # The file contains neither a name nor a time, so that equal runs result in equal files.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
