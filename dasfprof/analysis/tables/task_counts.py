"""How many tasks ended where, when and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.intervals import Intervals
from dasfprof.analysis.tables.in_parts import InParts
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import INTERVAL, text

#: A number of an interval, the rank of a worker, and the status of attempts.
Cell = tuple[int, int, str | None]


def _counts(run: Run, interval: float | None = None) -> Counter[Cell]:
    workers, attempts = run.workers, find_attempts(run)
    intervals = Intervals.of_span(run.begin, run.trace.end, interval)
    start = attempts["start"].to_numpy()
    timed = np.isfinite(start)
    status = attempts["status"].cat
    names = [*status.categories, None]
    codes = np.where(status.codes < 0, len(names) - 1, status.codes)
    places = intervals.places(start[timed])
    ranks = workers.ranks()[attempts["worker"].to_numpy()[timed]]
    cells = (places * max(len(workers), 1) + ranks) * len(names) + codes[timed]
    distinct, counts = np.unique(cells, return_counts=True)
    rest, status_code = np.divmod(distinct, len(names))
    place, rank = np.divmod(rest, max(len(workers), 1))
    found = zip(place.tolist(), rank.tolist(), status_code.tolist(), counts.tolist(), strict=True)
    return Counter({(at, who, names[how]): count for at, who, how, count in found})


def _table(run: Run, parts: Sequence[Counter[Cell]], interval: float | None = None) -> pd.DataFrame:
    workers = run.workers
    counts: Counter[Cell] = Counter()
    for part in parts:
        counts.update(part)
    # The statuses are in the order of their names; NA comes last.
    cells = sorted(counts, key=lambda cell: (cell[:2], cell[2] is None, cell[2] or ""))
    starts = Intervals.of_span(run.begin, run.trace.end, interval).starts()
    by_rank = np.argsort(workers.ranks())
    worker = by_rank[np.array([rank for _, rank, _ in cells], dtype=np.int64)]
    return pd.DataFrame(
        {
            INTERVAL: starts[np.array([place for place, _, _ in cells], dtype=np.int64)],
            "Host": text(workers.hosts[worker]),
            "Worker": text(workers.labels[worker]),
            "Status": text(np.array([status for _, _, status in cells], dtype=object)),
            "Tasks": np.array([counts[cell] for cell in cells], dtype=np.int64),
        }
    )


@question("How many tasks ended where, when and how", "reports", in_parts=InParts(_counts, _table))
def task_counts(run: Run, interval: float | None = None) -> pd.DataFrame:
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
    return _table(run, [_counts(run, interval)], interval)
