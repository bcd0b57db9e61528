"""`WindowAccount` contains the thread-seconds of a time window, and `Accounts` those of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model import idle_time, thread_time
from dasfprof.analysis.model.idle_time import Pool, PoolDemand, pool_of
from dasfprof.analysis.model.steps import line_groups, step_groups
from dasfprof.analysis.model.thread_time import USES, ThreadTime, with_known_causes
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots, UnfinishedRuns
from dasfprof.analysis.run.workers import WorkerLives
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
    def from_slots(  # noqa: PLR0917
        cls,
        run: Run,
        slots: TaskSlots,
        lives: WorkerLives,
        threads: list[tuple[Array, idle_time.IdleThreads]],
        used: Array,
        demand: PoolDemand,
        window: tuple[float, float],
    ) -> tuple[WindowAccount, Pool]:
        """Return the account of a window, and the `Pool` of its idle threads.

        Parameters
        ----------
        run, slots
            A trace and its slots. They include all slots that overlap the window.
        lives, threads
            Worker instances within the window, and for each of them, the rows of its slots and its
            idle threads.
        used
            See `used_time`.
        demand
            The unfinished work of the whole cluster over time.
        window
            Start of the window, and its end (exclusive).
        """
        pool = pool_of([worker for _, worker in threads], demand)
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
        return cls(lives, idle, of_uses, uses, rows, knows_tasks(run)), pool


def accounts_of(run: Run, windows: Sequence[WindowAccount]) -> Accounts:
    """Return the sum of the accounts of all windows of a run.

    `run` need not contain the task runs.
    """
    cut = pd.concat([window.cut for window in windows], ignore_index=True)
    groups: dict[Group, int] = {}
    indices = [
        np.array([groups.setdefault(name, len(groups)) for name in group_names], dtype=np.int64)
        for group_names in (*(window.names for window in windows), cut["group"].tolist())
    ]
    uses = np.zeros((USES + 1, len(groups)))
    for window, codes in zip(windows, indices[:-1], strict=True):
        uses[:, codes] += window.uses
    uses += _of_cut(cut.assign(group=indices[-1]), len(groups))
    names = list(groups)
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
    after = uses[-1]
    finishing = np.bincount(worker, weights=after, minlength=len(run.workers))
    spill = after * thread_time.spilling_shares(run, finishing)[worker]
    seconds = np.zeros((len(after), len(ThreadTime)))
    seconds[:, :USES] = uses[:-1].T
    seconds[:, ThreadTime.UNSPILL_AND_SPILL] += spill
    seconds[:, ThreadTime.TASK_OVERHEAD] -= spill
    return seconds


def seconds_of_groups(run: Run, slots: TaskSlots, used: Array, codes: Array, count: int) -> Array:
    """Return busy thread-seconds, with one row per group of slots and one column per category.

    `codes` is the group of each slot (-1 for none). For `used`, see `used_time`.
    """
    there = np.isfinite(slots.times.executing) & np.isfinite(slots.end) & (codes >= 0)
    workers = len(run.workers)
    of_slots, pairs = pd.factorize(np.where(there, codes * workers + slots.worker, -1))
    costs = thread_time.recorded_costs(run, len(slots.times))
    length = slots.times.stop - slots.times.start
    uses = _uses(np.where(there, of_slots, -1), len(pairs), used, length, costs)
    group, worker = np.divmod(pairs, workers)
    return _grouped(_busy(run, uses, worker), np.where(pairs < 0, -1, group), count)


def worker_causes_of(
    run: Run, slots: TaskSlots, unfinished: UnfinishedRuns, lives: WorkerLives
) -> Iterator[tuple[Array, idle_time.WorkerCauses]]:
    """Yield, for each worker instance, the rows of its slots and the causes of its idle threads."""
    workers, others = len(run.workers), run.others
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
