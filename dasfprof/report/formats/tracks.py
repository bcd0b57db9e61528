"""Tracks for viewers and for the page, and the slices, arrows and marks on them."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.listed_events import json_value
from dasfprof.database.columns import Array

#: Nanoseconds per second. Viewers use whole nanoseconds as their unit.
_NANOSECONDS = 1e9
#: Maximum time in seconds (285 years) that fits into 64 bits as nanoseconds.
_LATEST = 9e9
#: Maximum overlap (nanoseconds) of tasks on a thread that results from rounding Unix seconds.
_CLOCK_GRAIN = 2000
#: Number of the process for everything that does not belong to a host. Perfetto reserves 0.
RUN = 1
#: Offset that is added to a track's number to get a thread id for viewers. Without it, a thread id
#: could be equal to a process id, and would then mean the main thread of that process.
FIRST_THREAD = 100_000


@dataclass
class Tracks:
    """The processes and tracks that a viewer shows, with their numbers.

    A viewer shows the run and each host as a process, and each track as a thread of a process.
    """

    title: str
    _hosts: dict[str, int] = field(default_factory=dict)
    #: Process and name of each track. The index is the number of the track.
    names: list[tuple[int, str]] = field(default_factory=list)

    def process(self, host: str) -> int:
        """Return the number of the process that stands for a host in the viewer.

        A new host gets a new number.
        """
        return self._hosts.setdefault(host, RUN + 1 + len(self._hosts))

    def add(self, process: int, name: str) -> int:
        """Add a track and return its number."""
        self.names.append((process, name))
        return len(self.names) - 1

    def processes(self) -> dict[int, str]:
        """Return the name of each process of the viewer (the run and its hosts), by number."""
        return {RUN: self.title, **{number: host for host, number in self._hosts.items()}}


@dataclass(frozen=True)
class Slices:
    """Time ranges on tracks, in the order in which they are written."""

    #: Row of each slice in its table.
    rows: Array
    #: Starts and ends in whole nanoseconds since the start of the run. Each slice lasts at least 1
    #: ns, because arrows cannot be attached to an empty slice.
    starts: Array
    stops: Array
    tracks: Array

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, size: int) -> Iterator[slice]:
        """Return Python slices that divide the rows into blocks of at most `size` rows."""
        return (slice(at, min(at + size, len(self))) for at in range(0, len(self), size))


def to_nanoseconds(starts: Array, stops: Array) -> tuple[Array, Array]:
    """Return time ranges, given in seconds, in whole nanoseconds.

    Negative times become 0, and each range lasts at least 1 ns.
    """
    begins = nanoseconds(starts)
    return begins, np.maximum(nanoseconds(stops), begins + 1)


def nanoseconds(times: Array) -> Array:
    """Round seconds to whole nanoseconds that are not negative and fit into 64 bits."""
    return np.rint(np.clip(times, 0.0, _LATEST) * _NANOSECONDS).astype(np.int64)


def trimmed(starts: Array, stops: Array) -> Array:
    """Return the ends of time ranges, without the small overlaps that imprecise clocks cause.

    If a range overlaps the next range by at most `_CLOCK_GRAIN`, it ends where the next one starts.
    """
    late = stops[:-1] - starts[1:]
    cut = (late > 0) & (late <= _CLOCK_GRAIN) & (starts[1:] > starts[:-1])
    return np.r_[np.where(cut, starts[1:], stops[:-1]), stops[-1:]]


def side_by_side(starts: Array, stops: Array) -> Array:
    """Return a track number for each time range, so that no ranges on a track overlap.

    The time ranges are sorted by start.
    """
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
    """Add tracks to a process for some time ranges, and return the track of each time range.

    Time ranges on the same track do not overlap. They must be sorted by start. Without time ranges,
    one empty track is added.
    """
    places = side_by_side(starts, stops)
    more = range(2, int(places.max(initial=0)) + 2)
    ids = [tracks.add(process, name) for name in (title, *(f"{title} ({n})" for n in more))]
    return np.array(ids, dtype=np.int64)[places]


class ThreadTracks:
    """One track per worker thread. Threads of a worker are in the order of their first task.

    Parameters
    ----------
    placed, starts
        The rows of those `Run.task_runs` that have known times, and their starts.
    threads
        Number of threads of each named worker, so that unused threads also have tracks. By
        default, only threads that ran a task have tracks.
    """

    def __init__(
        self, run: Run, placed: Array, starts: Array, threads: Array | None = None
    ) -> None:
        named = run.named
        tasks = run.task_runs
        names = named.titles()
        by_name = sorted(range(len(names)), key=lambda number: natural_order(names[number]))
        workers = np.argsort(np.array(by_name, dtype=np.int64))[named.numbers(tasks)[placed]]
        codes = tasks["thread"].cat.codes.to_numpy()[placed].astype(np.int64)
        most = int(codes.max(initial=0)) + 2
        if threads is not None:
            most += int(threads.max(initial=0))
        codes, pairs = pd.factorize(workers * most + codes + 1)
        if threads is not None:
            pairs = np.append(pairs, _unused(pairs, most, threads[by_name]))
        first_start = np.full(len(pairs), np.inf)
        np.minimum.at(first_start, codes, starts)
        of_pair, thread_of_pair = np.divmod(pairs, most)
        # The track of a worker's coroutines, which run in its event loop, comes last.
        in_order = np.lexsort((first_start, thread_of_pair == 0, of_pair))
        place = np.argsort(in_order)
        track = place[codes]
        #: Rows of `placed`, sorted by track and then by start.
        self.order = np.lexsort((starts, track))
        #: Index in `order` at which each track starts, and the end of the last track.
        self.offsets = np.r_[0, np.cumsum(np.bincount(track, minlength=len(pairs)))]
        present, worker = np.unique(of_pair[in_order], return_inverse=True)
        #: Names of the workers that have tracks, and their hosts.
        self.workers = [str(names[by_name[number]]) for number in present]
        self.hosts = [str(named.hosts[by_name[number]]) for number in present]
        _, thread = numbered(np.bincount(worker))
        in_loop = thread_of_pair[in_order] == 0
        columns = (each.tolist() for each in (worker, thread, in_loop, self.offsets[:-1]))
        #: For each track ``worker`` (index in `workers`), ``thread`` (from 0, or None for the
        #: worker's coroutines) and ``first`` (its first row).
        self.facts: list[dict[str, Any]] = [
            {"worker": of, "thread": None if coroutines else number, "first": first}
            for of, number, coroutines, first in zip(*columns, strict=True)
        ]

    def busy_threads(self, starts: Array, durations: Array, span: float, bins: int) -> list[float]:
        """Return the mean number of busy threads in each of `bins` equal time windows.

        `starts` and `durations` are those of the task runs, in the order of the tracks. `span` is
        the total length of the windows. Coroutines do not count.
        """
        busy = np.zeros(bins + 1)
        edges = np.linspace(0.0, span, bins + 1)
        for fact, begin, end in zip(self.facts, self.offsets, self.offsets[1:], strict=False):
            if fact["thread"] is not None:
                busy += busy_until(edges, starts[begin:end], durations[begin:end])
        mean: list[float] = np.round(np.diff(busy) / (span / bins or 1.0), 2).tolist()
        return mean


def _unused(pairs: Array, most: int, threads: Array) -> Array:
    """Return a number for each thread that ran no task: ``worker * most + thread``.

    `pairs` has such a number for each track with task runs. `threads` has the number of threads of
    each worker.
    """
    workers, codes = np.divmod(pairs, most)
    used = np.bincount(workers[codes > 0], minlength=len(threads))
    unused = np.maximum(threads - used, 0)
    worker, within = numbered(unused)
    return worker * most + most - 1 - within


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key for names. It compares the numbers in them by value, so 2 precedes 10."""
    parts = re.split(r"([0-9]{1,15})", str(name))
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def busy_until(times: Array, starts: Array, durations: Array) -> Array:
    """Return, for each of the given times, the total seconds that tasks had run by then.

    `starts` must be sorted.
    """
    ends = np.sort(starts + durations)
    order_sums = np.r_[0.0, np.cumsum(starts)]
    end_sums = np.r_[0.0, np.cumsum(ends)]
    begun = np.searchsorted(starts, times)
    ended = np.searchsorted(ends, times)
    # For all tasks that have begun, this is the sum of min(time, end) - start.
    return (begun - ended) * times + end_sums[ended] - order_sums[begun]


@dataclass(frozen=True)
class Arrows:
    """Arrows from task runs that made results to slices that used these results."""

    #: Slice of the task run at which each arrow starts, and slice at which it ends.
    made: Array
    to: Array
    #: Nanoseconds at which each arrow starts and ends.
    leaving: Array
    arrival: Array


def numbered(counts: Array) -> tuple[Array, Array]:
    """For each item of concatenated lists, return the index of its list, and its index in the list.

    `counts` are the lengths of the lists.
    """
    of_list = np.repeat(np.arange(len(counts)), counts)
    return of_list, np.arange(len(of_list)) - np.repeat(np.cumsum(counts) - counts, counts)


def items_of(ids: Array, begins: Array, counts: Array) -> tuple[Array, Array]:
    """Return the items of lists, and for each item the index of its list.

    The lists are parts of `ids`. They begin at `begins`, and have `counts` items.
    """
    of_row, within = numbered(counts)
    return ids[begins[of_row] + within].astype(np.int64), of_row


@dataclass(frozen=True)
class Mark:
    """A slice or an instant on a track, such as a step of the pipeline or a user event."""

    track: int
    #: Nanoseconds since the start of the run.
    time: int
    #: Nanoseconds, or None for an instant.
    duration: int | None
    name: str
    category: str
    #: JSON-compatible values.
    args: dict[str, Any]


def user_event_marks(run: Run, tracks: Tracks) -> list[Mark]:
    """Return marks for user events: a slice per span, and an instant for any other event.

    Each process and thread has a track, or several if spans overlap.
    """
    events = run.events
    # Events with times of another clock are left out. A data note of the trace reports this.
    drawn = (events["time"] >= run.begin) & (events["time"] <= run.end)
    events = events[drawn].sort_values("time", kind="stable").reset_index(drop=True)
    begins = run.since_begin(events["time"])
    spent = np.nan_to_num(events["duration"].to_numpy(dtype=float))
    starts, stops = to_nanoseconds(begins, begins + spent)
    numbers = np.zeros(len(starts), dtype=np.int64)
    for (process, thread), group in events.groupby(["process", "thread"], sort=True):
        rows = group.index.to_numpy()
        spans = rows[(group["kind"] == "span").to_numpy()]
        numbers[rows] = len(tracks.names)  # This is the first track that is added.
        title = f"Events of {process}, {thread}"
        numbers[spans] = lay_out(tracks, RUN, title, starts[spans], stops[spans])
    marks = []
    places = zip(numbers.tolist(), starts.tolist(), (stops - starts).tolist(), strict=True)
    for event, (track, start, duration) in zip(events.to_dict("records"), places, strict=True):
        name, kind = event["name"], event["kind"]
        lasts = duration if kind == "span" else None
        title = name if kind in ("span", "instant") else f"{name} ({kind})"
        marks.append(Mark(track, start, lasts, title, "own", json_value(event["args"])))
    return marks


def step_marks(run: Run, tracks: Tracks) -> list[Mark]:
    """Return the steps of a run as slices. Nested steps are on separate tracks."""
    # A step lasts from the time at which the client entered it until the client left it. If only
    # annotations or spans name a step, it lasts from its first task run to the end of its last one.
    steps = pd.concat([_entered(run), _named_by_tasks(run)], ignore_index=True)
    steps = steps[np.isfinite(steps["start"])].sort_values("start", kind="stable")
    if not len(steps):
        return []
    ends = steps["stop"].fillna(run.wall).to_numpy()
    starts, stops = to_nanoseconds(steps["start"].to_numpy(), ends)
    numbers = lay_out(tracks, RUN, "Steps", starts, stops)
    counts = {str(step): int(n) for step, n in run.task_runs["step"].value_counts().items()}
    places = zip(numbers.tolist(), starts.tolist(), (stops - starts).tolist(), strict=True)
    return [
        Mark(*place, name, "step", {"step": name, "task runs": counts.get(name, 0)})
        for name, place in zip(steps["step"].tolist(), places, strict=True)
    ]


def _entered(run: Run) -> pd.DataFrame:
    """Return the steps that the client entered, with ``step``, ``start`` and ``stop``.

    Times are seconds since the trace's start.
    """
    steps = run.steps
    if not len(steps):
        return pd.DataFrame({"step": [], "start": [], "stop": []}).astype({"step": object})
    start = run.since_begin(steps["start"])
    return pd.DataFrame({"step": steps["step"], "start": start, "stop": start + steps["duration"]})


def _named_by_tasks(run: Run) -> pd.DataFrame:
    """Return the steps that the client did not enter. Only task runs name them."""
    start = run.recorded["start"]
    runs = pd.DataFrame(
        {
            "step": run.task_runs["step"].astype(object),
            "start": start,
            "stop": start + run.task_runs["duration"].to_numpy(),
        }
    )
    known = set(run.steps["step"]) if len(run.steps) else set()
    runs = runs[runs["step"].notna() & ~runs["step"].isin(known)]
    return runs.groupby("step", as_index=False, sort=False).agg({"start": "min", "stop": "max"})
