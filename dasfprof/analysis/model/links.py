"""Links from run to run: which run of a key made the result that another run took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.slots import task_slots, unseen_runs
from dasfprof.analysis.trace import Trace
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
def find_links(trace: Trace) -> RunLinks:
    """Find the run that made each input: of its key's, the last that had made a result before.

    A run takes a result that the scheduler knew of as it sent it. What no run made before that
    was in memory before the recording, or was put there by a client.
    """
    slots, unseen = task_slots(trace), unseen_runs(trace)
    lengths, items = trace.task_dependencies
    rows = np.repeat(np.arange(len(trace.tasks)), np.maximum(lengths, 0))
    wanted = items.astype(np.int64)
    key_ids = np.concatenate([trace.tasks["key_id"], unseen["key_id"]]).astype(np.int64)
    made = ResultsByKey(key_ids, slots.times.known, np.flatnonzero(_succeeded(trace, unseen)))
    producers = made.last_before(wanted, slots.times.sent[rows])
    if not _scheduler_told(trace):
        # Times of two hosts then compare only roughly: the one run that there is will be it.
        producers = np.where(producers < 0, made.only(wanted), producers)
    return RunLinks(rows, wanted, producers)


@once_per_trace
def dependency_rows(trace: Trace) -> tuple[Array, Array]:
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
    """

    def __init__(self, key_ids: Array, times: Array, rows: Array) -> None:
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
        ranks = np.searchsorted(self._times, times, side="right")
        at = np.searchsorted(self._places, key_ids * self._width + ranks, side="right") - 1
        return self._of_key(at, key_ids)

    def only(self, key_ids: Array) -> Array:
        """Find the run of each key that has just one; -1 for others."""
        first = np.searchsorted(self._places, key_ids * self._width)
        end = np.searchsorted(self._places, (key_ids + 1) * self._width)
        return np.where(end - first == 1, self._of_key(first, key_ids), -1)

    def _of_key(self, at: Array, key_ids: Array) -> Array:
        if not len(self._rows):
            return np.full(len(key_ids), -1, dtype=np.int64)
        inside = np.clip(at, 0, len(self._rows) - 1)
        right = (at == inside) & (self._places[inside] // self._width == key_ids)
        found: Array = np.where(right, self._rows[inside], -1)
        return found


def _succeeded(trace: Trace, unseen: pd.DataFrame) -> Array:
    """Return which rows of `TaskSlots` made a result; traces that tell no state hold no others."""
    state = trace.tasks["state"]
    seen = (state.isna() | (state == "memory")).to_numpy(dtype=bool)
    if not len(unseen):
        return seen
    return np.append(seen, (unseen["scheduler_state"] == "memory").to_numpy(dtype=bool))


def _scheduler_told(trace: Trace) -> bool:
    return "sent" in trace.tasks
