"""Samples of stacks of tasks: whose they are, how their time was spent, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

# --- `task_samples`: the samples of stacks of tasks, each with the task run that it belongs to ----

#: Seconds by which the time of a sample is rounded.
_ROUNDED = 0.5 / 1024
#: What a thread did at a sample, by number.
UNKNOWN, RUNNING, LOCK, WAITING = 0, 1, 2, 3
_ACTIVITIES = {"running": RUNNING, "lock": LOCK, "waiting": WAITING}


_Rows = TypeVar("_Rows", bound="_Columns")


class _Columns:
    """Arrays of one length."""

    def take(self: _Rows, rows: Array) -> _Rows:
        """Return some rows, by their places or by a truth for each."""
        return type(self)(**{name: values[rows] for name, values in vars(self).items()})


@dataclass(frozen=True)
class Samples(_Columns):
    """Samples of stacks as arrays of one length."""

    #: Rows of `Trace.stacks`; -1: unknown.
    stack: Array
    #: Unix seconds, and the seconds that each stands for.
    time: Array
    interval: Array
    #: Of the thread in that time, seconds; NaN: unknown.
    cpu: Array
    run_queue: Array
    #: One of `UNKNOWN`, `RUNNING`, `LOCK`, `WAITING`.
    activity: Array
    #: The shares of its function's time for which its task runs computed, and waited for a core, as
    #: was counted from begin to end of each; NaN: unknown.
    computed: Array
    queued: Array

    def __len__(self) -> int:
        return len(self.stack)

    @classmethod
    def of(cls, table: pd.DataFrame) -> Samples:
        """Return the samples of a table of a `Trace`."""
        if not len(table):
            return cls(np.empty(0, dtype=np.int64), *(np.empty(0) for _ in range(7)))
        activity = table["activity"].astype("category").cat
        codes = [*(_ACTIVITIES.get(str(each), UNKNOWN) for each in activity.categories), UNKNOWN]
        return cls(
            stack=table["stack"].to_numpy(dtype=np.int64),
            time=table["time"].to_numpy(dtype=float),
            interval=np.maximum(np.nan_to_num(table["interval"].to_numpy(dtype=float)), 0.0),
            cpu=table["cpu"].to_numpy(dtype=float),
            run_queue=table["run_queue"].to_numpy(dtype=float),
            activity=np.array(codes, dtype=np.int8)[activity.codes.to_numpy()],
            computed=np.full(len(table), np.nan),
            queued=np.full(len(table), np.nan),
        )


@once_per_trace
def run_of_samples(run: Run) -> Array:
    """Return the task run of each row of `Trace.task_samples`.

    A row of the tasks of `with_open_runs`; -1 where no task run of that thread and time is known.
    """
    samples, runs = run.task_samples, run.whole.tasks
    rows_of = np.full(len(samples), -1, dtype=np.int64)
    if not len(samples) or not len(runs):
        return rows_of
    threads: dict[str, int] = {}
    of_samples, of_runs = _threads(samples, threads), _threads(runs, threads)
    start = runs["start"].to_numpy(dtype=float)
    stop = start + runs["duration"].to_numpy(dtype=float)
    time = samples["time"].to_numpy(dtype=float)
    rows = np.flatnonzero((of_runs >= 0) & np.isfinite(stop))
    # All threads one after the other on one axis of time.
    first = min(time.min(), start[rows].min(initial=np.inf))
    span = max(time.max(), stop[rows].max(initial=-np.inf)) - first + 1.0
    begins = of_runs[rows] * span + start[rows] - first
    order = np.argsort(begins, kind="stable")
    rows, begins = rows[order], begins[order]
    places = np.searchsorted(begins, of_samples * span + time - first + _ROUNDED, "right") - 1
    near = rows[np.maximum(places, 0)] if len(rows) else np.zeros(len(time), dtype=np.int64)
    belongs = (places >= 0) & (of_samples >= 0) & (of_runs[near] == of_samples)
    belongs &= time - _ROUNDED <= stop[near]
    rows_of[belongs] = near[belongs]
    return rows_of


def _threads(table: pd.DataFrame, known: dict[str, int]) -> Array:
    """Number the threads of workers; -1 where a row has none."""
    column = table["thread"].astype("category").cat
    names = [str(name) for name in column.categories]
    numbers = np.array([*(known.setdefault(name, len(known)) for name in names), -1], np.int64)
    threads = numbers[column.codes.to_numpy()]
    # More than any number of threads: equal identities on two workers are two threads.
    spread = table["worker_id"].to_numpy(dtype=np.int64) * (1 << 20)
    return np.where(threads >= 0, threads + spread, -1)


def samples_of(
    run: Run, function: str | None = None, step: str | None = None
) -> tuple[Samples, Array]:
    """Return the samples of the task runs of a function and a step; None: of all.

    Returns
    -------
    samples, functions
        The samples, and a number for the function of each.
    """
    runs, tasks = run_of_samples(run), run.whole.tasks
    of_runs = np.ones(len(tasks) + 1, dtype=bool)  # the last: of no known task run
    for column, wanted in (("function", function), ("step", step)):
        if wanted is None:
            continue
        of_runs[-1] = False
        of_runs[:-1] &= (tasks[column].astype(object) == wanted).to_numpy()
    functions = np.append(1 + tasks["function"].cat.codes.to_numpy(dtype=np.int64), 0)
    rows = np.flatnonzero(of_runs[runs])
    samples, runs = Samples.of(run.task_samples).take(rows), runs[rows]
    # What was counted since before the run began is of another's.
    start = np.append(tasks["start"].to_numpy(dtype=float), np.nan)[runs]
    crosses = samples.time - samples.interval < start - 2 * _ROUNDED
    ended = np.append(np.arange(len(tasks)) < len(run.tasks), False)
    shares = [
        np.where(
            ended, _counted_shares(tasks, name, functions[:-1], of_runs[:-1] & ended[:-1]), np.nan
        )
        for name in ("cpu", "run_queue")
    ]
    weight = _weights(samples.interval, tasks, functions, runs)
    samples = replace(
        samples,
        interval=samples.interval * weight,
        cpu=np.where(crosses, np.nan, samples.cpu) * weight,
        run_queue=np.where(crosses, np.nan, samples.run_queue) * weight,
        computed=shares[0][runs],
        queued=shares[1][runs],
    )
    return samples, functions[runs]


def _weights(interval: Array, tasks: pd.DataFrame, functions: Array, runs: Array) -> Array:
    """Return factors by which samples of a function stand for no more than its task runs took.

    The first sample of a thread after a pause stands for the pause too.
    """
    duration = tasks["duration"].to_numpy(dtype=float)
    lasted = np.append(np.where(np.isfinite(duration), np.maximum(duration, 0.0), np.inf), np.inf)
    count = int(functions.max(initial=0)) + 1
    sampled = np.bincount(functions[runs], interval, minlength=count)
    took = np.bincount(functions, lasted, minlength=count)
    return np.fmin(ratio(took, sampled), 1.0)[functions[runs]]


def _counted_shares(tasks: pd.DataFrame, column: str, functions: Array, counted: Array) -> Array:
    """Return which share of its function's time each task run's has of a count; NaN: unknown."""
    if column not in tasks:
        return np.full(len(tasks) + 1, np.nan)
    values, seconds = (tasks[name].to_numpy(dtype=float) for name in (column, "duration"))
    known = counted & np.isfinite(values) & np.isfinite(seconds)
    groups = Groups(np.where(known, functions, -1), int(functions.max(initial=0)) + 1)
    share = np.minimum(ratio(groups.sum(values), groups.sum(seconds)), 1.0)
    return np.append(share[functions], np.nan)


#: How many standard deviations a margin of 95 % has.
_DEVIATIONS = 1.96
#: The share of a group's time by which what it was spent with may be off, to be told apart.
TELLING = 0.1
#: The least share of a group's time of a class that it is said to have perhaps.
_SOME = 0.005
#: How many times its share of a class of time a part of a function may well have.
_TWICE = 2.0
#: Differences of shares that are none.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Parts(_Columns):
    """What of samples' time adds up: of samples, or of groups of them. `split` splits it."""

    seconds: Array
    samples: Array
    #: On a core, and runnable without one, as far as it is known.
    computing: Array
    core_wait: Array
    #: Of the samples that waited for the interpreter's lock, and for anything else.
    lock: Array
    waits: Array
    #: Of the samples that waited for nothing but a core or that lock; as a share of all those of
    #: their function; and as many of them as are, in the function, not of its most frequent class.
    active: Array
    active_share: Array
    mixed: Array
    #: How many samples are of a function of whose time the kernel counts any.
    told: Array

    def __len__(self) -> int:
        return len(self.seconds)

    def summed(self, groups: Array, count: int) -> Parts:
        """Return the sums of groups; rows of -1 are in none."""
        grouped = Groups(groups, count)
        return Parts(**{name: grouped.sum(values) for name, values in vars(self).items()})


@dataclass(frozen=True)
class Split(_Columns):
    """The seconds of each group. What they were spent with adds up to them; NaN: unknown."""

    seconds: Array
    samples: Array
    #: On a core.
    computing: Array
    #: Runnable, without a core.
    core_wait: Array
    #: For the interpreter's lock.
    lock_wait: Array
    #: For anything else: a lock, a disk, the network, the end of a sleep.
    waiting: Array
    #: By how much each of the first three may well be off.
    uncertain: Array


@dataclass(frozen=True)
class Spent(Split):
    """How the seconds of each group were spent, and which share of all seconds they are."""

    share: Array
    #: By how much the share may be off in 95 of 100 cases.
    margin: Array

    def parts(self, row: int) -> dict[str, float]:
        """Return the shares of a group's time, in words for what it was spent with."""
        seconds = float(self.seconds[row])
        if not seconds > 0:
            return {}
        active = {
            "computing": float(self.computing[row]),
            "waiting for a core": float(self.core_wait[row]),
            "waiting for the interpreter's lock": float(self.lock_wait[row]),
        }
        if self.uncertain[row] > TELLING * seconds:
            some = [name for name, part in active.items() if part >= _SOME * seconds]
            active = {" or ".join(some): sum(active.values())}
        parts = {**active, "waiting": float(self.waiting[row])}
        return {name: part / seconds for name, part in parts.items()}


def spent(samples: Samples, groups: Array, count: int, domains: Array) -> Spent:
    """Split the seconds of groups of samples.

    Parameters
    ----------
    samples
        The samples.
    groups, count
        The group of each, such as its line, and how many there are; -1: of none.
    domains
        See `parts_of`.
    """
    parts = parts_of(samples, domains)
    times = split(parts.summed(groups, count))
    # How uncertain that is follows from each domain by itself.
    span = int(domains.max(initial=0)) + 1
    pairs, pair_of = np.unique((groups + 1) * span + domains, return_inverse=True)
    apart = _uncertain(parts.summed(pair_of, len(pairs)))
    uncertain = Groups(pairs // span - 1, count).sum(apart)
    times = replace(times, uncertain=np.where(np.isnan(times.uncertain), np.nan, uncertain))
    share, margin = _shares(samples.interval, times.seconds)
    return Spent(**vars(times), share=share, margin=margin)


def parts_of(samples: Samples, domains: Array) -> Parts:
    """Return what of each sample's time adds up.

    The kernel counts a thread's time on a core and without one, in each task run and between two
    samples of one, in which it may run several lines. So these sums are exact for a function. Lines
    at which its threads waited for something else get none of them. Which of the others they belong
    to is an estimate: the sampler has the interpreter's lock when it looks, so that a thread which
    computed until then and one that wanted the lock for long are alike.

    Parameters
    ----------
    samples
        The samples.
    domains
        The number of what each sample's sums are exact for, such as its function.
    """
    known = np.isfinite(samples.cpu) & np.isfinite(samples.run_queue)
    # Where the kernel does not tell what it did, a sample has what was counted in its interval.
    is_active = samples.activity != WAITING
    domain = Groups(domains, int(domains.max(initial=-1)) + 1)
    counted = domain.sum(np.where(known, samples.interval, np.nan))
    own = [np.where(known, each, np.nan) for each in (samples.cpu, samples.run_queue)]
    exact = samples.computed, samples.queued
    totals = [_total(*both, samples.interval, domain) for both in zip(own, exact, strict=True)]
    computing, core_wait = _placed(own, totals, samples.interval, is_active, domain)

    def seconds_of(*activities: int) -> Array:
        return np.where(np.isin(samples.activity, activities), samples.interval, 0.0)

    active = samples.interval - seconds_of(WAITING)
    all_active = domain.sum(active)
    # The active seconds of domains that are not of the class that has most of them.
    others = np.maximum(all_active - totals[0] - totals[1], 0.0)
    classes = np.array([*totals, np.minimum(others, domain.sum(seconds_of(LOCK, UNKNOWN)))])
    mixed = classes.sum(axis=0) - classes.max(axis=0)
    return Parts(
        seconds=samples.interval,
        samples=np.ones(len(samples)),
        computing=computing,
        core_wait=core_wait,
        lock=seconds_of(LOCK),
        waits=seconds_of(WAITING),
        active=active,
        active_share=np.nan_to_num(ratio(active, all_active[domains])),
        mixed=active * np.nan_to_num(ratio(mixed, all_active))[domains],
        told=((counted > 0) | (domain.known(samples.computed) > 0))[domains].astype(float),
    )


def _total(own: Array, exact: Array, interval: Array, domain: Groups) -> Array:
    """Return the seconds of a count in each domain.

    The samples of task runs that tell theirs have the share that these tell of their time; others
    what was counted between looks. Those without a count are taken to be like the others.
    """
    counted = np.where(np.isfinite(own) & np.isnan(exact), interval, 0.0)
    like = ratio(domain.sum(np.where(np.isnan(exact), interval, 0.0)), domain.sum(counted))
    between = np.nan_to_num(domain.sum(np.where(counted > 0, own, 0.0)) * like)
    return domain.sum(np.nan_to_num(exact) * interval) + between


def _placed(
    own: list[Array], totals: list[Array], interval: Array, is_active: Array, domain: Groups
) -> list[Array]:
    """Place the seconds on a core, and those without one, so that domains have their totals.

    The active samples get what was counted before them, in proportion; those without a count are
    taken to be like the others. What is more than a sample stands for goes to the others: a look
    that came late has the time of more than its interval.
    """
    placed = []
    for counted, total in zip(own, totals, strict=True):
        known = is_active & np.isfinite(counted)
        rate = ratio(
            domain.sum(np.where(known, counted, 0.0)), domain.sum(np.where(known, interval, 0.0))
        )
        usual = interval * np.nan_to_num(rate, nan=1.0)[domain.codes]
        seconds = np.where(is_active, np.where(known, counted, usual), 0.0)
        placed.append(seconds * np.nan_to_num(ratio(total, domain.sum(seconds)))[domain.codes])
    fit = np.nan_to_num(np.minimum(ratio(interval, placed[0] + placed[1]), 1.0), nan=1.0)
    placed = [each * fit for each in placed]
    for taking in (is_active, True):
        room = np.where(taking, np.maximum(interval - placed[0] - placed[1], 0.0), 0.0)
        pairs = zip(totals, placed, strict=True)
        missing = [np.maximum(total - domain.sum(each), 0.0) for total, each in pairs]
        all_room = np.maximum(domain.sum(room), missing[0] + missing[1])
        shares = [np.nan_to_num(ratio(each, all_room))[domain.codes] for each in missing]
        placed = [each + room * share for each, share in zip(placed, shares, strict=True)]
    return placed


def split(parts: Parts) -> Split:
    """Say what the seconds of groups were spent with."""
    seconds = parts.seconds
    rest = np.maximum(seconds - parts.computing - parts.core_wait, 0.0)
    lock = np.minimum(parts.lock, np.maximum(rest - parts.waits, 0.0))
    split_up = parts.computing, parts.core_wait, lock, rest - lock, _uncertain(parts)
    known = [np.where(parts.told > 0, each, np.nan) for each in split_up]
    return Split(seconds, parts.samples.astype(np.int64), *known)


def _uncertain(parts: Parts) -> Array:
    """Return by how much what groups were spent with may well be off.

    It is known for a whole function. A part of it may have more of the classes that have less of
    the function's time than the part's share: twice as much, by the stopwatches of
    ``hot_lines_rates.py``. A group of several functions is taken for so many whole ones, and a part
    of one.
    """
    functions = parts.active_share
    others = np.maximum(np.ceil(functions - _ROUNDING) - functions, 0.0)
    of_others = ratio(parts.active * others, functions)
    return np.nan_to_num(np.array([parts.active, of_others, _TWICE * parts.mixed]).min(axis=0))


def _shares(weights: Array, seconds: Array) -> tuple[Array, Array]:
    """Return shares of a sum of weights, and half of Wilson's interval of each."""
    total = weights.sum()
    if not total > 0:
        return np.full(len(seconds), np.nan), np.full(len(seconds), np.nan)
    share = np.minimum(seconds / total, 1.0)
    number = total**2 / np.sum(weights**2)  # of samples of one weight that would say as much
    square = _DEVIATIONS**2
    inner = share * (1 - share) / number + square / (4 * number**2)
    return share, _DEVIATIONS * np.sqrt(inner) / (1 + square / number)
