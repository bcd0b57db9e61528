"""Links from run to run: which run of a key made the result that another run took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class RunLinks:
    """The inputs of `Trace.tasks`, a row each; some of them runs of the trace."""

    #: The row of `Trace.tasks` that took it.
    row: Array
    #: Its key.
    key_id: Array
    #: The row of `TaskSlots` that made it; -1: no run of the trace is known to have.
    producer: Array


@once_per_trace
def find_links(run: Run) -> RunLinks:
    """Find the run that made each input: of its key's, the last that had made a result before.

    A run takes a result that the scheduler knew of as it sent it. What no run made before that
    was in memory before the recording, or was put there by a client.
    """
    slots, unseen = run.slots, run.unseen
    lengths, items = run.task_dependencies
    rows = np.repeat(np.arange(len(run.tasks)), np.maximum(lengths, 0))
    wanted = items.astype(np.int64)
    key_ids = run.of_slots("key_id").astype(np.int64)
    state, seen_state = run.tasks["state"], unseen["scheduler_state"]
    # Traces that tell no state hold no other runs than those that made a result.
    succeeded = np.append(state.isna() | (state == "memory"), seen_state == "memory").astype(bool)
    made = ResultsByKey(key_ids, slots.times.known, np.flatnonzero(succeeded), len(run.keys))
    producers = made.last_before(wanted, slots.times.sent[rows])
    if "sent" not in run.tasks:
        # Times of two hosts then compare only roughly: the one run that there is will be it.
        producers = np.where(producers < 0, made.only(wanted), producers)
    return RunLinks(rows, wanted, producers)


@once_per_trace
def dependency_rows(run: Run) -> tuple[Array, Array]:
    """Find the runs that made the inputs of other runs.

    Returns
    -------
    rows, producers
        For each input that a run of the trace made: the row of `TaskSlots` that took it, and the
        row that made it.
    """
    links = find_links(run)
    known = links.producer >= 0
    return links.row[known], links.producer[known]


class ResultsByKey:
    """Results by key and by when they were there.

    Parameters
    ----------
    key_ids, times
        Of each run its key, and when its result was there.
    rows
        The runs that made one.
    count
        How many keys there are.
    """

    def __init__(self, key_ids: Array, times: Array, rows: Array, count: int) -> None:
        self._time_of = times
        runs = np.bincount(key_ids[rows], minlength=count)
        single = runs[key_ids[rows]] == 1
        #: The run of each key that has just one, else -1.
        self._only = np.full(count, -1, dtype=np.int64)
        self._only[key_ids[rows[single]]] = rows[single]
        #: Those of keys that have several.
        self._several, rows = runs > 1, rows[~single]
        self._times = np.sort(times[rows])
        self._width = len(rows) + 1
        ranks = np.searchsorted(self._times, times[rows], side="right")
        #: Key and rank of the time as one number.
        places = key_ids[rows].astype(np.int64) * self._width + ranks
        order = np.argsort(places, kind="stable")
        self._places, self._rows = places[order], rows[order]

    def last_before(self, key_ids: Array, times: Array) -> Array:
        """Find the run of each key whose result was there last by a time; -1 where none was."""
        rows = self._only[key_ids]
        own = np.flatnonzero(rows >= 0)
        rows[own[~(self._time_of[rows[own]] <= times[own])]] = -1
        several = np.flatnonzero(self._several[key_ids])
        if len(several):
            key_ids, ranks = key_ids[several], np.searchsorted(self._times, times[several], "right")
            at = np.searchsorted(self._places, key_ids * self._width + ranks, side="right") - 1
            inside = np.maximum(at, 0)
            right = (at >= 0) & (self._places[inside] // self._width == key_ids)
            rows[several] = np.where(right, self._rows[inside], -1)
        return rows

    def first(self, key_ids: Array) -> Array:
        """Find the run of each key whose result was there first; -1 where none was."""
        rows = self._only[key_ids]
        several = np.flatnonzero(self._several[key_ids])
        rows[several] = self._rows[np.searchsorted(self._places, key_ids[several] * self._width)]
        return rows

    def only(self, key_ids: Array) -> Array:
        """Find the run of each key that has just one; -1 for others."""
        return self._only[key_ids]


# --- What each task run had to wait for last: the finish without which it had begun earlier -------

#: What bound a run: nothing that is known, the graph's arrival (the client), a dependency, a place
#: in the queue of a worker that the scheduler fills, a thread, or the thief that stole it.
NOTHING, CLIENT, DEPENDENCY, QUEUE, THREAD, STEAL = range(6)
NAMES = ("", "client", "dependency", "queue", "thread", "steal")


@dataclass(frozen=True)
class Predecessors:
    """For each row of `TaskSlots` what bound it."""

    #: One of the above.
    kind: Array
    #: The row of the run whose finish bound it; -1 where none is known.
    row: Array
    #: When that finish was: for a dependency, a place and the client as the scheduler knew it,
    #: for a thread as it became free.
    time: Array
    #: A place in a total order of the rows, in which what binds comes first.
    rank: Array
    #: Whether a client's graph had it sent.
    asked: Array


@once_per_trace
def find_predecessors(run: Run) -> Predecessors:
    """Find what bound each run, from what came latest to what came first.

    A run that was ready before a slot of its worker ended and began after it waited for that
    thread. Else a stolen one waited for its thief's last task. Else the scheduler sent it in
    answer to the event that has the same stimulus id; where no run ended by that, it was the last
    dependency to be known, or the client that submitted it, after the last finish before of what
    a client wanted: of other finishes clients are not told.
    """
    slots = run.slots
    times, count = slots.times, len(slots.worker)
    order = np.lexsort((slots.end, times.executing))
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    kind = np.zeros(count, dtype=np.int8)
    row = np.full(count, -1, dtype=np.int64)
    time = np.full(count, np.nan)

    def bind(what: int, runs: Array, at: Array) -> None:
        open_ = (row < 0) & (runs >= 0)
        open_ &= rank[runs] < rank
        kind[open_], row[open_], time[open_] = what, runs[open_], at[runs[open_]]

    bind(THREAD, last_slots(slots, times.executing, times.ready), slots.end)
    stolen = np.where(slots.sent > times.sent, slots.sent, -np.inf)
    if np.isfinite(stolen).any():
        bind(STEAL, last_slots(slots, stolen, times.sent), slots.end)
    causes, ends, by_client = _stimuli(run, count)
    bind(QUEUE, _causing(causes, ends, slots), times.known)
    rows, producers = dependency_rows(run)
    in_time = np.argsort(times.known[producers], kind="stable")
    last = np.full(count, -1, dtype=np.int64)
    last[rows[in_time]] = producers[in_time]
    bind(DEPENDENCY, np.where(by_client, -1, last), times.known)
    own = rows[row[rows] == producers]
    kind[own[kind[own] == QUEUE]] = DEPENDENCY
    # The last finish before its arrival that its client may have waited for.
    before = _last_known(times.known, times.arrival)
    if "wanted" in run.tasks:  # not in an older file, nor without one of a scheduler
        known = np.where(run.of_slots("wanted") == 0, np.inf, times.known)
        before = np.where(by_client, _last_known(known, times.arrival), before)
    bind(CLIENT, before, times.known)
    kind[row < 0] = np.where(by_client[row < 0], CLIENT, NOTHING)
    return Predecessors(kind, row, time, rank, by_client)


def last_slots(slots: TaskSlots, before: Array, after: Array) -> Array:
    """Find the slot of each run's worker that ended last, by one time and after another."""
    last = np.full(len(before), -1, dtype=np.int64)
    order = np.lexsort((slots.end, slots.worker))
    for own in np.split(order, np.flatnonzero(np.diff(slots.worker[order])) + 1):
        ends = slots.end[own]
        rows = own[np.argsort(before[own], kind="stable")]
        places = np.searchsorted(ends, before[rows], side="right") - 1
        # A run that took no time ends as it begins, and cannot have waited for itself.
        places = np.where((places >= 0) & (own[places] == rows), places - 1, places)
        last[rows] = np.where((places >= 0) & (ends[places] > after[rows]), own[places], -1)
    return last


def _stimuli(run: Run, count: int) -> tuple[Array, Array, Array]:
    """Return stimulus ids that sent and ended runs, -1 unknown, and who was sent by a client."""
    causes, ends = np.full((2, count), -1, dtype=np.int64)
    for first, table in ((0, run.tasks), (len(run.tasks), run.unseen)):
        for ids, column in ((causes, "cause"), (ends, "end_cause")):
            if column in table:
                values = np.nan_to_num(table[column].to_numpy(dtype=float), nan=-1)
                ids[first : first + len(table)] = values
    # A graph's id begins with a word, which is the head that its key was split into.
    heads = [str(text).startswith("update-graph") for _, text in run.stimuli.heads]
    of_stimulus = np.append(np.array(heads, dtype=bool)[run.stimuli.head_ids], False)
    return causes, ends, of_stimulus[causes]


def _causing(causes: Array, ends: Array, slots: TaskSlots) -> Array:
    """Find for each run the last one that ended by what sent it."""
    known, sent = slots.times.known, slots.times.sent
    order = np.lexsort((known, ends))
    places = np.searchsorted(ends[order], causes, side="right") - 1
    last = order[np.maximum(places, 0)] if len(order) else places
    right = (places >= 0) & (causes >= 0) & (ends[last] == causes) & (known[last] <= sent)
    return np.where(right, last, -1)


def _last_known(known: Array, times: Array) -> Array:
    """Find the run whose end was known last by each time; -1 where none was."""
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known[order], times, side="right") - 1
    return np.where(places >= 0, order[np.maximum(places, 0)], -1) if len(order) else places


# --- Whether task runs wait in turn, for something that serves one at a time ----------------------

#: They end evenly: so many of them within such a part of the usual distance.
_EVEN, _NEAR = 0.8, 0.25
#: Of those that begin together the first lasts as long, another twice as long or more, within such
#: a part. The fewest that tell, by how many there are at once.
_FIRST_NEAR, _ROUNDS = 0.35, 3
#: Most wait for others: the usual run lasts so many times as long as it is served.
_WAITS = 1.5


def find_turn(start: Array, stop: Array) -> float | None:
    """Return the seconds for which each run is served, if that is one at a time; else None.

    Then one ends after the other, evenly; and of those that begin together the first is served at
    once, the second after it. Runs that wait for something of their own take as long from the
    first on.
    """
    order = np.argsort(stop, kind="stable")
    start, stop = start[order], stop[order]
    events = np.concatenate([start, stop])
    steps = np.repeat([1, -1], len(start))[np.lexsort((np.repeat([1, 0], len(start)), events))]
    at_once = int(np.cumsum(steps).max(initial=0))
    if at_once < 2 or len(start) < _ROUNDS * at_once:
        return None
    before = np.append(-np.inf, np.maximum.accumulate(stop)[:-1])
    served = stop - np.maximum(start, before)
    usual = float(np.median(served))
    even = np.mean(np.abs(served - usual) <= _NEAR * usual) >= _EVEN
    length = stop - start
    first = length[0] <= (1 + _FIRST_NEAR) * usual
    behind = length[start < stop[0]].max() >= (2 - _FIRST_NEAR) * usual
    waits = np.median(length) >= _WAITS * usual
    return usual if even and first and behind and waits else None
