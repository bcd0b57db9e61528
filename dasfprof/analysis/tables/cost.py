"""What a run cost: worker-hours and their price, by what and whom they were spent on."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.model.accounting import make_accounts
from dasfprof.analysis.model.cost import (
    HOUR,
    client_groups,
    hours_of_groups,
    hours_of_run,
    price_of_findings,
)
from dasfprof.analysis.model.steps import line_groups, step_groups
from dasfprof.analysis.model.thread_time import USES
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.config import setting
from dasfprof.config.kinds import Price
from dasfprof.errors import InvalidArgumentError

By = Literal["step", "line", "function", "client", "worker", "finding"]


@question("What the run cost", "time")
def cost(run: Run, by: By = "step", price: float | str | None = None) -> pd.DataFrame:
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
        worker was coming or going: nobody's.

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
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    declared: Price | None = setting("price", price)
    if by == "finding":
        findings = diagnosis.diagnose(run)
        rows = price_of_findings(run, findings, declared)
        return _told(pd.concat([findings[["Finding", "Rule"]], rows], axis=1), declared)
    if by == "worker":
        return _told(_of_workers(run, declared), declared)
    ran = run.whole
    if by == "client":
        codes, names = client_groups(run)
    elif by == "function":
        codes, names = ran.slots.function, list(ran.slots.functions)
    else:
        grouped = step_groups if by == "step" else line_groups
        codes, names = grouped(ran.tasks, ran.unseen)
    hours = hours_of_groups(run, codes, names)
    own = np.array([each.workers for each in hours.values()])
    whole = hours_of_run(run)["whole"].workers
    table = pd.DataFrame(
        {
            by.capitalize(): text(np.array(list(hours), dtype=object)),
            "Worker Hours": own,
            "Share (%)": ratio(own, np.full(len(own), whole)) * 100,
        }
    )
    if declared is not None:
        table["Cost"] = [each.price(declared) for each in hours.values()]
    last = np.maximum(np.arange(len(own)) - len(own) + 3, 0)
    order = np.lexsort((-own, last))
    return _told(table.take(order[(own > 0)[order]]).reset_index(drop=True), declared)


def _of_workers(run: Run, price: Price | None) -> pd.DataFrame:
    """Return the hours of each worker's lives."""
    accounts = make_accounts(run)
    who = run.workers.loc[accounts.lives.ids]
    seconds, threads = np.nan_to_num(accounts.of_lives), accounts.lives.threads
    whole = seconds.sum(axis=1)
    hours = ratio(whole, threads) / HOUR
    table = pd.DataFrame(
        {
            "Host": text(who["host"].to_numpy(dtype=object)),
            "Worker": text(who["worker"].to_numpy(dtype=object)),
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


def _told(table: pd.DataFrame, price: Price | None) -> pd.DataFrame:
    """Return a table with its currency."""
    table.attrs["currency"] = "" if price is None else price.label
    return table
