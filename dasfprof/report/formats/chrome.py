"""The Chrome Trace Event Format, which Perfetto and other viewers open.

Google's "Trace Event Format" is a JSON object with a list of events. This module writes events of
the types ``X`` (slices), ``B`` (unfinished slices), ``s`` and ``f`` (start and end of arrows),
``C`` (counters), ``i`` (instants) and ``M`` (names). Times are microseconds since the run's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.report.documents import json_of, plain, shown
from dasfprof.report.formats.drawn import FAILED, Counter, DrawnRun, LabelledSlices, opened
from dasfprof.report.formats.tracks import FIRST_THREAD, Arrows, Mark, Slices, Tracks

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

#: An event, or only those fields of an event that place it on a track.
Event = dict[str, Any]

#: Maximum number of characters of a track's name.
_LONGEST_NAME = 400
#: Colour of failed slices in the older viewer. Perfetto chooses colours itself.
_FAILED_COLOUR = "terrible"
#: Number of events that are kept in memory at a time.
_BLOCK = 1 << 13


def write_chrome_trace(analyser: Analyser, path: Path, title: str) -> None:
    """Write a run as a Chrome trace. It is compressed if the file's name ends in ``.gz``.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    run = DrawnRun(analyser.run, title)
    places = [
        {"pid": process, "tid": FIRST_THREAD + number}
        for number, (process, _) in enumerate(run.tracks.names)
    ]
    events = chain(
        _names(run.tracks, places),
        (_mark_event(mark, places) for mark in run.marks()),
        _slices_and_arrows(run, places),
        chain.from_iterable(map(_readings, run.counters())),
    )
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    with opened(path) as file:
        about = json_of(run.about())
        file.write(f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n'.encode())
        separator = ""
        while block := list(islice(events, _BLOCK)):
            file.write(f"{separator}{encode(block)[1:-1]}".encode())
            separator = ",\n"
        file.write(b"\n]}\n")


def _names(tracks: Tracks, places: list[Event]) -> Iterator[Event]:
    """Yield the events that name and order processes and tracks.

    `places` has the process id and the thread id of each track in the file.
    """
    named = [("process", {"pid": pid}, pid, name) for pid, name in tracks.processes().items()]
    for number, (place, (_, name)) in enumerate(zip(places, tracks.names, strict=True)):
        named.append(("thread", place, number, name))
    for kind, place, number, name in named:
        facts = {"name": shown(name, _LONGEST_NAME), "sort_index": number}
        for fact, value in facts.items():
            yield {"ph": "M", **place, "name": f"{kind}_{fact}", "args": {fact: value}}


def _mark_event(mark: Mark, places: list[Event]) -> Event:
    lasts: Event = {"ph": "i", "s": "t"}
    if mark.duration is not None:
        lasts = {"ph": "X", "dur": mark.duration / 1000}
    about = {"name": shown(mark.name), "cat": mark.category, "args": plain(mark.args)}
    return {**lasts, **places[mark.track], "ts": mark.time / 1000, **about}


def _readings(counter: Counter) -> Iterator[Event]:
    about = {"ph": "C", "pid": counter.process, "name": shown(counter.name, _LONGEST_NAME)}
    for time, value in zip(counter.times.tolist(), counter.values.tolist(), strict=True):
        yield {**about, "ts": time / 1000, "args": {counter.unit or "number": plain(value)}}


def _slices_and_arrows(run: DrawnRun, places: list[Event]) -> Iterator[Event]:
    """Yield the events of task runs and of arrows to them, then the events of all other slices.

    See `_names` for `places`.
    """
    numbers = count(1)
    for part in run.tasks.slices.blocks(_BLOCK):
        yield from _slices(run.tasks, part, "task", places)
        yield from _arrows(run.dependencies(part), run.tasks.slices, places, numbers)
    for part in run.transfers.slices.blocks(_BLOCK):
        yield from _slices(run.transfers, part, "transfer", places)
    for part in run.functions.slices.blocks(_BLOCK):
        yield from _slices(run.functions, part, "function outside tasks", places)


def _arrows(
    arrows: Arrows, tasks: Slices, places: list[Event], numbers: Iterator[int]
) -> Iterator[Event]:
    """Yield the start event and the end event of each arrow between two task runs.

    `numbers` yields an id for each arrow. See `_names` for `places`.
    """
    ends = zip(
        tasks.tracks[arrows.made].tolist(),
        (arrows.leaving / 1000).tolist(),
        tasks.tracks[arrows.to].tolist(),
        (arrows.arrival / 1000).tolist(),
        strict=True,
    )
    for source, left, target, arrived in ends:
        about = {"id": next(numbers), "name": "dependency", "cat": "dependency"}
        yield {"ph": "s", **places[source], "ts": left, **about}
        yield {"ph": "f", "bp": "e", **places[target], "ts": arrived, **about}


def _slices(
    table: LabelledSlices, part: slice, category: str, places: list[Event]
) -> Iterator[Event]:
    slices, of_failed = table.slices, {"cat": f"{category},{FAILED}", "cname": _FAILED_COLOUR}
    rows = zip(
        slices.tracks[part].tolist(),
        (slices.starts[part] / 1000).tolist(),
        ((slices.stops[part] - slices.starts[part]) / 1000).tolist(),
        table.names(part),
        table.open[part].tolist(),
        table.failed[part].tolist(),
        zip(*(listed(part) for listed in table.arguments.values()), strict=True),
        strict=True,
    )
    for track, start, length, name, is_open, has_failed, values in rows:
        lasts = {"ph": "B"} if is_open else {"ph": "X", "dur": length}
        event: Event = {**lasts, **places[track], "ts": start, "name": name or ""}
        event |= of_failed if has_failed else {"cat": category}
        known = zip(table.arguments, values, strict=True)
        event["args"] = {label: value for label, value in known if value is not None}
        yield event
