"""What each task run had to wait for last: the finish without which it had begun earlier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.links import dependency_rows
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.analysis.run.times import TaskTimes
from dasfprof.database.columns import Array

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
def find_predecessors(trace: Run) -> Predecessors:
    """Find what bound each run, from what came latest to what came first.

    A run that was ready before a slot of its worker ended and began after it waited for that
    thread. Else a stolen one waited for its thief's last task. Else the scheduler sent it in
    answer to the event that has the same stimulus id; where no run ended by that, it was the last
    dependency to be known, or the client that submitted it, after the last finish before of what
    a client wanted: of other finishes clients are not told.
    """
    slots = trace.slots
    times, count = slots.times, len(slots.worker)
    order = np.lexsort((slots.end, times.executing))
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    kind = np.zeros(count, dtype=np.int8)
    row = np.full(count, -1, dtype=np.int64)
    time = np.full(count, np.nan)

    def bind(what: int, found: Array, at: Array) -> None:
        open_ = (row < 0) & (found >= 0)
        open_ &= rank[found] < rank
        kind[open_], row[open_], time[open_] = what, found[open_], at[found[open_]]

    bind(THREAD, last_slots(slots, times.executing, times.ready), slots.end)
    stolen = np.where(slots.sent > times.sent, slots.sent, -np.inf)
    if np.isfinite(stolen).any():
        bind(STEAL, last_slots(slots, stolen, times.sent), slots.end)
    causes, ends, by_client = _stimuli(trace, count)
    bind(QUEUE, _causing(causes, ends, slots), times.known)
    rows, producers = dependency_rows(trace)
    found = _last_dependencies(rows, producers, times.known)
    bind(DEPENDENCY, np.where(by_client, -1, found), times.known)
    own = rows[row[rows] == producers]
    kind[own[kind[own] == QUEUE]] = DEPENDENCY
    bind(CLIENT, _before_arrival(trace, times, by_client), times.known)
    kind[row < 0] = np.where(by_client[row < 0], CLIENT, NOTHING)
    return Predecessors(kind, row, time, rank, by_client)


def last_slots(slots: TaskSlots, before: Array, after: Array) -> Array:
    """Find the slot of each run's worker that ended last, by one time and after another."""
    found = np.full(len(before), -1, dtype=np.int64)
    order = np.lexsort((slots.end, slots.worker))
    for own in np.split(order, np.flatnonzero(np.diff(slots.worker[order])) + 1):
        ends = slots.end[own]
        rows = own[np.argsort(before[own], kind="stable")]
        places = np.searchsorted(ends, before[rows], side="right") - 1
        # A run that took no time ends as it begins, and cannot have waited for itself.
        places = np.where((places >= 0) & (own[places] == rows), places - 1, places)
        late = (places >= 0) & (ends[places] > after[rows])
        found[rows] = np.where(late, own[places], -1)
    return found


def _last_dependencies(rows: Array, producers: Array, known: Array) -> Array:
    """Find for each run the dependency whose run was known last; -1 where there is none."""
    found = np.full(len(known), -1, dtype=np.int64)
    order = np.argsort(known[producers], kind="stable")
    found[rows[order]] = producers[order]
    return found


def _stimuli(trace: Run, count: int) -> tuple[Array, Array, Array]:
    """Return stimulus ids that sent and ended runs, -1 unknown, and who was sent by a client."""
    causes, ends = np.full((2, count), -1, dtype=np.int64)
    for first, table in ((0, trace.tasks), (len(trace.tasks), trace.unseen)):
        for ids, column in ((causes, "cause"), (ends, "end_cause")):
            if column in table:
                values = np.nan_to_num(table[column].to_numpy(dtype=float), nan=-1)
                ids[first : first + len(table)] = values
    # A graph's id begins with a word, which is the head that its key was split into.
    heads = [str(text).startswith("update-graph") for _, text in trace.stimuli.heads]
    of_stimulus = np.append(np.array(heads, dtype=bool)[trace.stimuli.head_ids], False)
    return causes, ends, of_stimulus[causes]


def _causing(causes: Array, ends: Array, slots: TaskSlots) -> Array:
    """Find for each run the last one that ended by what sent it."""
    known, sent = slots.times.known, slots.times.sent
    order = np.lexsort((known, ends))
    places = np.searchsorted(ends[order], causes, side="right") - 1
    found = order[np.maximum(places, 0)] if len(order) else places
    right = (places >= 0) & (causes >= 0) & (ends[found] == causes) & (known[found] <= sent)
    return np.where(right, found, -1)


def _before_arrival(trace: Run, times: TaskTimes, by_client: Array) -> Array:
    """Find for each run the last finish before its arrival that its client may have waited for."""
    found = _last_known(times.known, times.arrival)
    if "wanted" not in trace.tasks:  # an older file, or none of a scheduler
        return found
    tables = (trace.tasks, trace.unseen)
    wanted = np.concatenate([table["wanted"].to_numpy(dtype=float) for table in tables])
    told = np.where(wanted == 0, np.inf, times.known)
    return np.where(by_client, _last_known(told, times.arrival), found)


def _last_known(known: Array, times: Array) -> Array:
    """Find the run whose end was known last by each time; -1 where none was."""
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known[order], times, side="right") - 1
    found: Array = np.where(places >= 0, order[np.maximum(places, 0)], -1) if len(order) else places
    return found
