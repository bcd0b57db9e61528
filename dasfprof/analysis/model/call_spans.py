"""Time ranges in which workers executed actor calls, and functions outside of tasks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.task_runs import to_ticks
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


@once_per_trace
def call_spans(run: Run) -> tuple[Array, Array]:
    """Return when each actor call with known times arrived at its worker, and when it was answered.

    Times are seconds since the start of the run, by the scheduler's clock.
    """
    return _spans(run, run.actor_calls)


@once_per_trace
def function_spans(run: Run) -> tuple[Array, Array]:
    """Return when workers received requests for functions outside of tasks, and answered them.

    Times are as in `call_spans`.
    """
    return _spans(run, run.worker_functions)


def _spans(run: Run, calls: pd.DataFrame) -> tuple[Array, Array]:
    start = run.on_one_clock(calls["start"], calls["worker_id"])
    stop = start + calls["duration"].to_numpy(dtype=float)
    known = np.isfinite(start) & np.isfinite(stop)
    return to_ticks(start[known]), to_ticks(stop[known])
