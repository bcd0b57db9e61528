"""How large a cluster, and how large the chunks should be, by what was measured."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from dask.utils import parse_bytes, parse_timedelta

from dasfprof.analysis.model.client_time import find_first_task
from dasfprof.analysis.model.run_memory import free_disk
from dasfprof.analysis.model.sizing import chunk_costs
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.memory_thresholds import memory_thresholds
from dasfprof.analysis.simulation.clusters import MachineType, SizedCluster, sized_clusters
from dasfprof.analysis.simulation.memory import memory_forecast_of
from dasfprof.analysis.simulation.replay import check_count, is_positive, replay_of
from dasfprof.analysis.tables.columns import text, whole
from dasfprof.analysis.tables.predictions import recorded_or_given_limit
from dasfprof.analysis.tables.questions import question
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

#: Machines: a price for an hour of a worker as recorded, or a table of types, or its CSV file.
Prices: TypeAlias = float | str | pd.DataFrame | Sequence[Mapping[str, Any]]
#: Columns of a table of machine types.
_COLUMNS = ("name", "threads", "memory", "price", "workers", "speed")
_NEEDED = ("name", "threads", "price")


@question("Which cluster meets a deadline for least", "balance")
def cluster_sizing(
    run: Run,
    deadline: float | str | None = None,
    *,
    threads_per_worker: int | None = None,
    memory_limit: float | None = None,
    price: Prices | None = None,
    start_up: float | str = 0.0,
) -> pd.DataFrame:
    """Find the cheapest cluster that meets a deadline.

    Parameters
    ----------
    deadline
        Seconds, or a text such as ``"10 minutes"``, from requesting the cluster to the end. None:
        the recorded duration, after the start-up.
    threads_per_worker
        None: the recorded number, the median over workers.
    memory_limit
        Bytes that a worker may take. None: as recorded.
    price
        The price of a worker for an hour; or a table of machine types (a DataFrame, a list of dicts
        or the path of a CSV file), with the columns ``name``, ``threads`` (or ``cores``) and
        ``price`` for an hour, and, where known, ``memory`` (bytes, or a text such as ``"16 GiB"``),
        ``workers`` of a machine (default: as many as give each the recorded threads) and ``speed``
        (2: its threads are twice as fast as recorded).
    start_up
        Seconds until workers are there. They are paid, and part of the time.

    Returns
    -------
    DataFrame
        One row per cluster of 1 to 200 workers that was replayed: those that meet the deadline, by
        cost, then others, by time:

        - ``Kind``, ``Machines``, ``Workers``, ``Threads per Worker``
        - ``Start-up (s)``: with what the client took before its first graph; ``Likely (s)``: from
          requesting the cluster to the end; ``At Most (s)``: nine of ten runs take less
        - ``Idle (%)`` of the thread time; ``Cost``, ``Cost of Idle``
        - ``Memory per Worker (MB)``: a limit with which the fullest spills nothing; ``Spilled at
          Most (MB)``: what the fullest would write to disk with the memory that it has. Both are
          NA if nothing is predicted, or if the cluster is too late anyway
        - ``Free Disk (MB)``: the least that was free where a worker of the run spills, or NA if
          unknown
        - ``Verdict``, or why nothing can be predicted

    Raises
    ------
    InvalidArgumentError
        If a number, a time or the table of machine types cannot be used.

    Notes
    -----
    The run is replayed (see `scaling`) on a ladder of numbers of workers, and between the last that
    is late and the first that is in time by halves. The cost is price times time. At most it takes
    6 % more than is likely, or half of the calibration error, whichever is more. `scaling` has the
    bounds that no number of threads can beat.
    """
    replay, first = replay_of(run), find_first_task(run)
    if threads_per_worker is not None:
        check_count("threads_per_worker", threads_per_worker)
    recorded = replay.cluster.threads
    threads = threads_per_worker or (int(np.median(recorded)) if len(recorded) else 1)
    before = 0.0 if first is None else float(np.nan_to_num(max(first.late, 0.0)))
    start = _seconds("start_up", start_up, least=0.0) + before
    until = start + replay.inputs.wall if deadline is None else _seconds("deadline", deadline)
    types = _machine_types(price, threads, recorded_or_given_limit(run, memory_limit))
    sized = sized_clusters(run, types, until, start)
    cheapest = next((cluster for cluster in sized if cluster.meets_deadline), None)
    most = np.array([math.nan if c.process is None else c.process.most for c in sized], float)
    limits = np.array([cluster.machine.memory for cluster in sized], dtype=float)
    acts = memory_thresholds(run)
    table = pd.DataFrame(
        {
            "Machines": np.array([cluster.machines for cluster in sized], dtype=np.int64),
            "Workers": np.array([c.machines * c.machine.workers for c in sized], dtype=np.int64),
            "Threads per Worker": np.array([c.machine.threads for c in sized], dtype=np.int64),
            "Start-up (s)": np.full(len(sized), start),
            "Likely (s)": np.array([cluster.likely for cluster in sized], dtype=float),
            "At Most (s)": np.array([cluster.most for cluster in sized], dtype=float),
            "Idle (%)": np.array([cluster.idle * 100 for cluster in sized], dtype=float),
            "Cost": np.array([cluster.cost for cluster in sized], dtype=float),
            "Memory per Worker (MB)": most / acts.comfortable / 1e6,
            "Spilled at Most (MB)": np.maximum(most - acts.spills * limits, 0.0) / 1e6,
            "Free Disk (MB)": np.full(len(sized), free_disk(run) / 1e6),
            "Verdict": text([_verdict(run, until, cluster, cheapest) for cluster in sized]),
        }
    )
    table.insert(0, "Kind", text([cluster.machine.name for cluster in sized]))
    table.insert(8, "Cost of Idle", table["Cost"] * table["Idle (%)"] / 100)
    return table


def _verdict(run: Run, until: float, cluster: SizedCluster, cheapest: SizedCluster | None) -> str:
    process, limit = cluster.process, cluster.machine.memory
    priced = math.isfinite(cluster.cost)
    if cluster.refusal:
        return cluster.refusal
    if cluster is cheapest:
        memory = ""
        if process is None:
            memory = f"; its memory is not predicted: {memory_forecast_of(run).obstacle}"
        elif not limit > 0:
            enough = format_size(process.most / memory_thresholds(run).comfortable)
            memory = f"; give each worker {enough}"
        elif process.most > memory_thresholds(run).spills * limit:
            memory = "; it may spill"
        return f"The {'cheapest that meets it' if priced else 'least that does'}{memory}."
    if cluster.meets_deadline and cheapest is not None:
        more = cluster.effort / cheapest.effort - 1
        return f"Meets it, and {'costs' if priced else 'takes'} {more:.0%} more."
    if process is not None:
        need = format_size(process.most)
        return (
            f"Lacks memory: the fullest worker needs up to {need}, and each has "
            f"{format_size(limit)}."
        )
    if cluster.likely > until:
        return f"Too late, by {format_duration(cluster.likely - until)}."
    return f"Likely in time, but not nine times of ten (at most {format_duration(cluster.most)})."


def _machine_types(price: Prices | None, threads: int, memory: float) -> list[MachineType]:
    if price is None or isinstance(price, int | float):
        if price is not None and not 0 <= price < math.inf:
            raise InvalidArgumentError(
                f"price={price!r}: expected the price of a worker for an hour, 0 or more."
            )
        each = math.nan if price is None else float(price)
        return [MachineType("as recorded", 1, threads, memory, each)]
    if isinstance(price, str | os.PathLike):
        try:
            price = pd.read_csv(price)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"price={price!r}: {error}") from error
    table = price if isinstance(price, pd.DataFrame) else pd.DataFrame(list(price))
    table = table.rename(columns={"cores": "threads"})
    missing = [name for name in _NEEDED if name not in table]
    if missing or not len(table):
        raise InvalidArgumentError(
            f"price has the columns {', '.join(map(str, table.columns)) or 'none'}, and no "
            f"{missing[0] if missing else 'rows'}: expected one row per machine type, with name, "
            "threads (or cores), price for an hour, and, where known, memory, workers of each, "
            "and speed."
        )
    return [_machine_type(row, threads) for row in table.to_dict("records")]


def _machine_type(row: Mapping[Any, Any], recorded: int) -> MachineType:
    given = {name: row[name] for name in _COLUMNS if name in row and not pd.isna(row[name])}
    try:
        threads = int(given["threads"])
        workers = int(given.get("workers", max(threads // recorded, 1)))
        machine = MachineType(
            str(given["name"]),
            workers,
            threads // workers,
            float(parse_bytes(given["memory"])) / workers if "memory" in given else math.nan,
            float(given["price"]),
            float(given.get("speed", 1.0)),
        )
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InvalidArgumentError(f"price: {dict(row)!r} is no machine type: {error}") from error
    if not (machine.threads >= 1 and machine.price >= 0 and is_positive(machine.speed)):
        raise InvalidArgumentError(
            f"price: {dict(row)!r}: expected at least one thread per worker, a price of 0 or more, "
            "and a speed above 0."
        )
    return machine


def _seconds(name: str, given: float | str, least: float | None = None) -> float:
    """Return a time in seconds, as a number or a text with a unit."""
    try:
        seconds = float(parse_timedelta(given, default="s"))
    except (ValueError, KeyError, TypeError, AttributeError):
        seconds = math.nan
    if not (seconds > 0 or seconds == least) or not math.isfinite(seconds):
        raise InvalidArgumentError(
            f"{name}={given!r}: give seconds, or a time such as '10 minutes'."
        )
    return seconds


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
    costs = chunk_costs(run, overhead).reset_index(drop=True)
    each = costs["overhead"].to_numpy()
    return pd.DataFrame(
        {
            "Function": costs["function"],
            "Task Runs": costs["runs"],
            "Mean Task time (s)": costs["duration"],
            "Overhead per Task (s)": costs["overhead"],
            "Overhead (%)": ratio(each, each + costs["duration"].to_numpy()) * 100,
            "Wanted Task time (s)": costs["wanted"],
            "Chunk Size (MB)": costs["chunk"] / 1e6,
            "Times Larger": costs["times_larger"],
            "Wanted Chunk Size (MB)": costs["chunk"] / 1e6 * costs["times_larger"],
            "Task Runs Then": whole(costs["runs_then"].to_numpy()),
            "Advice": text(
                map(_advice, costs["times_larger"], costs["of_each_thread"], costs["by_rate"])
            ),
        }
    )


def _advice(larger: float, tasks_of_each_thread: float, by_rate: bool) -> str:
    if np.isnan(larger):
        return "Unknown: no file tells what its tasks cost."
    if larger <= 1:
        return "Large enough."
    if tasks_of_each_thread <= 1:
        return "Leave it: there are no more tasks than threads."
    if tasks_of_each_thread < larger:
        return (
            f"Make chunks {tasks_of_each_thread:.3g} times larger, no more: else there are fewer "
            "tasks than threads."
        )
    why = "for the scheduler to feed all threads" if by_rate else "for overhead to be small"
    return f"Make chunks {larger:.3g} times larger, {why}."
