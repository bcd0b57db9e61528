"""Division of all thread-seconds into categories, and the cost of a run.

`WindowAccount` contains the thread-seconds of a time window, and `Accounts` those of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pandas as pd

from dasfprof.analysis.model import idle_time, thread_time
from dasfprof.analysis.model.idle_time import Pool, PoolDemand, idle_threads, pool_of
from dasfprof.analysis.model.steps import line_groups, step_groups
from dasfprof.analysis.model.thread_time import USES, ThreadTime, with_known_causes
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.analysis.run.workers import WorkerLives
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.config.kinds import Price
from dasfprof.database.columns import Array

#: A worker (its row of `Trace.workers`), a function, a step of the pipeline, and a source line.
Group = tuple[int, str, str, str]
#: Thread-seconds of a task run before, in and after its function.
_USED = ["before", "inside", "after"]


@dataclass(frozen=True)
class Accounts:
    """Thread-seconds by category, for each worker instance, function, step and line.

    The categories are in the order of `ThreadTime`.
    """

    #: Worker instances.
    lives: WorkerLives
    #: Thread-seconds. One row per worker instance, one column per category.
    of_lives: Array
    #: Thread-seconds of busy threads, for each of ``function``, ``step`` and ``line``: a list of
    #: names, and an array with one row per name and one column per category.
    busy: dict[str, tuple[list[str], Array]]

    def with_idle(self, by: str, idle_name: str) -> tuple[list[str], Array]:
        """Return the names and thread-seconds of groups, and last those of idle threads."""
        names, busy = self.busy[by]
        idle = self.of_lives.sum(axis=0)
        idle[:USES] = 0.0
        return [*names, idle_name], np.vstack([busy, idle])


@dataclass(frozen=True)
class WindowAccount:
    """Thread-seconds of all workers in a time window, by category."""

    #: Worker instances, limited to the window.
    lives: WorkerLives
    #: Idle thread-seconds. One row per worker, one column per category.
    idle: Array
    #: Groups of task runs, and their thread-seconds: one row per category of `USES`, one column per
    #: group.
    names: list[Group]
    uses: Array
    #: Task runs that occupied a thread inside the window and also before or after it. The
    #: thread-seconds are those inside the window.
    cut: pd.DataFrame
    #: Whether the scheduler's file contains tasks. See `knows_tasks`.
    knows_tasks: bool

    @classmethod
    def of(
        cls,
        run: Run,
        lives: WorkerLives,
        threads: list[tuple[Array, idle_time.IdleThreads]],
        demand: PoolDemand,
        window: tuple[float, float],
    ) -> tuple[WindowAccount, Pool, Array]:
        """Return the account of a window, the `Pool` of its idle threads, and `used_time`.

        Parameters
        ----------
        run
            A trace with all slots that overlap the window.
        lives, threads
            Worker instances within the window, and for each of them, the rows of its slots and its
            idle threads.
        demand
            The unfinished work of the whole cluster over time.
        window
            Start of the window, and its end (exclusive).
        """
        pool, slots = pool_of([worker for _, worker in threads], demand), run.all_slots
        used = used_time(slots, threads)
        idle = np.zeros((len(run.workers), len(ThreadTime)))
        for number, (_, worker) in zip(lives.ids.tolist(), threads, strict=True):
            for cause, spent in (*worker.causes.items(), *pool.of_worker(worker).items()):
                idle[number, cause] += spent
        times, begin, end = slots.times, *window
        costs = thread_time.recorded_costs(run, len(times))
        length = times.stop - times.start
        codes, names = slot_groups(run, slots)
        there = (times.executing < end) & (slots.end >= begin)
        inside = there & (times.executing >= begin) & (slots.end < end)
        cut = np.flatnonzero(there & ~inside)
        present = np.flatnonzero(np.bincount(codes[inside], minlength=len(names)))
        uses = _uses(np.where(inside, codes, -1), len(names), used, length, costs)[:, present]
        rows = pd.DataFrame(
            {
                "group": pd.Series([names[code] for code in codes[cut].tolist()], dtype=object),
                "key": run.keys.texts(run.of_slots("key_id", unfinished=True)[cut]),
                "run_id": run.of_slots("run_id", unfinished=True)[cut],
                "executing": times.executing[cut],
                "end": slots.end[cut],
                "length": length[cut],
                **{name: values[cut] for name, values in costs.items()},
                **dict(zip(_USED, used[:, cut], strict=True)),
            }
        )
        of_uses = [names[code] for code in present.tolist()]
        return cls(lives, idle, of_uses, uses, rows, knows_tasks(run)), pool, used


def accounts_of(run: Run, windows: Sequence[WindowAccount]) -> Accounts:
    """Return the sum of the accounts of all windows of a run.

    `run` need not contain the task runs.
    """
    cut = pd.concat([window.cut for window in windows], ignore_index=True)
    listed = [name for window in windows for name in window.names]
    codes, distinct = pd.factorize(pd.Series([*listed, *cut["group"]], dtype=object))
    names: list[Group] = distinct.tolist()
    within = np.concatenate([window.uses for window in windows], axis=1)
    uses = _grouped(within.T, codes[: len(listed)], len(names)).T
    uses += _of_cut(cut.assign(group=codes[len(listed) :]), len(names))
    worker = np.array([who for who, *_ in names], dtype=np.int64)
    seconds = _busy(run, uses, worker)
    of_workers = _grouped(seconds, worker, len(run.workers))
    idle = np.maximum(np.sum([window.idle for window in windows], axis=0), 0.0)
    of_workers += with_known_causes(idle, any(window.knows_tasks for window in windows))
    lives = WorkerLives.joined([window.lives for window in windows])
    busy = {}
    for index, by in enumerate(("function", "step", "line"), 1):
        texts = np.array([name[index] for name in names], dtype=object)
        labels, codes = np.unique(texts, return_inverse=True)
        busy[by] = labels.tolist(), _grouped(seconds, codes, len(labels))
    return Accounts(lives, of_workers[lives.ids], busy)


def _of_cut(rows: pd.DataFrame, count: int) -> Array:
    """Return the thread-seconds that `_uses` returns, for task runs that overlap several windows.

    `rows` has one row per window for each of these task runs.
    """
    identity = ["group", "key", "run_id", "executing", "end"]
    runs = rows.groupby(identity, sort=False)
    columns = {name: runs[name].first().to_numpy() for name in ("length", *thread_time.COSTS)}
    columns |= {name: runs[name].sum().to_numpy() for name in _USED}
    group = rows["group"].to_numpy()[~rows.duplicated(identity)]
    used = np.stack([columns[name] for name in _USED])
    return _uses(group, count, used, columns["length"], columns)


def _uses(
    codes: Array, count: int, used: Array, length: Array, costs: Mapping[str, Array]
) -> Array:
    """Return the thread-seconds of groups of task runs, with one row per category of `USES`.

    A further row contains the thread-seconds after functions, which are also part of the other
    rows. `codes` is the group of each task run (-1 for none). See `used_time` for `used`, and
    `thread_time.uses_of` for `length` and `costs`.
    """
    groups = Groups(codes, count)
    seconds = thread_time.uses_of(length, costs, *used)
    return np.stack([groups.sum(values) for values in (*seconds, used[2])])


def _busy(run: Run, uses: Array, worker: Array) -> Array:
    """Return the busy thread-seconds of each group of task runs by category.

    `uses` is a result of `_uses`, and `worker` is the worker of each group.
    """
    seconds = np.zeros((uses.shape[1], len(ThreadTime)))
    seconds[:, :USES] = thread_time.with_spilling(run, uses[:-1], uses[-1], worker).T
    return seconds


def worker_causes_of(
    run: Run, lives: WorkerLives
) -> Iterator[tuple[Array, idle_time.WorkerCauses]]:
    """Yield, for each worker instance, the rows of its slots and the causes of its idle threads."""
    workers, others, slots, unfinished = len(run.workers), run.others, run.all_slots, run.unlisted
    of_slots = Groups(np.where(np.isfinite(slots.end), slots.worker, -1), workers)
    of_others = Groups(others["worker_id"].to_numpy(), workers)
    offsets = np.where(others["by_worker"], run.offsets[others["worker_id"].to_numpy()], 0.0)
    begun, ended = (run.since_begin(others[name]) - offsets for name in ("begin", "end"))
    of_unfinished = Groups(np.where(unfinished.taken, unfinished.worker, -1), workers)
    for index, number in enumerate(lives.ids.tolist()):
        rows, taken = of_slots.rows(number), of_unfinished.rows(number)
        foreign = of_others.rows(number)
        times, sent = slots.times, slots.sent[rows]
        received = times.received[rows]
        unknown = slots.reception_unknown[rows]
        causes = idle_time.worker_causes(
            (int(lives.threads[index]), lives.begin[index], lives.end[index]),
            lives.statuses[index],
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
            (begun[foreign], ended[foreign]),
        )
        yield rows, causes


def slot_groups(run: Run, slots: TaskSlots) -> tuple[Array, list[Group]]:
    """Group the slots of task runs by worker, function, step and line.

    Slot ``i`` belongs to ``names[codes[i]]``, where `codes` and `names` are the results.
    """
    tables = run.task_runs, run.unseen
    (of_step, steps), (of_line, lines) = step_groups(*tables), line_groups(*tables)
    functions = len(slots.functions) or 1
    packed = (slots.worker * functions + slots.function) * len(steps) + of_step
    codes, distinct = pd.factorize(packed * len(lines) + of_line)
    sizes = (len(run.workers), functions, len(steps), len(lines))
    numbers = np.stack(np.unravel_index(distinct, sizes), axis=1).tolist()
    return codes, [
        (who, slots.functions[what], steps[where], lines[built])
        for who, what, where, built in numbers
    ]


def knows_tasks(run: Run) -> bool:
    """Return whether the scheduler's file contains tasks, which explain some idle threads."""
    return "sent" in run.tasks or len(run.scheduler_states) > 0


def used_time(slots: TaskSlots, threads: list[tuple[Array, idle_time.IdleThreads]]) -> Array:
    """Return the thread-seconds of each slot before, in and after its function.

    `threads` contains, for each worker, the rows of its slots and its idle threads.
    """
    used = np.zeros((3, len(slots.times)))
    times = slots.times
    for rows, worker in threads:
        end = slots.end[rows]
        edges = [times.executing[rows], times.start[rows], times.stop[rows], end]
        until = worker.used(np.minimum(edges, end))
        used[:, rows] = np.maximum(np.diff(until, axis=0), 0)
    return used


def _grouped(seconds: Array, codes: Array, count: int) -> Array:
    """Sum up the rows of `seconds` by group."""
    groups = Groups(codes, count)
    return np.stack([groups.sum(column) for column in seconds.T], axis=1)


@dataclass(frozen=True)
class IdleCells:
    """Idle thread-seconds of one worker instance, whose lifetime is divided into cells."""

    #: Row of `Trace.workers`.
    worker: int
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
        yield IdleCells(int(lives.ids[index]), edges, np.maximum(seconds, 0.0))


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
    slots, used, workers = run.all_slots, thread_seconds(run).used, len(run.workers)
    there = np.isfinite(slots.times.executing) & np.isfinite(slots.end) & (codes >= 0)
    of_slots, pairs = pd.factorize(np.where(there, codes * workers + slots.worker, -1))
    costs = thread_time.recorded_costs(run, len(slots.times))
    length = slots.times.stop - slots.times.start
    uses = _uses(np.where(there, of_slots, -1), len(pairs), used, length, costs)
    group, worker = np.divmod(pairs, workers)
    return _grouped(_busy(run, uses, worker), np.where(pairs < 0, -1, group), count)


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
def thread_seconds(run: Run, most: int = _MOST_CELLS) -> ThreadSeconds:
    """Return the thread-seconds of all threads by category, and at most about `most` cells."""
    lives = run.lives
    span = float(lives.end.max() - lives.begin.min()) if len(lives.ids) else 0.0
    count = max(most // max(len(lives.ids), 1), 8)
    demand = PoolDemand.from_run(run)
    bounds = _bounds(run, demand)
    of_lives = [
        (rows, worker_cells(causes, bounds, span, count))
        for rows, causes in worker_causes_of(run, lives)
    ]
    threads = [(rows, idle) for rows, (idle, *_) in of_lives]
    account, pool, used = WindowAccount.of(run, lives, threads, demand, (-np.inf, np.inf))
    cells = list(idle_cells(lives, [worker for _, worker in of_lives], pool, span, count))
    return ThreadSeconds(accounts_of(run, [account]), cells, used)


@once_per_trace
def account_window(run: Run) -> WindowAccount:
    """Return the account of the time window that a trace covers."""
    part = part_of(run)
    around, window = part.around, (part.begin, part.end)
    lives = around.lives.within(*window)
    threads = [(rows, idle_threads(causes)) for rows, causes in worker_causes_of(around, lives)]
    return WindowAccount.of(around, lives, threads, PoolDemand.from_run(around), window)[0]


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
