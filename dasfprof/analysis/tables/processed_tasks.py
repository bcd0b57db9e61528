"""What became of each attempt at a task, as the reports of parallel-run services list it."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.steps import NO_STEP, has_steps
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.tables.columns import text, utc
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace import Trace
from dasfprof.errors import InvalidArgumentError

By = Literal["task", "function", "step"]


@question("Attempts at tasks", "reports")
def processed_tasks(trace: Trace, by: By = "task") -> pd.DataFrame:
    """List what became of each attempt at a task, or sum it up by function.

    Parameters
    ----------
    by
        ``"task"``, ``"function"`` or ``"step"``.

    Returns
    -------
    DataFrame
        By task a row an attempt, in the order of their start:

        - ``Task`` (its key), ``Attempt`` (from 1), ``Process`` (the worker)
        - ``Start Time (UTC)``: it was given a thread
        - ``Elapsed Seconds``: from then until its worker knew the outcome, with unspilling and
          deserialising; NA where no worker's file tells
        - ``Process Seconds``: CPU time of the task's thread alone, not of others that it
          used; NA for coroutines
        - ``Run Method Seconds``: of its function
        - ``Status``: the state that it ended in, in Dask's words
        - ``Error Category``: the exception's type, ``worker lost``, ``cancelled``,
          ``rescheduled`` or ``unknown``; NA if it succeeded; ``Error Message``
        - ``Function``, ``Node``
        - ``Core Wait Seconds``: of its function, in which its thread could compute and the
          host gave it no core; NA where that was not recorded, as for coroutines

        Tasks that a worker had been sent as it left are attempts too, though they may not
        have begun.

        By function or step a row each, the most seconds in it first: its name, ``Total``
        (attempts), ``Succeeded``, ``Failed`` (total less succeeded), ``Retried`` (attempts
        beyond the first), ``Start Time (UTC)`` of the first, ``End Time (UTC)`` of the last,
        the sums of the three seconds, ``Mean Elapsed Seconds``, ``Process / Elapsed (%)``
        over attempts of which both are known, and the sum of ``Core Wait Seconds``.
    """
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    attempts = find_attempts(trace)
    if by != "task":
        group = attempts[by].cat
        groups = Groups(group.codes.to_numpy(), len(group.categories))
        names = group.categories.to_numpy(dtype=object)
        table = pd.DataFrame({by.capitalize(): text(names), **count_attempts(attempts, groups)})
        order = np.argsort(-table["Run Method Seconds"].to_numpy(), kind="stable")
        order = order[groups.sizes[order] > 0]
        return table.take(order).reset_index(drop=True)
    workers = NamedWorkers(trace)
    of_attempt = attempts["worker"].to_numpy()
    step = attempts["step"].cat.remove_categories(NO_STEP).astype(object)
    return pd.DataFrame(
        {
            "Task": text(trace.keys.texts(attempts["key_id"].to_numpy())),
            "Attempt": attempts["attempt"],
            "Process": text(workers.labels[of_attempt]),
            "Start Time (UTC)": utc(attempts["start"].to_numpy()),
            "Elapsed Seconds": attempts["elapsed"],
            "Process Seconds": attempts["cpu"],
            "Run Method Seconds": attempts["run"],
            "Status": attempts["status"].astype(object),
            "Error Category": attempts["category"].astype(object),
            "Error Message": attempts["message"],
            "Function": attempts["function"].astype(object),
            "Node": text(workers.hosts[of_attempt]),
            "Core Wait Seconds": attempts["core_wait"],
            **({"Step": step} if has_steps(trace) else {}),
        },
        copy=False,
    )


def count_attempts(attempts: pd.DataFrame, groups: Groups) -> dict[str, Any]:
    """Count and sum up attempts by group: the columns that all summaries share."""
    succeeded = groups.sum(attempts["succeeded"].to_numpy(dtype=float)).astype(np.int64)
    elapsed, cpu = attempts["elapsed"].to_numpy(), attempts["cpu"].to_numpy()
    start, run = attempts["start"].to_numpy(), attempts["run"].to_numpy()
    lasted = np.where(np.isfinite(elapsed), elapsed, np.nan_to_num(run))
    both = np.isfinite(elapsed) & np.isfinite(cpu)
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = groups.sum(cpu * both) / groups.sum(elapsed * both) * 100
    with np.errstate(over="ignore"):  # times beyond any clock
        ends = start + lasted
    return {
        "Total": groups.sizes,
        "Succeeded": succeeded,
        "Failed": groups.sizes - succeeded,
        "Retried": groups.sum((attempts["attempt"] > 1).to_numpy(dtype=float)).astype(np.int64),
        "Start Time (UTC)": utc(groups.min(start)),
        "End Time (UTC)": utc(groups.max(ends)),
        "Elapsed Seconds": groups.told(elapsed),
        "Process Seconds": groups.told(cpu),
        "Run Method Seconds": groups.told(run),
        "Mean Elapsed Seconds": groups.mean(elapsed),
        "Process / Elapsed (%)": np.where(np.isfinite(busy), busy, np.nan),
        "Core Wait Seconds": groups.told(attempts["core_wait"].to_numpy()),
    }
