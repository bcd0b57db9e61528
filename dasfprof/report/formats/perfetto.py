"""`write_perfetto`: a run in Perfetto's own format, packets of protocol buffers one by one.

The numbers of fields are those of ``TracePacket`` and of the messages within it, which Perfetto
declares in ``protos/perfetto/trace``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dasfprof.database.columns import Array
from dasfprof.report.documents import shown
from dasfprof.report.formats.drawn import FAILED, Argument, Counter, DrawnRun, Names, opened
from dasfprof.report.formats.protobuf import (
    Rows,
    double,
    joined,
    message,
    messages,
    number,
    text,
    varint,
)
from dasfprof.report.formats.tracks import FIRST_THREAD, RUN, Arrows, Mark, Slices, Tracks

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

#: ``Trace.packet``, and fields of it.
PACKET, TIME, EVENT = 1, 8, 11
_CLOCKS, _SEQUENCE, _INTERNED, _FLAGS, _TRACK = 6, 10, 12, 13, 60
#: Fields of an event, and its types.
ANNOTATION, TYPE, NAME_ID, TRACK_ID, CATEGORY_ID = 4, 9, 10, 11, 3
_NAME, _CATEGORY = 23, 22
BEGIN, END, _INSTANT, COUNTER = 1, 2, 3, 4
#: Fields of `InternedData`: what texts stand for.
CATEGORIES, NAMES, LABELS, STRINGS = 1, 2, 3, 29
#: That names of packets before it are no longer known; that a packet needs such names.
_CLEARED, _NEEDS_NAMES = 1, 2
#: All packets are of one sequence, and what they share.
SHARED = number(_SEQUENCE, 1) + number(_FLAGS, _NEEDS_NAMES)
_BOOT_TIME, _REAL_TIME = 6, 1
#: Numbers of counters' tracks begin here, beyond those of threads.
_FIRST_COUNTER = 1 << 40
_BYTES_UNIT = 3
#: Texts in a packet.
_AT_A_TIME = 1000


class InternedTexts:
    """Numbers texts, which are then written once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._new: list[bytes] = []

    def number(self, kind: int, value: str) -> int:
        """Return the number of a text of a kind, a field of `InternedData`."""
        value = shown(value)
        found = self._numbers.get((kind, value))
        if found is None:
            found = self._numbers[kind, value] = len(self._numbers) + 1
            self._new.append(message(kind, number(1, found), text(2, value)))
        return found

    def packets(self) -> Iterator[bytes]:
        """Yield the texts that have come since the last time."""
        for at in range(0, len(self._new), _AT_A_TIME):
            texts = self._new[at : at + _AT_A_TIME]
            yield message(PACKET, SHARED, message(_INTERNED, *texts))
        self._new.clear()


def clock_packet(begin: float) -> bytes:
    """Write that time zero is `begin`, in Unix seconds; it is the first packet."""
    zero = message(1, number(1, _BOOT_TIME), number(2, 0))
    real = message(1, number(1, _REAL_TIME), number(2, max(round(begin * 1e9), 0)))
    flags = number(_SEQUENCE, 1) + number(_FLAGS, _CLEARED)
    return message(PACKET, flags, number(TIME, 0), message(_CLOCKS, zero, real))


def track_packets(tracks: Tracks) -> Iterator[bytes]:
    """Yield packets that name processes and tracks, in their order."""
    for process, name in tracks.processes().items():
        about = message(3, number(1, process), text(6, shown(name, 400)), number(3, process))
        yield message(PACKET, SHARED, message(_TRACK, number(1, process), about))
    for rank, (process, name) in enumerate(tracks.names()):
        about = number(1, process) + number(2, FIRST_THREAD + rank) + text(5, shown(name, 400))
        thread = message(4, about, number(3, rank))
        yield message(PACKET, SHARED, message(_TRACK, number(1, track_number(rank)), thread))


def track_number(track: int) -> int:
    """Return the number by which events name their track."""
    return FIRST_THREAD + track


def counter_packet(counter: Counter, place: int) -> tuple[int, bytes]:
    """Return the number of a counter's track, and a packet that names it."""
    track = _FIRST_COUNTER + place
    unit = text(6, counter.unit) if counter.unit else b""
    if counter.unit == "B":
        unit = number(3, _BYTES_UNIT)
    about = number(1, track) + number(5, counter.process) + text(2, shown(counter.name, 400))
    return track, message(PACKET, SHARED, message(_TRACK, about, message(8, unit)))


def about_packets(about: dict[str, Any]) -> Iterator[bytes]:
    """Yield a mark at the run's begin that tells what the file is about."""
    track = FIRST_THREAD - 1
    thread = message(4, number(1, RUN), number(2, track), text(5, "About"))
    yield message(PACKET, SHARED, message(_TRACK, number(1, track), thread))
    yield from mark_packets(Mark(track - FIRST_THREAD, 0, None, about["run"], "about", about))


def mark_packets(mark: Mark) -> Iterator[bytes]:
    """Yield a mark: its begin, and its end if it has one."""
    kind = _INSTANT if mark.duration is None else BEGIN
    track = number(TRACK_ID, track_number(mark.track))
    arguments = (
        message(ANNOTATION, text(10, shown(name)), _value(value))
        for name, value in mark.args.items()
    )
    told = (text(_NAME, shown(mark.name)), text(_CATEGORY, mark.category), *arguments)
    event = message(EVENT, number(TYPE, kind), track, *told)
    yield message(PACKET, SHARED, number(TIME, mark.time), event)
    if mark.duration is not None:
        event = message(EVENT, number(TYPE, END), track)
        yield message(PACKET, SHARED, number(TIME, mark.time + mark.duration), event)


def _value(value: Any) -> bytes:
    """Write the value of an annotation, as JSON has it."""
    if isinstance(value, bool):
        return number(2, value)
    if isinstance(value, int) and abs(value) < 1 << 63:
        return number(4, value)
    if isinstance(value, float):
        return double(5, value)
    if isinstance(value, dict):
        entries = value.items()
        return b"".join(message(11, text(10, shown(name)), _value(item)) for name, item in entries)
    if isinstance(value, list | tuple):
        return b"".join(message(12, _value(item)) for item in value)
    return text(6, "null" if value is None else shown(value))


# --- Slices, arrows and readings as packets of a Perfetto trace, thousands at a time --------------

#: Tags of fields whose values are written as columns: the time of a packet, values of annotations
#: (a whole number, a double, text), and of counters.
_TIME_TAG = varint(TIME << 3)
_WHOLE, _DOUBLE, _TEXT = varint(4 << 3), varint(5 << 3 | 1), varint(6 << 3 | 2)
_READING = varint(44 << 3 | 1)
#: Tags of the numbers of arrows: those that leave a slice, and those that end at it.
LEAVING, ARRIVING = varint(47 << 3 | 1), varint(48 << 3 | 1)
_MOST = 2.0**63 - 1024


class ArrowEnds:
    """One end of all arrows, by the slices that they touch.

    Parameters
    ----------
    tag
        `LEAVING` or `ARRIVING`.
    slices
        The slice of each arrow.
    first
        The number of the first arrow; the others follow.
    count
        How many slices there are.
    """

    def __init__(self, tag: bytes, slices: Array, first: int, count: int) -> None:
        self._tag = tag
        order = np.argsort(slices, kind="stable")
        self._numbers = (order + first).astype("<u8")
        self._bounds = np.searchsorted(slices[order], np.arange(count + 1))

    def rows(self, part: slice) -> Rows:
        """Write the ends at some of the slices."""
        bounds = self._bounds[part.start : part.stop + 1]
        ends = _tagged(self._tag, self._numbers[bounds[0] : bounds[-1]])
        return ends.summed(np.diff(bounds))


class SlicePackets:
    """Writes slices.

    Parameters
    ----------
    slices, names, category
        The slices, what each is called, and what to call them all.
    arguments
        What is told of each.
    texts
        Gets names, labels and texts that are told.
    """

    def __init__(
        self,
        slices: Slices,
        names: Names,
        category: str,
        arguments: Iterable[Argument],
        texts: InternedTexts,
    ) -> None:
        self._slices = slices
        self._names = names
        title = [number(NAME_ID, texts.number(NAMES, name)) for name in names.texts]
        self._titles = Rows.of([*title, b""])
        self._category = number(CATEGORY_ID, texts.number(CATEGORIES, category))
        self._failed = number(CATEGORY_ID, texts.number(CATEGORIES, FAILED))
        self._arguments = [_ArgumentRows(argument, texts) for argument in arguments]
        self._key = number(1, texts.number(LABELS, "key"))
        last = int(slices.tracks.max(initial=-1)) + 1
        self._tracks = Rows.of([number(TRACK_ID, track_number(track)) for track in range(last)])

    def packets(
        self,
        part: slice,
        *,
        keys: Iterable[str] | None = None,
        open_: Array | None = None,
        failed: Array | None = None,
        arrows: Iterable[ArrowEnds] = (),
    ) -> bytes:
        """Write some of the slices.

        Parameters
        ----------
        part
            Which.
        keys
            The key of each: its first argument.
        open_, failed
            Which had not ended, and which failed.
        arrows
            Of all slices.
        """
        slices = self._slices
        starts, stops = slices.starts[part], slices.stops[part]
        count = len(starts)
        told = [] if keys is None else _texts(self._key, keys)
        for argument in self._arguments:
            told += argument.rows(part)
        tracks = self._tracks.taken(slices.tracks[part])
        wrong = np.flatnonzero(failed) if failed is not None else np.empty(0, np.int64)
        begin = [
            Rows.constant(number(TYPE, BEGIN) + self._category, count),
            Rows.constant(self._failed, len(wrong)).only(wrong, count),
            tracks,
            self._titles.taken(self._names.codes[part]),
            *told,
            *(ends.rows(part) for ends in arrows),
        ]
        end = [Rows.constant(number(TYPE, END), count), tracks]
        ended = np.arange(count) if open_ is None else np.flatnonzero(~open_)
        ends = [rows.taken(ended).only(ended, count) for rows in _packets(stops, end)]
        return joined([*_packets(starts, begin), *ends])


class _ArgumentRows:
    """Writes a column of arguments; what is not known has none."""

    def __init__(self, argument: Argument, texts: InternedTexts) -> None:
        self._argument = argument
        self._label = number(1, texts.number(LABELS, argument.label))
        if isinstance(argument, Names):
            values = [number(17, texts.number(STRINGS, each)) for each in argument.texts]
            table = [_annotation(self._label + value) for value in values]
            self._table = Rows.of([*table, b""])

    def rows(self, part: slice) -> list[Rows]:
        argument = self._argument
        if isinstance(argument, Names):
            return [self._table.taken(argument.codes[part])]
        values = argument.values[part]
        known = np.flatnonzero(np.isfinite(values))
        if argument.whole:
            numbers = np.clip(values[known], -_MOST, _MOST).astype(np.int64).view(np.uint64)
            label = Rows.constant(self._label + _WHOLE, len(known))
            written = messages(ANNOTATION, [label, Rows.varints(numbers)])
        else:
            length = varint(len(self._label) + len(_DOUBLE) + 8)
            head = varint(ANNOTATION << 3 | 2) + length + self._label + _DOUBLE
            written = [_tagged(head, values[known].astype("<f8"))]
        return [rows.only(known, len(values)) for rows in written]


def readings(counter: Counter, track: int) -> bytes:
    """Write the readings of a counter."""
    head = number(TYPE, COUNTER) + number(TRACK_ID, track) + _READING
    event = [_tagged(head, counter.values.astype("<f8"))]
    return joined(_packets(counter.times, event))


def _packets(times: Array, event: list[Rows]) -> list[Rows]:
    """Write packets of events at some times."""
    head = Rows.constant(SHARED + _TIME_TAG, len(times))
    return messages(PACKET, [head, Rows.varints(times), *messages(EVENT, event)])


def _texts(label: bytes, values: Iterable[str]) -> list[Rows]:
    """Write a text of each row as an annotation."""
    texts = Rows.of([shown(value).encode("utf-8") for value in values])
    head = Rows.constant(label + _TEXT, len(texts.lengths))
    return messages(ANNOTATION, [head, Rows.varints(texts.lengths), texts])


def _annotation(content: bytes) -> bytes:
    return varint(ANNOTATION << 3 | 2) + varint(len(content)) + content


def _tagged(tag: bytes, values: Array) -> Rows:
    """Write eight bytes of each row, each behind the same bytes."""
    count, width = len(values), len(tag) + 8
    written = np.empty((count, width), np.uint8)
    written[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    written[:, len(tag) :] = np.ascontiguousarray(values).view(np.uint8).reshape(count, 8)
    return Rows(written.ravel(), np.full(count, width))


# --- write_perfetto: a run in Perfetto's own format -----------------------------------------------
#
# A trace is a sequence of packets. The first tell the clock and name the tracks; texts that come
# again, such as names of functions, are written once and then called by number. Times are
# nanoseconds from the run's begin.

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
