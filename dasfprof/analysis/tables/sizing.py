"""How large a cluster and its chunks should be, based on measurements of the run."""

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
from dasfprof.analysis.tables.columns import integers, text
from dasfprof.analysis.tables.predictions import recorded_or_given_limit
from dasfprof.analysis.tables.questions import question
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

#: Price of a recorded worker per hour, or a table of machine types, or the path of a CSV file with
#: such a table.
Prices: TypeAlias = float | str | pd.DataFrame | Sequence[Mapping[str, Any]]
#: Columns that a table of machine types may have.
_COLUMNS = ("name", "threads", "memory", "price", "workers", "speed")
_NEEDED = ("name", "threads", "price")


@question("Cheapest cluster for a deadline", "balance")
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
        Seconds, or a text such as ``"10 minutes"``, from requesting the cluster to the end. None
        uses the sum of the start-up and the recorded duration.
    threads_per_worker
        Number of threads per worker. None uses the recorded number (median over workers).
    memory_limit
        Memory limit of a worker in bytes. None uses the recorded limit.
    price
        Price of a worker per hour; or a table of machine types (a DataFrame, a list of dicts, or
        the path of a CSV file). Its columns are ``name``, ``threads`` (or ``cores``) and ``price``
        per hour. Optional columns are ``memory`` (bytes, or a text such as ``"16 GiB"``),
        ``workers`` per machine (by default, as many as give each worker the recorded number of
        threads) and ``speed`` (2 means that its threads are twice as fast as the recorded ones).
    start_up
        Seconds until the workers are available. They are part of the time and of the cost.

    Returns
    -------
    DataFrame
        One row per replayed cluster of 1 to 200 workers. Clusters that meet the deadline come
        first, sorted by cost, then the other clusters, sorted by time:

        - ``Kind`` (type of machine), ``Machines``, ``Workers``, ``Threads per Worker``
        - ``Start-up (s)``: including the client's time before its first graph
        - ``Likely (s)``: from requesting the cluster to the end
        - ``At Most (s)``: nine of ten runs take less
        - ``Idle (%)`` of the thread time
        - ``Cost``, ``Cost of Idle``
        - ``Memory per Worker (MB)``: a limit with which the fullest worker spills nothing
        - ``Spilled at Most (MB)``: maximum that the fullest worker would write to disk with its
          memory limit. This and the previous column are NA without a prediction, or if the cluster
          misses the deadline
        - ``Free Disk (MB)``: minimum free space where the recorded workers spill, or NA if unknown
        - ``Verdict``, or why no prediction is possible

    Raises
    ------
    InvalidArgumentError
        If a number, a time or the table of machine types is invalid.

    Notes
    -----
    The run is replayed (see `scaling`) with increasing numbers of workers, until a number meets the
    deadline, and then by bisection between this number and the one before it. The cost is price
    times time. ``At Most (s)`` exceeds ``Likely (s)`` by 6 % or by half of the calibration error,
    whichever is larger. `scaling` has the bounds that no number of threads can beat.
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
        return f"The {'cheapest' if priced else 'smallest'} cluster that is in time{memory}."
    if cluster.meets_deadline and cheapest is not None:
        more = cluster.effort / cheapest.effort - 1
        return f"In time, but {'costs' if priced else 'uses'} {more:.0%} more."
    if process is not None:
        need = format_size(process.most)
        return (
            f"Lacks memory: the fullest worker needs up to {need}, and each has "
            f"{format_size(limit)}."
        )
    if cluster.likely > until:
        return f"Too late by {format_duration(cluster.likely - until)}."
    most = format_duration(cluster.most)
    return f"Likely in time, but not in nine of ten runs, which take up to {most}."


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
        raise InvalidArgumentError(
            f"price: {dict(row)!r} is not a machine type: {error}"
        ) from error
    if not (machine.threads >= 1 and machine.price >= 0 and is_positive(machine.speed)):
        raise InvalidArgumentError(
            f"price: {dict(row)!r}: expected at least one thread per worker, a price of 0 or more, "
            "and a speed above 0."
        )
    return machine


def _seconds(name: str, given: float | str, least: float | None = None) -> float:
    """Return a time in seconds from a number or a text with a unit.

    `name` is the name of the parameter, for the error if the time is not valid. A valid time is
    more than 0, or equal to `least`.
    """
    try:
        seconds = float(parse_timedelta(given, default="s"))
    except (ValueError, KeyError, TypeError, AttributeError):
        seconds = math.nan
    if not (seconds > 0 or seconds == least) or not math.isfinite(seconds):
        raise InvalidArgumentError(
            f"{name}={given!r}: expected seconds, or a time such as '10 minutes'."
        )
    return seconds


@question("Chunk sizes", "balance")
@np.errstate(over="ignore", invalid="ignore")
def chunk_sizing(run: Run, overhead: float = 0.005) -> pd.DataFrame:
    """Find how large chunks should be, so that overhead is a small fraction of the time.

    Parameters
    ----------
    overhead
        Target fraction of overhead.

    Returns
    -------
    DataFrame
        One row per function, sorted by total overhead in descending order:

        - ``Function``
        - ``Task Runs``: number of successful task runs
        - ``Mean Task time (s)``
        - ``Overhead per Task (s)``: median seconds that a task run costs its thread in addition to
          its function. These are task handling, and idle time before the task run although it was
          runnable, but not unspilling and deserializing
        - ``Overhead (%)``
        - ``Wanted Task time (s)``: task time with which the overhead is at its target, and the
          scheduler can feed all threads of the run
        - ``Chunk Size (MB)``: bytes of the result of a task run, or of the inputs that only this
          task run uses, whichever is larger. Mean over task runs
        - ``Times Larger``: ratio of the wanted to the recorded chunk size, at most the number of
          the function's tasks in one layer. 1 means that chunks are large enough
        - ``Wanted Chunk Size (MB)``, ``Task Runs Then``
        - ``Advice``

    Notes
    -----
    If a task has an overhead of o seconds, and its function takes ``o (1 - s) / s`` seconds, then
    the overhead is the fraction s of the task's time. For example, if an overhead of 0.05 s should
    be 0.5 % of the time, a task should take about 10 s. If the scheduler handles ``rate`` tasks per
    second, it can feed P threads with tasks of at least ``P / rate`` seconds. The calculation
    assumes that time grows in proportion to the chunk size.
    """
    if not 0 < overhead < 1:
        raise InvalidArgumentError(
            f"overhead={overhead!r}: expected a fraction between 0 and 1. 0.005 is 0.5 %."
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
            "Task Runs Then": integers(costs["runs_then"].to_numpy()),
            "Advice": text(
                map(_advice, costs["times_larger"], costs["of_each_thread"], costs["by_rate"])
            ),
        }
    )


def _advice(larger: float, tasks_of_each_thread: float, by_rate: bool) -> str:
    if np.isnan(larger):
        return "Unknown, since no file records the overhead of its tasks."
    if larger <= 1:
        return "Large enough."
    if tasks_of_each_thread <= 1:
        return "Keep this size: there are no more tasks than threads."
    if tasks_of_each_thread < larger:
        return (
            f"Make chunks {tasks_of_each_thread:.3g} times larger, but not more. Otherwise there "
            "are fewer tasks than threads."
        )
    purpose = "so that the scheduler can feed all threads" if by_rate else "to reduce overhead"
    return f"Make chunks {larger:.3g} times larger, {purpose}."
