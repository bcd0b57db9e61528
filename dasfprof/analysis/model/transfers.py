"""Transfers between workers: messages, and the results that the messages contained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.tasks import P2P_BARRIER
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


def succeeded_rows(table: pd.DataFrame) -> Array:
    """Return a mask of transfers that succeeded or have no state."""
    state = table["state"]
    return (state.isna() | (state == "success")).to_numpy(dtype=bool)


def amounts(table: pd.DataFrame, succeeded: Array) -> tuple[Array, Array]:
    """Return the bytes and the seconds of each transfer, which are 0 if the transfer failed."""
    size, seconds = table["size"].to_numpy(dtype=float), table["duration"].to_numpy(dtype=float)
    return (
        np.where(succeeded & np.isfinite(size), size, 0.0),
        np.where(succeeded & np.isfinite(seconds), np.maximum(seconds, 0.0), 0.0),
    )


@dataclass(frozen=True)
class MovedOutputs:
    """Transfers of results between workers, summed up by group of keys."""

    #: Number of distinct keys that were transferred, and number of transfers of a key to a worker.
    keys: Array
    moves: Array
    #: Bytes, seconds, seconds of deserializing, and seconds of serializing for other workers (only
    #: results that took long to serialize are recorded). NaN if not recorded.
    size: Array
    seconds: Array
    deserialising: Array
    serialising: Array
    #: Bytes of all transfers except the first of each key.
    again: Array
    #: Bytes of all groups.
    total: float


def moved_outputs(run: Run, codes: Array, count: int) -> MovedOutputs:
    """Return the transfers of each group of keys, summed up.

    `codes` is the group of each of `Trace.keys`, and `count` the number of groups.
    """
    (lengths, ids), table = run.transfer_keys, run.transfers
    message = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    succeeded = succeeded_rows(table)[message]
    message, key_id = message[succeeded], ids[succeeded].astype(np.int64)
    # A message contains results of one or several keys. Its bytes are divided among these keys in
    # proportion to the size of each key's last result, or equally if one of these sizes is unknown.
    weight = _result_sizes(run)[key_id]
    unknown = np.bincount(message, weights=~(weight > 0), minlength=len(lengths)) > 0
    weight = np.where(unknown[message], 1.0, weight)
    share = weight / Groups(message, len(lengths)).sum(weight)[message]

    def shared(name: str) -> Array:
        return np.maximum(np.nan_to_num(table[name].to_numpy(dtype=float)[message]), 0.0) * share

    size, groups, keys = shared("size"), Groups(codes[key_id], count), Groups(key_id, len(run.keys))
    # Whether no earlier message contained this key.
    first = keys.places(table["start"].to_numpy()[message]) == 0
    sent = run.serialised[run.serialised["target"].notna().to_numpy(dtype=bool)]
    by_group = Groups(codes[sent["key_id"].to_numpy(dtype=np.int64)], count)
    serialising = by_group.sum(sent["seconds"].to_numpy(dtype=float))
    if not len(run.serialised) and not run.knows_serialising:
        serialising = np.full(count, np.nan)
    return MovedOutputs(
        keys=groups.sum(first.astype(float)).astype(np.int64),
        moves=groups.sizes,
        size=groups.sum(size),
        seconds=groups.sum(shared("duration")),
        deserialising=groups.sum(shared("deserialize")),
        serialising=serialising,
        again=groups.sum(size * ~first),
        total=float(size.sum()),
    )


def _result_sizes(run: Run) -> Array:
    """Return the bytes of each key's last result, or NaN if unknown."""
    tasks = run.tasks
    in_memory = np.flatnonzero((tasks["state"] == "memory").to_numpy(dtype=bool))
    ends = (tasks["start"].to_numpy() + tasks["duration"].to_numpy())[in_memory]
    in_memory = in_memory[np.argsort(ends, kind="stable")]
    sizes = np.full(len(run.keys), np.nan)
    sizes[tasks["key_id"].to_numpy()[in_memory]] = tasks["size"].to_numpy(dtype=float)[in_memory]
    return sizes


# A P2P shuffle moves data between workers in separate messages, and not with Dask's transfers of
# results. Its tasks return only a few bytes.


@once_per_trace
def p2p_runs(run: Run) -> Array:
    """Return a mask of task runs that feed a P2P shuffle, wait for it, or read its output."""
    barrier, takes, hands = _p2p_parts(run)
    return _alike(run, barrier | takes | hands)


@once_per_trace
def p2p_outputs(run: Run) -> Array:
    """Return a mask of task runs that read data from a P2P shuffle."""
    return _alike(run, _p2p_parts(run)[1])


def _p2p_parts(run: Run) -> tuple[Array, Array, Array]:
    """Return masks of the barriers of P2P shuffles, and of their dependents and dependencies."""
    barrier = (run.tasks["function"] == P2P_BARRIER).to_numpy(dtype=bool)
    if not barrier.any():
        return barrier, barrier, barrier
    key_ids = run.tasks["key_id"].to_numpy()
    lengths, items = run.task_dependencies
    row = np.repeat(np.arange(len(key_ids)), np.maximum(lengths, 0))
    # Dependents of barriers read the output of shuffles. Dependencies of barriers feed shuffles.
    takes = np.isin(np.arange(len(key_ids)), row[np.isin(items, key_ids[barrier])])
    return barrier, takes, np.isin(key_ids, items[barrier[row]])


def _alike(run: Run, rows: Array) -> Array:
    """Return a mask of all task runs with the same functions as `rows`."""
    # This includes task runs whose dependencies were not recorded.
    codes = run.tasks["function"].cat.codes.to_numpy()
    return np.isin(codes, codes[rows]) & (codes >= 0)


@once_per_trace
def shuffled_bytes(run: Run) -> float:
    """Return the bytes that P2P shuffles moved between workers, or NaN if not recorded."""
    messages = run.shuffle_messages
    if len(messages):
        size = messages["size"].to_numpy(dtype=float)
        return float(np.nansum(size[(messages["state"] == "success").to_numpy(dtype=bool)]))
    alone = run.tasks["worker_id"].nunique() < 2
    return 0.0 if alone or not p2p_runs(run).any() else float("nan")
