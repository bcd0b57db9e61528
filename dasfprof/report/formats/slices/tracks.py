"""The processes and tracks of a viewer, and slices that lie on them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dasfprof.database.columns import Array

#: Times are whole nanoseconds: what viewers count in.
_NANOSECONDS = 1e9
#: Seconds: 285 years, as nanoseconds just within 64 bits.
_LATEST = 9e9
#: Two tasks of one thread never overlap; their times, as floats of Unix seconds, can by this much.
_CLOCK_GRAIN = 2000
#: The process of what belongs to no host. Perfetto takes 0 for the idle process.
RUN = 1
#: The number of a viewer's thread is its track's and this. Equal to a process' number it would be
#: its main thread.
FIRST_THREAD = 100_000


@dataclass
class Tracks:
    """Numbers processes (the run, its hosts) and tracks (threads, to the viewers)."""

    title: str
    _hosts: dict[str, int] = field(default_factory=dict)
    #: Process and name of each track; the first is number 0.
    _names: list[tuple[int, str]] = field(default_factory=list)

    def process(self, host: str) -> int:
        """Return the number of a host's process."""
        return self._hosts.setdefault(host, RUN + 1 + len(self._hosts))

    def add(self, process: int, name: str) -> int:
        """Add a track and return its number."""
        self._names.append((process, name))
        return len(self._names) - 1

    def processes(self) -> dict[int, str]:
        """Return the names of the processes by their numbers: the run, and its hosts."""
        return {RUN: self.title, **{number: host for host, number in self._hosts.items()}}

    def names(self) -> list[tuple[int, str]]:
        """Return the process and the name of each track."""
        return self._names


@dataclass(frozen=True)
class Slices:
    """Spans of time on tracks, in the order in which they are written."""

    #: The row of its table that each is about.
    rows: Array
    #: Whole nanoseconds from the trace's begin; none is without length, since nothing could be
    #: tied to it.
    starts: Array
    stops: Array
    tracks: Array

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, size: int) -> Iterator[slice]:
        """Return slices of at most `size` rows."""
        return (slice(at, min(at + size, len(self))) for at in range(0, len(self), size))


def to_nanoseconds(starts: Array, stops: Array) -> tuple[Array, Array]:
    """Round spans in seconds to whole nanoseconds, none before 0 and each at least one long."""
    begins = whole_nanoseconds(starts)
    return begins, np.maximum(whole_nanoseconds(stops), begins + 1)


def whole_nanoseconds(times: Array) -> Array:
    """Round seconds to whole nanoseconds, from 0 to as many as a viewer can hold."""
    rounded: Array = np.rint(np.clip(times, 0.0, _LATEST) * _NANOSECONDS).astype(np.int64)
    return rounded


def trimmed(starts: Array, stops: Array) -> Array:
    """Cut the ends of spans that overlap the next by no more than the clock's resolution."""
    late = stops[:-1] - starts[1:]
    cut = (late > 0) & (late <= _CLOCK_GRAIN) & (starts[1:] > starts[:-1])
    ends: Array = np.r_[np.where(cut, starts[1:], stops[:-1]), stops[-1:]]
    return ends


def side_by_side(starts: Array, stops: Array) -> Array:
    """Number the tracks that spans, ordered by start, need so that none lies over another."""
    places = np.zeros(len(starts), dtype=np.int64)
    if not (np.maximum.accumulate(stops)[:-1] > starts[1:]).any():
        return places
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    count = 0
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            place = heapq.heappop(free)
        else:
            place, count = count, count + 1
        heapq.heappush(busy, (stop, place))
        places[row] = place
    return places
