"""How unequally the work of each function is spread over workers, and over its tasks."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.model.workers import NamedWorkers, known_thread_counts, workers_with_tasks
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

By = Literal["function", "step"]


@question("How unequally work was spread over workers", "balance")
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
    workers, tasks = NamedWorkers(trace), trace.tasks
    of_task, duration = workers.numbers(tasks), tasks["duration"].to_numpy()
    listed = workers_with_tasks(trace, workers, of_task)
    if by == "step":
        codes, names = step_groups(tasks)
    else:
        function = tasks["function"].cat
        codes, names = function.codes.to_numpy(dtype=np.int64), list(function.categories)
    count, among = len(names), max(len(listed), 1)
    places = np.zeros(len(workers), dtype=np.int64)
    places[listed] = np.arange(len(listed))
    seconds = np.bincount(
        codes * among + places[of_task], weights=duration, minlength=count * among
    ).reshape(count, among)
    load = seconds / _weights(known_thread_counts(trace, workers)[listed], among)
    of_tasks = Groups(codes, count)
    of_loads = Groups(np.repeat(np.arange(count), among), count)
    highest, mean = load.max(axis=1), load.mean(axis=1)
    busiest = listed[load.argmax(axis=1)] if len(listed) else np.empty(0, dtype=np.int64)
    table = pd.DataFrame(
        {
            by.capitalize(): text(np.array(names, dtype=object)),
            "Duration (s)": seconds.sum(axis=1),
            "Num Tasks (chunks)": of_tasks.sizes,
            "Workers": np.full(count, among),
            "Workers with Tasks": (seconds > 0).sum(axis=1),
            "Max/Mean of Workers": ratio(highest, mean),
            "Imbalance (%)": (1 - ratio(mean, highest)) * 100,
            "Gini of Workers": of_loads.gini(load.ravel()),
            "Lost to Imbalance (s)": highest - mean,
            "Busiest Worker": text(workers.labels[busiest]),
            "Host": text(workers.hosts[busiest]),
            "Max/Mean of Tasks": ratio(of_tasks.max(duration), of_tasks.mean(duration)),
            "Gini of Tasks": of_tasks.gini(duration),
        }
    )
    order = np.argsort(-table["Lost to Imbalance (s)"].to_numpy(), kind="stable")
    return table.take(order[of_tasks.sizes[order] > 0]).reset_index(drop=True)


def _weights(of_workers: Array, count: int) -> Array:
    """Return each worker's threads; where those of one are unknown, all count alike."""
    known = len(of_workers) == count and np.isfinite(of_workers).all() and (of_workers > 0).all()
    weights: Array = of_workers if known else np.ones(count)
    return weights
