"""What a task costs besides its function: the seconds of its thread that Dask takes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.task_times import ordered_times, recorded_times
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


def task_overhead(trace: Trace) -> Array:
    """Measure the overhead of each task run: seconds of its thread, NaN where no file tells.

    It is the time from being given the thread until the worker knew the outcome, less the
    function, unspilling and deserialising, which grow with the data; and the time for which the
    thread had stood idle before, though the task was runnable, less the wait for its inputs. Of a
    coroutine, which has no thread, that second part is unknown, and left out.
    """
    recorded, times, tasks = recorded_times(trace), ordered_times(trace), trace.tasks
    moved = tasks["disk_read"].to_numpy(dtype=float) + tasks["deserialize"].to_numpy(dtype=float)
    free = _thread_free_since(tasks, times.executing, times.done)
    with np.errstate(invalid="ignore"):
        held = times.done - times.executing - (times.stop - times.start) - np.nan_to_num(moved)
        idle = times.executing - np.maximum(free, times.runnable) - (times.ready - times.received)
    told = np.isfinite(recorded["executing"]) & np.isfinite(recorded["done"])
    overhead = np.maximum(held, 0.0) + np.maximum(np.nan_to_num(idle), 0.0)
    return np.where(told, overhead, np.nan)


def _thread_free_since(tasks: pd.DataFrame, executing: Array, done: Array) -> Array:
    """Give when the thread of each run had done the one before it; NaN where there is none."""
    threads = tasks["thread"].cat
    width = len(threads.categories) + 1
    lane = tasks["worker_id"].to_numpy(dtype=np.int64) * width + threads.codes.to_numpy()
    order = np.argsort(executing, kind="stable")
    order = order[np.argsort(lane[order], kind="stable")]
    after, before = order[1:], order[:-1]
    same = (lane[after] == lane[before]) & (threads.codes.to_numpy()[after] >= 0)
    free = np.full(len(tasks), np.nan)
    free[after[same]] = done[before[same]]
    return free
