"""When the event loops of workers were blocked, as far as samples tell."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.run import Run, once_per_run
from dasfprof.analysis.numeric.intervals import overlap, union
from dasfprof.database.columns import Array

#: Seconds from which a loop that is late is blocked: Dask's own handlers take less at a time.
_BLOCKED = 0.1


@once_per_run
def blocked_on_the_way(run: Run) -> Array:
    """Return for how long the loop of its worker was blocked while each run was on its way there.

    A row each of `TaskSlots`, in seconds; 0 where nothing tells.
    """
    slots = run.ended.slots
    found = np.zeros(len(slots.worker))
    memory = run.trace.managed_memory
    if "loop_lag" not in memory or not len(memory):
        return found
    lag, worker = memory["loop_lag"].to_numpy(dtype=float), memory["worker_id"].to_numpy()
    time = run.at(memory)
    late = lag >= _BLOCKED
    for number in np.unique(worker[late]).tolist():
        own = late & (worker == number)
        blocked = union(time[own] - lag[own], time[own])
        rows = np.flatnonzero((slots.worker == number) & ~slots.reception_unknown)
        found[rows] = overlap(slots.sent[rows], slots.times.received[rows], *blocked)
    return found
