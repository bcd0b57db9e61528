"""The table of task runs: records of workers, joined with records of the scheduler."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import Columns, make_categorical
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.analysis.trace.workers import WorkerRegister
from dasfprof.database.columns import Array

#: Function of the barrier task that each P2P shuffle has. Tasks that depend on the barrier get
#: their data from the shuffle, and not from the barrier.
P2P_BARRIER = "shuffle-barrier"

#: New names of the scheduler's columns that have the same name as a column of workers.
_SCHEDULER_NAMES = {
    "timestamp": "sent",
    "state": "scheduler_state",
    "waiting": "scheduler_waiting",
    "start": "scheduler_start",
    "stop": "scheduler_stop",
    "size": "scheduler_size",
    "exception": "scheduler_exception",
}
_IDENTITY = ("key_id", "run_id", "worker_id")


def worker_runs(columns: Columns) -> Columns:
    """Return the columns of the task runs that workers recorded, from the columns of events."""
    duration = columns.pop("duration", np.empty(0))
    known = np.isfinite(duration) & (duration > 0)
    return {
        "key_id": columns.pop("key"),
        "start": columns.pop("timestamp"),
        "duration": duration if known.all() else np.where(known, duration, 0.0),
        **columns,
    }


def scheduler_runs(columns: Columns, register: WorkerRegister) -> Columns:
    """Return the columns of the task runs that the scheduler recorded, from columns of events."""
    duration = columns.pop("duration", np.empty(0))
    address = columns.pop("worker")
    numbers = [register.id_of_address(str(text)) for text in address.categories]
    columns["worker_id"] = np.array([*numbers, -1], dtype=np.int32)[address.codes]
    columns["key_id"] = columns.pop("key")
    named = {_SCHEDULER_NAMES.get(name, name): column for name, column in columns.items()}
    named["known"] = named["sent"] + duration
    return named


def as_worker_runs(scheduler: Columns) -> Columns:
    """Return the scheduler's task runs in the form of workers' task runs, with fewer columns."""
    start, stop = scheduler["scheduler_start"], scheduler["scheduler_stop"]
    duration = np.maximum(stop - start, 0.0)
    return {
        **scheduler,
        "start": start,
        "duration": np.where(np.isfinite(duration), duration, 0.0),
        "state": scheduler["scheduler_state"],
        "size": scheduler["scheduler_size"],
        "exception": scheduler["scheduler_exception"],
    }


def join_runs(worker: Columns, scheduler: Columns, register: WorkerRegister) -> tuple[Array, Array]:
    """Find, for each row of the workers, the scheduler's row about the same task run.

    Returns
    -------
    places, unmatched
        `places` contains, for each worker row, the index of the matching scheduler row, or -1.
        `unmatched` contains the scheduler rows that no worker row matches.
    """
    count = len(scheduler["key_id"])
    both = [np.concatenate([scheduler[name], worker[name]]).astype(np.int64) for name in _IDENTITY]
    run_codes = pd.factorize(both[1])[0]
    pairs = pd.factorize(both[0] * (run_codes.max(initial=0) + 1) + run_codes)[0]
    # Two rows match if key, run_id and worker are equal.
    triples = pd.factorize(pairs * (both[2].max(initial=0) + 2) + both[2] + 1)[0]
    places = _last_row(triples[:count], triples[count:])
    # If the address of the worker is unknown, key and run_id are enough, because Dask gives a
    # different run_id to each attempt.
    unknown = np.array([who.address is None for who in register.workers], dtype=bool)
    nameless = np.flatnonzero(unknown[worker["worker_id"]])
    places[nameless] = _last_row(pairs[:count], pairs[count:][nameless])
    matched = np.zeros(count, dtype=bool)
    matched[places[places >= 0]] = True
    return places, np.flatnonzero(~matched)


def number_repeats(runs: Columns) -> None:
    """Number the task runs without a run_id (-1) from 0 for each key, in the order of start."""
    key_ids, rows = runs["key_id"], np.flatnonzero(runs["run_id"] < 0)
    if not len(rows):
        return
    run_ids = runs["run_id"] = runs["run_id"].copy()
    rows = rows[np.argsort(runs["start"][rows], kind="stable")]
    run_ids[rows] = pd.Series(rows).groupby(key_ids[rows]).cumcount()


def add_input_sizes(runs: Columns, lengths: Array, dependencies: Array, keys: int) -> None:
    """Add the sum of input sizes to task runs for which the worker did not record it.

    The sum is NaN if the size of any dependency is unknown. `lengths` contains the number of
    dependencies of each task run (-1 if not recorded), and `dependencies` the key ids of all
    dependencies.
    """
    unknown = np.isnan(runs["input_size"]) & (lengths >= 0)
    if not unknown.any():
        return
    state = runs["state"]
    in_memory = state.codes < 0
    if "memory" in state.categories:
        in_memory |= state.codes == state.categories.get_loc("memory")
    # The size of a dependency is that of the last successful run of its key.
    rows = np.flatnonzero(in_memory)
    rows = rows[np.argsort((runs["start"] + runs["duration"])[rows], kind="stable")]
    sizes = np.full(keys, np.nan)
    sizes[runs["key_id"][rows]] = runs["size"][rows]
    of_row = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    sums = np.bincount(of_row, weights=sizes[dependencies], minlength=len(lengths))
    runs["input_size"] = np.where(unknown, sums, runs["input_size"])


def forget_shuffled_inputs(
    runs: Columns, lengths: Array, dependencies: Array, keys: KeyTable
) -> None:
    """Set to NaN the input sizes of task runs that get data from a P2P shuffle."""
    codes, names = keys.functions()
    if P2P_BARRIER not in names:
        return
    of_row = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    takers = of_row[codes[dependencies] == names.index(P2P_BARRIER)]
    # Dask does not count this data as input.
    runs["input_size"] = runs["input_size"].astype(float)
    runs["input_size"][takers] = np.nan


def add_helpers(tasks: pd.DataFrame, storage: pd.DataFrame) -> None:
    """Add the CPU time and CPU wait of helper threads to the task runs for which they worked."""
    helped = storage[storage["helpers_cpu"].to_numpy(dtype=float) > 0]
    if len(helped):
        runs = pd.MultiIndex.from_frame(tasks[list(_IDENTITY)])
        sums = helped.groupby(list(_IDENTITY))[["helpers_cpu", "helpers_queue"]].sum()
        more = sums.reindex(runs, fill_value=0.0).to_numpy(dtype=float)
        tasks["cpu"] += more[:, 0]
        tasks["run_queue"] += more[:, 1]


def take(columns: Columns, places: Array) -> Columns:
    """Return the rows of columns at the indices `places`, with missing values for the index -1."""
    known = places >= 0
    taken: Columns = {}
    for name, column in columns.items():
        if isinstance(column, pd.Categorical):
            codes = np.full(len(places), -1, dtype=column.codes.dtype)
            codes[known] = column.codes[places[known]]
            taken[name] = pd.Categorical.from_codes(codes, dtype=column.dtype)
        elif isinstance(column, pd.Series):
            objects = np.empty(len(places), dtype=object)
            objects[known] = column.to_numpy()[places[known]]
            taken[name] = pd.Series(objects, dtype=object, copy=False)
        elif known.all():
            taken[name] = column[places]
        else:
            taken[name] = np.full(len(places), np.nan, dtype=np.result_type(column, np.float32))
            taken[name][known] = column[places[known]]
    return taken


def make_table(runs: Columns, keys: KeyTable, register: WorkerRegister) -> pd.DataFrame:
    """Return task runs as a table that also contains the names of hosts, workers and functions."""
    codes, names = keys.functions()
    named = {
        "host": register.names_of(runs["worker_id"], "host"),
        "worker": register.names_of(runs["worker_id"], "label"),
        "function": make_categorical(codes[runs["key_id"]], names),
    }
    return pd.DataFrame({**{name: runs[name] for name in _IDENTITY}, **named, **runs}, copy=False)


def _last_row(known: Array, wanted: Array) -> Array:
    """Return, for each wanted code, the last row of `known` that has this code, or -1."""
    rows = np.full(max(known.max(initial=-1), wanted.max(initial=-1)) + 1, -1, dtype=np.int64)
    rows[known] = np.arange(len(known))
    return rows[wanted]
