"""Slices, arrows, marks and counters as the JSON of a Chrome trace, an event a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np

from dasfprof.database.columns import Array
from dasfprof.report.formats.slices.arguments import Argument, Names, Numbers
from dasfprof.report.formats.slices.arrows import Arrows
from dasfprof.report.formats.slices.drawn import Counter
from dasfprof.report.formats.slices.marks import Mark
from dasfprof.report.formats.slices.tracks import FIRST_THREAD, Slices, Tracks
from dasfprof.report.json_text import json_of, json_text, json_texts

#: Characters of a text that are worth showing.
LONGEST = 2000
#: A colour of the older viewer's; Perfetto chooses its own.
_FAILED_COLOUR = ',"cname":"terrible"'


def places(tracks: Tracks) -> Array:
    """Return for each track the fields that put an event on it."""
    texts = [
        f'"pid":{process},"tid":{FIRST_THREAD + number}'
        for number, (process, _) in enumerate(tracks.names())
    ]
    return np.array(texts, dtype=object)


def name_events(tracks: Tracks, where: Array) -> Iterator[str]:
    """Yield the events that name and order processes and tracks."""
    for pid, name in tracks.processes().items():
        about = f'{{"ph":"M","pid":{pid},'
        yield f'{about}"name":"process_name","args":{{"name":{json_text(name, 400)}}}}}'
        yield f'{about}"name":"process_sort_index","args":{{"sort_index":{pid}}}}}'
    for number, (place, (_, name)) in enumerate(zip(where, tracks.names(), strict=True)):
        about = f'{{"ph":"M",{place},'
        yield f'{about}"name":"thread_name","args":{{"name":{json_text(name, 400)}}}}}'
        yield f'{about}"name":"thread_sort_index","args":{{"sort_index":{number}}}}}'


def mark_event(mark: Mark, where: Array) -> str:
    """Write a mark."""
    about = (
        f'{where[mark.track]},"ts":{mark.time / 1000:.3f},"name":{json_text(mark.name, LONGEST)}'
    )
    lasts = '"ph":"i","s":"t"'
    if mark.duration is not None:
        lasts = f'"ph":"X","dur":{mark.duration / 1000:.3f}'
    return f'{{{lasts},{about},"cat":"{mark.category}","args":{json_of(mark.args)}}}'


class SliceText:
    """Writes slices.

    Parameters
    ----------
    slices, names, category
        The slices, what each is called, and what to call them all.
    arguments
        What is told of each.
    """

    def __init__(
        self, slices: Slices, names: Names, category: str, arguments: Iterable[Argument]
    ) -> None:
        self._slices = slices
        self._names = names
        self._categories = np.array([f'"cat":"{category}",'], dtype=object)
        self._failed = np.array([f'"cat":"{category},erred"{_FAILED_COLOUR},'], dtype=object)
        texts = [f'"name":{name},' for name in json_texts(names.texts, LONGEST)]
        self._titles = np.array([*texts, '"name":"",'], dtype=object)
        self._arguments = [_ArgumentText(argument) for argument in arguments]

    def events(
        self,
        part: slice,
        where: Array,
        *,
        keys: Iterable[str] | None = None,
        open_: Array | None = None,
        failed: Array | None = None,
    ) -> Iterator[str]:
        """Yield some of the slices.

        Parameters
        ----------
        part, where
            Which, and what `places` gives.
        keys
            The key of each: its first argument.
        open_, failed
            Which had not ended, and which failed.
        """
        slices = self._slices
        starts, lengths = slices.starts[part], slices.stops[part] - slices.starts[part]
        no = np.zeros(len(starts), dtype=bool)
        open_, failed = no if open_ is None else open_, no if failed is None else failed
        phases = np.where(open_, "B", "X").tolist()
        told: list[Iterable[str]] = [argument.texts(part) for argument in self._arguments]
        if keys is not None:
            told.insert(0, [f',"key":{key}' for key in json_texts(keys, LONGEST)])
        arguments = map("".join, zip(*told, strict=True))
        pieces: list[Iterable[str]] = [
            [
                f'{{"ph":"{phase}",{place},'
                for phase, place in zip(phases, where[slices.tracks[part]], strict=True)
            ],
            microseconds("ts", starts),
            np.where(open_, "", np.array(microseconds("dur", lengths), dtype=object)),
            self._titles[self._names.codes[part]],
            np.where(failed, self._failed, self._categories),
            (f'"args":{{{text[1:]}}}}}' for text in arguments),
        ]
        yield from map("".join, zip(*pieces, strict=True))


class _ArgumentText:
    """Writes a column of arguments, each with a comma before it; what is not known has none."""

    def __init__(self, argument: Argument) -> None:
        self._argument = argument
        self._head = f",{json_text(argument.label)}:"
        if isinstance(argument, Names):
            texts = [f"{self._head}{text}" for text in json_texts(argument.texts, LONGEST)]
            self._texts = np.array([*texts, ""], dtype=object)

    def texts(self, part: slice) -> Iterable[str]:
        argument, head = self._argument, self._head
        if not isinstance(argument, Numbers):
            return list(self._texts[argument.codes[part]])
        values = argument.values[part]
        form = ".6g" if not argument.whole else "d" if values.dtype.kind in "iu" else ".0f"
        return [
            f"{head}{value:{form}}" if known else ""
            for value, known in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
        ]


class ArrowText:
    """Numbers arrows, and writes them.

    Parameters
    ----------
    sources
        Where they come from: the task runs.
    where
        What `places` gives.
    """

    def __init__(self, sources: Slices, where: Array) -> None:
        self._sources = sources
        self._where = where
        self._count = 0

    def events(self, kind: str, arrows: Arrows, targets: Slices) -> Iterator[str]:
        """Yield both ends of arrows to some slices."""
        ids = range(self._count + 1, self._count + 1 + len(arrows))
        self._count += len(arrows)
        about = f'"name":"{kind}","cat":"{kind}"}}'
        ends = zip(
            ids,
            self._where[self._sources.tracks[arrows.made]].tolist(),
            microseconds("ts", arrows.leaving),
            self._where[targets.tracks[arrows.to]].tolist(),
            microseconds("ts", arrows.arrival),
            strict=True,
        )
        for number, here, left, there, arrived in ends:
            yield f'{{"ph":"s","id":{number},{here},{left}{about}'
            yield f'{{"ph":"f","bp":"e","id":{number},{there},{arrived}{about}'


def counter_events(counter: Counter) -> Iterator[str]:
    """Yield the readings of a counter."""
    head = f'{{"ph":"C","pid":{counter.process},"name":{json_text(counter.name, 400)},'
    tail = f'"args":{{{json_text(counter.unit or "number")}:'
    for time, value in zip(counter.times.tolist(), counter.values.tolist(), strict=True):
        yield f'{head}"ts":{time / 1000:.3f},{tail}{value:.9g}}}}}'


def microseconds(name: str, times: Array) -> list[str]:
    """Write times in nanoseconds as an event's field in microseconds."""
    return [f'"{name}":{time / 1000:.3f},' for time in times.tolist()]


def head(about: dict[str, object]) -> str:
    """Write the beginning of the file."""
    other = json.dumps(json.loads(json_of(about)), ensure_ascii=False)
    return f'{{"displayTimeUnit":"ms","otherData":{other},"traceEvents":[\n'
