"""How large a cluster, and how large the chunks should be, by what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.sizing import longest_chain, task_overhead
from dasfprof.analysis.model.times import TaskTimes, ordered_times, recorded_times
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.columns import text, whole
from dasfprof.analysis.tables.process_summary import threads, working
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

#: Tasks a second that Dask's scheduler handles by its documentation: one takes it a millisecond.
DOCUMENTED_RATE = 1000.0
#: Durations that are asked about if none are given, by the recorded one.
_USUAL = (2.0, 1.0, 0.5, 0.25, 0.125)


@np.errstate(over="ignore", invalid="ignore")  # of times beyond any clock
def cluster_sizing(
    trace: Trace, durations: Sequence[float] | None = None, threads_per_worker: int | None = None
) -> pd.DataFrame:
    """Find how many workers a wanted duration needs; see `TraceAnalyser`.

    With W the seconds of all task runs and C those of the longest chain of dependent ones, P
    threads take ``max(C, W/P) <= T <= C + (W - C) / P`` seconds, if nothing but tasks takes time
    (Graham 1969, Brent 1974). Solved for P that is ``W / T`` threads at the least, and
    ``(W - C) / (T - C)`` of them are enough. The first is the tuning guide's formula,
    ``processes = tasks * seconds a task / wanted duration`` (it is printed there without the
    number of tasks, and upside down). The scheduler can feed ``rate * seconds a task`` threads,
    as the guide has it too.
    """
    _check(durations, threads_per_worker)
    recorded = recorded_times(trace)
    times = ordered_times(trace)
    seconds = _thread_seconds(trace, times)
    work, chain, wall = float(seconds.sum()), longest_chain(trace, seconds), _wall(times)
    if durations is None:
        durations = [wall * times for times in _USUAL] if work > 0 and wall > 0 else []
    wanted = np.array(list(durations), dtype=float) if work > 0 else np.empty(0)
    each = threads_per_worker or _threads_per_worker(trace)
    feasible = wanted > chain
    least = np.where(feasible, np.ceil(_round(np.divide(work, wanted))), np.nan)
    enough = np.full(len(wanted), np.nan)
    np.divide(work - chain, wanted - chain, out=enough, where=feasible)
    enough = np.maximum(np.ceil(_round(enough)), least)
    rate = highest_rate(recorded)
    mean = work / max(len(seconds), 1)
    fed = np.array([rate, DOCUMENTED_RATE]) * mean / each
    workers = np.ceil(least / each)
    return pd.DataFrame(
        {
            "Wanted Duration (s)": wanted,
            "Threads at Least": whole(least),
            "Threads Enough": whole(enough),
            "Threads per Worker": np.full(len(wanted), each),
            "Workers at Least": whole(workers),
            "Workers Enough": whole(np.ceil(enough / each)),
            "Workers Fed as Seen": np.full(len(wanted), fed[0]),
            "Workers Fed by Documentation": np.full(len(wanted), fed[1]),
            "Verdict": pd.Series(_verdicts(workers, chain, np.nanmax(fed), rate), dtype=object),
        }
    )


@np.errstate(over="ignore", invalid="ignore")
def chunk_sizing(trace: Trace, overhead: float = 0.005) -> pd.DataFrame:
    """Find how large chunks should be for overhead to be small; see `TraceAnalyser`.

    Overhead of o seconds a task is a share s of it if the function takes ``o (1 - s) / s``; the
    guide's figures, 0.05 s and 0.5 %, give its 10 s. That the scheduler can feed P threads at
    ``rate`` tasks a second, a task must take ``P / rate``. The time of a function is taken to
    grow as its chunks do.
    """
    if not 0 < overhead < 1:
        raise InvalidArgumentError(
            f"overhead={overhead!r}: give a share of the time, more than 0 and less than 1; 0.005 "
            "is 0.5 %."
        )
    tasks = trace.tasks.loc[trace.tasks["state"].isin(["memory"]).to_numpy()]
    function = tasks["function"].cat
    groups = Groups(function.codes.to_numpy(), len(function.categories))
    duration = groups.mean(tasks["duration"].to_numpy())
    recorded = recorded_times(trace)
    cost = groups.median(task_overhead(trace)[tasks.index.to_numpy()])
    count = _all_threads(trace)
    rate = np.fmax(highest_rate(recorded), DOCUMENTED_RATE)
    by_share, by_rate = cost * (1 - overhead) / overhead, np.full(groups.count, count / rate)
    wanted = np.where(np.isnan(cost), np.nan, np.fmax(by_share, by_rate))
    times = np.maximum(ratio(wanted, duration), 1.0)
    size = np.fmax(tasks["input_size"].to_numpy(dtype=float), tasks["size"].to_numpy(dtype=float))
    left = np.ceil(_round(ratio(groups.sizes.astype(float), times)))
    table = pd.DataFrame(
        {
            "Function": text(function.categories.to_numpy(dtype=object)),
            "Task Runs": groups.sizes,
            "Mean Task time (s)": duration,
            "Overhead per Task (s)": cost,
            "Overhead (%)": ratio(cost, cost + duration) * 100,
            "Wanted Task time (s)": wanted,
            "Chunk Size (MB)": groups.mean(size) / 1e6,
            "Times Larger": times,
            "Wanted Chunk Size (MB)": groups.mean(size) / 1e6 * times,
            "Task Runs Then": whole(left),
            "Advice": pd.Series(
                _advice(times, groups.sizes / count, by_rate > by_share), dtype=object
            ),
        }
    )
    order = np.argsort(-groups.sum(np.nan_to_num(cost)[groups.codes]), kind="stable")
    return table.take(order[groups.sizes[order] > 0]).reset_index(drop=True)


def highest_rate(recorded: dict[str, Array]) -> float:
    """Give the most tasks a second that the run finished, held for a second; NaN without tasks.

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


def _thread_seconds(trace: Trace, times: TaskTimes) -> Array:
    """Give for how long each task run held its thread."""
    tasks = trace.tasks
    with np.errstate(invalid="ignore"):
        held = np.fmax(times.done - times.executing, tasks["duration"].to_numpy())
    seceded = (tasks["seceded"] - tasks["executing"]).to_numpy(dtype=float)
    seconds: Array = np.nan_to_num(np.where(np.isfinite(seceded), seceded, held))
    return np.maximum(seconds, 0.0)


def _wall(times: TaskTimes) -> float:
    """Give the seconds from the first task's arrival to the last one's end."""
    if not len(times):
        return 0.0
    return float(np.nanmax(times.known) - np.nanmin(times.arrival))


def _known_threads(trace: Trace) -> Array:
    workers = NamedWorkers(trace)
    counts = threads(trace, workers)[working(trace, workers, workers.numbers(trace.tasks))]
    return counts[np.isfinite(counts)]


def _threads_per_worker(trace: Trace) -> int:
    """Give the usual number of threads of a worker; 1 where no file tells."""
    counts = _known_threads(trace)
    return max(int(np.median(counts)), 1) if len(counts) else 1


def _all_threads(trace: Trace) -> float:
    """Give the number of the run's threads, NaN where no file tells."""
    counts = _known_threads(trace)
    return float(counts.sum()) if len(counts) else float("nan")


def _check(durations: Sequence[float] | None, threads_per_worker: int | None) -> None:
    for duration in durations or ():
        if not (np.isfinite(duration) and duration > 0):
            raise InvalidArgumentError(
                f"durations={durations!r}: give a list of seconds, each more than 0, or None for "
                "some around the recorded one."
            )
    if threads_per_worker is not None and threads_per_worker < 1:
        raise InvalidArgumentError(
            f"threads_per_worker={threads_per_worker!r}: give 1 or more, or None for as many as "
            "were recorded."
        )


def _verdicts(workers: Array, chain: float, fed: float, rate: float) -> list[str]:
    verdicts = []
    for least in workers.tolist():
        if np.isnan(least):
            verdict = (
                f"Not to be reached: the longest chain of dependent tasks takes {chain:.3g} s, "
                "however many threads there are. Shorten or split its tasks."
            )
        elif least > fed:
            verdict = (
                f"The scheduler may not keep up: it was seen to handle {rate:.0f} tasks a second. "
                "Make the tasks larger first: see chunk_sizing()."
            )
        else:
            verdict = "To be reached, if the client and transfers do not take the time."
        verdicts.append(verdict)
    return verdicts


def _advice(times: Array, of_each_thread: Array, by_rate: Array) -> list[str]:
    advice = []
    for larger, tasks, bound in zip(
        times.tolist(), of_each_thread.tolist(), by_rate.tolist(), strict=True
    ):
        if np.isnan(larger):
            words = "Unknown: no file tells what its tasks cost."
        elif larger <= 1:
            words = "Large enough."
        elif tasks <= 1:
            words = "Leave it: there are no more tasks than threads."
        elif tasks < larger:
            words = (
                f"Make chunks {tasks:.3g} times larger, no more: else there are fewer tasks than "
                "threads."
            )
        elif bound:
            words = f"Make chunks {larger:.3g} times larger, for the scheduler to feed all threads."
        else:
            words = f"Make chunks {larger:.3g} times larger, for overhead to be small."
        advice.append(words)
    return advice


def _round(numbers: Array) -> Array:
    """Take away the noise of floating point, which would round 3.0000000001 up to 4."""
    rounded: Array = np.round(numbers, 9)
    return rounded
