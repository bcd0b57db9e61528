"""Tracks, names and marks as packets of a Perfetto trace, one at a time.

The numbers of fields are those of ``TracePacket`` and of the messages within it, which Perfetto
declares in ``protos/perfetto/trace``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dasfprof.report.formats.perfetto.wire import double, message, number, text
from dasfprof.report.formats.slices.drawn import Counter
from dasfprof.report.formats.slices.marks import Mark
from dasfprof.report.formats.slices.tracks import FIRST_THREAD, RUN, Tracks
from dasfprof.report.json_text import shortened, without_surrogates

#: ``Trace.packet``, and fields of it.
PACKET, TIME, EVENT = 1, 8, 11
_CLOCKS, _SEQUENCE, _INTERNED, _FLAGS, _TRACK = 6, 10, 12, 13, 60
#: Fields of an event, and its types.
ANNOTATION, TYPE, NAME_ID, TRACK_ID, CATEGORY_ID = 4, 9, 10, 11, 3
_NAME, _CATEGORY = 23, 22
BEGIN, END, _INSTANT, COUNTER = 1, 2, 3, 4
#: Fields of `InternedData`: what texts stand for.
CATEGORIES, NAMES, LABELS, STRINGS = 1, 2, 3, 29
#: Characters of a text that are worth showing.
LONGEST = 2000
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


def shown(value: object, longest: int = LONGEST) -> str:
    """Return a text as it can be written: not too long, and without lone surrogates."""
    return without_surrogates(shortened(str(value), longest))


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
