"""Tasks that the scheduler counts as processing on a worker that has nothing under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run_end import RunEnd
from dasfprof.analysis.trace import Trace

#: Seconds for which a worker must have had nothing under way, and for which it may be silent.
_LONG, _SILENT = 6.0, 3.0


def knows_nothing(trace: Trace, end: RunEnd, row: dict[str, Any], life: pd.Series | None) -> bool:
    """Return whether a live worker knew nothing of the tasks that the scheduler had sent to it.

    A worker tells what it has had under way for over a second. If it told of nothing for some
    seconds, though it wrote all the time and the scheduler counted the same tasks there, then it
    does not have them.

    Parameters
    ----------
    trace, end
        The trace, and the state of its scheduler at the end.
    row
        What that state says of the worker.
    life
        The worker's row in `Trace.workers`.
    """
    if life is None or end.state is None or any(n.kind == "missing-hook" for n in trace.notes):
        return False
    keys = set(row.get("keys") or ())
    quiet = row.get("status") == "running" and keys and not row.get("executing")
    heard = float(row.get("last_seen") or 0.0) >= float(end.state["time"]) - _SILENT
    if not (quiet and heard and float(life["last_seen"]) >= end.time - _SILENT):
        return False
    history = trace.under_way_history
    if len(history):
        own = trace.workers["address"].to_numpy(dtype=object)[history["worker_id"]]
        if (history["time"].to_numpy()[own == life["address"]] > end.time - _LONG).any():
            return False
        if np.isin(trace.under_way["worker_id"], np.flatnonzero(_at(trace, life))).any():
            return False
    return bool(keys & _kept_for_long(trace, end.time, str(row["worker"])))


def _at(trace: Trace, life: pd.Series) -> Any:
    return (trace.workers["address"] == life["address"]).to_numpy(dtype=bool)


def _kept_for_long(trace: Trace, time: float, address: str) -> set[str]:
    """Return the keys that were processing on a worker all the time: a state holds to the next."""
    states = trace.scheduler_states
    before = states[states["time"] <= time - _LONG]
    if not len(before):
        return set()
    rows = states[(states["time"] >= before["time"].iloc[-1]) & (states["time"] <= time)]
    kept: set[str] | None = None
    for workers in rows["workers"]:
        own = {
            str(key)
            for worker in workers or ()
            if worker.get("worker") == address
            for key in worker.get("keys") or ()
        }
        kept = own if kept is None else kept & own
    return kept or set()
