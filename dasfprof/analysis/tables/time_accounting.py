"""Where the time of threads and processes went, what it cost, and the lives of workers."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.model.account_sums import Accounts, WindowAccount, accounts_of
from dasfprof.analysis.model.accounting import (
    HOUR,
    account_window,
    hours_of_groups,
    hours_of_run,
    make_accounts,
    price_of_findings,
)
from dasfprof.analysis.model.steps import client_groups, line_groups, step_groups
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.columns import known_texts, places_of, text, whole
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.config import setting
from dasfprof.config.kinds import Price
from dasfprof.database.columns import Array
from dasfprof.text import job_words

Grouping = Literal["cluster", "host", "worker", "function", "step", "line"]

_LABELS = np.array([spent.label for spent in ThreadTime], dtype=object)
_MEANINGS = np.array([spent.meaning for spent in ThreadTime], dtype=object)

#: What stands for a function or step in the rows of threads that no task held.
NO_TASK = "(idle)"


def _of_part(run: Run, by: Grouping = "cluster") -> WindowAccount:
    return account_window(run)


@question(
    "Where the time of all threads went",
    "time",
    short="time",
    overview=4,
    in_parts=InParts(
        _of_part, lambda run, parts, by="cluster": _by(run, accounts_of(run, parts), by)
    ),
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
    return _by(run, make_accounts(run), by)


def _by(run: Run, accounts: Accounts, by: Grouping) -> pd.DataFrame:
    """Make the table of accounts."""
    workers = run.workers.loc[accounts.lives.ids]
    names: list[tuple[str, ...]]
    if by in accounts.busy:
        groups, busy = accounts.busy[by]
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
    names_of_rows = {
        name: text([group[index] for group in distinct for _ in kept])
        for index, name in enumerate(columns)
    }
    table = pd.DataFrame(
        {
            **names_of_rows,
            "Class": text(np.tile(_LABELS[kept], len(distinct))),
            "Thread Time (s)": sums[:, kept].ravel(),
            "Share (%)": parts[:, kept].ravel() * 100,
            "Busy": np.tile(kept < USES, len(distinct)),
            "Meaning": text(np.tile(_MEANINGS[kept], len(distinct))),
        }
    )
    # Functions, steps and lines do not idle.
    return table[table["Thread Time (s)"] > 0].reset_index(drop=True) if of_tasks else table


# --- The lives of workers: each one's host, job and process, when it came and went, and why -------


def _came_and_went(run: Run) -> bool:
    """Return whether workers had jobs, or processes of them ended while the cluster went on."""
    lives = run.workers[(run.workers["kind"] == "worker").to_numpy()]
    return bool(lives["job"].notna().any() or lives[["exit_code", "silent"]].notna().any(axis=None))


def _task_runs(run: Run) -> Array:
    """Count the task runs of each life in its files."""
    return np.bincount(run.tasks["worker_id"].to_numpy(), minlength=len(run.workers))


@question(
    "Workers: their jobs, and how they ended",
    "balance",
    page="workers",
    expendable=("Process", "Memory Limit (MB)", "Node"),
    needs=_came_and_went,
    in_parts=InParts(
        _task_runs,
        lambda run, parts: _lives_table(run, sum(parts, np.zeros(len(run.workers), int))),
    ),
)
def workers(run: Run) -> pd.DataFrame:
    """List the lives of workers: on which host and in which job, when they came and went, and why.

    Returns
    -------
    DataFrame
        A row a life of a worker's process, as they came: ``Worker``, ``Node``, ``Process``;
        ``Job``: the variables in which a batch system or a cloud names its job, such as
        ``SLURM_JOB_ID 4711``, empty: none was set, or nobody recorded it; ``Threads``, ``Memory
        Limit (MB)``; ``Joined (s)`` and ``Left (s)`` the cluster (from the trace's begin, by the
        scheduler; NA where it told nothing; one that was there before joins as recording begins);
        ``Reason`` of the scheduler, as Dask calls it; ``Ended`` by what is known of its process:
        exit code, signal, or its nanny's word; empty: nothing is; ``Task Runs`` in its files.

    Notes
    -----
    The reason is what the scheduler was told first, not why somebody asked. Batch systems end jobs
    with SIGTERM and then SIGKILL, whether for a walltime or a preemption: their own log says which.
    """
    return _lives_table(run, _task_runs(run))


def _lives_table(run: Run, ran: Array) -> pd.DataFrame:
    lives = np.flatnonzero((run.workers["kind"] == "worker").to_numpy())
    rows = run.workers.iloc[lives]
    begins = np.fmin(rows["joined"].to_numpy(), rows["first_seen"].to_numpy())
    order = np.argsort(begins, kind="stable")
    lives, rows = lives[order], rows.iloc[order]
    ended = [exit_words(run, life) for life in lives.tolist()]
    return pd.DataFrame(
        {
            "Worker": known_texts(rows["worker"]),
            "Node": known_texts(rows["host"]),
            # A text, which no face gives separators of thousands.
            "Process": rows["pid"]
            .astype(object)
            .map(str, na_action="ignore")
            .reset_index(drop=True),
            "Job": text([job_words(job) for job in rows["job"]]),
            "Threads": whole(rows["nthreads"].to_numpy(dtype=float, na_value=np.nan)),
            "Memory Limit (MB)": rows["memory_limit"].to_numpy() / 1e6,
            "Joined (s)": np.maximum(run.since_begin(rows["joined"]), 0.0),
            "Left (s)": np.maximum(run.since_begin(rows["left"]), 0.0),
            "Reason": known_texts(rows["left_reason"]),
            "Ended": text(ended),
            "Task Runs": ran[lives],
        }
    )


# --- What the run cost: worker-hours and their price, by what and whom they were spent on ---------

Spender = Literal["step", "line", "function", "client", "worker", "finding"]


@question("What the run cost", "time")
def cost(run: Run, by: Spender = "step", price: float | str | None = None) -> pd.DataFrame:
    """Say what a run cost: the hours of its workers, by what they were spent on, and their price.

    Parameters
    ----------
    by
        ``"step"`` (of the pipeline), ``"line"`` (of the program), ``"function"``, ``"client"``
        (whose graph it was: give clients names, ``Client(name="ann")``), ``"worker"`` or
        ``"finding"``.
    price
        Of a worker for an hour, as ``0.12`` or ``"0.12 EUR"``; ``"0.03 EUR/thread"``: of a thread.
        None: the setting ``dasfprof.price``; without one hours are told alone.

    Returns
    -------
    DataFrame
        A row a group, the dearest first, and after them the threads that no task held:
        ``(waiting)`` while clients had work under way, ``(idle)`` while they had none, or the
        worker was coming or going: nobody's. Of the trace of one client, ``(other clients)`` is
        the time in which tasks of others held threads.

        - ``Step``, ``Line``, ``Function`` or ``Client``; ``Host`` and ``Worker``; or ``Finding``
          and ``Rule``
        - ``Worker Hours``: a second of a thread is its part of the worker's. All rows sum to the
          hours of all workers, each from its first fact, or when it joined, to its last, or when it
          left. Of workers, whole hours, with ``Busy (%)``, the share that tasks held
        - ``Share (%)`` of these hours
        - ``Cost``, with a price; ``attrs["currency"]`` is the label of that

        Of findings: their seconds at stake, times what all workers cost a second in the mean; NA
        where these are unknown. Findings overlap: they do not add up.

    Raises
    ------
    InvalidArgumentError
        If it cannot be grouped so, or that is no price.

    Notes
    -----
    Only what was recorded is priced: a cluster costs before and after as well.
    """
    declared: Price | None = setting("price", price)
    if by == "finding":
        findings = diagnosis.diagnose(run)
        rows = price_of_findings(run, findings, declared)
        return _with_currency(pd.concat([findings[["Finding", "Rule"]], rows], axis=1), declared)
    if by == "worker":
        return _with_currency(_cost_of_workers(run, declared), declared)
    ran = run.whole
    if by == "function":
        codes, names = ran.slots.function, list(ran.slots.functions)
    else:
        grouped = {"step": step_groups, "line": line_groups, "client": client_groups}[by]
        codes, names = grouped(ran.tasks, ran.unseen)
    hours = hours_of_groups(run, codes, names)
    own = np.array([each.workers for each in hours.values()])
    whole = hours_of_run(run)["whole"].workers
    table = pd.DataFrame(
        {
            by.capitalize(): text(list(hours)),
            "Worker Hours": own,
            "Share (%)": ratio(own, np.full(len(own), whole)) * 100,
        }
    )
    if declared is not None:
        table["Cost"] = [each.price(declared) for each in hours.values()]
    last = np.maximum(np.arange(len(own)) - len(own) + 4, 0)
    order = np.lexsort((-own, last))
    return _with_currency(table.take(order[(own > 0)[order]]).reset_index(drop=True), declared)


def _cost_of_workers(run: Run, price: Price | None) -> pd.DataFrame:
    """Return the hours of each worker's lives."""
    accounts = make_accounts(run)
    seconds, threads = np.nan_to_num(accounts.of_lives), accounts.lives.threads
    whole = seconds.sum(axis=1)
    hours = ratio(whole, threads) / HOUR
    table = pd.DataFrame(
        {
            **places_of(run, accounts.lives.ids),
            "Worker Hours": hours,
            "Share (%)": ratio(hours, np.full(len(hours), hours.sum())) * 100,
            "Busy (%)": ratio(seconds[:, :USES].sum(axis=1), whole) * 100,
        }
    )
    if price is not None:
        table["Cost"] = whole / HOUR if price.per_thread else hours
        table["Cost"] *= price.amount
    order = sorted(range(len(table)), key=lambda row: (table["Host"][row], table["Worker"][row]))
    return table.take(order).reset_index(drop=True)


def _with_currency(table: pd.DataFrame, price: Price | None) -> pd.DataFrame:
    table.attrs["currency"] = "" if price is None else price.label
    return table
