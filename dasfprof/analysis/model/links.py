"""Links between task runs: for each input of a task run, the task run that made this input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.intervals import open_spans
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class RunLinks:
    """The inputs of `Trace.tasks`, one row per input, and the task runs that made the inputs."""

    #: Row of `Trace.tasks` of the task run that used the input.
    row: Array
    #: Key of the input.
    key_id: Array
    #: Row of `TaskSlots` of the task run that made the input, or -1 if unknown.
    producer: Array


@once_per_trace
def find_links(run: Run) -> RunLinks:
    """Return the task run that made each input, or -1 if no recorded task run had made it.

    Task runs are rows of `Run.slots`.
    """
    slots, unseen = run.slots, run.unseen
    lengths, items = run.task_dependencies
    rows = np.repeat(np.arange(len(run.tasks)), np.maximum(lengths, 0))
    wanted = items.astype(np.int64)
    key_ids = run.of_slots("key_id").astype(np.int64)
    state, seen_state = run.tasks["state"], unseen["scheduler_state"]
    # In traces without states, every task run made a result.
    succeeded = np.append(state.isna() | (state == "memory"), seen_state == "memory").astype(bool)
    made = ResultsByKey(key_ids, slots.times.known, np.flatnonzero(succeeded), len(run.keys))
    # If several task runs had made the input, the scheduler received the result of this one last
    # before it assigned the task run that uses the input.
    producers = made.last_before(wanted, slots.times.sent[rows])
    if "sent" not in run.tasks:
        # Times of two hosts are only roughly comparable. If the key has a single run, use this run.
        producers = np.where(producers < 0, made.only[wanted], producers)
    # Inputs without a producer were in memory before recording, or a client put them there.
    return RunLinks(rows, wanted, producers)


@once_per_trace
def dependency_rows(run: Run) -> tuple[Array, Array]:
    """Return the task run that used each input, and the one that made it, as rows of `Run.slots`.

    Inputs that no recorded task run made are left out.
    """
    links = find_links(run)
    known = links.producer >= 0
    return links.row[known], links.producer[known]


class ResultsByKey:
    """Finds the task run that made the result of a key, by time.

    `key_ids` and `times` are the key of each task run and the time of its result. `rows` are the
    indices of the task runs that made a result.
    """

    def __init__(self, key_ids: Array, times: Array, rows: Array, count: int) -> None:
        self._time_of = times
        runs = np.bincount(key_ids[rows], minlength=count)
        single = runs[key_ids[rows]] == 1
        #: For each key with exactly one run, this run. -1 for other keys.
        self.only = np.full(count, -1, dtype=np.int64)
        self.only[key_ids[rows[single]]] = rows[single]
        #: Whether a key has several runs. The following arrays contain only runs of such keys.
        self._several, rows = runs > 1, rows[~single]
        self._times = np.sort(times[rows])
        self._width = len(rows) + 1
        ranks = np.searchsorted(self._times, times[rows], side="right")
        #: Key and rank of the time, combined into one number.
        indices = key_ids[rows].astype(np.int64) * self._width + ranks
        order = np.argsort(indices, kind="stable")
        self._places, self._rows = indices[order], rows[order]

    def last_before(self, key_ids: Array, times: Array) -> Array:
        """Return, for each key and time, the task run with the latest result until then, or -1."""
        rows = self.only[key_ids]
        single = np.flatnonzero(rows >= 0)
        rows[single[~(self._time_of[rows[single]] <= times[single])]] = -1
        several = np.flatnonzero(self._several[key_ids])
        key_ids, ranks = key_ids[several], np.searchsorted(self._times, times[several], "right")
        at = np.searchsorted(self._places, key_ids * self._width + ranks, side="right") - 1
        inside = np.maximum(at, 0)
        right = (at >= 0) & (self._places[inside] // self._width == key_ids)
        rows[several] = np.where(right, self._rows[inside], -1)
        return rows


#: Event that a task run waited for last: nothing known; the arrival of the graph (the client); a
#: dependency; a free slot on a worker, which the scheduler fills from its queue; a free thread; or
#: the thief's last task, for stolen task runs.
NOTHING, CLIENT, DEPENDENCY, QUEUE, THREAD, STEAL = range(6)
NAMES = ("", "client", "dependency", "queue", "thread", "steal")


@dataclass(frozen=True)
class Predecessors:
    """The event that each row of `TaskSlots` waited for last."""

    #: One of the constants above.
    kind: Array
    #: Row of the task run whose finish the row waited for, or -1 if unknown.
    row: Array
    #: Time of that finish. For `THREAD`, it is the time at which the thread became free. For
    #: dependencies, queue slots and clients, it is the time at which the scheduler learned of the
    #: finish.
    time: Array
    #: Position in a total order of the rows. Each row comes after the row that it waited for.
    rank: Array
    #: Whether the graph of a client caused the assignment of the task run.
    asked: Array


@once_per_trace
def find_predecessors(run: Run, *, unfinished: bool = False) -> Predecessors:
    """Return the event for which each of `Run.slots` (or `Run.all_slots`) waited last."""
    slots = run.all_slots if unfinished else run.slots
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

    # The first rule that applies is used. A task run that was ready before a slot of its worker
    # ended, and that started after that end, waited for the thread of this slot.
    bind(THREAD, last_slots(slots, times.executing, times.ready), slots.end)
    stolen = np.where(slots.sent > times.sent, slots.sent, -np.inf)
    if np.isfinite(stolen).any():
        # A stolen task run waited for the last task that the thief had finished.
        bind(STEAL, last_slots(slots, stolen, times.sent), slots.end)
    causes, ends, by_client = _stimuli(run, run.task_runs if unfinished else run.tasks, count)
    # If an assignment has the stimulus id of another task run's end, it waited for this end.
    bind(QUEUE, _causing(causes, ends, slots), times.known)
    rows, producers = dependency_rows(run)
    producers = producers + (count - len(run.slots.times)) * (producers >= len(run.tasks))
    in_time = np.argsort(times.known[producers], kind="stable")
    last = np.full(count, -1, dtype=np.int64)
    last[rows[in_time]] = producers[in_time]
    # Otherwise, it waited for the dependency that was reported last, unless a client caused its
    # assignment.
    bind(DEPENDENCY, np.where(by_client, -1, last), times.known)
    by_input = rows[row[rows] == producers]
    kind[by_input[kind[by_input] == QUEUE]] = DEPENDENCY
    # The last finish that the client may have waited for before it submitted the graph.
    before = _last_known(times.known, times.arrival)
    # Traces without a scheduler's file, and files of older versions, lack this column.
    if "wanted" in run.tasks:
        # Clients do not learn when tasks that they did not request finish.
        known = np.where(run.of_slots("wanted", unfinished=unfinished) == 0, np.inf, times.known)
        before = np.where(by_client, _last_known(known, times.arrival), before)
    bind(CLIENT, before, times.known)
    kind[row < 0] = np.where(by_client[row < 0], CLIENT, NOTHING)
    return Predecessors(kind, row, time, rank, by_client)


def last_slots(slots: TaskSlots, before: Array, after: Array) -> Array:
    """Return, for each task run, the last slot of its worker that ended between two times.

    The slot ended in the interval (`after`, `before`]. The result is -1 if there is none.
    """
    last = np.full(len(before), -1, dtype=np.int64)
    order = np.lexsort((slots.end, slots.worker))
    for ended in np.split(order, np.flatnonzero(np.diff(slots.worker[order])) + 1):
        ends = slots.end[ended]
        rows = ended[np.argsort(before[ended], kind="stable")]
        indices = np.searchsorted(ends, before[rows], side="right") - 1
        # A task run of duration 0 ends when it starts. It did not wait for itself.
        indices = np.where((indices >= 0) & (ended[indices] == rows), indices - 1, indices)
        last[rows] = np.where((indices >= 0) & (ends[indices] > after[rows]), ended[indices], -1)
    return last


def _stimuli(run: Run, tasks: pd.DataFrame, count: int) -> tuple[Array, Array, Array]:
    """Return the stimulus ids of the assignment and of the end of each task run, or -1 if unknown.

    The third array is a mask of the assignments that a client caused by submitting a graph.
    """
    causes, ends = np.full((2, count), -1, dtype=np.int64)
    for first, table in ((0, tasks), (len(tasks), run.unseen)):
        for ids, column in ((causes, "cause"), (ends, "end_cause")):
            if column in table:
                values = np.nan_to_num(table[column].to_numpy(dtype=float), nan=-1)
                ids[first : first + len(table)] = values
    # The id of a graph begins with a word, which is stored as the head of a key.
    heads = [str(text).startswith("update-graph") for _, text in run.stimuli.heads]
    of_stimulus = np.append(np.array(heads, dtype=bool)[run.stimuli.head_ids], False)
    return causes, ends, of_stimulus[causes]


def _causing(causes: Array, ends: Array, slots: TaskSlots) -> Array:
    """Return the task run whose end caused the assignment of each task run, or -1."""
    known, sent = slots.times.known, slots.times.sent
    order = np.lexsort((known, ends))
    indices = np.searchsorted(ends[order], causes, side="right") - 1
    # If several task runs ended with this stimulus id, the last one counts.
    last = order[np.maximum(indices, 0)] if len(order) else indices
    right = (indices >= 0) & (causes >= 0) & (ends[last] == causes) & (known[last] <= sent)
    return np.where(right, last, -1)


def _last_known(known: Array, times: Array) -> Array:
    """Return the task run whose end was reported last at or before each of `times`, or -1."""
    order = np.argsort(known, kind="stable")
    indices = np.searchsorted(known[order], times, side="right") - 1
    return np.where(indices >= 0, order[np.maximum(indices, 0)], -1) if len(order) else indices


#: Thresholds for regular ends: minimum fraction of ends that are near the usual interval, and
#: maximum relative difference from the usual interval.
_EVEN, _NEAR = 0.8, 0.25
#: Thresholds for task runs that start together: relative tolerance within which the first one lasts
#: at most one interval, and another one lasts at least two intervals. Then minimum number of task
#: runs, as a multiple of the number of concurrent task runs.
_FIRST_NEAR, _ROUNDS = 0.35, 3
#: Threshold (multiple of the interval): minimum median duration of the task runs, because most of
#: them wait.
_WAITS = 1.5


def find_turn(start: Array, stop: Array) -> float | None:
    """Return how long a turn lasts, or None if the task runs do not take turns.

    Task runs take turns if something that they share, such as a lock, serves one of them at a time.
    The result is the median of the seconds for which they are served.
    """
    order = np.argsort(stop, kind="stable")
    start, stop = start[order], stop[order]
    at_once = int(open_spans(start, stop)[1].max(initial=0))
    if at_once < 2 or len(start) < _ROUNDS * at_once:
        return None
    before = np.append(-np.inf, np.maximum.accumulate(stop)[:-1])
    served = stop - np.maximum(start, before)
    usual = float(np.median(served))
    # Task runs that take turns end at regular intervals.
    even = np.mean(np.abs(served - usual) <= _NEAR * usual) >= _EVEN
    length = stop - start
    # If several start together, the first one is served immediately, and the second one after it.
    # Task runs that wait independently of each other all take equally long.
    first = length[0] <= (1 + _FIRST_NEAR) * usual
    behind = length[start < stop[0]].max() >= (2 - _FIRST_NEAR) * usual
    waits = np.median(length) >= _WAITS * usual
    return usual if even and first and behind and waits else None
