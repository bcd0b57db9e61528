"""Chunk sizes of functions, the overhead of tasks, and the task rate of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, distinct, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import known_thread_counts, workers_with_tasks
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array
from dasfprof.database.keys import TUPLE


@dataclass(frozen=True)
class Chunks:
    """The chunks of each function, in arrays indexed by the function's code in `Trace.tasks`."""

    #: Mean bytes of a task run: its result, or the part of the inputs that only this task run uses,
    #: if that is larger.
    size: Array
    #: Maximum number of task runs in a graph layer. Chunks could be larger by at most this factor.
    width: Array
    #: Most frequent shape of the function's results, with the number of blocks in each dimension.
    #: None if the results are not arrays.
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]] | None]
    #: Whether the function's results are arrays or dataframes, which can have larger chunks.
    divisible: Array


@once_per_trace
def find_chunks(run: Run) -> Chunks:
    """Return the chunks of each function, computed from its successful task runs."""
    succeeded = (run.tasks["state"] == "memory").to_numpy(dtype=bool)
    runs = run.tasks[succeeded]
    function = runs["function"].cat
    groups = Groups(function.codes.to_numpy(), len(function.categories))
    size = runs["size"].to_numpy(dtype=float)
    given = runs["input_size"].to_numpy(dtype=float)
    chunk_size = np.fmax(given * _distinct_share(run, groups, succeeded)[groups.codes], size)
    codes, shapes = pd.factorize(runs["shape"].to_numpy(dtype=object))
    # Index of the shape of each task run's result, or -1 if the result is neither an array nor a
    # dataframe.
    is_shape = np.array([isinstance(shape, tuple) for shape in shapes] + [False], dtype=bool)
    shape = np.where(is_shape[codes], codes, -1)
    width, widest = _widths(run)
    are_arrays = runs["type"].astype(object).str.endswith("ndarray").fillna(value=False)
    usual = _usual_shapes(groups, np.where(are_arrays.to_numpy(bool), shape, -1), shapes)
    return Chunks(
        groups.mean(chunk_size),
        width,
        [_in_blocks(run, *pair) for pair in zip(usual, widest.tolist(), strict=True)],
        groups.sum((shape >= 0).astype(float)) > groups.sizes / 2,
    )


def larger_shape(shape: tuple[int, ...], blocks: tuple[int, ...], factor: float) -> tuple[int, ...]:
    """Return the shape of a chunk with `factor` times as many elements.

    A chunk cannot become larger than the array. `blocks` is the number of chunks in each dimension.
    """
    grown = list(shape)
    open_ = sorted((at for at in range(len(shape)) if blocks[at] > 1), key=lambda at: blocks[at])
    for left, at in zip(range(len(open_), 0, -1), open_, strict=True):
        times = min(factor ** (1 / left), float(blocks[at]))
        grown[at] = max(round(shape[at] * times), 1)
        factor /= times
    return tuple(grown)


def _distinct_share(run: Run, groups: Groups, succeeded: Array) -> Array:
    """Return, for each function, the number of distinct inputs divided by the number of all inputs.

    An input that several task runs share counts as one distinct input. The result is 1 for a
    function without inputs.
    """
    lengths, items = run.task_dependencies
    row = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    index = np.full(len(lengths), -1, dtype=np.int64)
    index[succeeded] = groups.codes
    inside = index[row] >= 0
    codes, key_ids = index[row[inside]], items[inside].astype(np.int64)
    pairs = distinct(codes * (len(run.keys) + 1) + key_ids)
    # Task runs may share inputs. Only the first use of each input counts.
    different = np.bincount(pairs // (len(run.keys) + 1), minlength=groups.count)
    return np.nan_to_num(ratio(different, np.bincount(codes, minlength=groups.count)), nan=1.0)


def _widths(run: Run) -> tuple[Array, Array]:
    """Return the number of keys in each function's largest layer, and the id of the keys' head.

    The head is what all tuple keys of a layer have in common. Its id is -1 if keys are not tuples.
    """
    tasks, keys = run.tasks, run.keys
    pairs = pd.DataFrame(
        {"function": tasks["function"].cat.codes.to_numpy(), "key": tasks["key_id"].to_numpy()}
    ).drop_duplicates()
    key_ids = pairs["key"].to_numpy()
    pairs["head"] = np.where(keys.are_tuples(key_ids), keys.head_ids[key_ids], -1)
    counts = pairs.groupby(["function", "head"]).size().reset_index(name="keys")
    counts = counts.sort_values("keys", kind="stable").drop_duplicates("function", keep="last")
    width = np.zeros(len(tasks["function"].cat.categories), dtype=np.int64)
    widest = np.full(len(width), -1, dtype=np.int64)
    width[counts["function"]], widest[counts["function"]] = counts["keys"], counts["head"]
    return width, widest


def _usual_shapes(groups: Groups, codes: Array, shapes: Array) -> list[tuple[int, ...] | None]:
    """Return the most frequent shape in each group, or None if the group has no shapes."""
    usual: list[tuple[int, ...] | None] = []
    for rows in np.split(codes[groups.order], groups.begins[1:-1])[: groups.count]:
        counts = np.bincount(rows[rows >= 0])
        usual.append(shapes[int(counts.argmax())] if len(counts) else None)
    return usual


def _in_blocks(
    run: Run, shape: tuple[int, ...] | None, head: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return `shape` and the number of blocks in each dimension, or None if either is unknown.

    `head` is the id of the head of a layer's keys.
    """
    if shape is None or head < 0:
        return None
    if run.keys.heads[head][0] - TUPLE != len(shape):  # The key does not contain block numbers.
        return None
    tails = run.keys.tails[run.keys.head_ids == head][:, : len(shape)]
    return shape, tuple((tails.max(axis=0) + 1).tolist())


#: Tasks per second that the scheduler can handle according to Dask's documentation, which states
#: about 1 ms per task.
DOCUMENTED_RATE = 1000.0


def chunk_costs(run: Run, overhead: float) -> pd.DataFrame:
    """Return the overhead of tasks, and larger chunks that reduce it.

    `overhead` is the fraction of the time that the overhead should take with larger chunks.

    Returns
    -------
    DataFrame
        One row per function with successful task runs, sorted by total overhead in descending
        order. The index is the code of the function:

        - ``function``
        - ``runs``: number of successful task runs
        - ``duration``: mean seconds of the function per task run
        - ``overhead``: median of the seconds that `task_overhead` returns
        - ``wanted``: suggested seconds per task
        - ``times_larger``: ratio of the suggested to the recorded chunk size
        - ``runs_then``: number of task runs with chunks of the suggested size
        - ``by_rate``: whether ``wanted`` results from the scheduler's rate (and not from the
          overhead)
        - ``chunk``: bytes of a recorded chunk
        - ``of_each_thread``: ``runs`` divided by the number of threads of all workers, or NaN if
          unknown
    """
    tasks = run.tasks.loc[(run.tasks["state"] == "memory").to_numpy(dtype=bool)]
    function = tasks["function"].cat
    groups = Groups(function.codes.to_numpy(), len(function.categories))
    duration = groups.mean(tasks["duration"].to_numpy())
    cost = groups.median(task_overhead(run)[tasks.index.to_numpy()])
    workers = run.named
    counts = known_thread_counts(run, workers)[
        workers_with_tasks(run, workers, workers.numbers(run.tasks))
    ]
    threads = float(pd.Series(counts, dtype=float).sum(min_count=1))
    rate = np.fmax(highest_rate(run), DOCUMENTED_RATE)
    # An overhead of o seconds per task is at most the fraction s of the time if the function takes
    # at least o (1 - s) / s seconds. For example, if an overhead of 0.05 s should be 0.5 % of the
    # time, a task should take about 10 s. A scheduler that handles `rate` tasks per second can only
    # keep P threads busy if tasks take at least P / rate seconds.
    by_share, by_rate = cost * (1 - overhead) / overhead, np.full(groups.count, threads / rate)
    wanted = np.where(np.isnan(cost), np.nan, np.fmax(by_share, by_rate))
    chunks = find_chunks(run)
    # The duration of a function is assumed to be proportional to its chunk size. A chunk cannot be
    # larger than all chunks of its layer together.
    times = np.maximum(ratio(wanted, duration), 1.0)
    times = np.minimum(times, np.maximum(chunks.width, 1))
    order = np.argsort(-groups.sum(np.nan_to_num(cost)[groups.codes]), kind="stable")
    table = pd.DataFrame(
        {
            "function": pd.Series(function.categories, dtype=object),
            "runs": groups.sizes,
            "duration": duration,
            "overhead": cost,
            "wanted": wanted,
            "times_larger": times,
            # Without rounding, an inexact 3.0000000001 would become 4.
            "runs_then": np.ceil(np.round(ratio(groups.sizes.astype(float), times), 9)),
            "by_rate": by_rate > by_share,
            "chunk": chunks.size,
            "of_each_thread": groups.sizes / threads,
        }
    )
    return table.take(order[groups.sizes[order] > 0])


@once_per_trace
def task_overhead(run: Run) -> Array:
    """Return the overhead of each of `Run.task_runs` in thread-seconds, or NaN if unknown.

    It consists of the time for which the thread was idle although the task was runnable, and of the
    time to handle the task. It excludes the function, unspilling, deserializing, and the wait for
    inputs.
    """
    recorded, times, tasks = run.recorded, run.times, run.task_runs
    # The durations of unspilling and deserializing depend on the data.
    moved = tasks["disk_read"].to_numpy(dtype=float) + tasks["deserialize"].to_numpy(dtype=float)
    free = _thread_free_since(tasks, times.executing, times.done)
    held = times.done - times.executing - (times.stop - times.start) - np.nan_to_num(moved)
    # A coroutine has no thread, so its idle time is unknown and counts as 0.
    idle = times.executing - np.maximum(free, times.runnable) - (times.ready - times.received)
    known = np.isfinite(recorded["executing"]) & np.isfinite(recorded["done"])
    return np.where(known, np.maximum(held, 0.0) + np.maximum(np.nan_to_num(idle), 0.0), np.nan)


def _thread_free_since(tasks: pd.DataFrame, executing: Array, done: Array) -> Array:
    """Return when the thread of each task run finished its previous one, or NaN for the first."""
    threads = tasks["thread"].cat.codes
    times = pd.DataFrame({"worker": tasks["worker_id"], "thread": threads, "done": done})
    order = np.argsort(executing, kind="stable")
    before = times.iloc[order].groupby(["worker", "thread"])["done"].shift()
    return before.reindex(tasks.index).where(threads >= 0).to_numpy()


def highest_rate(run: Run) -> float:
    """Return the maximum number of tasks that finished within one second, or NaN if unknown."""
    times = np.fmax(run.recorded["known"], run.recorded["stop"])[: len(run.tasks)]
    times = np.sort(times[np.isfinite(times)])
    if len(times) < 2:
        return float("nan")
    span = times[-1] - times[0]
    if span < 1:
        # The run is shorter than a second, so the mean rate is used.
        return float(len(times) / span) if span > 0 else float("nan")
    # The scheduler can handle at least this rate.
    return float((np.searchsorted(times, times + 1.0) - np.arange(len(times))).max())
