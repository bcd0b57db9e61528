"""Thread time by category, the cost of a run, and the worker instances and how they ended."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.model.accounting import (
    Accounts,
    account_window,
    accounts_of,
    hours_of_groups,
    hours_of_run,
    make_accounts,
    price_of_findings,
)
from dasfprof.analysis.model.steps import groups_by
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.columns import codes_of, integers, known_texts, text
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.config.kinds import Price
from dasfprof.config.options import setting
from dasfprof.database.columns import Array
from dasfprof.text import job_words

Grouping = Literal["cluster", "host", "worker", "function", "step", "line"]

_LABELS = np.array([spent.label for spent in ThreadTime], dtype=object)
_MEANINGS = np.array([spent.meaning for spent in ThreadTime], dtype=object)

#: Label of the time in which no task occupied threads, in tables by function, step or line.
NO_TASK = "(idle)"


@question(
    "Where the time of all threads went",
    "time",
    short="time",
    overview=4,
    in_parts=InParts(
        lambda run, **_: account_window(run),
        lambda run, parts, by="cluster": _by(run, accounts_of(run, parts), by),
    ),
)
def time_accounting(run: Run, by: Grouping = "cluster") -> pd.DataFrame:
    """Divide the thread time of all workers into categories.

    Parameters
    ----------
    by
        ``"cluster"``, ``"host"``, ``"worker"``, ``"function"``, ``"step"`` or ``"line"`` (the
        program line that built the tasks).

    Returns
    -------
    DataFrame
        One row per group and category, busy categories first. Empty categories are left out:

        - ``Host``, ``Worker``, ``Function``, ``Step`` or ``Line``, depending on `by`. ``(idle)``
          stands for threads without a task, ``(no step)`` for tasks without a step, and a reason in
          parentheses for tasks without a line
        - ``Class``: the category
        - ``Thread Time (s)``, ``Share (%)`` of the group's thread time
        - ``Busy``: whether a task occupied the thread
        - ``Meaning``

        Every second of every thread counts in exactly one category. The seconds of a worker sum to
        its number of threads times its lifetime. The lifetime begins when the worker joined or with
        its first event, whichever is earlier. It ends when it left or with its last event,
        whichever is later.

    Notes
    -----
    The reason for an idle thread is first looked for on its own worker: the worker is starting,
    closing or paused, or it has a ready task, a task that waits for inputs, or a task in transit.
    Otherwise, the reason depends on the work that was available in the cluster. If waits for CPU
    were not recorded, they count as blocked. Without a scheduler's file, it is unknown why a worker
    had no task.
    """
    return _by(run, make_accounts(run), by)


def _by(run: Run, accounts: Accounts, by: Grouping) -> pd.DataFrame:
    """Return the table of thread time with the groups `by`."""
    if by in accounts.busy:
        names, seconds = accounts.with_idle(by, NO_TASK)
        return _table([by.capitalize()], [(name,) for name in names], seconds)
    columns = {"cluster": [], "host": ["Host"], "worker": ["Host", "Worker"]}[by]
    workers = run.workers.loc[accounts.lives.ids]
    rows = zip(workers["host"], workers["worker"], strict=True)
    return _table(columns, [row[: len(columns)] for row in rows], accounts.of_lives)


def _table(columns: list[str], names: list[tuple[str, ...]], seconds: Array) -> pd.DataFrame:
    """Return the thread time of each group by category. Empty categories are left out."""
    distinct = sorted(set(names)) if columns else [()]
    sums = np.zeros((len(distinct), len(ThreadTime)))
    np.add.at(sums, codes_of(names, distinct), seconds)
    of_tasks = columns in (["Function"], ["Step"], ["Line"])
    if of_tasks:
        order = np.argsort(-sums.sum(axis=1), kind="stable")
        distinct, sums = [distinct[place] for place in order], sums[order]
    totals = sums.sum(axis=1, keepdims=True)
    shown = np.flatnonzero((sums > 0).any(axis=0))
    parts = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
    names_of_rows = {
        name: text([group[index] for group in distinct for _ in shown])
        for index, name in enumerate(columns)
    }
    table = pd.DataFrame(
        {
            **names_of_rows,
            "Class": text(np.tile(_LABELS[shown], len(distinct))),
            "Thread Time (s)": sums[:, shown].ravel(),
            "Share (%)": parts[:, shown].ravel() * 100,
            "Busy": np.tile(shown < USES, len(distinct)),
            "Meaning": text(np.tile(_MEANINGS[shown], len(distinct))),
        }
    )
    # A function, a step or a line is never idle.
    return table[table["Thread Time (s)"] > 0].reset_index(drop=True) if of_tasks else table


def _came_and_went(run: Run) -> bool:
    """Return whether workers belonged to batch jobs, or worker processes ended during the run."""
    lives = run.workers[(run.workers["kind"] == "worker").to_numpy()]
    return bool(lives["job"].notna().any() or lives[["exit_code", "silent"]].notna().any(axis=None))


def _task_runs(run: Run) -> Array:
    """Return how many task runs of each worker instance were recorded."""
    return np.bincount(run.tasks["worker_id"].to_numpy(), minlength=len(run.workers))


@question(
    "Worker instances, jobs and exits",
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
    """List the worker instances with their host and job, when they joined and left, and why.

    Returns
    -------
    DataFrame
        One row per worker instance, in the order in which they joined:

        - ``Worker``, ``Node``, ``Process``
        - ``Job``: the environment variables that identify a job of a batch system or a cloud, such
          as ``SLURM_JOB_ID 4711``. Empty if there are none, or if they were not recorded
        - ``Threads``, ``Memory Limit (MB)``
        - ``Joined (s)``, ``Left (s)``: the scheduler's times since the start of the run. NA if the
          scheduler did not report it. A worker that was present before recording joins at 0
        - ``Reason``: why it left, in the scheduler's words
        - ``Ended``: exit code, signal, or the nanny's message; empty if unknown
        - ``Task Runs``: number of recorded task runs

    Notes
    -----
    ``Reason`` is what the scheduler learned first, which may not be the root cause. Batch systems
    end jobs with SIGTERM and then SIGKILL, at the time limit as well as for preemption. Their own
    log says which.
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
            # As a text, the number is printed without thousands separators.
            "Process": rows["pid"]
            .astype(object)
            .map(str, na_action="ignore")
            .reset_index(drop=True),
            "Job": text([job_words(job) for job in rows["job"]]),
            "Threads": integers(rows["nthreads"].to_numpy(dtype=float, na_value=np.nan)),
            "Memory Limit (MB)": rows["memory_limit"].to_numpy() / 1e6,
            "Joined (s)": np.maximum(run.since_begin(rows["joined"]), 0.0),
            "Left (s)": np.maximum(run.since_begin(rows["left"]), 0.0),
            "Reason": known_texts(rows["left_reason"]),
            "Ended": text(ended),
            "Task Runs": ran[lives],
        }
    )


Spender = Literal["step", "line", "function", "client", "finding"]


@question("Cost of the run", "time")
def cost(run: Run, by: Spender = "step", price: float | str | None = None) -> pd.DataFrame:
    """List the worker hours of a run and their price, by what they were spent on.

    Parameters
    ----------
    by
        ``"step"`` (of the pipeline), ``"line"`` (of your program), ``"function"``, ``"client"``
        (that submitted the graph; to name your clients, use ``Client(name="ann")``), or
        ``"finding"``.
    price
        Price of a worker per hour, such as ``0.12`` or ``"0.12 EUR"``, or of a thread, such as
        ``"0.03 EUR/thread"``. None uses the setting ``dasfprof.price``. Without a price, only hours
        are listed.

    Returns
    -------
    DataFrame
        One row per group, sorted by hours in descending order (findings as in `diagnose`). Rows for
        threads that no task occupied follow: ``(waiting)`` while clients had work in progress, and
        ``(idle)`` while they had none or the worker was starting or closing. If the trace is
        limited to one client, ``(other clients)`` is the time in which tasks of other clients
        occupied threads.

        - depending on `by`: ``Step``, ``Line``, ``Function`` or ``Client``; or ``Finding`` and
          ``Rule``
        - ``Worker Hours``: each thread counts as its fraction of a worker. All rows sum to the
          hours of all workers over their lifetimes, see `time_accounting`
        - ``Share (%)`` of all worker hours
        - ``Cost``, with a price. ``attrs["currency"]`` is the label of its currency

        For findings, the cost is the potential savings in seconds times the mean cost of all
        workers per second, or NA if the savings are unknown. Findings overlap, so they do not add
        up.

    Raises
    ------
    InvalidArgumentError
        If `by` or `price` is invalid.

    Notes
    -----
    Only the recorded time has a price. A cluster also costs before and after it.
    """
    declared: Price | None = setting("price", price)
    if by == "finding":
        findings = diagnosis.diagnose(run)
        rows = price_of_findings(run, findings, declared)
        return _with_currency(pd.concat([findings[["Finding", "Rule"]], rows], axis=1), declared)
    hours = hours_of_groups(run, *groups_by(by, run.task_runs, run.unseen))
    spent = np.array([each.workers for each in hours.values()])
    total = hours_of_run(run)["total"].workers
    table = pd.DataFrame(
        {
            by.capitalize(): text(list(hours)),
            "Worker Hours": spent,
            "Share (%)": ratio(spent, total) * 100,
        }
    )
    if declared is not None:
        table["Cost"] = [each.price(declared) for each in hours.values()]
    last = np.maximum(np.arange(len(spent)) - len(spent) + 4, 0)
    order = np.lexsort((-spent, last))
    return _with_currency(table.take(order[(spent > 0)[order]]).reset_index(drop=True), declared)


def _with_currency(table: pd.DataFrame, price: Price | None) -> pd.DataFrame:
    table.attrs["currency"] = "" if price is None else price.label
    return table
