"""How much later each task run could have ended without the run ending later."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.links import dependency_rows
from dasfprof.analysis.model.predecessors import Predecessors, last_slots
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.database.columns import Array


def find_slack(trace: Run, slots: TaskSlots, predecessors: Predecessors) -> Array:
    """Find the seconds that each run may end later, with every task on its worker in its order.

    A run may be late by as much as each that follows it can: the one that it bound not later than
    itself; another that used its result by what passed until that was sent, and by its wait for a
    thread; the next on its worker by what its thread idled before. This looks at one run being
    late at a time, and does not move tasks to other threads, which might gain more.
    """
    times = slots.times
    rows, binding, gaps = _edges(trace, slots, predecessors)
    right = predecessors.rank[binding] < predecessors.rank[rows]
    rows, binding, gaps = rows[right], binding[right], gaps[right]
    order = np.argsort(-predecessors.rank[rows], kind="stable")
    slack: list[float] = (times.known.max(initial=0.0) - times.known).tolist()
    # What follows is settled before what it follows, edge by edge: no whole column at a time.
    for row, before, gap in zip(
        rows[order].tolist(), binding[order].tolist(), gaps[order].tolist(), strict=True
    ):
        late = slack[row] + gap
        if late < slack[before]:  # noqa: PLR1730  (a call of min doubles the time of the loop)
            slack[before] = late
    return np.array(slack)


def _edges(trace: Run, slots: TaskSlots, predecessors: Predecessors) -> tuple[Array, Array, Array]:
    """Return pairs of a run and one that it follows, and by how much that may be late."""
    times = slots.times
    every = np.arange(len(slots.worker))
    bound = np.flatnonzero(predecessors.row >= 0)
    of_row, producers = dependency_rows(trace)
    # A run that began as soon as a thread was free can be ready later by its wait for that.
    waited = last_slots(slots, times.executing, times.ready) >= 0
    wait = np.where(waited, times.executing - times.ready, 0.0)
    known = np.minimum(times.known[producers], times.sent[of_row])
    early = times.sent[of_row] - known
    previous = last_slots(slots, times.executing, np.full(len(every), -np.inf))
    after = np.flatnonzero(previous >= 0)
    idle = times.executing[after] - slots.end[previous[after]]
    rows = np.concatenate([of_row, after])
    before = np.concatenate([producers, previous[after]])
    gaps = np.concatenate([early + wait[of_row], idle])
    # What binds a run leaves no gap, whatever else the two have to do with each other.
    more = predecessors.row[rows] != before
    return (
        np.concatenate([bound, rows[more]]),
        np.concatenate([predecessors.row[bound], before[more]]),
        np.concatenate([np.zeros(len(bound)), gaps[more]]),
    )
