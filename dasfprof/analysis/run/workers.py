"""Workers by host and label, and when each worker instance existed, with its threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.run.slots import TaskSlots, most_slots
from dasfprof.analysis.run.task_runs import clock_offsets, to_ticks
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: Effect of a worker's status on its free threads: `OPEN` has none. Otherwise, the status is the
#: cause of idle threads.
OPEN, STARTING, PAUSED, CLOSING = range(4)

_STATUSES = {
    **dict.fromkeys(("created", "init", "starting"), STARTING),
    "paused": PAUSED,
    **dict.fromkeys(("closing", "closing_gracefully", "closed"), CLOSING),
}


@dataclass(frozen=True)
class WorkerLives:
    """Worker instances, with the time ranges in which they existed, their threads and statuses.

    Times are in seconds from the trace's start, by the scheduler's clock.
    """

    #: Rows of `Trace.workers`.
    ids: Array
    #: Number of threads of each worker instance. If it was not recorded, the maximum number of
    #: concurrent tasks.
    threads: Array
    #: Times of the first event and of the last event of each worker instance.
    begin: Array
    end: Array
    #: For each worker instance: the times at which its status changes (from `begin` onwards), and
    #: the status from each of these times.
    statuses: list[tuple[Array, Array]]

    def within(self, begin: float, end: float) -> WorkerLives:
        """Return the parts of worker instances that lie within a time window."""
        first, last = np.maximum(self.begin, begin), np.minimum(self.end, end)
        rows = np.flatnonzero(first <= last)
        statuses = [self.statuses[row] for row in rows.tolist()]
        return WorkerLives(self.ids[rows], self.threads[rows], first[rows], last[rows], statuses)

    @classmethod
    def joined(cls, windows: Sequence[WorkerLives]) -> WorkerLives:
        """Join the parts of worker instances from several time windows."""
        begins, ends, threads, all_ids = (
            np.concatenate([getattr(window, name) for window in windows])
            for name in ("begin", "end", "threads", "ids")
        )
        ids, places, of_ids = np.unique(all_ids, return_index=True, return_inverse=True)
        begin, end = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
        np.minimum.at(begin, of_ids, begins)
        np.maximum.at(end, of_ids, ends)
        statuses = [status for window in windows for status in window.statuses]
        first_statuses = [statuses[place] for place in places.tolist()]
        return cls(ids, threads[places], begin, end, first_statuses)


def worker_lives(trace: Trace, slots: TaskSlots) -> WorkerLives:
    """Return all worker instances of a trace that have events."""
    workers, offsets = trace.workers, clock_offsets(trace)
    begin = to_ticks(workers["first_seen"].to_numpy() - trace.begin - offsets)
    end = to_ticks(workers["last_seen"].to_numpy() - trace.begin - offsets)
    joined = to_ticks(workers["joined"].to_numpy() - trace.begin)
    left = to_ticks(workers["left"].to_numpy() - trace.begin)
    first, last = np.full(len(workers), np.inf), np.full(len(workers), -np.inf)
    np.fmin.at(first, slots.worker, slots.times.received)
    np.fmax.at(last, slots.worker, slots.times.done)
    begin = np.fmin(np.fmin(begin, joined), first)
    end = np.fmax(np.fmax(end, joined), np.fmax(left, last))
    has_events = np.isfinite(begin) & np.isfinite(end) & (workers["kind"] == "worker").to_numpy()
    ids = np.flatnonzero(has_events)
    threads = workers["nthreads"].to_numpy(dtype=float, na_value=np.nan)
    if np.isnan(threads[ids]).any():
        threads = np.where(np.isnan(threads), most_slots(trace), threads)
    times, codes, bounds = _sampled_statuses(trace, offsets)
    statuses = []
    for row in ids.tolist():
        rows = slice(bounds[row], bounds[row + 1])
        span = begin[row], end[row], joined[row], left[row]
        statuses.append(_changes(*span, times[rows], codes[rows]))
    slots_of_lives = np.maximum(threads[ids], 1).astype(np.int64)
    return WorkerLives(ids, slots_of_lives, begin[ids], end[ids], statuses)


def _sampled_statuses(trace: Trace, offsets: Array) -> tuple[Array, Array, Array]:
    """Return the times and statuses of all samples, sorted by worker and time, and their bounds.

    The samples of worker ``i`` are those from ``bounds[i]`` up to ``bounds[i + 1]``.
    """
    memory = trace.managed_memory
    worker, state = memory["worker_id"].to_numpy(), memory["state"].cat
    of_state = [_STATUSES.get(str(text), OPEN) for text in state.categories]
    codes = np.array([*of_state, OPEN], dtype=np.int8)[state.codes.to_numpy()]
    times = to_ticks(memory["time"].to_numpy() - trace.begin - offsets[worker])
    rows = np.flatnonzero(np.isfinite(times))
    rows = rows[np.lexsort((times[rows], worker[rows]))]
    bounds = np.searchsorted(worker[rows], np.arange(len(offsets) + 1))
    return times[rows], codes[rows], bounds


def _changes(  # noqa: PLR0917
    begin: float, end: float, joined: float, left: float, times: Array, codes: Array
) -> tuple[Array, Array]:
    """Merge the sampled statuses of a worker instance with the times when it joined and left."""
    # The status in a sample is valid until the next sample, and the last one until the end.
    times, codes = np.append(begin, times), np.append(np.int8(OPEN), codes)
    if begin < joined <= end:
        remaining = times >= joined
        status = codes[~remaining][-1]
        status = OPEN if status == STARTING else status
        times = np.concatenate([[begin, joined], times[remaining]])
        codes = np.concatenate([[STARTING, status], codes[remaining]])
    if begin <= left < end:
        remaining = times < left
        times, codes = np.append(times[remaining], left), np.append(codes[remaining], CLOSING)
    inside = times <= end
    return times[inside], codes[inside]


class NamedWorkers:
    """The workers of a trace, identified by host and label."""

    def __init__(self, trace: Trace) -> None:
        names = list(zip(trace.workers["host"], trace.workers["worker"], strict=True))
        distinct = list(dict.fromkeys(names))
        #: Code of the worker with each host and label.
        self.places = {name: place for place, name in enumerate(distinct)}
        #: Code of the worker in each row of `Trace.workers`.
        self.of_lives = np.array([self.places[name] for name in names], dtype=np.int32)
        #: Host and label of each code.
        self.hosts = np.array([host for host, _ in distinct], dtype=object)
        self.labels = np.array([label for _, label in distinct], dtype=object)

    def __len__(self) -> int:
        return len(self.hosts)

    def numbers(self, table: pd.DataFrame) -> Array:
        """Return the code of the worker in each row of a table with the column ``worker_id``."""
        return self.of_lives[table["worker_id"].to_numpy()]

    def titles(self) -> list[str]:
        """Return each worker's label, prefixed with the host if the label is not unique."""
        labels = pd.Series(self.labels, dtype=object)
        shared = labels.duplicated(keep=False)
        return [
            f"{host} {label}" if collides else label
            for host, label, collides in zip(self.hosts, labels, shared, strict=True)
        ]

    def ranks(self) -> Array:
        """Return the position of each worker in the list of workers sorted by host and label."""
        return np.argsort(np.lexsort((self.labels.astype(str), self.hosts.astype(str))))


def workers_with_tasks(trace: Trace, workers: NamedWorkers, of_attempt: Array) -> Array:
    """Return the codes of workers that executed a task or wrote a file.

    `of_attempt` is the code of the worker of each attempt at a task.
    """
    table = trace.workers
    with_file = (table["kind"] == "worker").to_numpy() & table["closed"].notna().to_numpy()
    listed = np.bincount(of_attempt, minlength=len(workers)) > 0
    listed[workers.of_lives[with_file]] = True
    return np.flatnonzero(listed)


def known_thread_counts(trace: Trace, workers: NamedWorkers) -> Array:
    """Return the number of threads of each named worker, or NaN if unknown."""
    threads = trace.workers["nthreads"].to_numpy(dtype=float, na_value=np.nan)
    counts = np.full(len(workers), np.nan)
    np.fmax.at(counts, workers.of_lives, threads)
    return counts
