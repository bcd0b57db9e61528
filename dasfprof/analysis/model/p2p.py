"""P2P shuffles: the tasks that hand data to them and take it back, and what they moved.

Such a shuffle moves rows and blocks between workers by messages of its own, past Dask's transfers
of results: what its tasks return, and take from each other, are a few bytes.
"""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.run import Run, once_per_run
from dasfprof.analysis.trace.tasks import P2P_BARRIER
from dasfprof.database.columns import Array


@once_per_run
def p2p_runs(run: Run) -> Array:
    """Return which task runs hand data to a P2P shuffle, wait for it, or take data from it."""
    trace = run.trace
    function = trace.tasks["function"]
    barrier = (function == P2P_BARRIER).to_numpy(dtype=bool)
    if not barrier.any():
        return barrier
    names, key_ids = function.cat, trace.tasks["key_id"].to_numpy()
    lengths, items = trace.task_dependencies
    row = np.repeat(np.arange(len(key_ids)), np.maximum(lengths, 0))
    handed = np.zeros(len(trace.keys), dtype=bool)
    handed[items[barrier[row]]] = True
    of_barrier = np.zeros(len(trace.keys), dtype=bool)
    of_barrier[key_ids[barrier]] = True
    takes = np.zeros(len(key_ids), dtype=bool)
    takes[row[of_barrier[items]]] = True
    # By function, so that one run whose dependencies nobody told is with its like.
    found = np.zeros(len(names.categories) + 1, dtype=bool)
    found[names.codes.to_numpy()[barrier | takes | handed[key_ids]]] = True
    found[-1] = False
    runs: Array = found[names.codes.to_numpy()]
    return runs


@once_per_run
def shuffled_bytes(run: Run) -> float:
    """Return the bytes that P2P shuffles moved between workers; NaN if they were not recorded."""
    trace = run.trace
    messages = trace.shuffle_messages
    if len(messages):
        size = messages["size"].to_numpy(dtype=float)
        return float(np.nansum(size[(messages["state"] == "success").to_numpy(dtype=bool)]))
    alone = trace.tasks["worker_id"].nunique() < 2
    return 0.0 if alone or not p2p_runs(trace).any() else float("nan")
