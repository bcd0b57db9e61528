"""The Chrome Trace Event Format, which Perfetto and other viewers open.

The format is Google's "Trace Event Format": a JSON object with a list of events, of which this
writes ``X`` and ``B`` (slices, and those that had not ended), ``s`` and ``f`` (the ends of arrows),
``C`` (counters), ``i`` (instants) and ``M`` (names). Times are microseconds from the run's begin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dasfprof.report.documents import json_of, plain, shown
from dasfprof.report.formats.drawn import FAILED, Argument, Counter, DrawnRun, Names, opened
from dasfprof.report.formats.tracks import FIRST_THREAD, Arrows, Mark, Slices, Tracks

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

#: An event, and the fields that put one on a track.
Event = dict[str, Any]

#: Characters of the name of a track that are worth showing.
_LONGEST_NAME = 400
#: A colour of the older viewer's; Perfetto chooses its own.
_FAILED_COLOUR = "terrible"
#: Events that are in memory at a time.
_BLOCK = 1 << 13


def write_chrome_trace(analyser: Analyser, path: Path, title: str) -> None:
    """Write a run as a Chrome trace, compressed if the file's name ends in ``.gz``.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    run = DrawnRun(analyser.run, title)
    places = [
        {"pid": process, "tid": FIRST_THREAD + number}
        for number, (process, _) in enumerate(run.tracks.names())
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
    """Yield the events that name and order processes and tracks."""
    named = [("process", {"pid": pid}, pid, name) for pid, name in tracks.processes().items()]
    for number, (place, (_, name)) in enumerate(zip(places, tracks.names(), strict=True)):
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
    """Yield task runs and transfers, each block with the arrows that lead to it; actors' calls."""
    tasks, transfers, numbers = run.tasks, run.transfers, count(1)

    def arrows(kind: str, found: Arrows, targets: Slices) -> Iterator[Event]:
        ends = zip(
            tasks.slices.tracks[found.made].tolist(),
            (found.leaving / 1000).tolist(),
            targets.tracks[found.to].tolist(),
            (found.arrival / 1000).tolist(),
            strict=True,
        )
        for here, left, there, arrived in ends:
            about = {"id": next(numbers), "name": kind, "cat": kind}
            yield {"ph": "s", **places[here], "ts": left, **about}
            yield {"ph": "f", "bp": "e", **places[there], "ts": arrived, **about}

    write = _writer(places, tasks.slices, tasks.functions(), "task", tasks.arguments())
    for part in tasks.slices.blocks(_BLOCK):
        keys = tasks.keys(part)
        yield from write(part, keys=keys, open_=tasks.open[part], failed=tasks.failed[part])
        yield from (_mark_event(mark, places) for mark in tasks.failures(part, keys))
        yield from arrows("dependency", run.dependencies(part), tasks.slices)
    arguments = transfers.arguments()
    write = _writer(places, transfers.slices, transfers.names(), "transfer", arguments)
    for part in transfers.slices.blocks(_BLOCK):
        yield from write(part)
        yield from arrows("transfer", run.moves(part), transfers.slices)
    for calls, kind in ((run.calls, "actor call"), (run.functions, "function outside tasks")):
        write = _writer(places, calls.slices, calls.names(), kind, calls.arguments())
        for part in calls.slices.blocks(_BLOCK):
            yield from write(part)


def _writer(
    places: list[Event], slices: Slices, names: Names, category: str, arguments: Iterable[Argument]
) -> Callable[..., Iterator[Event]]:
    """Return what yields some of the slices; of task runs also given which are open, and so on."""
    columns = {each.label: each.listed for each in arguments}
    of_failed = {"cat": f"{category},{FAILED}", "cname": _FAILED_COLOUR}

    def write(
        part: slice, *, keys: Any = None, open_: Any = None, failed: Any = None
    ) -> Iterator[Event]:
        told = {} if keys is None else {"key": list(map(shown, keys))}
        told |= {label: column(part) for label, column in columns.items()}
        starts, stops = slices.starts[part], slices.stops[part]
        none = np.zeros(len(starts), dtype=bool)
        rows = zip(
            slices.tracks[part].tolist(),
            (starts / 1000).tolist(),
            ((stops - starts) / 1000).tolist(),
            names.listed(part),
            (none if open_ is None else open_).tolist(),
            (none if failed is None else failed).tolist(),
            zip(*told.values(), strict=True),
            strict=True,
        )
        for track, start, length, name, is_open, has_failed, values in rows:
            lasts = {"ph": "B"} if is_open else {"ph": "X", "dur": length}
            event: Event = {**lasts, **places[track], "ts": start, "name": name or ""}
            event |= of_failed if has_failed else {"cat": category}
            known = zip(told, values, strict=True)
            event["args"] = {label: value for label, value in known if value is not None}
            yield event

    return write
