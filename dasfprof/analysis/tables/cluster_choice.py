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
from dasfprof.analysis.simulation.changes import changed_cluster, worker_counts
from dasfprof.analysis.simulation.clusters import (
    ClusterChoice,
    FunctionScaling,
    Kind,
    Sized,
)
from dasfprof.analysis.simulation.memory import MemoryPeaks, memory_forecast_of
from dasfprof.analysis.simulation.replay import is_positive, replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

# --- What workers would hold at most on other numbers of them, and whether that fits --------------

#: Shares of the recorded workers that are asked about if none are given.
_USUAL = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Shares of its limit from which on a worker spills, pauses and is killed, as Dask's defaults.
SPILLS, _PAUSES, DIES = 0.6, 0.8, 0.95
#: By how much 0.333 may differ from a third.
_SAME = 0.01


@question("Memory on other numbers of workers", "predictions")
def memory_forecast(
    run: Run,
    workers: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    memory_limit: float | None = None,
    chunks: float = 1,
) -> pd.DataFrame:
    """Foretell what the fullest worker would hold at most on other workers, or with other chunks.

    Parameters
    ----------
    workers
        Numbers of workers; None asks about a quarter to four times the recorded ones. Each takes
        some replays.
    threads
        Of each worker; None: as recorded.
    memory_limit
        Bytes that a worker may take; None: as recorded.
    chunks
        How many times as large chunks are: a whole number, or 1 through one (0.5 for half).

    Returns
    -------
    DataFrame
        A row a number of workers:

        - ``Workers``, ``Threads per Worker``; ``Times Larger``: the chunks
        - ``Results (MB)``: that the fullest worker would hold at once, in memory or spilled;
          ``Results at Least (MB)``, ``Results at Most (MB)``
        - ``Process (MB)``: of the fullest worker, if nothing were spilled; ``Process at Least
          (MB)``, ``Process at Most (MB)``
        - ``Limit (MB)`` of a worker; NA: none, or unknown
        - ``Verdict``, or why nothing can be foretold

    Notes
    -----
    Some 20 replays, with durations that vary as those of their function did, tell where results
    would be and when they would be let go; a process has beside them what it had at first, and what
    running tasks took beyond results. The interval is that of eight in ten of these peaks, wider to
    both sides by 7 %, of processes by 12 %; with other chunks by 12 % and 15 %. Where replays of
    the recorded cluster miss the peak that was recorded, it is wider to that side by the square
    root of that factor: half of it may be chance. Results that are together for less than 0.05 s do
    not count, as samples do not see them either. Tasks are taken to need as much memory elsewhere.
    Of 20 small runs on other clusters than the recorded one 18 had results, and all processes, in
    the interval; of 30 with other chunks 25, and 29.

    With chunks of another size each task takes time, and has results, in proportion to it; there
    are fewer or more tasks in every group that has several, and a part of one takes the same part
    of its inputs. What that leaves out is how an algorithm changes with its chunks: the plan of a
    rechunk, say, or the depth of a tree.

    Raises
    ------
    InvalidArgumentError
        If a number is out of range.
    """
    replay, forecast = replay_of(run), memory_forecast_of(run)
    counts = worker_counts(workers, max(replay.cluster.most_workers, 1), _USUAL)
    times, parts = _times_and_parts(chunks)
    limit = recorded_or_given_limit(run, memory_limit)
    clusters = [changed_cluster(replay, count, threads) for count in counts]
    obstacle = forecast.obstacle
    found = [None if obstacle else forecast.peaks(cluster, times, parts) for cluster in clusters]

    def figures(kind: str, bound: str) -> np.ndarray:
        values = [np.nan if one is None else getattr(getattr(one, kind), bound) for one in found]
        return np.array(values, dtype=float) / 1e6

    each = [int(np.median(one.threads)) if len(one.threads) else 1 for one in clusters]
    refused = f"Not to be foretold: {obstacle}."
    verdicts = [refused if one is None else _memory_verdict(one, limit) for one in found]
    return pd.DataFrame(
        {
            "Workers": np.array(counts, dtype=np.int64),
            "Threads per Worker": np.array(each, dtype=np.int64),
            "Times Larger": np.full(len(counts), times / parts),
            "Results (MB)": figures("results", "likely"),
            "Results at Least (MB)": figures("results", "least"),
            "Results at Most (MB)": figures("results", "most"),
            "Process (MB)": figures("process", "likely"),
            "Process at Least (MB)": figures("process", "least"),
            "Process at Most (MB)": figures("process", "most"),
            "Limit (MB)": np.full(len(counts), limit / 1e6),
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


def _times_and_parts(chunks: float) -> tuple[int, int]:
    """Return how many times as large chunks are, and into how many parts each goes."""
    if is_positive(chunks):
        times, parts = max(round(chunks), 1), max(round(1 / chunks), 1)
        if abs(chunks * parts / times - 1) < _SAME:
            return times, parts
    raise InvalidArgumentError(
        f"chunks={chunks!r}: give how many times as large they are: a whole number, or 1 through "
        "one (0.5 for chunks half as large)."
    )


def _memory_verdict(found: MemoryPeaks, limit: float) -> str:
    process = found.process
    if not limit > 0:
        return "No limit is known: give memory_limit."
    if process.least > DIES * limit:
        spilled = format_size(process.least - DIES * limit)
        return f"Would not fit: without {spilled} at least on disk the worker is killed."
    if process.most > DIES * limit:
        return "May not fit: at most it needs more than a worker may take before it is killed."
    if process.most > _PAUSES * limit:
        return "May not fit without spilling: at most a worker would pause."
    if process.most > SPILLS * limit:
        return "Fits, but may spill."
    return "Fits."


#: Kinds of machines: a price for an hour of a worker as recorded, or a table, or its CSV file.
Prices: TypeAlias = float | str | pd.DataFrame | Sequence[Mapping[str, Any]]
#: Columns of a table of kinds, the second names of which some are known by as well.
_COLUMNS = ("name", "threads", "memory", "price", "workers", "speed")
_ALSO = {"cores": "threads", "cpus": "threads", "vcpus": "threads", "kind": "name"}
_NEEDED = ("name", "threads", "price")
#: Functions with so much of the time have to be in a run of history.
_ALIKE = 0.8


def clusters_in_time(
    trace: Run,
    deadline: float | str,
    *,
    price: Prices | None,
    threads_per_worker: int,
    memory_limit: float,
    start_up: float | str,
    history: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
) -> pd.DataFrame:
    """Tabulate the clusters that meet a deadline; see `cluster_sizing`."""
    before = _before_tasks(trace)
    choice = ClusterChoice(
        trace,
        deadline=_seconds("deadline", deadline),
        start_up=_seconds("start_up", start_up, least=0.0) + before,
        scaling=FunctionScaling.of(trace, _runs_alike(trace, history)),
        spills=SPILLS,
        dies=DIES,
    )
    kinds = _kinds(price, threads_per_worker, memory_limit)
    found = choice.sized(kinds) if len(replay_of(trace).inputs) else []
    cheapest = next((one for one in found if choice.meets(one)), None)
    columns: dict[str, Any] = {
        "Kind": text([one.kind.name for one in found]),
        "Machines": np.array([one.machines for one in found], dtype=np.int64),
        "Workers": np.array([one.workers for one in found], dtype=np.int64),
        "Threads per Worker": np.array([one.kind.threads for one in found], dtype=np.int64),
        "Start-up (s)": np.full(len(found), choice.start_up),
        "Likely (s)": _floats(one.likely for one in found),
        "At Most (s)": _floats(one.most for one in found),
        "Idle (%)": _floats(one.idle * 100 for one in found),
        "Cost": _floats(one.cost for one in found),
        "Cost of Idle": _floats(one.cost * one.idle for one in found),
        "Memory per Worker (MB)": _floats(
            math.nan if one.memory is None else one.memory.process.most / SPILLS / 1e6
            for one in found
        ),
        "Verdict": text([_verdict(choice, one, cheapest) for one in found]),
    }
    return pd.DataFrame(columns)


def _verdict(choice: ClusterChoice, one: Sized, cheapest: Sized | None) -> str:
    if one.refusal:
        return one.refusal
    if one is cheapest:
        what = "The cheapest that meets it" if math.isfinite(one.cost) else "The least that does"
        return f"{what}{_about_memory(choice, one)}."
    if choice.meets(one) and cheapest is not None:
        more = one.effort / cheapest.effort - 1
        what = f"costs {more:.0%} more" if math.isfinite(one.cost) else f"takes {more:.0%} more"
        return f"Meets it, and {what}."
    if one.most <= choice.deadline and one.memory is not None:
        need = format_size(one.memory.process.most)
        has = format_size(one.kind.memory)
        return f"Lacks memory: the fullest worker needs up to {need}, and each has {has}."
    late = one.likely - choice.deadline
    if late > 0:
        return f"Too late, by {format_duration(late)}."
    return f"Likely in time, but not nine times of ten (at most {format_duration(one.most)})."


def _about_memory(choice: ClusterChoice, one: Sized) -> str:
    """Say what is not known of memory, or that a worker may spill."""
    if one.memory is None:
        return f"; what memory it needs is not foretold: {memory_forecast_of(choice.run).obstacle}"
    if not one.kind.memory > 0:
        return f"; give each worker {format_size(one.memory.process.most / SPILLS)}"
    return "; it may spill" if one.memory.process.most > SPILLS * one.kind.memory else ""


def _before_tasks(trace: Run) -> float:
    """Return the seconds that the client took before it sent anything, as far as is known."""
    first = find_first_task(trace)
    return max(float(first.late), 0.0) if first is not None and np.isfinite(first.late) else 0.0


def _runs_alike(
    trace: Run, history: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
) -> list[Run]:
    """Open the runs of history that have the functions of this one."""
    if history is None:
        return []
    sources = [history] if isinstance(history, str | os.PathLike) else list(history)
    runs = [run for source in sources for run in Run.all_of(source)]
    seconds = trace.tasks.groupby("function", observed=True)["duration"].sum()
    alike = []
    for run in runs:
        same_run = (run.run, run.begin, run.wall) == (trace.run, trace.begin, trace.wall)
        shared = seconds[seconds.index.isin(run.tasks["function"].unique())].sum()
        if not same_run and run.ending is None and shared >= _ALIKE * seconds.sum():
            alike.append(run)
    return alike


# --- Kinds of machines ----------------------------------------------------------------------------


def _kinds(price: Prices | None, threads: int, memory: float) -> list[Kind]:
    """Read the kinds of machines."""
    if price is None or isinstance(price, int | float):
        each = math.nan if price is None else float(price)
        return [Kind("as recorded", 1, threads, memory, each)]
    if isinstance(price, str | os.PathLike):
        try:
            price = pd.read_csv(price)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"price={price!r}: {error}") from error
    table = price if isinstance(price, pd.DataFrame) else pd.DataFrame(list(price))
    table = table.rename(columns=lambda name: _ALSO.get(_plain(name), _plain(name)))
    missing = [name for name in _NEEDED if name not in table]
    if missing or not len(table):
        raise InvalidArgumentError(
            f"price has the columns {', '.join(map(str, table.columns)) or 'none'}, and no "
            f"{missing[0] if missing else 'rows'}: give a row a kind of machine, with name, "
            "threads (or cores), price for an hour, and, where known, memory, workers of each, "
            "and speed."
        )
    return [_kind(row, threads) for row in table.to_dict("records")]


def _plain(name: object) -> str:
    return str(name).strip().lower().split(" ")[0]


def _kind(row: Mapping[Any, Any], recorded: int) -> Kind:
    given = {name: row[name] for name in _COLUMNS if name in row and not _is_empty(row[name])}
    try:
        threads = int(given["threads"])
        workers = int(given.get("workers", max(threads // recorded, 1)))
        memory = float(parse_bytes(given["memory"])) / workers if "memory" in given else math.nan
        kind = Kind(
            str(given["name"]),
            workers,
            threads // workers,
            memory,
            float(given["price"]),
            float(given.get("speed", 1.0)),
        )
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InvalidArgumentError(
            f"price: {dict(row)!r} is no kind of machine: {error}"
        ) from error
    if not (kind.threads >= 1 and kind.price >= 0 and is_positive(kind.speed)):
        raise InvalidArgumentError(
            f"price: {dict(row)!r}: give a thread at least for each worker, a price of 0 or more, "
            "and a speed above 0."
        )
    return kind


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


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


def _floats(values: Any) -> np.ndarray:
    return np.array(list(values), dtype=float)
