"""`write_perfetto`: a run in the Chrome Trace Event Format, for Perfetto and Chrome's viewer.

The format is Google's "Trace Event Format": a JSON object with a list of events, of which this
writes ``X`` (slices), ``s`` and ``f`` (the ends of arrows), ``C`` (counters), ``i`` (instants) and
``M`` (names). Times are microseconds from the run's begin.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.formats.perfetto.flows import (
    Flows,
    Producers,
    TransferSlices,
    dependency_events,
)
from dasfprof.report.formats.perfetto.marks import graph_events, life_events
from dasfprof.report.formats.perfetto.own_events import OwnEventMarks
from dasfprof.report.formats.perfetto.steps import StepSlices
from dasfprof.report.formats.perfetto.tasks import TaskSlices, microseconds
from dasfprof.report.formats.perfetto.tracks import RUN, Tracks, whole_nanoseconds
from dasfprof.report.json_text import json_text, without_surrogates
from dasfprof.report.resource_series import metrics_of
from dasfprof.text import count_of, format_date

#: Rows of a table that are text at a time: what bounds the memory.
_BLOCK = 1 << 13
#: zlib's: a higher one takes longer than all the rest and saves little.
_LEVEL = 3


def write_perfetto(trace: Trace, path: Path, *, title: str) -> None:
    """Write a run as a Chrome trace, compressed if the file's name ends in ``.gz``.

    Hosts are processes; threads of workers and their transfers are tracks of these. The run is a
    process too, whose tracks tell of the steps of the pipeline, of events that user code recorded,
    of graphs and of workers that come and go.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    ended = len(trace.tasks)
    trace = with_open_runs(trace)
    tracks = Tracks(title)
    for host in sorted(set(NamedWorkers(trace).hosts.tolist())):
        tracks.process(host)
    steps = StepSlices(trace, tracks)
    own = OwnEventMarks(trace, tracks)
    graphs, lives = tracks.add(RUN, "Graphs"), tracks.add(RUN, "Workers")
    tasks = TaskSlices(trace, tracks, ended)
    transfers = TransferSlices(trace, tracks)
    places = np.array(tracks.places(), dtype=object)
    events = chain(
        steps.events(places),
        own.events(places),
        graph_events(trace, places[graphs]),
        life_events(trace, places[lives]),
        _slice_events(trace, tasks, transfers, places),
        _counter_events(trace, tracks),
    )
    with _opened(path) as file:
        file.write(_head(trace, title, len(trace.tasks) - len(tasks.slices)).encode())
        file.write(",\n".join(tracks.events()).encode("ascii"))
        for event_block in _blocks(events):
            file.write(",\n".join(["", *event_block]).encode("ascii"))
        file.write(b"\n]}\n")


def _head(trace: Trace, title: str, timeless: int) -> str:
    """Return the beginning of the file: the run's name, its start, and notes on missing data."""
    notes = [note.text for note in trace.notes]
    if timeless:
        notes.append(f"{count_of(timeless, 'task run')} without a recorded time: not in this file.")
    about: dict[str, Any] = {"run": title, "notes": notes}
    if np.isfinite(trace.begin):
        about |= {"begin (UTC)": format_date(trace.begin), "begin (Unix s)": trace.begin}
    other = without_surrogates(json.dumps(about, ensure_ascii=False))
    return f'{{"displayTimeUnit":"ms","otherData":{other},"traceEvents":[\n'


def _slice_events(
    trace: Trace, tasks: TaskSlices, transfers: TransferSlices, places: Array
) -> Iterator[str]:
    """Yield task runs and transfers, each block with the arrows that lead to it."""
    producers, flows = Producers(trace, tasks.slices), Flows(tasks.slices, places)
    for part in tasks.slices.blocks(_BLOCK):
        yield from tasks.events(part, places)
        yield from dependency_events(producers, flows, tasks.slices, part)
    for part in transfers.slices.blocks(_BLOCK):
        yield from transfers.events(part, places)
        yield from transfers.arrows(producers, flows, part)


def _counter_events(trace: Trace, tracks: Tracks) -> Iterator[str]:
    """Yield the readings of resources, each a counter of its host."""
    for metric in metrics_of(trace):
        for series in metric.series:
            name = json_text(f"{metric.label.split(' of ')[0]}, {series.label}", 400)
            head = f'{{"ph":"C","pid":{tracks.process(series.host)},"name":{name},'
            tail = f'"args":{{{json_text(metric.unit or "number")}:'
            for at in range(0, len(series.times), _BLOCK):
                times = whole_nanoseconds(series.times[at : at + _BLOCK])
                values = series.values[at : at + _BLOCK].tolist()
                for time, value in zip(microseconds("ts", times), values, strict=True):
                    yield f"{head}{time}{tail}{value:.9g}}}}}"


def _blocks(events: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for event in events:
        block.append(event)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        # Neither a name nor a time in it: equal runs give equal files.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
