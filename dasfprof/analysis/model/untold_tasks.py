"""Unfinished tasks of which no row tells: never sent, or of a scheduler that was killed."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.times import to_ticks
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: A step function: times, and the value from each on.
Steps = tuple[Array, Array]

NONE: Steps = (np.empty(0), np.empty(0, dtype=np.int64))


def untold_tasks(trace: Trace, arrival: Array, known: Array) -> Steps:
    """Count the unfinished tasks that the scheduler knew and of which no row tells.

    Parameters
    ----------
    trace
        The trace.
    arrival, known
        When the tasks of which rows tell came and ended: sorted seconds from the trace's begin.

    Returns
    -------
    times, counts
        What the scheduler counted from time to time less what rows tell of. Between two counts
        it is the lesser of them, from the arrival of a graph on.
    """
    states = trace.scheduler_states
    if not len(states):
        return _unsent(trace)
    at = to_ticks(states["time"].to_numpy(dtype=float) - trace.begin)
    told = np.searchsorted(arrival, at, side="right") - np.searchsorted(known, at, side="right")
    more = np.nan_to_num(states["unfinished"].to_numpy(dtype=float)).astype(np.int64)
    more = np.maximum(more - told, 0)
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


def _unsent(trace: Trace) -> Steps:
    """Count what an older scheduler's file says had not been sent when recording ended."""
    unsent = trace.unsent
    if not len(unsent):
        return NONE
    times = to_ticks(unsent["time"].to_numpy(dtype=float) - trace.begin)
    order = np.argsort(times, kind="stable")
    counts = np.cumsum(unsent["tasks"].to_numpy(dtype=float)[order]).astype(np.int64)
    return times[order], counts
