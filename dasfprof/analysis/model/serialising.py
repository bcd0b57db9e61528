"""What task runs took to be unpickled, and their results to be serialised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

_RUN = ["key_id", "run_id", "worker_id"]


@dataclass(frozen=True)
class Serialising:
    """Of each task run, a row of `Trace.tasks`; NaN where it was not recorded."""

    #: Seconds of unpickling its function and arguments on the worker that ran it.
    unpickling: Array
    #: Seconds of serialising its result there for all who asked.
    serialising: Array


def serialising_of(trace: Trace) -> Serialising:
    """Return what each task run took: 0 where that was too little to be told."""
    return Serialising(_sums(trace, trace.unpickled), _sums(trace, trace.serialised))


def _sums(trace: Trace, told: pd.DataFrame) -> Array:
    """Sum up the seconds that are told by task run."""
    tasks = trace.tasks
    sums = np.full(len(tasks), 0.0 if trace.knows_serialising else np.nan)
    if not len(told):
        return sums
    rows = np.flatnonzero(np.isin(tasks["key_id"].to_numpy(), told["key_id"].to_numpy()))
    runs = tasks[_RUN].iloc[rows].assign(row=rows).drop_duplicates(_RUN)
    found = runs.merge(told[[*_RUN, "seconds"]], on=_RUN)
    at = found["row"].to_numpy(dtype=np.int64)
    sums[at] = np.nan_to_num(sums[at])
    np.add.at(sums, at, found["seconds"].to_numpy(dtype=float))
    return sums
