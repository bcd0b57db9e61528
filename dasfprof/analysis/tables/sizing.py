"""How large a cluster, and how large the chunks should be, by what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.sizing import (
    DOCUMENTED_RATE,
    chunk_costs,
    highest_rate,
    known_threads,
    longest_chain,
    rounded,
    thread_seconds,
)
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.times import TaskTimes
from dasfprof.analysis.tables.cluster_choice import (
    Prices,
    clusters_in_time,
    recorded_or_given_limit,
)
from dasfprof.analysis.tables.columns import text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

#: Durations that are asked about if none are given, by the recorded one.
_USUAL = (2.0, 1.0, 0.5, 0.25, 0.125)


@question("How many workers a wanted duration needs", "balance")
@np.errstate(over="ignore", invalid="ignore")  # of times beyond any clock
def cluster_sizing(
    run: Run,
    durations: Sequence[float] | None = None,
    *,
    deadline: float | str | None = None,
    threads_per_worker: int | None = None,
    memory_limit: float | None = None,
    price: Prices | None = None,
    start_up: float | str = 0.0,
) -> pd.DataFrame:
    """Find how many workers a wanted duration needs, or which cluster meets a deadline for least.

    Parameters
    ----------
    durations
        Seconds. None: the recorded duration, its double, half, quarter and eighth.
    deadline
        Seconds, or a text such as ``"10 minutes"``, from requesting the cluster to the end. The
        answer is then another table, of replays: see below.
    threads_per_worker
        None: the recorded number, the median over workers.
    memory_limit
        With a deadline: bytes that a worker may take. None: as recorded.
    price
        With a deadline: the price of a worker for an hour; or a table of machine types (a
        DataFrame, a list of dicts or the path of a CSV file), with the columns ``name``,
        ``threads`` (or ``cores``) and ``price`` for an hour, and, where known, ``memory`` (bytes,
        or a text such as ``"16 GiB"``), ``workers`` of a machine (default: as many as give each the
        recorded threads) and ``speed`` (2: its threads are twice as fast as recorded).
    start_up
        With a deadline: seconds until workers are there. They are paid, and part of the time.

    Returns
    -------
    DataFrame
        With a deadline, one row per cluster of 1 to 200 workers that was replayed: those that meet
        the deadline, by cost, then others, by time:

        - ``Kind``, ``Machines``, ``Workers``, ``Threads per Worker``
        - ``Start-up (s)``: with what the client took before its first graph; ``Likely (s)``: from
          requesting the cluster to the end; ``At Most (s)``: nine of ten runs take less
        - ``Idle (%)`` of the thread time; ``Cost``, ``Cost of Idle``
        - ``Memory per Worker (MB)``: a limit with which the fullest spills nothing; NA: not
          predicted, or too late anyway
        - ``Verdict``, or why nothing can be predicted

        Without, one row per duration:

        - ``Wanted Duration (s)``
        - ``Threads at Least``: fewer cannot run the tasks in time; ``Threads Enough``: so many can,
          in any order, if nothing but tasks takes time. NA: no number can, as the longest chain of
          dependent tasks takes longer
        - ``Threads per Worker``, ``Workers at Least``, ``Workers Enough``
        - ``Workers Fed as Seen``: at the highest rate of tasks that this scheduler held for a
          second; ``Workers Fed by Documentation``: at 1 ms per task, as Dask documents. Less than
          1: not even one worker's threads
        - ``Verdict``

        Pauses of the client, transfers and start-up are not in these bounds.

    Notes
    -----
    With W the seconds of all task runs and C those of the longest chain of dependent ones, P
    threads take ``max(C, W/P) <= T <= C + (W - C) / P`` seconds, if nothing but tasks takes time
    (Graham 1969, Brent 1974). Solved for P that is ``W / T`` threads at the least, and
    ``(W - C) / (T - C)`` of them are enough. The first is the tuning guide's formula,
    ``processes = tasks * seconds a task / wanted duration`` (it is printed there without the
    number of tasks, and upside down). The scheduler can feed ``rate * seconds a task`` threads,
    as the guide has it too.

    With a deadline, the run is replayed (see `scaling`) on a ladder of numbers of workers, and
    between the last that is late and the first that is in time by halves. The cost is price times
    time. At most it takes 6 % more than is likely, or half of the calibration error, whichever is
    more.
    """
    _check(durations, threads_per_worker)
    if deadline is not None:
        if isinstance(price, int | float) and not 0 <= price < np.inf:
            raise InvalidArgumentError(
                f"price={price!r}: expected the price of a worker for an hour, 0 or more."
            )
        return clusters_in_time(
            run,
            deadline,
            price=price,
            threads_per_worker=threads_per_worker or _threads_per_worker(run),
            memory_limit=recorded_or_given_limit(run, memory_limit),
            start_up=start_up,
        )
    if price is not None or memory_limit is not None:
        raise InvalidArgumentError("price and memory_limit need a deadline: pass deadline= too.")
    recorded = run.recorded
    times = run.times
    seconds = thread_seconds(run, times)
    work, chain, wall = float(seconds.sum()), longest_chain(run, seconds), _wall(times)
    if durations is None:
        durations = [wall * times for times in _USUAL] if work > 0 and wall > 0 else []
    wanted = np.array(list(durations), dtype=float) if work > 0 else np.empty(0)
    each = threads_per_worker or _threads_per_worker(run)
    feasible = wanted > chain
    least = np.where(feasible, np.ceil(rounded(np.divide(work, wanted))), np.nan)
    enough = np.full(len(wanted), np.nan)
    np.divide(work - chain, wanted - chain, out=enough, where=feasible)
    enough = np.maximum(np.ceil(rounded(enough)), least)
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


@question("How large chunks should be", "balance")
@np.errstate(over="ignore", invalid="ignore")
def chunk_sizing(run: Run, overhead: float = 0.005) -> pd.DataFrame:
    """Find how large chunks should be, so that overhead takes a small share of the time.

    Parameters
    ----------
    overhead
        The share that is wanted.

    Returns
    -------
    DataFrame
        A row a function, that with the most overhead in all first:

        - ``Function``, ``Task Runs`` (those that ended in memory), ``Mean Task time (s)``
        - ``Overhead per Task (s)``: the median of the thread's seconds besides the function,
          unspilling and deserialising: idle though the task was runnable, and handling of the
          task; ``Overhead (%)``
        - ``Wanted Task time (s)``: for the wanted share, and for the scheduler to feed all
          threads of the run
        - ``Chunk Size (MB)``: the mean of its result or its share of the inputs, whichever is
          larger; ``Times Larger`` (1: large enough; at most as many times as a step of the graph
          has tasks of it), ``Wanted Chunk Size (MB)``, ``Task Runs Then``
        - ``Advice``

    Notes
    -----
    Overhead of o seconds a task is a share s of it if the function takes ``o (1 - s) / s``; the
    guide's figures, 0.05 s and 0.5 %, give its 10 s. That the scheduler can feed P threads at
    ``rate`` tasks a second, a task must take ``P / rate``. Time is taken to grow in proportion to
    the chunk.
    """
    if not 0 < overhead < 1:
        raise InvalidArgumentError(
            f"overhead={overhead!r}: give a share of the time, more than 0 and less than 1; 0.005 "
            "is 0.5 %."
        )
    found = chunk_costs(run, overhead)
    table = pd.DataFrame(
        {
            "Function": text(found.functions),
            "Task Runs": found.runs,
            "Mean Task time (s)": found.duration,
            "Overhead per Task (s)": found.overhead,
            "Overhead (%)": ratio(found.overhead, found.overhead + found.duration) * 100,
            "Wanted Task time (s)": found.wanted,
            "Chunk Size (MB)": found.chunk / 1e6,
            "Times Larger": found.times_larger,
            "Wanted Chunk Size (MB)": found.chunk / 1e6 * found.times_larger,
            "Task Runs Then": whole(found.runs_then),
            "Advice": pd.Series(
                _advice(found.times_larger, found.runs / found.threads, found.for_the_scheduler),
                dtype=object,
            ),
        }
    )
    return table.take(found.order).reset_index(drop=True)


def _wall(times: TaskTimes) -> float:
    """Return the seconds from the first task's arrival to the last one's end."""
    if not len(times):
        return 0.0
    return float(np.nanmax(times.known) - np.nanmin(times.arrival))


def _threads_per_worker(run: Run) -> int:
    """Return the usual number of threads of a worker; 1 where no file tells."""
    counts = known_threads(run)
    return max(int(np.median(counts)), 1) if len(counts) else 1


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
