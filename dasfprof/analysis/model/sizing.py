"""What sizes rest on: overhead of tasks, rate of the scheduler, longest chain of tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.chunks import find_chunks
from dasfprof.analysis.model.links import dependency_rows
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.times import TaskTimes
from dasfprof.analysis.run.workers import known_thread_counts, workers_with_tasks
from dasfprof.database.columns import Array

#: Tasks a second that Dask's scheduler handles by its documentation: one takes it a millisecond.
DOCUMENTED_RATE = 1000.0

#: The least power of its chunks' size by which the time of a function is taken to grow.
_SLOWEST = 0.5


@dataclass(frozen=True)
class ChunkCosts:
    """What the tasks of each function cost, and how large they should be."""

    functions: Array
    #: Runs that ended in memory, their mean seconds, and the median of what each costs besides.
    runs: Array
    duration: Array
    overhead: Array
    #: Seconds that a task should take; by how much chunks should be larger for that, and how many
    #: runs there would be then.
    wanted: Array
    times_larger: Array
    runs_then: Array
    #: Whether that is for the scheduler to keep up, not for the share of overhead.
    for_the_scheduler: Array
    #: Bytes, and the power of them by which the time grows (NaN: recorded sizes do not tell).
    chunk: Array
    power: Array
    #: The threads of the run, NaN where no file tells.
    threads: float
    #: The functions with runs, that with the most overhead first.
    order: Array


@np.errstate(over="ignore", invalid="ignore")
def chunk_costs(trace: Run, overhead: float) -> ChunkCosts:
    """Find what tasks cost, and how large they should be for overhead to be a share of the time.

    Overhead of o seconds a task is a share s of it if the function takes ``o (1 - s) / s``; the
    guide's figures, 0.05 s and 0.5 %, give its 10 s. That the scheduler can feed P threads at
    ``rate`` tasks a second, a task must take ``P / rate``. The time of a function grows with
    its chunks as recorded ones show, or in proportion where they do not tell. No chunk is larger
    than all that a step of the graph has.
    """
    tasks = trace.tasks.loc[trace.tasks["state"].isin(["memory"]).to_numpy()]
    function = tasks["function"].cat
    groups = Groups(function.codes.to_numpy(), len(function.categories))
    duration = groups.mean(tasks["duration"].to_numpy())
    cost = groups.median(task_overhead(trace)[tasks.index.to_numpy()])
    count = _all_threads(trace)
    rate = np.fmax(highest_rate(trace.recorded), DOCUMENTED_RATE)
    by_share, by_rate = cost * (1 - overhead) / overhead, np.full(groups.count, count / rate)
    wanted = np.where(np.isnan(cost), np.nan, np.fmax(by_share, by_rate))
    chunks = find_chunks(trace)
    growth = np.where(np.isnan(chunks.power), 1.0, np.maximum(chunks.power, _SLOWEST))
    times = np.maximum(ratio(wanted, duration), 1.0) ** (1 / growth)
    times = np.minimum(times, np.maximum(chunks.width, 1))
    order = np.argsort(-groups.sum(np.nan_to_num(cost)[groups.codes]), kind="stable")
    return ChunkCosts(
        functions=function.categories.to_numpy(dtype=object),
        runs=groups.sizes,
        duration=duration,
        overhead=cost,
        wanted=wanted,
        times_larger=times,
        runs_then=np.ceil(rounded(ratio(groups.sizes.astype(float), times))),
        for_the_scheduler=by_rate > by_share,
        chunk=chunks.size,
        power=chunks.power,
        threads=count,
        order=order[groups.sizes[order] > 0],
    )


def task_overhead(trace: Run) -> Array:
    """Measure the overhead of each task run: seconds of its thread, NaN where no file tells.

    It is the time from being given the thread until the worker knew the outcome, less the
    function, unspilling and deserialising, which grow with the data; and the time for which the
    thread had stood idle before, though the task was runnable, less the wait for its inputs. Of a
    coroutine, which has no thread, that second part is unknown, and left out.
    """
    recorded, times, tasks = trace.recorded, trace.times, trace.tasks
    moved = tasks["disk_read"].to_numpy(dtype=float) + tasks["deserialize"].to_numpy(dtype=float)
    free = _thread_free_since(tasks, times.executing, times.done)
    with np.errstate(invalid="ignore"):
        held = times.done - times.executing - (times.stop - times.start) - np.nan_to_num(moved)
        idle = times.executing - np.maximum(free, times.runnable) - (times.ready - times.received)
    told = np.isfinite(recorded["executing"]) & np.isfinite(recorded["done"])
    overhead = np.maximum(held, 0.0) + np.maximum(np.nan_to_num(idle), 0.0)
    return np.where(told, overhead, np.nan)


def _thread_free_since(tasks: pd.DataFrame, executing: Array, done: Array) -> Array:
    """Return when the thread of each run had done the one before it; NaN where there is none."""
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


def longest_chain(trace: Run, seconds: Array) -> float:
    """Sum the seconds of the chain of dependent runs that takes the most: no run is shorter.

    Parameters
    ----------
    trace
        The trace.
    seconds
        What each run of `Trace.tasks` took.
    """
    rows, producers = dependency_rows(trace)
    seen = producers < len(seconds)
    rows, producers = rows[seen], producers[seen]
    # What is taken ends before what takes it, so this is an order of the graph.
    order = np.argsort(trace.times.stop[rows], kind="stable")
    before, own = [0.0] * len(seconds), seconds.tolist()
    for row, producer in zip(rows[order].tolist(), producers[order].tolist(), strict=True):
        chain = before[producer] + own[producer]
        if chain > before[row]:  # noqa: PLR1730  (max() takes twice as long)
            before[row] = chain
    return float((np.array(before) + seconds).max(initial=0.0))


def highest_rate(recorded: dict[str, Array]) -> float:
    """Return the most tasks a second that the run finished, held for a second; NaN without tasks.

    The scheduler has shown to be able to handle so many; it may be able to handle more. In a run
    shorter than a second it is the rate of the whole run.

    Parameters
    ----------
    recorded
        See `recorded_times`.
    """
    times = np.fmax(recorded["known"], recorded["stop"])
    times = np.sort(times[np.isfinite(times)])
    if len(times) < 2:
        return float("nan")
    span = times[-1] - times[0]
    if span < 1:
        return float(len(times) / span) if span > 0 else float("nan")
    within = np.searchsorted(times, times + 1.0) - np.arange(len(times))
    return float(within.max())


def thread_seconds(trace: Run, times: TaskTimes) -> Array:
    """Return for how long each task run held its thread."""
    tasks = trace.tasks
    with np.errstate(invalid="ignore"):
        held = np.fmax(times.done - times.executing, tasks["duration"].to_numpy())
    seceded = (tasks["seceded"] - tasks["executing"]).to_numpy(dtype=float)
    seconds: Array = np.nan_to_num(np.where(np.isfinite(seceded), seceded, held))
    return np.maximum(seconds, 0.0)


def known_threads(trace: Run) -> Array:
    """The number of threads of each worker of which a file tells it."""
    workers = trace.named
    counts = known_thread_counts(trace, workers)[
        workers_with_tasks(trace, workers, workers.numbers(trace.tasks))
    ]
    return counts[np.isfinite(counts)]


def _all_threads(trace: Run) -> float:
    """Return the number of the run's threads, NaN where no file tells."""
    counts = known_threads(trace)
    return float(counts.sum()) if len(counts) else float("nan")


def rounded(numbers: Array) -> Array:
    """Take away the noise of floating point, which would round 3.0000000001 up to 4."""
    result: Array = np.round(numbers, 9)
    return result
