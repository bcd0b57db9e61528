"""The table of clusters that meet a deadline, and the kinds of machines that a user can have."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from dask.utils import parse_bytes, parse_timedelta

from dasfprof.analysis.model.first_task import find_first_task
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.clusters import (
    ClusterChoice,
    FunctionScaling,
    Kind,
    Sized,
)
from dasfprof.analysis.simulation.memory import memory_forecast_of
from dasfprof.analysis.simulation.replay import is_positive, replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.memory_forecast import DIES, SPILLS
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

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
        "Kind": text(np.array([one.kind.name for one in found], dtype=object)),
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
        "Verdict": text(np.array([_verdict(choice, one, cheapest) for one in found], dtype=object)),
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
