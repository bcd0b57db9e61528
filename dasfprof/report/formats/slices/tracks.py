"""The processes and tracks of a viewer, and slices that lie on them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dasfprof.analysis.model.links import ResultsByKey, find_links
from dasfprof.analysis.run import Run
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


def lay_out(tracks: Tracks, process: int, title: str, starts: Array, stops: Array) -> Array:
    """Add the tracks that spans, ordered by start, need; return the track of each.

    The first has the title, also where there are no spans; the others a number behind it.
    """
    places = side_by_side(starts, stops)
    more = range(2, int(places.max(initial=0)) + 2)
    ids = [tracks.add(process, name) for name in (title, *(f"{title} ({n})" for n in more))]
    numbers: Array = np.array(ids, dtype=np.int64)[places]
    return numbers


# --- Arrows between slices: from the task runs that made results to what took them ----------------


@dataclass(frozen=True)
class Arrows:
    """Arrows from task runs to slices.

    One that would go back in time, since two clocks disagree, leaves its slice early; one that
    would have to leave it before its begin is not among them.
    """

    #: The slice of a task run that each comes from, and the slice that it goes to.
    made: Array
    to: Array
    #: Nanoseconds: when each leaves, and arrives.
    leaving: Array
    arrival: Array

    @classmethod
    def between(cls, sources: Slices, made: Array, targets: Slices, to: Array) -> Arrows:
        """Draw arrows from slices that made results (-1: none did) to those that took them."""
        known = np.flatnonzero(made >= 0)
        made, to = made[known], to[known]
        arrival = targets.starts[to]
        leaving = np.minimum(sources.stops[made] - 1, arrival)
        drawn = leaving >= sources.starts[made]
        return cls(made[drawn], to[drawn], leaving[drawn], arrival[drawn])

    def __len__(self) -> int:
        return len(self.made)

    def taken(self, rows: Array) -> Arrows:
        """Return some of them."""
        return Arrows(self.made[rows], self.to[rows], self.leaving[rows], self.arrival[rows])


class Producers:
    """Finds the task run that made a result.

    Parameters
    ----------
    trace, slices
        The trace, and its task runs.
    """

    def __init__(self, run: Run, slices: Slices) -> None:
        self._links = find_links(run)
        self._first = np.searchsorted(self._links.row, np.arange(len(run.tasks) + 1))
        #: The task runs.
        self.slices = slices
        #: The slice of each row of `TaskSlots`, -1 where there is none; the last is that of row -1.
        self._numbers = np.full(len(run.tasks) + len(run.scheduler_only) + 1, -1)
        self._numbers[slices.rows] = np.arange(len(slices))
        state = run.tasks["state"]
        made = np.flatnonzero((state.isna() | (state == "memory")).to_numpy()[slices.rows])
        keys = run.tasks["key_id"].to_numpy()[slices.rows]
        self._results = ResultsByKey(keys, slices.stops, made, len(run.keys))

    def of_inputs(self, targets: Array) -> tuple[Array, Array]:
        """Find the slices that made the inputs of some slices; gives pairs of both."""
        rows = self.slices.rows[targets]
        counts = self._first[rows + 1] - self._first[rows]
        links, of_target = items_of(self._links.producer, self._first[rows], counts)
        return self._numbers[links], targets[of_target]

    def of_keys(self, keys: Array, before: Array) -> Array:
        """Find the last slice of each key that had made a result by a time; -1: none.

        A key's one run stands for a result that it made before by another clock alone.
        """
        found = self._results.last_before(keys, before)
        return np.where(found < 0, self._results.only(keys), found)


def items_of(ids: Array, begins: Array, counts: Array) -> tuple[Array, Array]:
    """Take lists out of those of all rows; gives their items, and which list each is of."""
    of_row = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(of_row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ids[begins[of_row] + within].astype(np.int64), of_row
