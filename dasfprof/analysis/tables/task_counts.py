"""How many tasks ended where, when and how."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.intervals import Intervals
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import INTERVAL, text
from dasfprof.analysis.trace import Trace


@question("How many tasks ended where, when and how", "reports")
def task_counts(trace: Trace, interval: float | None = None) -> pd.DataFrame:
    """Count the attempts at tasks by interval, host, worker and status.

    Parameters
    ----------
    interval
        Seconds; None chooses a length that gives 60 intervals at most.

    Returns
    -------
    DataFrame
        A row for what there was: ``Time Interval (seconds from begin)`` (in which they
        started), ``Host``, ``Worker``, ``Status``, ``Tasks``; in this order.
    """
    workers, attempts = NamedWorkers(trace), find_attempts(trace)
    intervals = Intervals.of_span(trace.begin, trace.end, interval)
    start = attempts["start"].to_numpy()
    timed = np.isfinite(start)
    status = attempts["status"].cat
    # The statuses are in the order of their names; NA comes last.
    names = [*status.categories, None]
    codes = np.where(status.codes < 0, len(names) - 1, status.codes)
    places = intervals.places(start[timed])
    ranks = workers.ranks()[attempts["worker"].to_numpy()[timed]]
    cells = (places * max(len(workers), 1) + ranks) * len(names) + codes[timed]
    distinct, counts = np.unique(cells, return_counts=True)
    rest, status_code = np.divmod(distinct, len(names))
    place, rank = np.divmod(rest, max(len(workers), 1))
    worker = np.argsort(workers.ranks())[rank]
    return pd.DataFrame(
        {
            INTERVAL: intervals.starts()[place],
            "Host": text(workers.hosts[worker]),
            "Worker": text(workers.labels[worker]),
            "Status": text(np.array(names, dtype=object)[status_code]),
            "Tasks": counts,
        }
    )
