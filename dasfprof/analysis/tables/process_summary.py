"""How many tasks each worker process, and each node, worked off, and in what time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.workers import NamedWorkers, known_thread_counts, workers_with_tasks
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.tables.processed_tasks import count_attempts
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, whole
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


@question("What each worker process worked off", "reports")
def process_summary(trace: Trace) -> pd.DataFrame:
    """Sum up `processed_tasks` by worker.

    Returns
    -------
    DataFrame
        A row a worker, by node and name: ``Node``, ``Process``, ``Threads``, ``Restarts``
        (of a worker of this name), ``Share of Tasks (%)``, and the columns that
        `processed_tasks` has by function. A worker that had no task is listed where a file
        of it is there.
    """
    workers, attempts = NamedWorkers(trace), find_attempts(trace)
    of_attempt = attempts["worker"].to_numpy()
    listed = workers_with_tasks(trace, workers, of_attempt)
    groups = _regrouped(of_attempt, listed, len(workers))
    lives = np.bincount(workers.of_lives, minlength=len(workers))
    table = pd.DataFrame(
        {
            "Node": text(workers.hosts[listed]),
            "Process": text(workers.labels[listed]),
            "Threads": whole(known_thread_counts(trace, workers)[listed]),
            "Restarts": lives[listed] - 1,
            "Share of Tasks (%)": _share(groups.sizes),
            **count_attempts(attempts, groups),
        }
    )
    return table.take(np.argsort(workers.ranks()[listed])).reset_index(drop=True)


@question("What each node worked off", "reports")
def node_summary(trace: Trace) -> pd.DataFrame:
    """Sum up `processed_tasks` by node.

    Returns
    -------
    DataFrame
        A row a host, by name: ``Node``, ``Processes``, ``Threads`` (NA if one worker's are
        unknown), ``Share of Tasks (%)``, and the columns that `processed_tasks` has by
        function. Shares far apart on equal nodes say that there are more of them than the
        run has work for.
    """
    workers, attempts = NamedWorkers(trace), find_attempts(trace)
    of_attempt = attempts["worker"].to_numpy()
    listed = workers_with_tasks(trace, workers, of_attempt)
    nodes, names = pd.factorize(workers.hosts[listed])
    of_worker = np.full(len(workers), -1, dtype=np.int64)
    of_worker[listed] = nodes
    groups, processes = Groups(of_worker[of_attempt], len(names)), Groups(nodes, len(names))
    of_threads = known_thread_counts(trace, workers)[listed]
    known = processes.known(of_threads) == processes.sizes
    table = pd.DataFrame(
        {
            "Node": text(names),
            "Processes": processes.sizes,
            "Threads": whole(np.where(known, processes.sum(of_threads), np.nan)),
            "Share of Tasks (%)": _share(groups.sizes),
            **count_attempts(attempts, groups),
        }
    )
    return table.take(np.argsort(names.astype(str), kind="stable")).reset_index(drop=True)


def _regrouped(of_attempt: Array, listed: Array, count: int) -> Groups:
    places = np.full(count, -1, dtype=np.int64)
    places[listed] = np.arange(len(listed))
    return Groups(places[of_attempt], len(listed))


def _share(sizes: Array) -> Array:
    shares: Array = sizes / max(sizes.sum(), 1) * 100
    return shares
