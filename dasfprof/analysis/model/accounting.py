"""Division of all thread-seconds into categories, and the cost of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pandas as pd

from dasfprof.analysis.model import idle_time
from dasfprof.analysis.model.account_sums import (
    Accounts,
    WindowAccount,
    accounts_of,
    knows_tasks,
    seconds_of_groups,
    used_time,
    worker_causes_of,
)
from dasfprof.analysis.model.idle_time import PoolDemand, idle_threads
from dasfprof.analysis.model.thread_time import USES, ThreadTime, with_known_causes
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import WorkerLives
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.config.kinds import Price
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class IdleCells:
    """Idle thread-seconds of one worker instance, whose lifetime is divided into cells."""

    #: Row of `Trace.workers`.
    worker: int
    threads: int
    #: Times since the start of the run, from the worker's start to its end.
    edges: Array
    #: Thread-seconds by category, one row per cell (between two edges). See `by_class`.
    seconds: Array

    def between(self, begin: float, end: float) -> Array:
        """Return the thread-seconds by cause within a time window."""
        begins, ends = self.edges[:-1], self.edges[1:]
        inside = np.minimum(ends, end) - np.maximum(begins, begin)
        # A cell that extends beyond the window counts in proportion to the part inside.
        share = np.nan_to_num(ratio(np.maximum(inside, 0.0), ends - begins))
        return (self.seconds * share[:, None]).sum(axis=0)


#: Causes of idle threads that lie in the worker itself: its idle threads, some times, and the
#: cumulative thread-seconds of each cause at these times.
WorkerCells: TypeAlias = tuple[idle_time.IdleThreads, Array, dict[ThreadTime, Array]]


def worker_cells(
    worker: idle_time.WorkerCauses, bounds: Array, span: float, count: int
) -> WorkerCells:
    """Divide the lifetime of a worker into cells, to sum up its idle thread-seconds by cause.

    The result consists of the worker's idle threads, the edges of the cells, and the cumulative
    idle thread-seconds of each cause at the edges.

    Parameters
    ----------
    worker
        Causes of the worker's idle threads.
    bounds
        Times within the life of the worker at which one cell must end and the next must begin.
    span, count
        Duration of the run in seconds, and approximate maximum number of cells.
    """
    steps = np.diff(worker.times)
    # If there would be too many cells, short cells are merged. This does not change the sums.
    times = worker.times[_few(worker.times, np.append(steps > 0, True), span, count)]
    edges = np.unique(np.concatenate([times, bounds[(bounds > times[0]) & (bounds < times[-1])]]))
    spent = {
        cause: np.interp(edges, worker.times, np.append(0.0, np.cumsum(held * steps)))
        for cause, held in worker.causes.items()
        if held.any()
    }
    return idle_time.idle_threads(worker), edges, spent


def idle_cells(
    lives: WorkerLives, workers: list[WorkerCells], pool: idle_time.Pool, span: float, count: int
) -> Iterator[IdleCells]:
    """Yield the idle thread-seconds of each worker instance, by cell and cause.

    `workers` has the result of `worker_cells` for each instance. For `span` and `count`, see there.
    """
    changes = pool.grid[_few(pool.grid, _changes(pool), span, count)]
    for index, (threads, worker_edges, worker_spent) in enumerate(workers):
        inside = (changes > worker_edges[0]) & (changes < worker_edges[-1])
        edges = np.unique(np.concatenate([worker_edges, changes[inside]]))
        seconds = np.zeros((len(edges) - 1, len(ThreadTime)))
        for cause, spent in worker_spent.items():
            seconds[:, cause] = np.diff(np.interp(edges, worker_edges, spent))
        # While a worker has threads in the pool, the pool's grid contains all times of the worker.
        on_grid = np.searchsorted(pool.grid, threads.times)
        for cause, spent in pool.spent.items():
            at_edges = np.interp(edges, pool.grid, spent)
            until = _pool_until(edges, threads, at_edges, np.append(spent, spent[-1])[on_grid])
            seconds[:, cause] = np.diff(until)
        number = int(lives.ids[index])
        yield IdleCells(number, int(lives.threads[index]), edges, np.maximum(seconds, 0.0))


def _pool_until(
    times: Array, threads: idle_time.IdleThreads, until_times: Array, worker_times: Array
) -> Array:
    """Return the thread-seconds that one cause explains of a worker's threads in the pool.

    They are cumulative values at each of `times`. `until_times` and `worker_times` are the
    cumulative seconds that the cause explains of a single thread in the pool, at `times` and at
    ``threads.times``.
    """
    passed = np.append(0.0, np.cumsum(threads.idle[:-1] * np.diff(worker_times)))
    index = np.maximum(np.searchsorted(threads.times, times, side="right") - 1, 0)
    return passed[index] + threads.idle[index] * (until_times - worker_times[index])


def _changes(pool: idle_time.Pool) -> Array:
    """Return a mask of the times in ``pool.grid`` at which the fraction of any cause changes."""
    changed = np.zeros(len(pool.grid), dtype=bool)
    steps = np.diff(pool.grid)
    # Cumulative times are rounded. In short steps, this changes the fraction noticeably.
    rounding = 1e-9 / np.maximum(np.minimum(steps[1:], steps[:-1]), 1e-9)
    for spent in pool.spent.values():
        share = np.nan_to_num(ratio(np.diff(spent), steps))
        changed[1:-1] |= np.abs(np.diff(share)) > 1e-6 + rounding
    return changed


def _few(times: Array, wanted: Array, span: float, count: int) -> Array:
    """Return the indices of the sorted times in the mask `wanted`.

    If there are more than `count`, only some of them are selected, among them the first and the
    last time.
    """
    wanted = wanted.copy()
    wanted[:1] = wanted[-1:] = True
    indices = np.flatnonzero(wanted)
    if len(indices) <= count:
        return indices
    # Of times that are close together, only some are kept.
    width = 3 * span / count
    candidates = times[indices]
    long = np.diff(candidates) >= width
    part = np.floor(candidates / width)
    return indices[np.append(True, long | (part[1:] != part[:-1])) | np.append(long, True)]


@dataclass(frozen=True)
class Part:
    """A time window of a run, and everything that overlaps it."""

    #: The trace with everything that overlaps the window: task runs that started before the window,
    #: and task runs that arrived before its end and started later.
    around: Run
    #: Start and end (exclusive) of the window, in seconds from the run's start by the scheduler's
    #: clock.
    begin: float = float("-inf")
    end: float = float("inf")


@once_per_trace
def part_of(run: Run) -> Part:
    """Return the time window that a trace covers."""
    # A full run is a single window.
    return Part(run)


#: Approximate maximum number of cells about idle threads. A report with this number contains half a
#: megabyte of them.
_MOST_CELLS = 100_000


@dataclass(frozen=True)
class ThreadSeconds:
    """The data from which `Accounts` of any window are computed."""

    #: Accounts of the full run.
    accounts: Accounts
    #: Idle threads of each worker instance.
    cells: list[IdleCells]
    #: Thread-seconds of each slot before, in and after its function. See `used_time`.
    used: Array


def make_accounts(run: Run) -> Accounts:
    """Return the accounts of every thread-second of every worker instance."""
    return thread_seconds(run).accounts


def busy_seconds(run: Run, codes: Array, count: int) -> Array:
    """Return the busy thread-seconds of groups of task slots by category.

    `codes` is the group of each of `Run.all_slots` (-1 for none), and `count` the number of groups.
    """
    return seconds_of_groups(run, run.all_slots, thread_seconds(run).used, codes, count)


def accounts_within(run: Run, begin: float, end: float) -> Accounts:
    """Return the accounts of a time window of the run, in which all task runs must lie."""
    seconds = thread_seconds(run)
    accounts = seconds.accounts
    lives = accounts.lives.within(begin, end)
    indices = np.searchsorted(accounts.lives.ids, lives.ids)
    idle = [seconds.cells[index].between(begin, end) for index in indices.tolist()]
    of_lives = by_class(run, np.reshape(idle, (-1, len(ThreadTime))))
    # The busy thread-seconds are those of the full run.
    of_lives[:, :USES] = accounts.of_lives[indices, :USES]
    return replace(accounts, lives=lives, of_lives=of_lives)


@once_per_trace
def thread_seconds(run: Run) -> ThreadSeconds:
    """Return the thread-seconds of all threads by category."""
    return find_thread_seconds(run, _MOST_CELLS)


def find_thread_seconds(run: Run, most: int) -> ThreadSeconds:
    """Return the result of `thread_seconds`, but with idle time divided into about `most` cells."""
    slots, unfinished = run.all_slots, run.unlisted
    lives = run.lives
    span = float(lives.end.max() - lives.begin.min()) if len(lives.ids) else 0.0
    count = max(most // max(len(lives.ids), 1), 8)
    demand = PoolDemand.from_run(run)
    bounds = _bounds(run, demand)
    of_lives = [
        (rows, worker_cells(causes, bounds, span, count))
        for rows, causes in worker_causes_of(run, slots, unfinished, lives)
    ]
    threads = [(rows, idle) for rows, (idle, *_) in of_lives]
    used, window = used_time(slots, threads), (-np.inf, np.inf)
    account, pool = WindowAccount.from_slots(run, slots, lives, threads, used, demand, window)
    cells = list(idle_cells(lives, [worker for _, worker in of_lives], pool, span, count))
    return ThreadSeconds(accounts_of(run, [account]), cells, used)


@once_per_trace
def account_window(run: Run) -> WindowAccount:
    """Return the account of the time window that a trace covers."""
    part = part_of(run)
    around = part.around
    slots, unfinished = around.all_slots, around.unlisted
    lives = around.lives.within(part.begin, part.end)
    threads = [
        (rows, idle_threads(causes))
        for rows, causes in worker_causes_of(around, slots, unfinished, lives)
    ]
    window, used = (part.begin, part.end), used_time(slots, threads)
    return WindowAccount.from_slots(
        around, slots, lives, threads, used, PoolDemand.from_run(around), window
    )[0]


def by_class(run: Run, seconds: Array) -> Array:
    """Return idle thread-seconds by category (see `with_known_causes`)."""
    return with_known_causes(seconds, knows_tasks(run))


def _bounds(run: Run, demand: PoolDemand) -> Array:
    """Return the start and the end of the run's work, which are the default bounds of windows."""
    end = run.ending
    ends = [] if end is None else [run.seconds_at(end.time)]
    given_up = run.unlisted
    ends += given_up.known[given_up.ended].tolist()
    return np.concatenate([demand.arrival[:1], demand.known[-1:], ends])


#: Seconds per hour.
HOUR = 3600.0
#: Labels of threads that run no task of a group: idle because there was no work, waiting, and
#: occupied by tasks of clients that the trace excludes.
IDLE, WAITING, OTHERS = "(idle)", "(waiting)", "(other clients)"
#: Categories that count as `IDLE`: there is no work, or the worker is not running.
_NOBODYS = (ThreadTime.NOTHING_SUBMITTED, ThreadTime.STARTING, ThreadTime.CLOSING)


@dataclass(frozen=True)
class Hours:
    """Worker-hours and thread-hours."""

    workers: float = 0.0
    threads: float = 0.0

    def price(self, price: Price) -> float:
        """Return the price of these hours."""
        return price.of_hours(self.workers, self.threads)


def hours_of_run(run: Run) -> dict[str, Hours]:
    """Return the worker-hours and thread-hours of a run.

    The entry ``total`` contains all hours. The entries ``idle``, ``waiting`` and ``others`` are the
    parts with the labels `IDLE`, `WAITING` and `OTHERS`.
    """
    accounts = make_accounts(run)
    seconds = accounts.of_lives
    idle = seconds[:, list(_NOBODYS)].sum(axis=1)
    others = seconds[:, ThreadTime.OTHER_CLIENTS]
    waiting = seconds[:, USES:].sum(axis=1) - idle - others
    threads = accounts.lives.threads
    parts = {"total": seconds.sum(axis=1), "idle": idle, "waiting": waiting, "others": others}
    return {name: _hours(spent, threads) for name, spent in parts.items()}


def _hours(seconds: Array, threads: Array) -> Hours:
    """Return the worker-hours and thread-hours of all worker instances together.

    `seconds` and `threads` have the thread-seconds and the number of threads of each instance.
    """
    known = np.nan_to_num(seconds)
    return Hours(float(ratio(known, threads).sum() / HOUR), float(known.sum() / HOUR))


def hours_of_groups(run: Run, codes: Array, names: list[str]) -> dict[str, Hours]:
    """Return the hours of each group of task runs, and of `OTHERS`, `WAITING` and `IDLE`.

    The keys of the result are the names of the groups. `codes` is the group of each of
    `Run.all_slots`, as an index in `names`.
    """
    accounts = make_accounts(run)
    lives, workers = accounts.lives, len(run.workers)
    groups = codes * workers + run.all_slots.worker
    spent = busy_seconds(run, groups, len(names) * workers).sum(axis=1)
    of_lives = spent.reshape(len(names), workers)[:, lives.ids]
    of_run = hours_of_run(run)
    hours = {name: _hours(row, lives.threads) for name, row in zip(names, of_lives, strict=True)}
    return hours | {OTHERS: of_run["others"], WAITING: of_run["waiting"], IDLE: of_run["idle"]}


def price_of_findings(run: Run, findings: pd.DataFrame, price: Price | None) -> pd.DataFrame:
    """Return the worker-hours of each finding's potential savings, and their cost at a `price`."""
    total, seconds = hours_of_run(run)["total"], findings["Seconds at stake (s)"].to_numpy()
    wall = run.wall
    # Each second that could be saved counts as much as the mean second of the run.
    share = seconds / wall if wall > 0 else np.full(len(seconds), np.nan)
    table = pd.DataFrame({"Worker Hours": share * total.workers})
    return table if price is None else table.assign(Cost=share * total.price(price))
