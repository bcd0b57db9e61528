"""How many tasks each worker process, and each node, worked off, and in what time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.workers import known_thread_counts, workers_with_tasks
from dasfprof.analysis.numeric.group_sums import GroupSums
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.tables.in_parts import InParts
from dasfprof.analysis.tables.processed_tasks import attempt_columns, attempt_sums
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, whole
from dasfprof.database.columns import Array


def _sums(run: Run) -> GroupSums:
    """Sum up the attempts by the number of their worker."""
    workers, attempts = run.workers, find_attempts(run)
    groups = Groups(attempts["worker"].to_numpy(), len(workers))
    return attempt_sums(attempts, groups, range(len(workers)))


def _of_processes(run: Run, parts: Sequence[GroupSums]) -> pd.DataFrame:
    workers, sums = run.workers, GroupSums.merged(parts)
    listed = workers_with_tasks(run.trace, workers, np.array(sums.names, dtype=np.int64))
    lives = np.bincount(workers.of_lives, minlength=len(workers))
    sums = GroupSums.merged([sums], listed.tolist())
    table = pd.DataFrame(
        {
            "Node": text(workers.hosts[listed]),
            "Process": text(workers.labels[listed]),
            "Threads": whole(known_thread_counts(run.trace, workers)[listed]),
            "Restarts": lives[listed] - 1,
            "Share of Tasks (%)": _share(sums.rows),
            **attempt_columns(sums),
        }
    )
    return table.take(np.argsort(workers.ranks()[listed])).reset_index(drop=True)


def _of_nodes(run: Run, parts: Sequence[GroupSums]) -> pd.DataFrame:
    workers, sums = run.workers, GroupSums.merged(parts)
    listed = workers_with_tasks(run.trace, workers, np.array(sums.names, dtype=np.int64))
    nodes, names = pd.factorize(workers.hosts[listed])
    hosts = workers.hosts[np.array(sums.names, dtype=np.int64)].tolist()
    sums = GroupSums.merged([sums.by(hosts)], names.tolist())
    processes = Groups(nodes, len(names))
    of_threads = known_thread_counts(run.trace, workers)[listed]
    known = processes.known(of_threads) == processes.sizes
    table = pd.DataFrame(
        {
            "Node": text(names),
            "Processes": processes.sizes,
            "Threads": whole(np.where(known, processes.sum(of_threads), np.nan)),
            "Share of Tasks (%)": _share(sums.rows),
            **attempt_columns(sums),
        }
    )
    return table.take(np.argsort(names.astype(str), kind="stable")).reset_index(drop=True)


@question("What each worker process worked off", "reports", in_parts=InParts(_sums, _of_processes))
def process_summary(run: Run) -> pd.DataFrame:
    """Sum up `processed_tasks` by worker.

    Returns
    -------
    DataFrame
        A row a worker, by node and name: ``Node``, ``Process``, ``Threads``, ``Restarts``
        (of a worker of this name), ``Share of Tasks (%)``, and the columns that
        `processed_tasks` has by function. A worker that had no task is listed where a file
        of it is there.
    """
    return _of_processes(run, [_sums(run)])


@question("What each node worked off", "reports", in_parts=InParts(_sums, _of_nodes))
def node_summary(run: Run) -> pd.DataFrame:
    """Sum up `processed_tasks` by node.

    Returns
    -------
    DataFrame
        A row a host, by name: ``Node``, ``Processes``, ``Threads`` (NA if one worker's are
        unknown), ``Share of Tasks (%)``, and the columns that `processed_tasks` has by
        function. Shares far apart on equal nodes say that there are more of them than the
        run has work for.
    """
    return _of_nodes(run, [_sums(run)])


def _share(sizes: Array) -> Array:
    shares: Array = sizes / max(sizes.sum(), 1) * 100
    return shares
