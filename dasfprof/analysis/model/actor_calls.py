"""When workers had calls of actors to answer."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.clock_offsets import clock_offsets
from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.times import to_ticks
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


@once_per_trace
def call_spans(trace: Trace) -> tuple[Array, Array]:
    """Return when each call arrived at its worker and when it was answered.

    In seconds from the trace's begin, by the scheduler's clock; calls without times are left out.
    """
    calls = trace.actor_calls
    start = calls["start"].to_numpy(dtype=float) - trace.begin
    start = start - clock_offsets(trace)[calls["worker_id"].to_numpy()]
    stop = start + calls["duration"].to_numpy(dtype=float)
    known = np.isfinite(start) & np.isfinite(stop)
    return to_ticks(start[known]), to_ticks(stop[known])
