"""Unfinished tasks of which no row tells: never sent, or of a scheduler that was killed."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.slots import task_slots, unfinished_runs
from dasfprof.analysis.model.times import to_ticks
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: A step function: times, and the value from each on.
Steps = tuple[Array, Array]

NONE: Steps = (np.empty(0), np.empty(0, dtype=np.int64))


@once_per_trace
def live_at_counts(trace: Trace) -> Array:
    """Count the tasks of which rows tell that had come and not ended when the scheduler counted."""
    at = _counted(trace)
    if not len(at):
        return np.empty(0, dtype=np.int64)
    times, more = task_slots(trace).times, unfinished_runs(trace)
    order = np.argsort(at, kind="stable")
    live = np.zeros(len(at), dtype=np.int64)
    for sign, some in (
        *((1, arrivals) for arrivals in (times.arrival, more.arrival)),
        *((-1, ends) for ends in (times.known, more.known)),
    ):
        passed = np.bincount(np.searchsorted(at[order], some), minlength=len(at) + 1)
        live[order] += sign * np.cumsum(passed[:-1])
    return live


def untold_tasks(trace: Trace) -> Steps:
    """Count the unfinished tasks that the scheduler knew and of which no row tells.

    Returns
    -------
    times, counts
        What the scheduler counted from time to time less what rows tell of. Between two counts
        it is the lesser of them, from the arrival of a graph on.
    """
    states = trace.scheduler_states
    if not len(states):
        return _unsent(trace)
    at = _counted(trace)
    more = np.nan_to_num(states["unfinished"].to_numpy(dtype=float)).astype(np.int64)
    more = np.maximum(more - live_at_counts(trace), 0)
    if not more.any():
        return NONE
    gone = states["occasion"].iloc[-1] == "client-left"
    held = np.minimum(more, np.append(more[1:], 0 if gone else more[-1]))
    # What is new at a count came with the last graph before it.
    graphs = np.append(-np.inf, np.sort(trace.graphs["time"].to_numpy(dtype=float) - trace.begin))
    came = to_ticks(graphs[np.searchsorted(graphs, at, side="right") - 1])
    came = np.where(came > np.append(-np.inf, at[:-1]), came, at)
    times = np.concatenate([came, at])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([more, held])[order]


def _counted(trace: Trace) -> Array:
    """Return when the scheduler counted its unfinished tasks."""
    states = trace.scheduler_states
    if not len(states):
        return np.empty(0)
    return to_ticks(states["time"].to_numpy(dtype=float) - trace.begin)


def _unsent(trace: Trace) -> Steps:
    """Count what an older scheduler's file says had not been sent when recording ended."""
    unsent = trace.unsent
    if not len(unsent):
        return NONE
    times = to_ticks(unsent["time"].to_numpy(dtype=float) - trace.begin)
    order = np.argsort(times, kind="stable")
    counts = np.cumsum(unsent["tasks"].to_numpy(dtype=float)[order]).astype(np.int64)
    return times[order], counts
