"""Arrows between slices: from the task runs that made results to what took them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.links import ResultsByKey, find_links
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.formats.slices.tracks import Slices


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

    def __init__(self, trace: Trace, slices: Slices) -> None:
        self._links = find_links(trace)
        self._first = np.searchsorted(self._links.row, np.arange(len(trace.tasks) + 1))
        #: The task runs.
        self.slices = slices
        #: The slice of each row of `TaskSlots`, -1 where there is none; the last is that of row -1.
        self._numbers = np.full(len(trace.tasks) + len(trace.scheduler_only) + 1, -1)
        self._numbers[slices.rows] = np.arange(len(slices))
        state = trace.tasks["state"]
        made = np.flatnonzero((state.isna() | (state == "memory")).to_numpy()[slices.rows])
        keys = trace.tasks["key_id"].to_numpy()[slices.rows]
        self._results = ResultsByKey(keys, slices.stops, made, len(trace.keys))

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
