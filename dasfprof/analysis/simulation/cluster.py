"""The workers of a replay: how many threads each has, and when it is there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.slots import TaskSlots
from dasfprof.analysis.model.workers import WorkerLives
from dasfprof.database.columns import Array

#: A worker that joins so soon after the first task arrived was there, and one that leaves so soon
#: after it took a task took that: seconds.
_AT_ONCE = 0.001


@dataclass(frozen=True)
class ReplayCluster:
    """Workers, a place each; seconds from the first task's arrival."""

    threads: Array
    #: 0: from the begin on.
    joined: Array
    #: Infinite: until the end.
    left: Array

    @property
    def most_workers(self) -> int:
        """The most workers at a time."""
        joins = np.sort(self.joined)
        leaves = np.sort(self.left)
        there = np.arange(1, len(joins) + 1) - np.searchsorted(leaves, joins, side="right")
        return int(there.max(initial=0))

    @property
    def most_threads(self) -> int:
        """The most threads at a time."""
        order = np.argsort(np.r_[self.left, self.joined], kind="stable")
        steps = np.r_[-self.threads, self.threads][order]
        return int(np.cumsum(steps).max(initial=0))

    def with_workers(self, count: int) -> ReplayCluster:
        """Return a cluster of another size, whose workers come and go as the recorded ones did."""
        if not len(self.threads):
            return ReplayCluster(
                np.ones(count, dtype=np.int64), np.zeros(count), np.full(count, np.inf)
            )
        lives = max(round(len(self.threads) * count / max(self.most_workers, 1)), 1)
        like = np.arange(lives) * len(self.threads) // lives
        return ReplayCluster(self.threads[like], self.joined[like], self.left[like])

    def with_threads(self, count: int) -> ReplayCluster:
        """Return the same workers with other threads."""
        return replace(self, threads=np.full(len(self.threads), count))


def recorded_cluster(run: Run, lives: WorkerLives, slots: TaskSlots) -> ReplayCluster:
    """Return the cluster that a trace was recorded on.

    A worker that left takes no task after the last one that it took: it had been told to close
    before, or what it took later died with it. One that left after all tasks were sent, did not.
    """
    first = float(slots.times.arrival.min(initial=np.inf))
    last = float(slots.times.sent.max(initial=-np.inf))
    workers = run.trace.workers.iloc[lives.ids]
    joined = np.fmax(workers["joined"].to_numpy(dtype=float) - run.begin, lives.begin)
    joined = np.where(workers["joined"].isna(), 0.0, joined) - first
    left = workers["left"].to_numpy(dtype=float) - run.begin
    taken = np.full(len(run.trace.workers), -np.inf)
    np.maximum.at(taken, slots.worker, slots.times.executing)
    taken = np.where(np.isfinite(taken[lives.ids]), taken[lives.ids] + _AT_ONCE, left)
    return ReplayCluster(
        threads=lives.threads,
        joined=np.where(joined > _AT_ONCE, joined, 0.0),
        left=np.where(left < last, np.maximum(np.fmin(left, taken) - first, 0.0), np.inf),
    )
