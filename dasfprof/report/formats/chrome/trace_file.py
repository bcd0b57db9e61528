"""`write_chrome_trace`: a run in the Chrome Trace Event Format.

The format is Google's "Trace Event Format": a JSON object with a list of events, of which this
writes ``X`` (slices), ``s`` and ``f`` (the ends of arrows), ``C`` (counters), ``i`` (instants) and
``M`` (names). Times are microseconds from the run's begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.formats.chrome.text import (
    ArrowText,
    SliceText,
    counter_events,
    head,
    mark_event,
    name_events,
    places,
)
from dasfprof.report.formats.packed_file import opened
from dasfprof.report.formats.slices.drawn import DrawnRun

#: Rows of a table that are text at a time: what bounds the memory.
_BLOCK = 1 << 13


def write_chrome_trace(trace: Trace, path: Path, *, title: str) -> None:
    """Write a run as a Chrome trace, compressed if the file's name ends in ``.gz``.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    run = DrawnRun(trace, title)
    where = places(run.tracks)
    events = chain(
        (mark_event(mark, where) for mark in run.marks()),
        _slice_events(run, where),
        chain.from_iterable(counter_events(counter) for counter in run.counters()),
    )
    with opened(path) as file:
        file.write(head(run.about()).encode())
        file.write(",\n".join(name_events(run.tracks, where)).encode("ascii"))
        while block := list(islice(events, _BLOCK)):
            file.write(",\n".join(["", *block]).encode("ascii"))
        file.write(b"\n]}\n")


def _slice_events(run: DrawnRun, where: Array) -> Iterator[str]:
    """Yield task runs and transfers, each block with the arrows that lead to it; actors' calls."""
    tasks, transfers = run.tasks, run.transfers
    arrows = ArrowText(tasks.slices, where)
    text = SliceText(tasks.slices, tasks.functions(), "task", tasks.arguments())
    for part in tasks.slices.blocks(_BLOCK):
        keys, failed = tasks.keys(part), tasks.failed[part]
        yield from text.events(part, where, keys=keys, open_=tasks.open[part], failed=failed)
        yield from (mark_event(mark, where) for mark in tasks.failures(part, keys))
        yield from arrows.events("dependency", run.dependencies(part), tasks.slices)
    text = SliceText(transfers.slices, transfers.names(), "transfer", transfers.arguments())
    for part in transfers.slices.blocks(_BLOCK):
        yield from text.events(part, where)
        yield from arrows.events("transfer", run.moves(part), transfers.slices)
    calls = run.calls
    text = SliceText(calls.slices, calls.names(), "actor call", calls.arguments())
    for part in calls.slices.blocks(_BLOCK):
        yield from text.events(part, where)
