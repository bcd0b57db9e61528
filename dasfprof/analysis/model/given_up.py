"""Task runs that clients gave up, by the stimuli that ended them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: The causes, in Dask's stimulus ids, of a task that a client gave up: by leaving, by dropping its
#: futures or by restarting all workers, and by cancelling them.
DROPPED = ("remove-client", "client-releases-keys", "client-restart")
CANCELLED = "cancel-key"
#: Those of a task that nobody needs any more since another one ended.
NOT_NEEDED = ("task-erred", "task-finished")


def stimulus_texts(trace: Trace, ids: pd.Series) -> Array:
    """Return the texts of stimulus ids; empty where there is none."""
    numbers = np.nan_to_num(ids.to_numpy(dtype=float), nan=-1.0).astype(np.int64)
    texts = np.full(len(numbers), "", dtype=object)
    known = numbers >= 0
    texts[known] = trace.stimuli.texts(numbers[known])
    return texts


def begins_with(texts: Array, prefixes: tuple[str, ...]) -> Array:
    """Return which texts begin with one of some prefixes."""
    return np.array([text.startswith(prefixes) for text in texts], dtype=bool)


def given_up(trace: Trace, runs: pd.DataFrame, causes: tuple[str, ...] = DROPPED) -> Array:
    """Return which task runs, rows of a table, were given up before they ended: by a client."""
    if "end_cause" not in runs or not len(runs):
        return np.zeros(len(runs), dtype=bool)
    released: Array = runs["scheduler_state"].isin(["released", "forgotten"]).to_numpy().copy()
    rows = np.flatnonzero(released)
    released[rows] = begins_with(stimulus_texts(trace, runs["end_cause"].iloc[rows]), causes)
    return released
