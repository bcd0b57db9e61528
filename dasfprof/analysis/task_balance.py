"""How many tasks each worker has in memory over time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.named_workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

INTERVAL = "Time Interval (seconds from begin)"

#: In a longer run only the seconds in which something was counted are listed.
MAX_INTERVALS = 2_000_000


def per_worker_task_balance(trace: Trace) -> pd.DataFrame:
    """Count the tasks in memory at the end of each second; see `TraceAnalyser`."""
    workers, memory = NamedWorkers(trace), trace.managed_memory
    worker, time = workers.numbers(memory), memory["time"].to_numpy()
    tasks = memory["tasks"].to_numpy(dtype=float)
    known = np.isfinite(time) & np.isfinite(tasks)
    worker, time, tasks = worker[known], time[known], tasks[known]
    if not len(time):
        return pd.DataFrame({INTERVAL: np.empty(0, dtype=np.int64)})
    begin, last = time.min(), float(_seconds(time.max() - time.min()))
    columns = np.unique(worker)
    # A worker that left holds nothing. What all held as the run ended, and they left, is kept.
    left = trace.workers["left"].to_numpy()
    gone = np.flatnonzero((left >= begin) & (_seconds(left - begin) < last))
    gone = gone[np.isin(workers.of_lives[gone], columns)]
    worker = np.concatenate([worker, workers.of_lives[gone]])
    time, tasks = np.concatenate([time, left[gone]]), np.append(tasks, np.zeros(len(gone)))
    seconds = _seconds(time - begin).astype(np.int64)
    listed = np.arange(int(last) + 1) if last < MAX_INTERVALS else np.unique(seconds)
    # Of several counts in one second the last assignment stays: that of the latest.
    order = np.argsort(time, kind="stable")
    rows, places = np.searchsorted(listed, seconds), np.searchsorted(columns, worker)
    counts = np.full((len(listed), len(columns)), np.nan)
    counts[rows[order], places[order]] = tasks[order]
    titles = workers.titles()
    table = pd.DataFrame(counts, columns=pd.Index([titles[at] for at in columns], dtype=object))
    table = table.ffill().fillna(0.0).sort_index(axis=1)
    table.insert(0, INTERVAL, listed)
    return table


def _seconds(time: Array) -> Array:
    """Count whole seconds; clocks tell microseconds, so 128.2 - 127.2 is one."""
    return np.floor(np.round(time, 6))
