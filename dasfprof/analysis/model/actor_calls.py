"""When workers had calls of actors to answer."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.run import Run, once_per_run
from dasfprof.analysis.model.times import to_ticks
from dasfprof.database.columns import Array


@once_per_run
def call_spans(run: Run) -> tuple[Array, Array]:
    """Return when each call arrived at its worker and when it was answered.

    In seconds from the trace's begin, by the scheduler's clock; calls without times are left out.
    """
    calls = run.trace.actor_calls
    start = run.at(calls, "start")
    stop = start + calls["duration"].to_numpy(dtype=float)
    known = np.isfinite(start) & np.isfinite(stop)
    return to_ticks(start[known]), to_ticks(stop[known])
