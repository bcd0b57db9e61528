"""The segments of files of long runs: which there are, and which are missing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from dasfprof.database.multi import identity_of
from dasfprof.database.reader import TraceFile
from dasfprof.database.window import Window
from dasfprof.text import format_date


@dataclass(frozen=True)
class Segment:
    """A file of a run: one of several of its writer, or the only one."""

    number: int
    name: str
    #: When it was begun and when its last frame was made, Unix seconds; the end is known only where
    #: another segment follows.
    begin: float | None
    end: float | None
    #: Whether another follows.
    continues: bool


def segment_number(header: dict[str, Any]) -> int:
    """Return the number of a file among the segments of its writer, from 1."""
    number = header.get("segment")
    return number if type(number) is int and number > 0 else 1


def writer_identity(header: dict[str, Any]) -> str:
    """Return a text that all segments of one writer share, and no others; else empty."""
    return identity_of({**header, "created": header.get("first_created", header.get("created"))})


class Missing(NamedTuple):
    """Segments that are not there."""

    #: The name of a segment of the same writer that is there.
    file: str
    #: What is missing, in words.
    text: str
    #: The number of the worker.
    owner: int | None


class Segments:
    """The segments that were read."""

    def __init__(self) -> None:
        self._of_writers: dict[str, dict[int, tuple[Segment, int | None]]] = {}

    def add(self, file: TraceFile, owner: int | None = None) -> None:
        """Take a file that was read, and the number of its worker."""
        writer = writer_identity(file.header)
        if writer:
            segment = _segment_of(file)
            self._of_writers.setdefault(writer, {})[segment.number] = segment, owner

    def missing(self, window: Window | None = None) -> Iterator[Missing]:
        """Yield each stretch of missing segments of each writer.

        Parameters
        ----------
        window
            Segments of other times are not missed; None: all are.
        """
        for found in self._of_writers.values():
            numbers = sorted(found)
            segment, owner = found[numbers[0]]
            for before, after in pairwise([0, *numbers]):
                if after > before + 1:
                    begin = found[before][0].end if before else None
                    end = found[after][0].begin
                    if _matters(window, begin, end):
                        text = _describe(before + 1, after - 1, begin, end)
                        yield Missing(segment.name, text, owner)
            last, owner = found[numbers[-1]]
            if last.continues and _matters(window, last.end, None):
                yield Missing(last.name, _describe(last.number + 1, None, last.end, None), owner)


def _segment_of(file: TraceFile) -> Segment:
    end = file.end or {}
    continues, clock = end.get("continues") is True, end.get("clock")
    made = clock[0] if continues and isinstance(clock, list) and clock else None
    return Segment(
        segment_number(file.header),
        file.path.name,
        _seconds(file.header.get("created")),
        _seconds(made),
        continues,
    )


def _matters(window: Window | None, begin: float | None, end: float | None) -> bool:
    if window is None:
        return True
    begin, end = -math.inf if begin is None else begin, math.inf if end is None else end
    return begin <= window.end and end >= window.begin


def _describe(first: int, last: int | None, begin: float | None, end: float | None) -> str:
    what = f"segment {first} is" if first == last else f"segments {first} to {last} are"
    if last is None:
        what = f"segment {first} and what follows are"
    since = "the begin" if begin is None else format_date(begin)
    until = "on" if end is None else f"to {format_date(end)}"
    return (
        f"{what} missing: what its process recorded from {since} {until} (UTC) is not there. The "
        "other segments are used."
    )


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e12 else None
