"""How many tasks each worker process, and each node, worked off, and in what time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.tables.columns import text, whole
from dasfprof.analysis.tables.processed_tasks import count_attempts
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


def process_summary(trace: Trace) -> pd.DataFrame:
    """Sum up the attempts at tasks by worker process; see `TraceAnalyser`."""
    workers, attempts = NamedWorkers(trace), find_attempts(trace)
    of_attempt = attempts["worker"].to_numpy()
    listed = working(trace, workers, of_attempt)
    groups = _regrouped(of_attempt, listed, len(workers))
    lives = np.bincount(workers.of_lives, minlength=len(workers))
    table = pd.DataFrame(
        {
            "Node": text(workers.hosts[listed]),
            "Process": text(workers.labels[listed]),
            "Threads": whole(threads(trace, workers)[listed]),
            "Restarts": lives[listed] - 1,
            "Share of Tasks (%)": _share(groups.sizes),
            **count_attempts(attempts, groups),
        }
    )
    return table.take(np.argsort(workers.ranks()[listed])).reset_index(drop=True)


def node_summary(trace: Trace) -> pd.DataFrame:
    """Sum up the attempts at tasks by node; see `TraceAnalyser`."""
    workers, attempts = NamedWorkers(trace), find_attempts(trace)
    of_attempt = attempts["worker"].to_numpy()
    listed = working(trace, workers, of_attempt)
    nodes, names = pd.factorize(workers.hosts[listed])
    of_worker = np.full(len(workers), -1, dtype=np.int64)
    of_worker[listed] = nodes
    groups, processes = Groups(of_worker[of_attempt], len(names)), Groups(nodes, len(names))
    of_threads = threads(trace, workers)[listed]
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


def working(trace: Trace, workers: NamedWorkers, of_attempt: Array) -> Array:
    """Tell which workers to list: those with attempts, and those whose files have none."""
    table = trace.workers
    with_file = (table["kind"] == "worker").to_numpy() & table["closed"].notna().to_numpy()
    found = np.bincount(of_attempt, minlength=len(workers)) > 0
    found[workers.of_lives[with_file]] = True
    return np.flatnonzero(found)


def threads(trace: Trace, workers: NamedWorkers) -> Array:
    """Give the number of threads of each named worker, NaN where no file tells."""
    told = trace.workers["nthreads"].to_numpy(dtype=float, na_value=np.nan)
    found = np.full(len(workers), np.nan)
    np.fmax.at(found, workers.of_lives, told)
    return found


def _regrouped(of_attempt: Array, listed: Array, count: int) -> Groups:
    places = np.full(count, -1, dtype=np.int64)
    places[listed] = np.arange(len(listed))
    return Groups(places[of_attempt], len(listed))


def _share(sizes: Array) -> Array:
    shares: Array = sizes / max(sizes.sum(), 1) * 100
    return shares
