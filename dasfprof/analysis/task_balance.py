"""How many tasks each worker has in memory over time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.named_workers import NamedWorkers
from dasfprof.analysis.trace import Trace

INTERVAL = "Time Interval (seconds from begin)"

#: In a longer run only the intervals in which a count changed are listed.
MAX_INTERVALS = 2_000_000


def per_worker_task_balance(trace: Trace) -> pd.DataFrame:
    """Count the tasks in memory at the end of each second; see `TraceAnalyser`."""
    workers, memory = NamedWorkers(trace), trace.managed_memory
    time, tasks = memory["time"].to_numpy(), memory["tasks"].to_numpy(dtype=float)
    known = np.isfinite(time) & np.isfinite(tasks)
    time, tasks, of_row = time[known], tasks[known], workers.numbers(memory)[known]
    if not len(time):
        return pd.DataFrame({INTERVAL: np.empty(0, dtype=np.int64)})
    # A microsecond is the least that clocks tell: 1001.1 - 1000.1 counts as one second.
    interval = np.floor(np.round(time - time.min(), 6)).astype(np.int64)
    listed = int(interval.max()) + 1
    shown = np.arange(listed) if listed <= MAX_INTERVALS else np.unique(interval)
    row = np.searchsorted(shown, interval)
    order = np.lexsort((time, of_row))
    column = np.unique(of_row)
    counts = np.full((len(shown), len(column)), np.nan)
    # Of several counts in one interval the last assignment, the latest in time, stays.
    counts[row[order], np.searchsorted(column, of_row[order])] = tasks[order]
    table = pd.DataFrame(counts, columns=pd.Index(np.array(workers.titles(), object)[column]))
    table = table.ffill().fillna(0.0).sort_index(axis=1)
    table.insert(0, INTERVAL, shown)
    return table
