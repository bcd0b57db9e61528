"""`still_to_come`: what a run that goes on had left when its trace was read, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.live.counts import EndedRuns, TaskCounts, Unfinished
from dasfprof.analysis.live.estimates import describe
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.under_way import RecordingEnd


@dataclass(frozen=True)
class StillToCome:
    """What is left of a run that goes on."""

    #: Tasks that the scheduler knows of and that have not ended.
    tasks: int
    #: Seconds until they have, as `RunState.seconds_left` has it; None: nothing tells.
    seconds: float | None
    #: Those of them of functions of which no run has ended: they come on top.
    unknown: int


def still_to_come(trace: Trace) -> StillToCome | None:
    """Return what is left at the end of a trace; None if it has ended, or the scheduler was silent.

    As of a run that is followed (`LiveRun`): what is left of each function by the mean of its runs,
    at the pace of the last 30 s; no time where none has ended for long.
    """
    states, tasks = trace.scheduler_states, trace.tasks
    if trace.recording is not RecordingEnd.GOES_ON or not len(states):
        return None
    done = (tasks["state"] == "memory").to_numpy(dtype=bool)
    ended = np.flatnonzero(done | (tasks["state"] == "erred").to_numpy(dtype=bool))
    functions = tasks["function"].cat
    names, codes = [str(name) for name in functions.categories], functions.codes.to_numpy()[ended]
    begins, seconds = (tasks[name].to_numpy(dtype=float)[ended] for name in ("start", "duration"))
    counts, unfinished = TaskCounts(), Unfinished()
    rows = np.array([counts.number(None, name) for name in names], dtype=np.int64)
    if len(ended):
        counts.add(rows[codes], done[ended], begins, begins + seconds, seconds)
    last = states.iloc[-1]
    told = [(float(last["time"]), last["tasks"])]
    unfinished.take([EndedRuns(names, codes, begins + seconds)], told)
    state = describe(
        trace.run or "",
        trace.end,
        trace.end,
        goes_on=True,
        counts=counts,
        unfinished=unfinished,
        tasks_of_graphs=None,
        workers=[],
        long_tasks=[],
    )
    left = (state.on_workers or 0) + (state.waiting or 0)
    return StillToCome(left, state.seconds_left, state.unknown_tasks) if left else None
