"""How unequally the work of each function is spread over workers, and over its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.model.workers import NamedWorkers, known_thread_counts, workers_with_tasks
from dasfprof.analysis.numeric.group_sums import GroupSums
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.in_parts import InParts, joined_rows
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

By = Literal["function", "step"]


def _of_part(trace: Trace, by: By = "function") -> tuple[GroupSums, pd.DataFrame]:
    """Sum up durations by function (or step), host and worker; return each too, in 5 bytes."""
    workers, tasks = NamedWorkers(trace), trace.tasks
    of_task, duration = workers.numbers(tasks), tasks["duration"].to_numpy()
    if by == "step":
        codes, names = step_groups(tasks)
    else:
        function = tasks["function"].cat
        codes, names = function.codes.to_numpy(dtype=np.int64), list(function.categories)
    pairs, distinct = pd.factorize(codes.astype(np.int64) * max(len(workers), 1) + of_task)
    named_as, worker = np.divmod(distinct, max(len(workers), 1))
    labels = zip(workers.hosts[worker].tolist(), workers.labels[worker].tolist(), strict=True)
    named = [(names[at], *label) for at, label in zip(named_as.tolist(), labels, strict=True)]
    groups = Groups(pairs, len(distinct))
    sums = GroupSums.of(named, groups, {"duration": duration}, {"duration": duration})
    group = make_categorical(codes, names)
    return sums, pd.DataFrame({"group": group, "duration": duration.astype(np.float32)})


def _table(
    trace: Trace, parts: Sequence[tuple[GroupSums, pd.DataFrame]], *, by: By = "function"
) -> pd.DataFrame:
    """Make the table of what all parts tell."""
    sums = GroupSums.merged([sums for sums, _ in parts])
    cells: list[Any] = sums.names
    of_groups = sums.by([cell[0] for cell in cells])
    names: list[Any] = of_groups.names
    workers = NamedWorkers(trace)
    numbers = {name: at for at, name in enumerate(zip(workers.hosts, workers.labels, strict=True))}
    of_cell = np.array([numbers[cell[1:]] for cell in cells], dtype=np.int64)
    listed = workers_with_tasks(trace, workers, of_cell)
    listed = listed[np.argsort(workers.ranks()[listed])]
    count, among = len(names), max(len(listed), 1)
    place = {number: at for at, number in enumerate(listed.tolist())}
    row = {name: at for at, name in enumerate(names)}
    seconds = np.zeros((count, among))
    seconds[[row[cell[0]] for cell in cells], [place[number] for number in of_cell.tolist()]] = (
        sums.sum("duration")
    )
    load = seconds / _weights(known_thread_counts(trace, workers)[listed], among)
    of_loads = Groups(np.repeat(np.arange(count), among), count)
    tasks = joined_rows([rows for _, rows in parts])
    of_names = pd.Index(names, dtype=object, tupleize_cols=False)
    places = of_names.get_indexer(tasks["group"].cat.categories)
    of_tasks = Groups(places[tasks["group"].cat.codes.to_numpy()], count)
    highest, mean = load.max(axis=1, initial=0.0), load.mean(axis=1)
    busiest = listed[load.argmax(axis=1)] if len(listed) else np.empty(0, dtype=np.int64)
    table = pd.DataFrame(
        {
            by.capitalize(): text(np.array(names, dtype=object)),
            "Duration (s)": of_groups.sum("duration"),
            "Num Tasks (chunks)": of_groups.rows,
            "Workers": np.full(count, among),
            "Workers with Tasks": (seconds > 0).sum(axis=1),
            "Max/Mean of Workers": ratio(highest, mean),
            "Imbalance (%)": (1 - ratio(mean, highest)) * 100,
            "Gini of Workers": of_loads.gini(load.ravel()),
            "Lost to Imbalance (s)": highest - mean,
            "Busiest Worker": text(workers.labels[busiest]),
            "Host": text(workers.hosts[busiest]),
            "Max/Mean of Tasks": ratio(of_groups.highest["duration"], of_groups.mean("duration")),
            "Gini of Tasks": of_tasks.gini(tasks["duration"].to_numpy()),
        }
    )
    ranks = np.argsort(np.argsort(np.array(names, dtype=object)))
    order = np.lexsort((ranks, -table["Lost to Imbalance (s)"].to_numpy()))
    return table.take(order).reset_index(drop=True)


@question(
    "How unequally work was spread over workers", "balance", in_parts=InParts(_of_part, _table)
)
def imbalance(trace: Trace, by: By = "function") -> pd.DataFrame:
    """Measure how unequally each function's work is spread over workers, and over its tasks.

    Parameters
    ----------
    by
        ``"function"``; or ``"step"``, for the work of each step of the pipeline.

    Returns
    -------
    DataFrame
        A row a function (or step), the most lost seconds first:

        - ``Function`` (or ``Step``), ``Duration (s)`` (the sum of its task runs), ``Num Tasks
          (chunks)``, ``Workers`` (of the run), ``Workers with Tasks`` (of the function)
        - ``Max/Mean of Workers``, ``Imbalance (%)`` (1 - mean/max), ``Gini of Workers``: of
          the seconds a thread on each worker; those without a task count as 0
        - ``Lost to Imbalance (s)``: how long the workers' threads would wait, on average, for
          the busiest worker, if nothing else was there to run
        - ``Busiest Worker``, ``Host``
        - ``Max/Mean of Tasks``, ``Gini of Tasks``: of the durations of its task runs

        Ratios are NA for a function that took no time.

    Notes
    -----
    With W the seconds of one on each of p workers, by thread: the percentage is that of
    Sakellariou and Gurd (ICS'97), ``1 - sum(W) / (p max(W))``, the share of the p workers' time
    that is lost while the most loaded one still works; ``max(W) - mean(W)`` is that time for each.
    """
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    return _table(trace, [_of_part(trace, by)], by=by)


def _weights(of_workers: Array, count: int) -> Array:
    """Return each worker's threads; where those of one are unknown, all count alike."""
    known = len(of_workers) == count and np.isfinite(of_workers).all() and (of_workers > 0).all()
    weights: Array = of_workers if known else np.ones(count)
    return weights
