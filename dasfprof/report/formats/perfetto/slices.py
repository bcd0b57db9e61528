"""Slices, arrows and readings as packets of a Perfetto trace, thousands at a time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dasfprof.database.columns import Array
from dasfprof.report.formats.perfetto.packets import (
    ANNOTATION,
    BEGIN,
    CATEGORIES,
    CATEGORY_ID,
    COUNTER,
    END,
    EVENT,
    LABELS,
    NAME_ID,
    NAMES,
    PACKET,
    SHARED,
    STRINGS,
    TIME,
    TRACK_ID,
    TYPE,
    InternedTexts,
    shown,
    track_number,
)
from dasfprof.report.formats.perfetto.wire import Rows, joined, messages, number, varint
from dasfprof.report.formats.slices.arguments import Argument, Names
from dasfprof.report.formats.slices.drawn import Counter
from dasfprof.report.formats.slices.tasks import FAILED
from dasfprof.report.formats.slices.tracks import Slices

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
