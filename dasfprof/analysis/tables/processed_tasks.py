"""Attempts at tasks: their outcomes, and how many there were by process, node and time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import (
    RECOMPUTED,
    RETRIED,
    UnsentTask,
    find_attempts,
    sent_tasks,
    unsent_tasks,
)
from dasfprof.analysis.model.steps import NO_CLIENT, NO_STEP, has_clients, has_steps
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio
from dasfprof.analysis.numeric.intervals import Intervals
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import known_thread_counts, workers_with_tasks
from dasfprof.analysis.tables.columns import (
    INTERVAL,
    LISTED,
    first_rows,
    folded,
    integers,
    text,
    utc,
)
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.database.columns import Array

By = Literal["task", "function", "step"]


#: Temporary column with the exact start of an attempt. The table has it rounded to microseconds.
_START = "start"


def _of_part(run: Run, by: By = "task") -> Any:
    """Return the contribution of a time window to the table of `processed_tasks`.

    By task, it contains the first rows of the table, the number of attempts, and the result of
    `sent_tasks`. By function or step, it contains the sums of attempts.
    """
    attempts = find_attempts(run)
    if by != "task":
        return _sums(attempts, by)
    first = attempts.iloc[:LISTED]
    table = _by_task(run, first, []).assign(**{_START: first["start"].to_numpy()})
    return (table, len(attempts)), sent_tasks(run)


def _folded(first: Any, second: Any) -> Any:
    if isinstance(first, GroupSums):
        return GroupSums.merged([first, second])
    return folded([first[0], second[0]], _in_order), first[1] | second[1]


def _combined(run: Run, parts: Sequence[Any], by: By = "task") -> pd.DataFrame:
    if by != "task":
        return _sum_up(parts, by)
    unsent = unsent_tasks(run, set().union(*(sent for _, sent in parts)))
    unstarted = _by_task(run, find_attempts(run).iloc[:0], unsent).assign(**{_START: np.nan})
    tables = [*(attempts for attempts, _ in parts), (unstarted, len(unsent))]
    return first_rows(tables, _in_order).drop(columns=_START)


def _in_order(rows: pd.DataFrame) -> Array:
    return np.argsort(rows[_START].to_numpy(), kind="stable")


@question("Attempts at tasks", "reports", in_parts=InParts(_of_part, _combined, _folded))
def processed_tasks(run: Run, by: By = "task") -> pd.DataFrame:
    """List the outcome of each attempt at a task, or sum up attempts by function or step.

    Parameters
    ----------
    by
        ``"task"``, ``"function"`` or ``"step"``.

    Returns
    -------
    DataFrame
        By task, one row per attempt, in order of their start:

        - ``Task`` (its key), ``Attempt`` (from 1), ``Process`` (the worker)
        - ``Start Time (UTC)``: when it got a thread
        - ``Elapsed Seconds``: from then until its worker knew the outcome, including unspilling and
          deserializing. NA if no worker's file records it
        - ``Process Seconds``: CPU time of the task's thread, without other threads. NA for
          coroutines
        - ``Run Method Seconds``: time of its function
        - ``Status``: Dask's final state of the attempt. An unfinished attempt is ``running``,
          ``waiting`` (on its worker) or ``released by the client``, and its seconds end at the last
          recorded event. Tasks that were never assigned to a worker have rows if their keys are
          known, with ``waiting`` or ``no-worker``
        - ``Error Category``: type of the exception, ``worker lost`` (it left unexpectedly),
          ``worker closed``, ``cancelled``, ``rescheduled`` or ``unknown``. NA if the attempt
          succeeded or is unfinished
        - ``Error Message``, ``Function``, ``Node``
        - ``Core Wait Seconds``: time in its function in which its thread was runnable without a
          core. NA if not recorded, as for coroutines
        - ``Client``: the client that wanted the task, if the run has several clients

        A task that was assigned to a worker when the worker left counts as an attempt, even if it
        may not have started.

        By function or step, one row each, sorted by seconds in descending order:

        - ``Function``, or ``Step``
        - ``Total``, ``Succeeded``, ``Failed``: numbers of attempts
        - ``Retried``: attempts that followed a failed one
        - ``Start Time (UTC)`` of the first attempt, ``End Time (UTC)`` of the last
        - ``Elapsed Seconds``, ``Process Seconds``, ``Run Method Seconds``: totals
        - ``Mean Elapsed Seconds``
        - ``Process / Elapsed (%)``: over the attempts for which both are known
        - ``Core Wait Seconds``: total
        - ``Recomputed``: attempts at tasks whose earlier result was lost or released
        - ``Unfinished``: attempts that had not ended, or that the client cancelled. They count
          neither as succeeded nor as failed
    """
    attempts = find_attempts(run)
    if by != "task":
        return _sum_up([_sums(attempts, by)], by)
    return _by_task(run, attempts, unsent_tasks(run))


def _sums(attempts: pd.DataFrame, by: By) -> GroupSums:
    group = attempts[by].cat
    groups = Groups(group.codes.to_numpy(), len(group.categories))
    return attempt_sums(attempts, groups, list(group.categories))


def _sum_up(parts: Sequence[GroupSums], by: By) -> pd.DataFrame:
    """Return the table from the sums of all time windows, sorted by seconds in descending order."""
    sums = GroupSums.merged(parts)
    names = np.array(sums.names, dtype=object)
    table = pd.DataFrame({by.capitalize(): text(names), **attempt_columns(sums)})
    ranks = np.argsort(np.argsort(names))
    order = np.lexsort((ranks, -table["Run Method Seconds"].to_numpy()))
    return table.take(order).reset_index(drop=True)


def _by_task(run: Run, attempts: pd.DataFrame, unsent: Sequence[UnsentTask]) -> pd.DataFrame:
    """Return a table with one row per attempt, then one row per known task without an attempt."""
    workers = run.named
    of_attempt = attempts["worker"].to_numpy()
    origins = {}
    for name, nothing, is_shown in (
        ("step", NO_STEP, has_steps(run)),
        ("client", NO_CLIENT, has_clients(run)),
    ):
        if is_shown:
            known = attempts[name].cat.remove_categories(nothing).astype(object)
            origins[name.capitalize()] = known
    more = len(unsent)
    unknown, none = np.full(more, np.nan), np.full(more, None, dtype=object)

    def texts(values: Any, added: Any = none) -> pd.Series:
        return text(np.append(np.asarray(values, dtype=object), np.asarray(added, dtype=object)))

    def seconds(name: str) -> Any:
        return np.append(attempts[name].to_numpy(dtype=float), unknown)

    return pd.DataFrame(
        {
            "Task": texts(
                run.keys.texts(attempts["key_id"].to_numpy()), [task.key for task in unsent]
            ),
            "Attempt": np.append(attempts["attempt"].to_numpy(), np.ones(more, dtype=np.int64)),
            "Process": texts(workers.labels[of_attempt]),
            "Start Time (UTC)": utc(seconds("start")),
            "Elapsed Seconds": seconds("elapsed"),
            "Process Seconds": seconds("cpu"),
            "Run Method Seconds": seconds("run"),
            "Status": texts(attempts["status"].astype(object), [task.status for task in unsent]),
            "Error Category": texts(attempts["category"].astype(object)),
            "Error Message": texts(attempts["message"]),
            "Function": texts(
                attempts["function"].astype(object), [task.function for task in unsent]
            ),
            "Node": texts(workers.hosts[of_attempt]),
            "Core Wait Seconds": seconds("core_wait"),
            **{label: texts(known) for label, known in origins.items()},
        },
        copy=False,
    )


def attempt_sums(attempts: pd.DataFrame, groups: Groups, names: Sequence[Hashable]) -> GroupSums:
    """Return counts and seconds of attempts, summed by group.

    `groups` assigns a group to each row of `attempts`, and `names` are the names of the groups.
    """
    elapsed, cpu = attempts["elapsed"].to_numpy(), attempts["cpu"].to_numpy()
    start, run = attempts["start"].to_numpy(), attempts["run"].to_numpy()
    lasted = np.where(np.isfinite(elapsed), elapsed, np.nan_to_num(run))
    both = np.isfinite(elapsed) & np.isfinite(cpu)
    again = attempts["again"].to_numpy()
    with np.errstate(over="ignore"):  # Damaged traces may have impossible times.
        ends = start + lasted
    summed = {
        "succeeded": attempts["succeeded"].to_numpy(dtype=float),
        "open": attempts["open"].to_numpy(dtype=float),
        "retried": (again == RETRIED).astype(float),
        "recomputed": (again == RECOMPUTED).astype(float),
        "elapsed": elapsed,
        "cpu": cpu,
        "run": run,
        "core_wait": attempts["core_wait"].to_numpy(),
        "cpu of both": np.where(both, cpu, 0.0),
        "elapsed of both": np.where(both, elapsed, 0.0),
    }
    return GroupSums.by_name(names, groups, summed, {"start": start, "end": ends})


def attempt_columns(sums: GroupSums) -> dict[str, Any]:
    """Return the columns with the sums of attempts."""
    busy = ratio(sums.sum("cpu of both"), sums.sum("elapsed of both")) * 100
    counts = {
        name: sums.sum(name).astype(np.int64)
        for name in ("succeeded", "open", "retried", "recomputed")
    }
    return {
        "Total": sums.rows,
        "Succeeded": counts["succeeded"],
        "Failed": sums.rows - counts["succeeded"] - counts["open"],
        "Retried": counts["retried"],
        "Start Time (UTC)": utc(sums.lowest["start"]),
        "End Time (UTC)": utc(sums.highest["end"]),
        "Elapsed Seconds": sums.known_sum("elapsed"),
        "Process Seconds": sums.known_sum("cpu"),
        "Run Method Seconds": sums.known_sum("run"),
        "Mean Elapsed Seconds": sums.mean("elapsed"),
        "Process / Elapsed (%)": busy,
        "Core Wait Seconds": sums.known_sum("core_wait"),
        "Recomputed": counts["recomputed"],
        "Unfinished": counts["open"],
    }


def _process_sums(run: Run) -> GroupSums:
    """Return counts and seconds of attempts, summed by worker. Codes of workers name the groups."""
    workers, attempts = run.named, find_attempts(run)
    groups = Groups(attempts["worker"].to_numpy(), len(workers))
    return attempt_sums(attempts, groups, range(len(workers)))


def _of_processes(run: Run, parts: Sequence[GroupSums]) -> pd.DataFrame:
    workers, sums = run.named, GroupSums.merged(parts)
    listed = workers_with_tasks(run, workers, np.array(sums.names, dtype=np.int64))
    lives = np.bincount(workers.of_lives, minlength=len(workers))
    sums = GroupSums.merged([sums], listed.tolist())
    table = pd.DataFrame(
        {
            "Node": text(workers.hosts[listed]),
            "Process": text(workers.labels[listed]),
            "Threads": integers(known_thread_counts(run, workers)[listed]),
            "Restarts": lives[listed] - 1,
            "Share of Tasks (%)": _share(sums.rows),
            **attempt_columns(sums),
        }
    )
    return table.take(np.argsort(workers.ranks()[listed])).reset_index(drop=True)


def _of_nodes(run: Run, parts: Sequence[GroupSums]) -> pd.DataFrame:
    workers, sums = run.named, GroupSums.merged(parts)
    listed = workers_with_tasks(run, workers, np.array(sums.names, dtype=np.int64))
    nodes, names = pd.factorize(workers.hosts[listed])
    hosts = workers.hosts[np.array(sums.names, dtype=np.int64)].tolist()
    sums = GroupSums.merged([sums.by(hosts)], names.tolist())
    processes = Groups(nodes, len(names))
    of_threads = known_thread_counts(run, workers)[listed]
    known = processes.known(of_threads) == processes.sizes
    table = pd.DataFrame(
        {
            "Node": text(names),
            "Processes": processes.sizes,
            "Threads": integers(np.where(known, processes.sum(of_threads), np.nan)),
            "Share of Tasks (%)": _share(sums.rows),
            **attempt_columns(sums),
        }
    )
    return table.take(np.argsort(names.astype(str), kind="stable")).reset_index(drop=True)


@question("Attempts by worker process", "reports", in_parts=InParts(_process_sums, _of_processes))
def process_summary(run: Run) -> pd.DataFrame:
    """Sum up `processed_tasks` by worker.

    Returns
    -------
    DataFrame
        One row per worker, sorted by node and name: ``Node``, ``Process``, ``Threads``,
        ``Restarts`` (of the worker with this name), ``Share of Tasks (%)``, and the columns of
        ``processed_tasks("function")``. Workers without tasks are listed if they have a file.
    """
    return _of_processes(run, [_process_sums(run)])


@question("Attempts by node", "reports", in_parts=InParts(_process_sums, _of_nodes))
def node_summary(run: Run) -> pd.DataFrame:
    """Sum up `processed_tasks` by node.

    Returns
    -------
    DataFrame
        One row per host, sorted by name: ``Node``, ``Processes``, ``Threads`` (NA if those of one
        worker are unknown), ``Share of Tasks (%)``, and the columns of
        ``processed_tasks("function")``. Very different percentages on equal nodes show that there
        are more nodes than the run can use.
    """
    return _of_nodes(run, [_process_sums(run)])


def _share(sizes: Array) -> Array:
    return sizes / max(sizes.sum(), 1) * 100


_CELL = ["interval", "rank", "status"]


def _interval_counts(run: Run, interval: float | None = None) -> pd.DataFrame:
    """Count attempts, and attempts that repeat a task, by interval, worker and status."""
    attempts = find_attempts(run)
    attempts = attempts[np.isfinite(attempts["start"])]
    intervals = Intervals.of_span(run.begin, run.end, interval)
    cells = {
        "interval": intervals.places(attempts["start"].to_numpy()),
        "rank": run.named.ranks()[attempts["worker"].to_numpy()],
        "status": attempts["status"].astype(object).to_numpy(),
        "tasks": 1,
        "retried": (attempts["attempt"] > 1).to_numpy().astype(np.int64),
    }
    return pd.DataFrame(cells).groupby(_CELL, dropna=False, as_index=False).sum()


def _over_intervals(
    run: Run, parts: Sequence[pd.DataFrame], interval: float | None = None
) -> pd.DataFrame:
    workers = run.named
    counts = pd.concat(parts).groupby(_CELL, dropna=False, as_index=False).sum()
    worker = np.argsort(workers.ranks())[counts["rank"].to_numpy(dtype=np.int64)]
    starts = Intervals.of_span(run.begin, run.end, interval).starts()
    return pd.DataFrame(
        {
            INTERVAL: starts[counts["interval"].to_numpy(dtype=np.int64)],
            "Host": text(workers.hosts[worker]),
            "Worker": text(workers.labels[worker]),
            "Status": text(counts["status"].to_numpy()),
            "Tasks": counts["tasks"].to_numpy(dtype=np.int64),
            "Retried": counts["retried"].to_numpy(dtype=np.int64),
        }
    )


@question("Attempts over time", "reports", in_parts=InParts(_interval_counts, _over_intervals))
def task_counts(run: Run, interval: float | None = None) -> pd.DataFrame:
    """Count the attempts at tasks by interval, host, worker and status.

    Parameters
    ----------
    interval
        Seconds. None chooses a length that gives at most 60 intervals.

    Returns
    -------
    DataFrame
        One row per combination that occurs, sorted by ``Time Interval (seconds from begin)`` (in
        which the attempts started), ``Host``, ``Worker`` and ``Status``. ``Tasks`` is the number of
        attempts, and ``Retried`` the number of them that were not the first attempt at their task.
    """
    return _over_intervals(run, [_interval_counts(run, interval)], interval)
