"""Results that workers held at a time, and the reasons why they had not been released."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Reasons why a result was held. See `_reasons` and `held_at` for the order in which they apply.
WAITED_FOR, IN_USE, WANTED, LATE, COPY, UNEXPLAINED, UNRECORDED = range(7)

#: Maximum seconds from the scheduler learning that the last dependent ended to the release of the
#: result.
_AT_ONCE = 0.1

#: Kinds of data notes that mean that the scheduler's file lacks events.
_LACKING = ("damaged-file", "dropped-facts", "segment-missing")


class HeldResults(NamedTuple):
    """Results in memory or spilled, with one row for each worker that held a result."""

    #: Row of `Trace.tasks` that made the result, and row of `Trace.workers` that held it.
    run: Array
    life: Array
    #: Reason why the result was held, from `WAITED_FOR` to `UNRECORDED`.
    why: Array
    #: Code, as in `Trace.tasks`, of the function for which the result was held. If it was held for
    #: several dependents, this is the function of the one that starts last. -1 if there is none.
    needed_by: Array
    #: Bytes of the result, or NaN if it is unknown whether the result was still held.
    size: Array

    def select(self, chosen: Array) -> HeldResults:
        """Return the rows that a mask or an array of indices chooses."""
        return HeldResults(*(values[chosen] for values in self))


def held_at(run: Run, time: float) -> HeldResults:
    """Return the results that workers held at `time` (seconds since the start of the run)."""
    tasks, times, release = run.tasks, run.slots.times, release_times(run)
    state = tasks["state"].cat
    made = np.append(np.array(state.categories == "memory"), True)[state.codes.to_numpy()]
    rows = np.flatnonzero(made & (times.done[: len(made)] <= time) & ~(release <= time))
    rows = rows[np.argsort(times.done[rows], kind="stable")]
    of_key = np.full(len(run.keys), -1, dtype=np.int64)
    of_key[tasks["key_id"].to_numpy()[rows]] = rows  # If a key ran again, use its last run.
    rows = of_key[of_key >= 0]
    of_key[of_key >= 0] = np.arange(len(rows))
    why, needed_by = _reasons(run, time, rows, of_key)
    size = tasks["size"].to_numpy(dtype=float)[rows]
    size[why == UNRECORDED] = np.nan
    life = tasks["worker_id"].to_numpy()[rows]
    stays = ends_of_lives(run)[life] > time
    is_held = _not_dropped(run, time, of_key)
    stays &= is_held(np.arange(len(rows)), life, times.done[rows])
    copied, copy_life = _copies(run, time, rows, of_key, is_held)
    # If the worker that computed a result left, the copy is the only one.
    of_copy = np.where(stays[copied] & (why[copied] != UNRECORDED), COPY, why[copied])
    staying, by = np.flatnonzero(stays), np.where(of_copy == COPY, -1, needed_by[copied])
    return HeldResults(
        rows[np.append(staying, copied)],
        np.append(life[staying], copy_life),
        np.append(why[staying], of_copy),
        np.append(needed_by[staying], by),
        size[np.append(staying, copied)],
    )


@once_per_trace
def release_times(run: Run) -> Array:
    """Return when the scheduler released the result of each of `Trace.tasks`.

    The time is in seconds since the start of the run. It is infinity if the result was not released
    before recording ended, minus infinity if the scheduler never had it, and NaN if unknown.
    """
    tasks = run.tasks
    released = np.full(len(tasks), np.nan)
    if not run.knows_releases or "scheduler_state" not in tasks:
        return released
    state = tasks["scheduler_state"].astype(object).to_numpy()
    known = tasks["scheduler_state"].notna().to_numpy()
    released[known & (state != "memory") & (state != "processing")] = -np.inf
    rows = np.flatnonzero(state == "memory")
    runs = tasks["run_id"].iloc[rows]
    at = run.releases.drop_duplicates("run_id").set_index("run_id")["time"]
    times = run.since_begin(at.reindex(runs))
    is_complete = not any(n.kind in _LACKING and "SchedulerPlugin" in n.subject for n in run.notes)
    times[np.isnan(times)] = np.inf if is_complete else np.nan
    times[runs.duplicated(keep=False).to_numpy()] = np.nan  # There were several schedulers.
    released[rows] = times
    return released


def ends_of_lives(run: Run) -> Array:
    """Return when each of `Trace.workers` left, in seconds, or infinity if it did not leave."""
    left = run.left
    if "sent" in run.tasks:
        return np.where(np.isnan(left), np.inf, left)
    last = run.since_begin(run.workers["last_seen"]) - run.offsets
    return np.where(np.isnan(last), np.inf, last)


def _reasons(run: Run, time: float, rows: Array, of_key: Array) -> tuple[Array, Array]:
    """Return the reason why each result was held, and the code of the function that needed it.

    `rows` are the task runs that made the results. `of_key` is the index in `rows` of the task run
    that made each key's result, or -1.
    """
    tasks, release = run.tasks, release_times(run)[rows]
    offsets, ids = run.dependencies
    edges = np.flatnonzero(of_key[ids] >= 0)
    needed, dependent = of_key[ids[edges]], np.searchsorted(offsets, edges, side="right") - 1
    attempts = _attempts_at(run, dependent)
    by = np.full(len(rows), -1, dtype=np.int64)
    codes = run.keys.functions()[0][dependent]
    why = np.full(len(rows), UNEXPLAINED)

    def latest(chosen: pd.Series, column: str) -> Array:
        """Return the maximum of a column over the chosen attempts at each dependent, or NaN."""
        return attempts[chosen].groupby("key_id")[column].max().reindex(dependent).to_numpy()

    arrival, begin, end = (attempts[name] for name in ("arrival", "begin", "end"))
    if "wanted" in tasks:
        wanted = tasks["wanted"].to_numpy(dtype=float)[rows] == 1
        last = np.full(len(rows), np.nan)
        # When the scheduler learned of the end of the last dependent.
        np.fmax.at(last, needed, latest(end <= time, "known"))
        why[np.abs(release - last) <= _AT_ONCE] = LATE
        why[wanted] = WANTED
    why[np.isnan(release)] = UNRECORDED
    running, waiting = (begin <= time) & (end > time), (arrival <= time) & (begin > time)
    for reason, chosen in ((IN_USE, running), (WAITED_FOR, waiting)):
        begun = latest(chosen, "begin")
        open_ = np.flatnonzero(np.isfinite(begun))
        open_ = open_[np.argsort(begun[open_], kind="stable")]
        why[needed[open_]] = reason
        by[needed[open_]] = codes[open_]
    return why, by


def _attempts_at(run: Run, keys: Array) -> pd.DataFrame:
    """Return the keys and times of the attempts at the tasks with the given keys."""
    times, only = run.times, run.scheduler_only
    ran = np.flatnonzero(np.isin(run.tasks["key_id"], keys))
    only = only[np.isin(only["key_id"], keys)]
    sent, known, began, waiting = (
        run.since_begin(only[name])
        for name in ("sent", "known", "scheduler_start", "scheduler_waiting")
    )
    return pd.DataFrame(
        {
            "key_id": np.append(run.tasks["key_id"].to_numpy()[ran], only["key_id"].to_numpy()),
            "arrival": np.append(times.arrival[ran], np.fmin(waiting, sent)),
            "begin": np.append(times.start[ran], np.where(np.isnan(began), known, began)),
            "end": np.append(times.done[ran], known),
            "known": np.append(times.known[ran], known),
        }
    )


#: A function of the indices of results, of the worker instances that hold copies of them, and of
#: the times at which the copies arrived. It returns a mask of the copies that the workers were not
#: asked to drop later.
_IsHeld = Callable[[Array, Array, Array], Array]


def _not_dropped(run: Run, time: float, of_key: Array) -> _IsHeld:
    """Return a function that checks which copies of results had not been dropped by `time`.

    For `of_key`, see `_reasons`.
    """
    table, count = run.copies_dropped, len(run.workers)
    at = run.since_begin(table["time"])
    indices = of_key[table["key_id"].to_numpy(dtype=np.int64)]
    asked = (at <= time) & (indices >= 0)
    pairs = indices[asked] * count + table["worker_id"].to_numpy()[asked]
    last = pd.Series(at[asked], dtype=float).groupby(pairs).max()

    def is_held(indices: Array, lives: Array, since: Array) -> Array:
        dropped = last.reindex(indices.astype(np.int64) * count + lives).to_numpy()
        return ~(dropped >= since)

    return is_held


def _copies(
    run: Run, time: float, rows: Array, of_key: Array, is_held: _IsHeld
) -> tuple[Array, Array]:
    """Return the copies of results that workers had received by `time`, without duplicates.

    The first array contains the index in `rows` of the task run that made each result. The second
    array contains the worker instance that held the copy. For `rows` and `of_key`, see `_reasons`.
    """
    lengths, ids = run.transfer_keys
    moved, life = run.transfers, run.transfers["worker_id"].to_numpy()
    stop = run.on_one_clock(moved["start"] + moved["duration"], life)
    arrived = (stop <= time) & (ends_of_lives(run)[life] > time)
    arrived &= (moved["state"] == "success").to_numpy(dtype=bool)
    of = np.repeat(np.arange(len(moved)), lengths)
    indices = of_key[ids]
    there = np.flatnonzero(arrived[of] & (indices >= 0))
    indices, of = indices[there], of[there]
    same_worker = run.tasks["worker_id"].to_numpy()[rows][indices] == life[of]
    # If a key ran again, earlier transfers moved the result of its earlier run.
    late = stop[of] >= run.times.done[rows][indices]
    late &= is_held(indices, life[of], stop[of])
    pairs = np.unique(np.stack([indices, life[of]], axis=1)[late & ~same_worker], axis=0)
    return pairs[:, 0], pairs[:, 1]


#: Maximum number of functions that are listed separately, and threshold (fraction of the peak) for
#: listing a function. The last entry is the sum of all other functions.
_MOST, _LEAST = 8, 0.01
OTHERS = "other functions"


@dataclass(frozen=True)
class ResultsOverTime:
    """Bytes of the results that workers held over time, by function.

    Spilled results count too. Copies of a result on other workers do not.
    """

    #: Seconds since the start of the run, ascending. They include the time of the peak.
    times: Array
    #: Functions sorted by their maximum bytes in descending order, and bytes over time with one row
    #: per function.
    functions: list[str]
    held: Array
    #: Time at which the results of all functions together were largest.
    peak: float


def results_over_time(run: Run, points: int = 1000) -> ResultsOverTime | None:
    """Return the results that were held at about `points` times, or None if unknown."""
    rows, size, begin, stop = _lives_of_results(run)
    if not len(rows):
        return None
    at, change = np.append(begin, stop), np.append(size, -size)
    # If one result is released at the time at which another one is stored, count the release first.
    order = np.lexsort((change, at))
    peak = float(at[order][np.cumsum(change[order]).argmax()])
    times = np.unique(np.append(np.linspace(0.0, max(run.wall, 0.0), points), peak))
    by_function = results_at(run, times)
    names, each = list(by_function), np.stack(list(by_function.values()))
    most = each.max(axis=1)
    order = np.argsort(-most, kind="stable")
    shown = order[most[order] >= _LEAST * each.sum(axis=0).max()]
    shown = shown if len(shown) <= _MOST - (len(shown) < len(order)) else shown[: _MOST - 1]
    held, labels = each[shown], [names[code] for code in shown]
    if len(shown) < len(order):
        held = np.vstack([held, each[order[len(shown) :]].sum(axis=0)])
        labels.append(OTHERS)
    return ResultsOverTime(times, labels, held, peak)


def results_at(run: Run, times: Array) -> dict[str, Array]:
    """Return, by function, the bytes of results held at each of `times`, which must be sorted."""
    rows, size, begin, stop = _lives_of_results(run)
    codes = run.tasks["function"].cat.codes.to_numpy()[rows]
    names = run.tasks["function"].cat.categories
    held = {}
    for code in np.unique(codes).tolist():
        selected, change = codes == code, np.zeros(len(times) + 1)
        np.add.at(change, np.searchsorted(times, begin[selected]), size[selected])
        np.subtract.at(change, np.searchsorted(times, stop[selected]), size[selected])
        held[str(names[code])] = np.maximum(np.cumsum(change[:-1]), 0.0)
    return held


def _lives_of_results(run: Run) -> tuple[Array, Array, Array, Array]:
    """Return the task runs with results, the bytes of each result, and when it was held.

    The last two arrays are the times at which each result began and ceased to be held.
    """
    tasks = run.tasks
    size = tasks["size"].to_numpy(dtype=float)
    begin, life = run.slots.times.done[: len(tasks)], tasks["worker_id"].to_numpy()
    # A result is held from the end of its task until the scheduler releases it or the worker
    # leaves.
    stop = np.minimum(release_times(run), ends_of_lives(run)[life])
    rows = np.flatnonzero((size > 0) & (stop > begin) & (begin <= max(run.wall, 0.0)))
    return rows, size[rows], begin[rows], stop[rows]
