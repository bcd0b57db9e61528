"""Links from run to run: which run of a key made the result that another run took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
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
def find_links(trace: Run) -> RunLinks:
    """Find the run that made each input: of its key's, the last that had made a result before.

    A run takes a result that the scheduler knew of as it sent it. What no run made before that
    was in memory before the recording, or was put there by a client.
    """
    slots, unseen = trace.slots, trace.unseen
    lengths, items = trace.task_dependencies
    rows = np.repeat(np.arange(len(trace.tasks)), np.maximum(lengths, 0))
    wanted = items.astype(np.int64)
    key_ids = np.concatenate([trace.tasks["key_id"], unseen["key_id"]]).astype(np.int64)
    made = ResultsByKey(
        key_ids, slots.times.known, np.flatnonzero(_succeeded(trace, unseen)), len(trace.keys)
    )
    producers = made.last_before(wanted, slots.times.sent[rows])
    if not _scheduler_told(trace):
        # Times of two hosts then compare only roughly: the one run that there is will be it.
        producers = np.where(producers < 0, made.only(wanted), producers)
    return RunLinks(rows, wanted, producers)


@once_per_trace
def dependency_rows(trace: Run) -> tuple[Array, Array]:
    """Find the runs that made the inputs of other runs.

    Returns
    -------
    rows, producers
        For each input that a run of the trace made: the row of `TaskSlots` that took it, and the
        row that made it.
    """
    links = find_links(trace)
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
        ranks = np.searchsorted(self._times, times[rows], side="right")
        #: Key and rank of the time as one number.
        places = key_ids[rows].astype(np.int64) * self._width + ranks
        order = np.argsort(places, kind="stable")
        self._places, self._rows = places[order], rows[order]

    @property
    def _width(self) -> int:
        return len(self._times) + 1

    def last_before(self, key_ids: Array, times: Array) -> Array:
        """Find the run of each key whose result was there last by a time; -1 where none was."""
        found = self._only[key_ids]
        own = np.flatnonzero(found >= 0)
        found[own[~(self._time_of[found[own]] <= times[own])]] = -1
        several = np.flatnonzero(self._several[key_ids])
        if len(several):
            found[several] = self._last_of_several(key_ids[several], times[several])
        return found

    def only(self, key_ids: Array) -> Array:
        """Find the run of each key that has just one; -1 for others."""
        only: Array = self._only[key_ids]
        return only

    def _last_of_several(self, key_ids: Array, times: Array) -> Array:
        ranks = np.searchsorted(self._times, times, side="right")
        at = np.searchsorted(self._places, key_ids * self._width + ranks, side="right") - 1
        inside = np.maximum(at, 0)
        right = (at >= 0) & (self._places[inside] // self._width == key_ids)
        found: Array = np.where(right, self._rows[inside], -1)
        return found


def _succeeded(trace: Run, unseen: pd.DataFrame) -> Array:
    """Return which rows of `TaskSlots` made a result; traces that tell no state hold no others."""
    state = trace.tasks["state"]
    seen = (state.isna() | (state == "memory")).to_numpy(dtype=bool)
    if not len(unseen):
        return seen
    return np.append(seen, (unseen["scheduler_state"] == "memory").to_numpy(dtype=bool))


def _scheduler_told(trace: Run) -> bool:
    return "sent" in trace.tasks
