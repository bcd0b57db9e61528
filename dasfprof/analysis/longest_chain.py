"""The longest chain of tasks that depend on each other."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


def longest_chain(trace: Trace, seconds: Array) -> float:
    """Sum the seconds of the chain of dependent tasks that takes the most: no run is shorter.

    Parameters
    ----------
    trace
        The trace.
    seconds
        What each run of `Trace.tasks` took; of a key's runs the last counts.
    """
    tasks = trace.tasks
    ends = tasks["start"].to_numpy() + tasks["duration"].to_numpy()
    # A dependency ends before what depends on it begins, so this order is one of the graph's.
    rows = np.argsort(ends, kind="stable")
    key_ids = tasks["key_id"].to_numpy()[rows]
    last = np.full(len(trace.keys), -1, dtype=np.int64)
    last[key_ids] = rows
    lasting = last[key_ids] == rows
    offsets, ids = trace.dependencies
    begins, dependencies = offsets.tolist(), ids.tolist()
    chains = [0.0] * len(trace.keys)
    for key, own in zip(key_ids[lasting].tolist(), seconds[rows[lasting]].tolist(), strict=True):
        longest = 0.0
        for at in range(begins[key], begins[key + 1]):
            chain = chains[dependencies[at]]
            if chain > longest:  # noqa: PLR1730  (max() takes twice as long)
                longest = chain
        chains[key] = longest + own
    return max(chains, default=0.0)
