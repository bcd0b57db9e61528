"""`write_perfetto`: a run in Perfetto's own format.

A trace is a sequence of packets. The first tell the clock and name the tracks; texts that come
again, such as names of functions, are written once and then called by number. Times are nanoseconds
from the run's begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dasfprof.report.formats.packed_file import opened
from dasfprof.report.formats.perfetto.packets import (
    ARRIVING,
    LEAVING,
    ArrowEnds,
    InternedTexts,
    SlicePackets,
    about_packets,
    clock_packet,
    counter_packet,
    mark_packets,
    readings,
    track_packets,
)
from dasfprof.report.formats.slices.drawn import DrawnRun
from dasfprof.report.formats.slices.tracks import Arrows

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

#: Slices that are written at a time: what bounds the memory.
_BLOCK = 1 << 12


def write_perfetto(analyser: Analyser, path: Path, title: str) -> None:
    """Write a run for Perfetto, compressed if the file's name ends in ``.gz``.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    trace = analyser.run
    run = DrawnRun(trace, title)
    with opened(path) as file:
        file.write(clock_packet(trace.begin if np.isfinite(trace.begin) else 0.0))
        file.writelines(about_packets(run.about()))
        file.writelines(track_packets(run.tracks))
        for mark in run.marks():
            file.writelines(mark_packets(mark))
        file.writelines(_slice_packets(run))
        for place, counter in enumerate(run.counters()):
            track, packet = counter_packet(counter, place)
            file.write(packet)
            file.write(readings(counter, track))


def _slice_packets(run: DrawnRun) -> Iterator[bytes]:
    """Yield task runs and transfers, with the arrows between them, and calls of actors."""
    tasks, transfers, texts = run.tasks, run.transfers, InternedTexts()
    count = len(tasks.slices)
    needs = _forward(run, run.dependencies(slice(0, count)))
    moves = _forward(run, run.moves(slice(0, len(transfers.slices))))
    arrows = [
        ArrowEnds(LEAVING, np.concatenate([needs.made, moves.made]), 1, count),
        ArrowEnds(ARRIVING, needs.to, 1, count),
    ]
    packets = SlicePackets(tasks.slices, tasks.functions(), "task", tasks.arguments(), texts)
    yield from texts.packets()
    for part in tasks.slices.blocks(_BLOCK):
        keys = tasks.keys(part)
        open_, failed = tasks.open[part], tasks.failed[part]
        yield packets.packets(part, keys=keys, open_=open_, failed=failed, arrows=arrows)
        for mark in tasks.failures(part, keys):
            yield from mark_packets(mark)
    arrows = [ArrowEnds(ARRIVING, moves.to, 1 + len(needs), len(transfers.slices))]
    arguments = transfers.arguments()
    packets = SlicePackets(transfers.slices, transfers.names(), "transfer", arguments, texts)
    yield from texts.packets()
    for part in transfers.slices.blocks(_BLOCK):
        yield packets.packets(part, arrows=arrows)
    calls = run.calls
    packets = SlicePackets(calls.slices, calls.names(), "actor call", calls.arguments(), texts)
    yield from texts.packets()
    for part in calls.slices.blocks(_BLOCK):
        yield packets.packets(part, arrows=[])


def _forward(run: DrawnRun, arrows: Arrows) -> Arrows:
    """Leave out arrows between slices that begin together: Perfetto cannot tell which is first."""
    drawn = arrows.arrival > run.tasks.slices.starts[arrows.made]
    return arrows.taken(np.flatnonzero(drawn))
