"""How many attempts at tasks ended when, where and how, and how many of them were retries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.numeric.intervals import Intervals
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import INTERVAL, text
from dasfprof.analysis.tables.questions import InParts, question

_CELL = ["interval", "rank", "status"]


def _counts(run: Run, interval: float | None = None) -> pd.DataFrame:
    """Count attempts, and those after the first, by interval, rank of worker and status."""
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


def _table(run: Run, parts: Sequence[pd.DataFrame], interval: float | None = None) -> pd.DataFrame:
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


@question("Attempts over time", "reports", in_parts=InParts(_counts, _table))
def task_counts(run: Run, interval: float | None = None) -> pd.DataFrame:
    """Count the attempts at tasks by interval, host, worker and status.

    Parameters
    ----------
    interval
        Seconds; None chooses a length that gives 60 intervals at most.

    Returns
    -------
    DataFrame
        A row for each combination that occurs: ``Time Interval (seconds from begin)`` (in which the
        attempts started), ``Host``, ``Worker``, ``Status``, ``Tasks`` (the number of attempts),
        ``Retried`` (how many of them were not the first attempt at their task), in this order.
    """
    return _table(run, [_counts(run, interval)], interval)
