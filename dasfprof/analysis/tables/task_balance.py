"""How many tasks each worker has in memory over time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.in_parts import NO_PARTS
from dasfprof.analysis.tables.questions import question
from dasfprof.database.columns import Array

INTERVAL = "Time Interval (seconds from begin)"

#: In a longer run, or with more workers, only the seconds in which something was counted are
#: listed.
MAX_CELLS = 50_000_000

#: Rows that are counted at once: few enough to stay in the processor's cache.
_PART = 1 << 16


@question(
    "Tasks in memory on each worker, second by second",
    "time",
    short="balance",
    overview=6,
    page="balance",
    csv="task_balance",
    in_parts=NO_PARTS,
)
def per_worker_task_balance(run: Run) -> pd.DataFrame:
    """Count the tasks in memory on each worker over time.

    Returns
    -------
    DataFrame
        A row a second: ``Time Interval (seconds from begin)``, from the first count of the
        trace, and a column a worker with its number of tasks in memory at the end of that
        second, as last counted; 0 before its first count. Where two hosts have workers of
        one label, the columns are called by host and label.
    """
    workers, memory = run.workers, run.trace.managed_memory
    worker, time = workers.numbers(memory), memory["time"].to_numpy()
    tasks = memory["tasks"].to_numpy(dtype=float)
    known = np.isfinite(time) & np.isfinite(tasks)
    if not known.all():
        worker, time, tasks = worker[known], time[known], tasks[known]
    if not len(time):
        return pd.DataFrame({INTERVAL: np.empty(0, dtype=np.int64)})
    begin, last = time.min(), float(_seconds(time.max() - time.min()))
    columns = np.flatnonzero(np.bincount(worker))
    # A worker that left holds nothing. What all held as the run ended, and they left, is kept.
    left = run.trace.workers["left"].to_numpy()
    gone = np.flatnonzero((left >= begin) & (_seconds(left - begin) < last))
    gone = gone[np.isin(workers.of_lives[gone], columns)]
    if len(gone):
        worker = np.concatenate([worker, workers.of_lives[gone]])
        time, tasks = np.concatenate([time, left[gone]]), np.append(tasks, np.zeros(len(gone)))
    every = (last + 1) * len(columns) <= MAX_CELLS
    listed = np.arange(int(last) + 1) if every else np.unique(_seconds(time - begin))
    counts = np.full((len(listed), len(columns)), np.nan)
    place = np.zeros(len(workers), dtype=np.int64)
    place[columns] = np.arange(len(columns))
    for rows in _in_order(time):
        row = _seconds(time[rows] - begin)
        row = row.astype(np.int64) if every else np.searchsorted(listed, row)
        # Of several counts in one second the last assignment stays: that of the latest.
        counts[row, place[worker[rows]]] = tasks[rows]
    titles = workers.titles()
    table = pd.DataFrame(counts, columns=pd.Index([titles[at] for at in columns], dtype=object))
    table = table.ffill().fillna(0.0).sort_index(axis=1)
    table.insert(0, INTERVAL, listed.astype(np.int64))
    return table


def _in_order(time: Array) -> Iterator[slice | Array]:
    """Return the rows in the order of time, a part at a time."""
    starts = range(0, len(time), _PART)
    if (time[1:] >= time[:-1]).all():
        yield from (slice(start, start + _PART) for start in starts)
    else:
        order = np.argsort(time, kind="stable")
        yield from (order[start : start + _PART] for start in starts)


def _seconds(time: Array) -> Array:
    """Count whole seconds; clocks tell microseconds, so 128.2 - 127.2 is one."""
    return np.floor(np.round(time, 6))
