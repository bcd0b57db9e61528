"""Other clusters: what they would hold in memory, and which of them meet a deadline."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from dask.utils import parse_bytes, parse_timedelta

from dasfprof.analysis.model.client_time import find_first_task
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.memory_thresholds import MemoryThresholds, memory_thresholds
from dasfprof.analysis.simulation.changes import changed_cluster, worker_counts
from dasfprof.analysis.simulation.clusters import ClusterLadder, MachineType, SizedCluster
from dasfprof.analysis.simulation.memory import MemoryPeaks, memory_forecast_of
from dasfprof.analysis.simulation.replay import is_positive, replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

#: Numbers of workers to ask about by default, as fractions of the recorded number.
_USUAL = (0.25, 0.5, 1.0, 2.0, 4.0)


@question("Memory on other numbers of workers", "predictions")
def memory_forecast(
    run: Run,
    workers: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    memory_limit: float | None = None,
) -> pd.DataFrame:
    """Predict what the fullest worker would hold at most on other numbers of workers.

    Parameters
    ----------
    workers
        Numbers of workers. None: a quarter to four times the recorded number. Each takes some
        replays.
    threads
        Of each worker; None: as recorded.
    memory_limit
        Bytes that a worker may take; None: as recorded.

    Returns
    -------
    DataFrame
        One row per number of workers:

        - ``Workers``, ``Threads per Worker``
        - ``Results (MB)``: that the fullest worker would hold at once, in memory or spilled;
          ``Results at Least (MB)``, ``Results at Most (MB)``
        - ``Process (MB)``: of the fullest worker, if nothing were spilled; ``Process at Least
          (MB)``, ``Process at Most (MB)``
        - ``Limit (MB)`` of a worker; NA: none, or unknown. ``Spilled at Most (MB)``: what the
          fullest worker would write to disk with that limit
        - ``Verdict``, or why nothing can be predicted

    Notes
    -----
    Some 20 replays, with durations that vary as those of their function did, show where results
    would be and when they would be released. A process has beside them what it had at first, and
    what running tasks took beyond results. The interval is that of eight in ten of these peaks,
    wider to both sides by 7 %, for processes by 12 %. Where replays of the recorded cluster miss
    the recorded peak, it is wider to that side by the square root of that factor: half of it may be
    chance. Results that are together for less than 0.05 s do not count, as samples do not see them
    either. Tasks are taken to need as much memory elsewhere. Of 20 small runs on other clusters
    than the recorded one 18 had results, and all processes, in the interval.

    Raises
    ------
    InvalidArgumentError
        If a number is out of range.
    """
    replay, forecast = replay_of(run), memory_forecast_of(run)
    counts = worker_counts(workers, max(replay.cluster.most_workers, 1), _USUAL)
    limit = recorded_or_given_limit(run, memory_limit)
    clusters = [changed_cluster(replay, count, threads) for count in counts]
    obstacle = forecast.obstacle
    peaks = [None if obstacle else forecast.peaks(cluster) for cluster in clusters]

    def figures(kind: str, bound: str) -> np.ndarray:
        values = [np.nan if one is None else getattr(getattr(one, kind), bound) for one in peaks]
        return np.array(values, dtype=float) / 1e6

    most = figures("process", "most")
    each = [int(np.median(one.threads)) if len(one.threads) else 1 for one in clusters]
    refusal = f"Not to be foretold: {obstacle}."
    acts = memory_thresholds(run)
    verdicts = [refusal if one is None else _memory_verdict(one, limit, acts) for one in peaks]
    spilled = np.maximum(most - acts.spills * limit / 1e6, 0.0)
    return pd.DataFrame(
        {
            "Workers": np.array(counts, dtype=np.int64),
            "Threads per Worker": np.array(each, dtype=np.int64),
            "Results (MB)": figures("results", "likely"),
            "Results at Least (MB)": figures("results", "least"),
            "Results at Most (MB)": figures("results", "most"),
            "Process (MB)": figures("process", "likely"),
            "Process at Least (MB)": figures("process", "least"),
            "Process at Most (MB)": most,
            "Limit (MB)": np.full(len(counts), limit / 1e6),
            "Spilled at Most (MB)": spilled,
            "Verdict": text(verdicts),
        }
    )


def recorded_or_given_limit(run: Run, memory_limit: float | None) -> float:
    """Return the bytes that a worker may take; NaN: unknown, or as many as there are."""
    if memory_limit is None:
        limits = run.workers["memory_limit"].dropna().to_numpy(dtype=float)
        return float(np.median(limits)) if len(limits) else float("nan")
    if not is_positive(memory_limit):
        raise InvalidArgumentError(
            f"memory_limit={memory_limit!r}: give the bytes that a worker may take, more than 0 "
            "(8e9 is 8 GB), or None for the recorded limit."
        )
    return float(memory_limit)


def _memory_verdict(found: MemoryPeaks, limit: float, acts: MemoryThresholds) -> str:
    process = found.process
    if not limit > 0:
        return "No limit is known: give memory_limit."
    if process.least > acts.kills * limit:
        lacking = format_size(process.least - acts.kills * limit)
        if not math.isfinite(acts.spills):
            return f"Would not fit: a worker lacks {lacking} at least, and spills nothing."
        return f"Would not fit: without {lacking} at least on disk the worker is killed."
    if process.most > acts.kills * limit:
        return "May not fit: at most it needs more than a worker may take before it is killed."
    if process.most > acts.pause * limit:
        unless = " without spilling" if math.isfinite(acts.spills) else ""
        return f"May not fit{unless}: at most a worker would pause."
    if process.most > acts.spills * limit:
        return "Fits, but may spill."
    return "Fits."


#: Machines: a price for an hour of a worker as recorded, or a table of types, or its CSV file.
Prices: TypeAlias = float | str | pd.DataFrame | Sequence[Mapping[str, Any]]
#: Columns of a table of machine types, and other names for some of them.
_COLUMNS = ("name", "threads", "memory", "price", "workers", "speed")
_ALSO = {"cores": "threads", "cpus": "threads", "vcpus": "threads", "kind": "name"}
_NEEDED = ("name", "threads", "price")


def clusters_in_time(
    run: Run,
    deadline: float | str,
    *,
    price: Prices | None,
    threads_per_worker: int,
    memory_limit: float,
    start_up: float | str,
) -> pd.DataFrame:
    """Tabulate the clusters that meet a deadline; see `cluster_sizing`."""
    first = find_first_task(run)
    before = 0.0 if first is None else float(np.nan_to_num(max(first.late, 0.0)))
    ladder = ClusterLadder(
        run,
        deadline=_seconds("deadline", deadline),
        start_up=_seconds("start_up", start_up, least=0.0) + before,
    )
    types = _machine_types(price, threads_per_worker, memory_limit)
    sized = ladder.sized(types) if len(replay_of(run).inputs) else []
    cheapest = next((cluster for cluster in sized if ladder.meets(cluster)), None)

    def floats(values: Sequence[float]) -> np.ndarray:
        return np.array(values, dtype=float)

    return pd.DataFrame(
        {
            "Kind": text([cluster.machine.name for cluster in sized]),
            "Machines": np.array([cluster.machines for cluster in sized], dtype=np.int64),
            "Workers": np.array([cluster.workers for cluster in sized], dtype=np.int64),
            "Threads per Worker": np.array(
                [cluster.machine.threads for cluster in sized], dtype=np.int64
            ),
            "Start-up (s)": np.full(len(sized), ladder.start_up),
            "Likely (s)": floats([cluster.likely for cluster in sized]),
            "At Most (s)": floats([cluster.most for cluster in sized]),
            "Idle (%)": floats([cluster.idle * 100 for cluster in sized]),
            "Cost": floats([cluster.cost for cluster in sized]),
            "Cost of Idle": floats([cluster.cost * cluster.idle for cluster in sized]),
            "Memory per Worker (MB)": floats(
                [_memory_needed(ladder, cluster) / 1e6 for cluster in sized]
            ),
            "Verdict": text([_verdict(ladder, cluster, cheapest) for cluster in sized]),
        }
    )


def _memory_needed(ladder: ClusterLadder, cluster: SizedCluster) -> float:
    """Return the bytes of a limit with which the fullest worker spills nothing; NaN: unknown."""
    if cluster.memory is None:
        return math.nan
    return cluster.memory.process.most / ladder.thresholds.comfortable


def _verdict(ladder: ClusterLadder, cluster: SizedCluster, cheapest: SizedCluster | None) -> str:
    if cluster.refusal:
        return cluster.refusal
    priced = math.isfinite(cluster.cost)
    if cluster is cheapest:
        what = "The cheapest that meets it" if priced else "The least that does"
        return f"{what}{_about_memory(ladder, cluster)}."
    if ladder.meets(cluster) and cheapest is not None:
        more = cluster.effort / cheapest.effort - 1
        return f"Meets it, and {'costs' if priced else 'takes'} {more:.0%} more."
    if cluster.most <= ladder.deadline and cluster.memory is not None:
        need = format_size(cluster.memory.process.most)
        has = format_size(cluster.machine.memory)
        return f"Lacks memory: the fullest worker needs up to {need}, and each has {has}."
    if cluster.likely > ladder.deadline:
        return f"Too late, by {format_duration(cluster.likely - ladder.deadline)}."
    return f"Likely in time, but not nine times of ten (at most {format_duration(cluster.most)})."


def _about_memory(ladder: ClusterLadder, cluster: SizedCluster) -> str:
    """Return what is not known about the memory of the cheapest cluster, or that it may spill."""
    if cluster.memory is None:
        return f"; its memory is not predicted: {memory_forecast_of(ladder.run).obstacle}"
    limit = cluster.machine.memory
    if not limit > 0:
        return f"; give each worker {format_size(_memory_needed(ladder, cluster))}"
    spills = ladder.thresholds.spills * limit
    return "; it may spill" if cluster.memory.process.most > spills else ""


def _machine_types(price: Prices | None, threads: int, memory: float) -> list[MachineType]:
    if price is None or isinstance(price, int | float):
        each = math.nan if price is None else float(price)
        return [MachineType("as recorded", 1, threads, memory, each)]
    if isinstance(price, str | os.PathLike):
        try:
            price = pd.read_csv(price)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"price={price!r}: {error}") from error
    table = price if isinstance(price, pd.DataFrame) else pd.DataFrame(list(price))
    plain = [str(name).strip().lower().split(" ")[0] for name in table.columns]
    table = table.set_axis([_ALSO.get(name, name) for name in plain], axis="columns")
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
