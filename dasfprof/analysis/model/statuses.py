"""What each task run waited for and did, from its arrival until the scheduler knew its outcome."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.times import ordered_times, recorded_times
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: For each status the stages of `TaskTimes` between which a task run has it.
STATUSES = {
    "Not started": (("arrival", "runnable"),),
    "Inqueue": (("runnable", "sent"), ("sent", "received"), ("ready", "executing")),
    "Preparing": (("received", "ready"), ("executing", "start")),
    "Running": (("start", "stop"),),
    "Finalizing": (("stop", "done"), ("done", "known")),
}


@once_per_trace
def status_seconds(trace: Trace) -> dict[str, Array]:
    """Return the seconds that each task run had each status, which sum to ``known - arrival``.

    A status of which nothing is known has NaN: its seconds are in the status before it.
    """
    recorded, times = recorded_times(trace), ordered_times(trace)
    seconds = {}
    for name, spans in STATUSES.items():
        length = np.zeros(len(times))
        told = np.isfinite(recorded[spans[0][0]]) & np.isfinite(recorded[spans[-1][1]])
        for begin, end in spans:
            length += getattr(times, end) - getattr(times, begin)
            told |= np.isfinite(recorded[begin]) & np.isfinite(recorded[end])
        seconds[name] = np.where(told | (length > 0), length, np.nan)
    return seconds
