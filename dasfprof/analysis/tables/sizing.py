"""How large a cluster, and how large the chunks should be, by what was measured."""

from __future__ import annotations

import os
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
from dasfprof.analysis.simulation.changes import changed_cluster
from dasfprof.analysis.simulation.memory import memory_forecast_of
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.tables.cluster_choice import (
    SPILLS,
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
    memory: bool = False,
    memory_limit: float | None = None,
    price: Prices | None = None,
    start_up: float | str = 0.0,
    history: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
) -> pd.DataFrame:
    """Find how many workers a wanted duration needs, or which cluster meets a deadline for least.

    Parameters
    ----------
    durations
        Seconds; None asks about the recorded duration, its double, half, quarter and eighth.
    deadline
        Seconds, or a text such as ``"10 minutes"``, from asking for the cluster to the end. The
        answer is then another table, of replays: see below.
    threads_per_worker
        None takes the recorded number, the median over workers.
    memory
        Whether to foretell what each worker needs; takes some replays a row.
    memory_limit
        Bytes that a worker may take, beyond which results go to disk; None: as recorded.
    price
        What a worker costs for an hour. With a deadline also a table of the machines that can be
        had, a DataFrame, a list of dicts or the path of a CSV file, with a row a kind: ``name``,
        ``threads`` (or ``cores``) and ``price`` for an hour, and, where known, ``memory`` (bytes,
        or a text such as ``"16 GiB"``), ``workers`` of a machine (else as many as give each the
        recorded threads) and ``speed`` (2: its threads are twice as fast as recorded).
    start_up
        Seconds until workers are there, with a deadline: paid, and part of the time.
    history
        Other runs of the same program on other numbers of threads, with a deadline: traces, or
        their directory. Then functions take the more or less time that these lead to expect.

    Returns
    -------
    DataFrame
        With a deadline, a row a cluster that was replayed, of 1 to 200 workers: those that meet it,
        the cheapest first, then others, the soonest first:

        - ``Kind``, ``Machines``, ``Workers``, ``Threads per Worker``
        - ``Start-up (s)``: with what the client took before its first graph; ``Likely (s)``: from
          asking for the cluster to the end; ``At Most (s)``: what nine of ten runs stay below
        - ``Idle (%)`` of the threads' time; ``Cost``, ``Cost of Idle``
        - ``Memory per Worker (MB)``: a limit with which the fullest spills nothing; NA: not
          foretold, or not looked at, as it is too late
        - ``Verdict``, or why nothing can be predicted

        Without, a row a duration:

        - ``Wanted Duration (s)``
        - ``Threads at Least``: fewer cannot work the tasks off in time; ``Threads Enough``:
          so many will, whatever the order, if nothing but tasks takes time. NA: no number
          will, as the longest chain of dependent tasks takes longer
        - ``Threads per Worker``, ``Workers at Least``, ``Workers Enough``
        - ``Workers Fed as Seen``: at the highest rate of tasks that this scheduler held for a
          second; ``Workers Fed by Documentation``: at 1 ms a task, as Dask's says. Less than 1:
          not even one worker's threads
        - With ``memory``: ``Memory per Worker (MB)``, a limit with which the fullest of the workers
          at least would spill nothing, as Dask spills from 60 % of it on; ``Disk per Worker (MB)``,
          what it would spill at most with the ``memory_limit``. NA: see `memory_forecast` for why
        - With a price: ``Cost at Least`` and ``Cost Enough``, of the workers for that duration
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
    between the last that is late and the first that is in time by halves. At most it takes 6 %
    more than is likely, half of what the calibration misses by, or what nine of ten runs of the
    history stay below, whichever is most. By the history, the logarithm of a function's mean
    seconds is a line of the logarithm of the threads, if its slope is twice its standard error.
    """
    _check(durations, threads_per_worker)
    limit = recorded_or_given_limit(run, memory_limit)
    if deadline is not None:
        if isinstance(price, int | float):
            _check_price(price)
        return clusters_in_time(
            run,
            deadline,
            price=price,
            threads_per_worker=threads_per_worker or _threads_per_worker(run),
            memory_limit=limit,
            start_up=start_up,
            history=history,
        )
    if price is not None and not isinstance(price, int | float):
        raise InvalidArgumentError("price: a table of machines is for a deadline; give one.")
    _check_price(price)
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
    workers, workers_enough = np.ceil(least / each), np.ceil(enough / each)
    hours = wanted / 3600
    return pd.DataFrame(
        {
            "Wanted Duration (s)": wanted,
            "Threads at Least": whole(least),
            "Threads Enough": whole(enough),
            "Threads per Worker": np.full(len(wanted), each),
            "Workers at Least": whole(workers),
            "Workers Enough": whole(workers_enough),
            "Workers Fed as Seen": np.full(len(wanted), fed[0]),
            "Workers Fed by Documentation": np.full(len(wanted), fed[1]),
            **(_memory(run, workers, each, limit) if memory else {}),
            **(
                {}
                if price is None
                else {
                    "Cost at Least": workers * hours * price,
                    "Cost Enough": workers_enough * hours * price,
                }
            ),
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
        - ``Time Grows by Power``: of the chunk's size, as recorded; NA where sizes do not tell,
          and time is taken to grow in proportion

    Notes
    -----
    Overhead of o seconds a task is a share s of it if the function takes ``o (1 - s) / s``; the
    guide's figures, 0.05 s and 0.5 %, give its 10 s. That the scheduler can feed P threads at
    ``rate`` tasks a second, a task must take ``P / rate``.
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
            "Time Grows by Power": found.power,
        }
    )
    return table.take(found.order).reset_index(drop=True)


def _memory(run: Run, workers: Array, threads: int, limit: float) -> dict[str, Array]:
    """Foretell what the fullest of so many workers needs, in memory and with a limit on disk."""
    replay, forecast = replay_of(run), memory_forecast_of(run)
    most = np.full(len(workers), np.nan)
    if not forecast.obstacle:
        for count in np.unique(workers[np.isfinite(workers)]).astype(int).tolist():
            cluster = changed_cluster(replay, count, threads)
            most[workers == count] = forecast.peaks(cluster).process.most
    return {
        "Memory per Worker (MB)": most / SPILLS / 1e6,
        "Disk per Worker (MB)": np.maximum(most - SPILLS * limit, 0.0) / 1e6,
    }


def _wall(times: TaskTimes) -> float:
    """Return the seconds from the first task's arrival to the last one's end."""
    if not len(times):
        return 0.0
    return float(np.nanmax(times.known) - np.nanmin(times.arrival))


def _threads_per_worker(run: Run) -> int:
    """Return the usual number of threads of a worker; 1 where no file tells."""
    counts = known_threads(run)
    return max(int(np.median(counts)), 1) if len(counts) else 1


def _check_price(price: float | None) -> None:
    """Refuse what is no price of a worker for an hour."""
    if price is not None and not (isinstance(price, int | float) and 0 <= price < np.inf):
        raise InvalidArgumentError(f"price={price!r}: give what a worker costs for an hour.")


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
