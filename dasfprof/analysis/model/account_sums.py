"""`AccountSums`: accounts of thread-seconds, added up window by window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model import busy_time, idle_time
from dasfprof.analysis.model.idle_pool import Pool, PoolDemand, pool_of
from dasfprof.analysis.model.slots import TaskSlots, UnfinishedRuns
from dasfprof.analysis.model.thread_time import OF_USES, ThreadTime, idle_classes
from dasfprof.analysis.model.times import TaskTimes
from dasfprof.analysis.model.workers import WorkerLives
from dasfprof.analysis.numeric.groups import Groups, rounded
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: A worker, by its row of `Trace.workers`, a function, and a step of the pipeline.
Group = tuple[int, str, str]


@dataclass(frozen=True)
class Accounts:
    """Thread-seconds by class, in the order of `ThreadTime`."""

    #: The lives of the workers.
    lives: WorkerLives
    #: By life and class.
    of_lives: Array
    #: By function and class, in the order of `functions`; busy threads only.
    of_functions: Array
    functions: list[str]
    #: The same by step of the pipeline.
    of_steps: Array
    steps: list[str]


class AccountSums:
    """Adds up accounts, window by window.

    Time is counted in whole units (see `idle_time.UNITS`) and sums of seconds do not round, so that
    the accounts are the same whatever the windows are.

    Parameters
    ----------
    lives
        The lives of the workers.
    workers
        The number of workers, those that had no life too.
    names
        Those of the groups of task runs.
    """

    def __init__(self, lives: WorkerLives, workers: int, names: list[Group]) -> None:
        self.lives, self._workers, self._names = lives, workers, names
        #: Thread-time by worker and cause, in units that may be more than 64 bits hold.
        self._idle = np.zeros((workers, idle_time.CAUSES), dtype=object)
        self._uses = np.zeros((busy_time.USES + 1, 3, len(names)))

    def add_window(
        self, lives: WorkerLives, threads: list[idle_time.IdleThreads], demand: PoolDemand
    ) -> Pool:
        """Add the idle threads of a window.

        Parameters
        ----------
        lives, threads
            Within the window, and the idle threads of each.
        demand
            What there was to do, in the window at least.

        Returns
        -------
        Pool
            What is left of all threads.
        """
        pool = pool_of(threads, demand)
        for number, own in zip(lives.ids.tolist(), threads, strict=True):
            for cause, spent in (*own.causes.items(), *pool.of_worker(own).items()):
                self._idle[number, cause] += spent
        return pool

    def add_runs(
        self, codes: Array, times: TaskTimes, costs: Mapping[str, Array], used: Array
    ) -> None:
        """Add task runs, all of whose windows were added.

        Parameters
        ----------
        codes
            The group of each.
        times, costs
            Its times, and see `recorded_costs`.
        used
            What `used_time` returned, summed over all windows.
        """
        groups = Groups(codes, len(self._names))
        before, inside, after = used / idle_time.UNITS
        seconds = busy_time.uses_of(times, costs, before, inside, after)
        self._uses += np.stack([groups.exact(values) for values in (*seconds, after)])

    def accounts(self, trace: Trace, knows_tasks: bool) -> Accounts:
        """Return the accounts.

        Parameters
        ----------
        trace
            The trace, which need not have its task runs.
        knows_tasks
            See `knows_tasks`.
        """
        seconds = self._busy(trace)
        worker = np.array([who for who, _, _ in self._names], dtype=np.int64)
        of_workers = _grouped(seconds, worker, self._workers)
        for cause, spent in idle_classes(knows_tasks).items():
            of_workers[:, spent] += (
                np.maximum(self._idle[:, cause].astype(float), 0.0) / idle_time.UNITS
            )
        functions, of_functions = _numbered([function for _, function, _ in self._names])
        steps, of_steps = _numbered([step for _, _, step in self._names])
        return Accounts(
            self.lives,
            of_workers[self.lives.ids],
            _grouped(seconds, of_functions, len(functions)),
            functions,
            _grouped(seconds, of_steps, len(steps)),
            steps,
        )

    def _busy(self, trace: Trace) -> Array:
        """Return the thread-seconds of each group of task runs by class."""
        worker = np.array([who for who, _, _ in self._names], dtype=np.int64)
        uses, after = np.array([rounded(sums) for sums in self._uses[:-1]]), self._uses[-1]
        of_workers = [np.bincount(worker, weights=limb, minlength=self._workers) for limb in after]
        share = busy_time.spilling_shares(trace, rounded(np.stack(of_workers)))
        spill = rounded(after) * share[worker]
        uses[busy_time.SPILL] += spill
        uses[busy_time.OVERHEAD] -= spill
        seconds = np.zeros((len(self._names), len(ThreadTime)))
        for use, spent in OF_USES.items():
            seconds[:, spent] = uses[use]
        return seconds


def own_causes_of(
    slots: TaskSlots, unfinished: UnfinishedRuns, lives: WorkerLives, workers: int
) -> Iterator[tuple[Array, idle_time.OwnCauses]]:
    """Yield for each life the rows of its slots, and what explains its free threads there."""
    timed = np.isfinite(slots.end)
    rows_of = _rows_by(np.where(timed, slots.worker, -1), workers)
    taken_of = _rows_by(np.where(unfinished.taken, unfinished.worker, -1), workers)
    for place, number in enumerate(lives.ids.tolist()):
        rows, taken = rows_of(number), taken_of(number)
        times, sent = slots.times, slots.sent[rows]
        received = times.received[rows]
        unknown = slots.reception_unknown[rows]
        own = idle_time.own_causes(
            (int(lives.threads[place]), lives.begin[place], lives.end[place]),
            lives.statuses[place],
            [
                np.where(unknown, received, sent),
                received,
                times.ready[rows],
                times.executing[rows],
                slots.end[rows],
            ],
            (
                np.append(unfinished.sent[taken], sent[unknown]),
                np.append(unfinished.known[taken], received[unknown]),
            ),
        )
        yield rows, own


def _rows_by(numbers: Array, count: int) -> Callable[[int], Array]:
    """Return a function that finds the rows that have a number."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    return lambda number: order[bounds[number] : bounds[number + 1]]


def used_time(slots: TaskSlots, threads: Iterable[tuple[Array, idle_time.IdleThreads]]) -> Array:
    """Return the thread-time of each slot before, in and after its function, in units.

    Parameters
    ----------
    slots
        The slots.
    threads
        Of each worker the rows of its slots, and its threads.
    """
    used = np.zeros((3, len(slots.times)), dtype=np.int64)
    times = slots.times
    for rows, own in threads:
        end = slots.end[rows]
        edges = [times.executing[rows], times.start[rows], times.stop[rows], end]
        until = own.used(np.minimum(edges, end))
        used[:, rows] = np.maximum(np.diff(until, axis=0), 0)
    return used


def _grouped(seconds: Array, codes: Array, count: int) -> Array:
    """Sum the rows of groups, in whatever order they come."""
    groups = Groups(codes, count)
    return np.stack([groups.sum(column) for column in seconds.T], axis=1)


def _numbered(names: list[str]) -> tuple[list[str], Array]:
    """Return the distinct names in their order, and the number of each."""
    distinct = sorted(set(names))
    places = {name: place for place, name in enumerate(distinct)}
    return distinct, np.array([places[name] for name in names], dtype=np.int64)
