"""The results that transfers brought, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class MovedKeys:
    """Moves of a key to a worker, a row each."""

    key_id: Array
    #: Bytes and seconds of the message, shared out to its keys.
    size: Array
    seconds: Array
    #: Whether no earlier message moved this key.
    first: Array
    #: Whether an earlier message had moved it to the same worker.
    to_the_same: Array


def moved_keys(trace: Trace, rows: Array) -> MovedKeys:
    """List the keys that these transfers moved.

    A message is shared out to its keys by their results' sizes, as last run; evenly, where the
    size of one is not known.
    """
    lengths, ids = trace.transfer_keys
    lengths = np.maximum(lengths, 0)
    message = np.repeat(np.arange(len(lengths)), lengths)
    kept = np.zeros(len(lengths), dtype=bool)
    kept[rows] = True
    of_rows = kept[message]
    message, key_id = message[of_rows], ids[of_rows].astype(np.int64)
    table = trace.transfers
    weight = _result_sizes(trace)[key_id]
    messages = Groups(message, len(lengths))
    unknown = np.bincount(message, weights=~(weight > 0), minlength=len(lengths)) > 0
    weight = np.where(unknown[message], 1.0, weight)
    share = weight / messages.sum(weight)[message]
    target, start = table["worker_id"].to_numpy()[message], table["start"].to_numpy()[message]
    places, distinct = pd.factorize(key_id * (len(trace.workers) + 1) + target)
    return MovedKeys(
        key_id,
        np.nan_to_num(table["size"].to_numpy(dtype=float)[message]) * share,
        np.maximum(np.nan_to_num(table["duration"].to_numpy(dtype=float)[message]), 0.0) * share,
        Groups(key_id, len(trace.keys)).places(start) == 0,
        Groups(places, len(distinct)).places(start) > 0,
    )


def _result_sizes(trace: Trace) -> Array:
    """Give the bytes of each key's result, NaN where no file tells."""
    tasks = trace.tasks
    in_memory = np.flatnonzero((tasks["state"] == "memory").to_numpy(dtype=bool))
    ends = (tasks["start"].to_numpy() + tasks["duration"].to_numpy())[in_memory]
    in_memory = in_memory[np.argsort(ends, kind="stable")]
    sizes = np.full(len(trace.keys), np.nan)
    sizes[tasks["key_id"].to_numpy()[in_memory]] = tasks["size"].to_numpy(dtype=float)[in_memory]
    return sizes
