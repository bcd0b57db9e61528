"""What sizes rest on: the overhead of each task, and the longest chain of dependent tasks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.times import ordered_times, recorded_times
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
    of_thread = tasks["worker_id"].to_numpy(dtype=np.int64) * width + threads.codes.to_numpy()
    order = np.argsort(executing, kind="stable")
    order = order[np.argsort(of_thread[order], kind="stable")]
    after, before = order[1:], order[:-1]
    same = (of_thread[after] == of_thread[before]) & (threads.codes.to_numpy()[after] >= 0)
    free = np.full(len(tasks), np.nan)
    free[after[same]] = done[before[same]]
    return free


def longest_chain(trace: Trace, seconds: Array) -> float:
    """Sum the seconds of the chain of dependent tasks that takes the most: no run is shorter.

    Parameters
    ----------
    trace
        The trace.
    seconds
        What each run of `Trace.tasks` took; of a key's runs the last counts.
    """
    tasks = trace.tasks
    ends = tasks["start"].to_numpy() + tasks["duration"].to_numpy()
    # A dependency ends before what depends on it begins, so this order is one of the graph's.
    rows = np.argsort(ends, kind="stable")
    key_ids = tasks["key_id"].to_numpy()[rows]
    last = np.full(len(trace.keys), -1, dtype=np.int64)
    last[key_ids] = rows
    lasting = last[key_ids] == rows
    offsets, ids = trace.dependencies
    begins, dependencies = offsets.tolist(), ids.tolist()
    chains = [0.0] * len(trace.keys)
    for key, own in zip(key_ids[lasting].tolist(), seconds[rows[lasting]].tolist(), strict=True):
        longest = 0.0
        for at in range(begins[key], begins[key + 1]):
            chain = chains[dependencies[at]]
            if chain > longest:  # noqa: PLR1730  (max() takes twice as long)
                longest = chain
        chains[key] = longest + own
    return max(chains, default=0.0)
