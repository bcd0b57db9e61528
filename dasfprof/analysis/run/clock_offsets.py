"""How far each worker's clock is ahead of the scheduler's, told by what must come after what."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.analysis.run.run_end import stimulus_texts
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: How the stimulus id begins by which a worker tells of an error; the time of its clock follows.
_ERRED = "task-erred-"
#: Seconds: times are not told apart to the last of their digits.
_ROUNDED = 1e-4


@once_per_trace
def clock_offsets(trace: Trace) -> Array:
    """Find the seconds to take from each worker's times to put them on the scheduler's clock.

    A worker cannot receive a task before it was sent, nor finish it after the scheduler knew: the
    offset lies in ``[max(done - known), min(received - sent)]``, and its midpoint is taken.
    Workers of one boot share a clock; those of the scheduler's boot have its own. Where the trace
    tells one bound or none, the offset is the least that keeps the bound. A clock that drifts by
    more than messages take crosses the bounds; what remains is for the caller to clamp.

    Returns
    -------
    array
        Seconds, for each row of `Trace.workers`.
    """
    clocks, scheduler = _clocks(trace.workers)
    lower, upper = message_bounds(trace)
    with np.errstate(invalid="ignore"):
        middle = (lower + upper) / 2
    least = np.maximum(np.minimum(0.0, upper), lower)
    offsets = np.where(np.isfinite(middle), middle, least)
    offsets[scheduler] = 0.0
    whole: Array = offsets[clocks]
    return whole


@once_per_trace
def clock_errors(trace: Trace) -> Array:
    """Find by how many seconds each of `clock_offsets` may be wrong: half of its interval.

    0 for clocks that are the scheduler's own, infinite where the trace lacks a bound. Where the
    bounds cross, no constant offset fits, and half of what they cross by is told.

    Returns
    -------
    array
        Seconds, for each row of `Trace.workers`.
    """
    clocks, scheduler = _clocks(trace.workers)
    lower, upper = message_bounds(trace)
    errors = np.abs(upper - lower) / 2
    errors[scheduler] = 0.0
    whole: Array = errors[clocks]
    return whole


@once_per_trace
def message_bounds(trace: Trace) -> tuple[Array, Array]:
    """Return the least and the largest offset of each clock that messages allow."""
    clocks, _ = _clocks(trace.workers)
    lower, upper = np.full(len(trace.workers), -np.inf), np.full(len(trace.workers), np.inf)
    tasks = trace.tasks
    if "sent" in tasks:
        of_task = clocks[tasks["worker_id"].to_numpy()]
        sent = tasks["stolen"].fillna(tasks["sent"]).to_numpy()
        ended = ended_there(trace)
        _bound(np.minimum, upper, of_task, tasks["received"].to_numpy() - sent)
        known = tasks["known"].to_numpy()[ended]
        _bound(np.maximum, lower, of_task[ended], tasks["done"].to_numpy()[ended] - known)
    return lower, upper


@once_per_trace
def ended_there(trace: Trace) -> Array:
    """Return which of `Trace.tasks` ended as the scheduler heard of it from their worker.

    Otherwise ``known`` says when the scheduler gave a run up, which its worker may outlive.
    """
    tasks = trace.tasks
    reported: Array = tasks["scheduler_state"].isin(["memory", "erred"]).to_numpy().copy()
    # A failed attempt that is tried again is reported as well, and becomes "released".
    rows = np.flatnonzero((tasks["state"] == "erred") & (tasks["scheduler_state"] == "released"))
    reported[rows] = _told_of_its_error(trace, rows)
    return reported


def _told_of_its_error(trace: Trace, rows: Array) -> Array:
    """Return which failed runs ended by word of their own error.

    A task whose result nobody wants since another one failed ends by word of that one's.
    """
    runs = trace.tasks.iloc[rows]
    if "end_cause" not in runs:
        return np.ones(len(rows), dtype=bool)
    texts = stimulus_texts(trace, runs["end_cause"])
    said = np.array([_time_in(text) for text in texts], dtype=float)
    stop = (runs["start"] + runs["duration"]).to_numpy()
    own: Array = (said > stop - _ROUNDED) & (said < runs["done"].to_numpy() + _ROUNDED)
    return own


def _time_in(text: str) -> float:
    """Return the time of a stimulus of an error; NaN if it is another one."""
    try:
        return float(text.removeprefix(_ERRED)) if text.startswith(_ERRED) else np.nan
    except ValueError:
        return np.nan


def _clocks(workers: pd.DataFrame) -> tuple[Array, Array]:
    """Number the clock of each worker, and tell which of the numbers are the scheduler's."""
    boots = workers["boot_id"].where(workers["boot_id"].notna(), None).to_numpy(dtype=object)
    first: dict[object, int] = {}
    clocks = np.array(
        [row if boot is None else first.setdefault(boot, row) for row, boot in enumerate(boots)],
        dtype=np.int64,
    )
    return clocks, np.unique(clocks[(workers["kind"] == "scheduler").to_numpy()])


def _bound(ufunc: np.ufunc, bounds: Array, clocks: Array, distances: Array) -> None:
    known = np.isfinite(distances)
    ufunc.at(bounds, clocks[known], distances[known])
