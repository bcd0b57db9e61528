"""Where every second of every thread went, and whose the CPU of processes was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.account_sums import Accounts, WindowAccount, accounts_of
from dasfprof.analysis.model.accounting import account_window, make_accounts
from dasfprof.analysis.model.processes import process_cpu as whose_cpu
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

Grouping = Literal["cluster", "host", "worker", "function", "step", "line"]

_LABELS = np.array([spent.label for spent in ThreadTime], dtype=object)
_MEANINGS = np.array([spent.meaning for spent in ThreadTime], dtype=object)

#: What stands for a function or step in the rows of threads that no task held.
NO_TASK = "(idle)"


def _of_part(run: Run, by: Grouping = "cluster") -> WindowAccount:
    return account_window(run)


def _combined(run: Run, parts: Sequence[WindowAccount], by: Grouping = "cluster") -> pd.DataFrame:
    return _by(run, accounts_of(run, parts), by)


@question(
    "Where the time of all threads went",
    "time",
    short="time",
    overview=4,
    in_parts=InParts(_of_part, _combined),
)
def time_accounting(run: Run, by: Grouping = "cluster") -> pd.DataFrame:
    """Put every second of every thread of every worker's life into exactly one class.

    Parameters
    ----------
    by
        ``"cluster"``, ``"host"``, ``"worker"``, ``"function"``, ``"step"`` or ``"line"`` (of the
        program, that built the tasks).

    Returns
    -------
    DataFrame
        A row a group and class, busy classes first; classes that nothing is in are left out:

        - ``Host``, ``Worker``, ``Function``, ``Step`` or ``Line``, as grouped by; ``(idle)`` in
          place of a function, step or line for threads that no task held, ``(no step)`` for tasks
          of none, and why in brackets for tasks of no line
        - ``Class``, ``Thread Time (s)``, ``Share (%)`` of the group's whole, ``Busy`` (whether
          a task held the thread), ``Meaning``

        The times sum to each worker's threads times the seconds of its life: from its
        first fact, or when it joined, to its last, or when it left.

    Notes
    -----
    An idle thread is explained by its own worker first (not running, paused, a ready task,
    one that waits for its inputs, one on its way), else by what the whole cluster had to do.
    Where the wait for a core was not recorded it counts as blocked. Without a scheduler's
    file nobody knows why a worker had no task.
    """
    if by not in get_args(Grouping):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(Grouping))}.")
    return _by(run, make_accounts(run), by)


def _by(run: Run, accounts: Accounts, by: Grouping) -> pd.DataFrame:
    """Make the table of accounts."""
    workers = run.workers.loc[accounts.lives.ids]
    names: list[tuple[str, ...]]
    busy_groups = {
        "function": (accounts.of_functions, accounts.functions),
        "step": (accounts.of_steps, accounts.steps),
        "line": (accounts.of_lines, accounts.lines),
    }
    if by in busy_groups:
        busy, groups = busy_groups[by]
        idle = accounts.of_lives.sum(axis=0)
        idle[:USES] = 0.0
        seconds = np.vstack([busy, idle])
        columns, names = [by.capitalize()], [(name,) for name in (*groups, NO_TASK)]
    else:
        seconds = accounts.of_lives
        columns = {"cluster": [], "host": ["Host"], "worker": ["Host", "Worker"]}[by]
        rows = zip(workers["host"], workers["worker"], strict=True)
        names = [row[: len(columns)] for row in rows]
    return _table(columns, names, seconds)


def _table(columns: list[str], names: list[tuple[str, ...]], seconds: Array) -> pd.DataFrame:
    """List the classes of each group; those that no group has are left out."""
    distinct = sorted(set(names)) if columns else [()]
    places = {name: place for place, name in enumerate(distinct)}
    sums = np.zeros((len(distinct), len(ThreadTime)))
    np.add.at(sums, [places[name] for name in names], seconds)
    of_tasks = columns in (["Function"], ["Step"], ["Line"])
    if of_tasks:
        order = np.argsort(-sums.sum(axis=1), kind="stable")
        distinct, sums = [distinct[place] for place in order], sums[order]
    totals = sums.sum(axis=1, keepdims=True)
    kept = np.flatnonzero((sums > 0).any(axis=0))
    parts = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
    table = {
        name: pd.Series([group[place] for group in distinct for _ in kept], dtype=object)
        for place, name in enumerate(columns)
    }
    whole = pd.DataFrame(
        {
            **table,
            "Class": pd.Series(np.tile(_LABELS[kept], len(distinct)), dtype=object),
            "Thread Time (s)": sums[:, kept].ravel(),
            "Share (%)": parts[:, kept].ravel() * 100,
            "Busy": np.tile(kept < USES, len(distinct)),
            "Meaning": pd.Series(np.tile(_MEANINGS[kept], len(distinct)), dtype=object),
        }
    )
    if of_tasks:  # they do not idle
        whole = whole[whole["Thread Time (s)"] > 0].reset_index(drop=True)
    return whole


def has_process_cpu(run: Run) -> bool:
    """Return whether processes of workers were sampled."""
    return len(run.samples) > 0


@question("Whose the CPU of processes was", "time", short="process-cpu", needs=has_process_cpu)
def process_cpu(run: Run) -> pd.DataFrame:
    """Divide the CPU of each worker's process among its users, from first to last sample.

    Returns
    -------
    DataFrame
        A row a process and user of it, processes by host and worker, the most CPU first:

        - ``Host``, ``Worker`` (the first, where several share a process)
        - ``Used By``: ``tasks``: the threads of task runs; ``other threads``: those that tasks'
          libraries or P2P shuffles started, while one function alone ran; ``event loop, Dask``:
          with dasfprof's threads and the main thread; ``no task``: other threads while none ran;
          ``unapportioned``: other threads while several functions ran, or coroutines, and where
          nothing tells them from the event loop
        - ``Function``: for the first two; empty else
        - ``CPU (s)``; ``Uncertain (s)``: by how much it may be off, as nobody knows when a task run
          computed
        - ``Share (%)``: of the process's
    """
    found = whose_cpu(run)
    rows: list[tuple[int, str, str, float, float]] = []
    for worker in found.processes.index.tolist():
        own = found.processes.loc[worker]
        functions = found.functions[found.functions["worker_id"] == worker]
        used = [
            row
            for name, tasks, others, uncertain in zip(
                *(functions[name] for name in ("function", "tasks", "others", "uncertain")),
                strict=True,
            )
            for row in (("tasks", name, tasks, 0.0), ("other threads", name, others, uncertain))
        ]
        used += [
            ("event loop, Dask", "", own["service"], 0.0),
            ("no task", "", own["idle"], 0.0),
            ("unapportioned", "", own["unapportioned"], 0.0),
        ]
        some = [row for row in used if row[2] > 0]
        rows += [(worker, *row) for row in sorted(some, key=lambda row: -row[2])]
    workers = run.workers.iloc[[row[0] for row in rows]]
    seconds = np.array([row[3] for row in rows], dtype=float)
    whole = found.processes["seconds"].reindex([row[0] for row in rows]).to_numpy(dtype=float)
    table = pd.DataFrame(
        {
            "Host": text(workers["host"].to_numpy(dtype=object)),
            "Worker": text(workers["worker"].to_numpy(dtype=object)),
            "Used By": text(np.array([row[1] for row in rows], dtype=object)),
            "Function": text(np.array([row[2] for row in rows], dtype=object)),
            "CPU (s)": seconds,
            "Uncertain (s)": np.array([row[4] for row in rows], dtype=float),
            "Share (%)": seconds / whole * 100,
        }
    )
    order = sorted(range(len(rows)), key=lambda row: (table["Host"][row], table["Worker"][row]))
    return table.take(order).reset_index(drop=True)
