"""Stack samples of tasks with their functions, how their time was spent, and margins of error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Maximum rounding error of a sample's time in seconds.
_ROUNDED = 0.5 / 1024
#: Codes of the activity of a thread in a sample.
UNKNOWN, RUNNING, LOCK, WAITING = 0, 1, 2, 3
_ACTIVITIES = {"running": RUNNING, "lock": LOCK, "waiting": WAITING}


_Rows = TypeVar("_Rows", bound="_Columns")


class _Columns:
    """Base class of classes whose fields are arrays of equal length."""

    def take(self: _Rows, rows: Array) -> _Rows:
        """Return the rows that `rows` selects: an array of indices, or a mask."""
        return type(self)(**{name: values[rows] for name, values in vars(self).items()})


@dataclass(frozen=True)
class Samples(_Columns):
    """Stack samples as arrays of equal length."""

    #: Rows of `Trace.stacks`, or -1 if unknown.
    stack: Array
    #: Unix seconds of each sample, and the seconds that the sample represents.
    time: Array
    interval: Array
    #: CPU seconds and CPU wait of the thread in these seconds, or NaN if unknown.
    cpu: Array
    run_queue: Array
    #: One of `UNKNOWN`, `RUNNING`, `LOCK`, `WAITING`.
    activity: Array
    #: Fractions of its function's time in which all task runs of the function computed, and waited
    #: for CPU. They come from counters at the start and end of each task run. NaN if unknown.
    computed: Array
    queued: Array

    def __len__(self) -> int:
        return len(self.stack)

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> Samples:
        """Return the samples in a table of a `Trace`."""
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
    """Return the task run of each row of `Trace.task_samples`, or -1 if unknown.

    Task runs are rows of `Run.task_runs`.
    """
    samples, runs = run.task_samples, run.task_runs
    rows_of = np.full(len(samples), -1, dtype=np.int64)
    if not len(samples) or not len(runs):
        return rows_of
    threads: dict[str, int] = {}
    of_samples, of_runs = _threads(samples, threads), _threads(runs, threads)
    start = runs["start"].to_numpy(dtype=float)
    stop = start + runs["duration"].to_numpy(dtype=float)
    time = samples["time"].to_numpy(dtype=float)
    rows = np.flatnonzero((of_runs >= 0) & np.isfinite(stop))
    # Put all threads one after another on a single time axis.
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
    """Return a code for the thread of each row, or -1 for a row without a thread."""
    column = table["thread"].astype("category").cat
    names = [str(name) for name in column.categories]
    numbers = np.array([*(known.setdefault(name, len(known)) for name in names), -1], np.int64)
    threads = numbers[column.codes.to_numpy()]
    # The factor exceeds any number of threads. Equal identities on two workers are two threads.
    spread = table["worker_id"].to_numpy(dtype=np.int64) * (1 << 20)
    return np.where(threads >= 0, threads + spread, -1)


def samples_of(
    run: Run, function: str | None = None, step: str | None = None
) -> tuple[Samples, Array]:
    """Return the samples of a function and a step (or of all, if None), and their function codes.

    The code of an unknown function is 0.
    """
    runs, tasks = run_of_samples(run), run.task_runs
    # The last item is for samples whose task run is unknown.
    of_runs = np.ones(len(tasks) + 1, dtype=bool)
    for column, wanted in (("function", function), ("step", step)):
        if wanted is None:
            continue
        of_runs[-1] = False
        of_runs[:-1] &= (tasks[column].astype(object) == wanted).to_numpy()
    functions = np.append(1 + tasks["function"].cat.codes.to_numpy(dtype=np.int64), 0)
    rows = np.flatnonzero(of_runs[runs])
    samples, runs = Samples.from_table(run.task_samples).take(rows), runs[rows]
    # Counters that include time before the start of the task run belong to an earlier task run.
    start = np.append(tasks["start"].to_numpy(dtype=float), np.nan)[runs]
    crosses = samples.time - samples.interval < start - 2 * _ROUNDED
    counted = of_runs & np.append(np.arange(len(tasks)) < len(run.tasks), False)
    computed, queued = (
        _counted_shares(tasks, name, functions, counted)[runs] for name in ("cpu", "run_queue")
    )
    weight = _weights(samples.interval, tasks, functions, runs)
    samples = replace(
        samples,
        interval=samples.interval * weight,
        cpu=np.where(crosses, np.nan, samples.cpu) * weight,
        run_queue=np.where(crosses, np.nan, samples.run_queue) * weight,
        computed=computed,
        queued=queued,
    )
    return samples, functions[runs]


def _weights(interval: Array, tasks: pd.DataFrame, functions: Array, runs: Array) -> Array:
    """Return factors for samples, so that no function gets more time than its task runs took."""
    duration = tasks["duration"].to_numpy(dtype=float)
    lasted = np.append(np.where(np.isfinite(duration), np.maximum(duration, 0.0), np.inf), np.inf)
    count = int(functions.max(initial=0)) + 1
    sampled = np.bincount(functions[runs], interval, minlength=count)
    took = np.bincount(functions, lasted, minlength=count)
    # A thread's first sample after a pause also represents the pause.
    return np.fmin(ratio(took, sampled), 1.0)[functions[runs]]


def _counted_shares(tasks: pd.DataFrame, column: str, functions: Array, counted: Array) -> Array:
    """Return, for each task run, the fraction of its function's time that `column` contains.

    Only task runs in the mask `counted` have the values. The fraction is NaN if unknown, and for
    the last item, which is for samples without a task run.
    """
    values, seconds = (
        np.append(tasks[name].to_numpy(dtype=float), np.nan) for name in (column, "duration")
    )
    known = counted & np.isfinite(values) & np.isfinite(seconds)
    groups = Groups(np.where(known, functions, -1), int(functions.max()) + 1)
    share = np.minimum(ratio(groups.sum(values), groups.sum(seconds)), 1.0)
    return np.where(counted, share[functions], np.nan)


#: Number of standard deviations in a 95 % margin.
_DEVIATIONS = 1.96
#: Maximum error, as a fraction of a group's time, up to which the categories are distinguished.
TELLING = 0.1
#: Minimum fraction of a group's time in a category that is mentioned.
_SOME = 0.005
#: Maximum ratio between a category's fraction in some samples of a function and in all samples of
#: it.
_TWICE = 2.0
#: Smaller differences between fractions are ignored.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Parts(_Columns):
    """How threads spent the time of samples, as one value per sample or per group of samples.

    A value for a group is the sum over its samples. `split` computes the categories from the
    values.
    """

    seconds: Array
    samples: Array
    #: Seconds on a core, and seconds of CPU wait, as far as these are known.
    computing: Array
    core_wait: Array
    #: Seconds of samples that waited for the GIL, and of samples that waited for anything else.
    lock: Array
    waits: Array
    #: Active samples, which did not wait for anything except CPU or the GIL: their seconds, these
    #: as a fraction of all active samples of the function, and their seconds outside the most
    #: frequent category of the function.
    active: Array
    active_share: Array
    mixed: Array
    #: Number of samples in functions for which the kernel counted time.
    counted: Array

    def summed(self, groups: Array, count: int) -> Parts:
        """Return the sums over groups, without rows of group -1."""
        grouped = Groups(groups, count)
        return Parts(**{name: grouped.sum(values) for name, values in vars(self).items()})


@dataclass(frozen=True)
class Split(_Columns):
    """Seconds of each group, divided by how they were spent, or NaN if unknown.

    The categories add up to the total.
    """

    seconds: Array
    samples: Array
    #: Seconds on a core.
    computing: Array
    #: Seconds of CPU wait.
    core_wait: Array
    #: Seconds of waiting for the GIL.
    lock_wait: Array
    #: Seconds of other waits: a lock, a disk, the network, or a sleep.
    waiting: Array
    #: Margin of error of each of the first three categories.
    uncertain: Array


@dataclass(frozen=True)
class Spent(Split):
    """The seconds of each group by category, and their fraction of the seconds of all groups."""

    share: Array
    #: Half-width of the 95 % confidence interval of the fraction.
    margin: Array

    def parts(self, row: int) -> dict[str, float]:
        """Return how the time of the group `row` was spent, as fractions by category.

        The keys are words such as ``waiting for CPU``. Categories that the samples cannot tell
        apart share a key. If the group has no time, the result is empty.
        """
        seconds = float(self.seconds[row])
        if not seconds > 0:
            return {}
        active = {
            "computing": float(self.computing[row]),
            "waiting for CPU": float(self.core_wait[row]),
            "waiting for the GIL": float(self.lock_wait[row]),
        }
        if self.uncertain[row] > TELLING * seconds:
            some = [name for name, part in active.items() if part >= _SOME * seconds]
            active = {" or ".join(some): sum(active.values())}
        parts = {**active, "waiting": float(self.waiting[row])}
        return {name: part / seconds for name, part in parts.items()}


def spent(samples: Samples, groups: Array, count: int, domains: Array) -> Spent:
    """Divide the seconds of each group of samples by how they were spent.

    `groups` is the group of each sample, such as its line (-1 for none). For `domains`, see
    `parts_of`.
    """
    parts = parts_of(samples, domains)
    times = split(parts.summed(groups, count))
    # The error follows from each domain separately.
    span = int(domains.max(initial=0)) + 1
    pairs, pair_of = np.unique((groups + 1) * span + domains, return_inverse=True)
    apart = _uncertain(parts.summed(pair_of, len(pairs)))
    uncertain = Groups(pairs // span - 1, count).sum(apart)
    times = replace(times, uncertain=np.where(np.isnan(times.uncertain), np.nan, uncertain))
    share, margin = _shares(samples.interval, times.seconds)
    return Spent(**vars(times), share=share, margin=margin)


def parts_of(samples: Samples, domains: Array) -> Parts:
    """Return the seconds of each sample by what its thread did.

    `domains` is the code of each sample's domain, such as its function. The CPU time and the CPU
    wait of a domain are exact, but how they are distributed over its samples is an estimate.
    """
    known = np.isfinite(samples.cpu) & np.isfinite(samples.run_queue)
    # If the state of the thread is unknown, use the counts of the sample's interval.
    is_active = samples.activity != WAITING
    domain = Groups(domains, int(domains.max(initial=-1)) + 1)
    counted = domain.sum(np.where(known, samples.interval, np.nan))
    counts = [np.where(known, each, np.nan) for each in (samples.cpu, samples.run_queue)]
    # The kernel counts a thread's time on a core and its CPU wait, both in each task run and
    # between two samples of a task run. A thread may execute several lines between two samples.
    # Lines at which threads waited for something else get none of the counted time.
    exact = samples.computed, samples.queued
    totals = [_total(*both, samples.interval, domain) for both in zip(counts, exact, strict=True)]
    computing, core_wait = _placed(counts, totals, samples.interval, is_active, domain)

    def seconds_of(*activities: int) -> Array:
        return np.where(np.isin(samples.activity, activities), samples.interval, 0.0)

    active = samples.interval - seconds_of(WAITING)
    all_active = domain.sum(active)
    # Seconds of active samples that are not in the most frequent category of their domain.
    others = np.maximum(all_active - totals[0] - totals[1], 0.0)
    classes = np.array([*totals, np.minimum(others, domain.sum(seconds_of(LOCK, UNKNOWN)))])
    # The sampler holds the GIL when it takes a sample. Therefore it cannot distinguish a thread
    # that has just been computing from one that has long been waiting for the GIL.
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
        counted=((counted > 0) | (domain.known(samples.computed) > 0))[domains].astype(float),
    )


def _total(counts: Array, exact: Array, interval: Array, domain: Groups) -> Array:
    """Return the total seconds of a counter, such as CPU time, in each domain.

    `exact` is the counter as a fraction of time, from complete task runs, or NaN. `counts` is how
    much the counter grew since the previous sample.
    """
    counted = np.where(np.isfinite(counts) & np.isnan(exact), interval, 0.0)
    # Samples without either are assumed to be like the samples that have only `counts`.
    like = ratio(domain.sum(np.where(np.isnan(exact), interval, 0.0)), domain.sum(counted))
    between = np.nan_to_num(domain.sum(np.where(counted > 0, counts, 0.0)) * like)
    return domain.sum(np.nan_to_num(exact) * interval) + between


def _placed(
    counts: list[Array], totals: list[Array], interval: Array, is_active: Array, domain: Groups
) -> list[Array]:
    """Distribute the CPU time and the CPU wait of each domain over its samples."""
    placed = []
    for counted, total in zip(counts, totals, strict=True):
        known = is_active & np.isfinite(counted)
        rate = ratio(
            domain.sum(np.where(known, counted, 0.0)), domain.sum(np.where(known, interval, 0.0))
        )
        # Active samples without a count are assumed to be like the others of their domain.
        usual = interval * np.nan_to_num(rate, nan=1.0)[domain.codes]
        seconds = np.where(is_active, np.where(known, counted, usual), 0.0)
        placed.append(seconds * np.nan_to_num(ratio(total, domain.sum(seconds)))[domain.codes])
    fit = np.nan_to_num(np.minimum(ratio(interval, placed[0] + placed[1]), 1.0), nan=1.0)
    placed = [each * fit for each in placed]
    # If more time was counted for a late sample than its interval has, the excess is distributed
    # over the other samples of the domain.
    for taking in (is_active, True):
        room = np.where(taking, np.maximum(interval - placed[0] - placed[1], 0.0), 0.0)
        pairs = zip(totals, placed, strict=True)
        missing = [np.maximum(total - domain.sum(each), 0.0) for total, each in pairs]
        all_room = np.maximum(domain.sum(room), missing[0] + missing[1])
        shares = [np.nan_to_num(ratio(each, all_room))[domain.codes] for each in missing]
        placed = [each + room * share for each, share in zip(placed, shares, strict=True)]
    return placed


def split(parts: Parts) -> Split:
    """Return the seconds of groups, divided by how they were spent."""
    seconds = parts.seconds
    off_core = np.maximum(seconds - parts.computing - parts.core_wait, 0.0)
    lock = np.minimum(parts.lock, np.maximum(off_core - parts.waits, 0.0))
    split_up = parts.computing, parts.core_wait, lock, off_core - lock, _uncertain(parts)
    known = [np.where(parts.counted > 0, each, np.nan) for each in split_up]
    return Split(seconds, parts.samples.astype(np.int64), *known)


def _uncertain(parts: Parts) -> Array:
    """Return the error in seconds of each group's computing time, CPU wait and GIL wait."""
    # If a group has samples of several functions, the fractions that it has of them are added up.
    # For example, 1.7 counts as one complete function and 0.7 of another.
    functions = parts.active_share
    others = np.maximum(np.ceil(functions - _ROUNDING) - functions, 0.0)
    of_others = ratio(parts.active * others, functions)
    # The error cannot exceed the group's active seconds, nor those of the other samples of its
    # function. The fraction of a rare category may be twice as large in the group as in the
    # function, which was measured with hot_lines_rates.py.
    return np.nan_to_num(np.array([parts.active, of_others, _TWICE * parts.mixed]).min(axis=0))


def _shares(weights: Array, seconds: Array) -> tuple[Array, Array]:
    """Return `seconds` as fractions of the sum of `weights`, and their margins of error.

    `weights` are the seconds of each sample. All values are NaN if there are no samples.
    """
    total = weights.sum()
    if not total > 0:
        return np.full(len(seconds), np.nan), np.full(len(seconds), np.nan)
    share = np.minimum(seconds / total, 1.0)
    number = total**2 / np.sum(weights**2)  # The equivalent number of samples of equal weight.
    square = _DEVIATIONS**2
    # A margin is half the width of the Wilson interval.
    inner = share * (1 - share) / number + square / (4 * number**2)
    return share, _DEVIATIONS * np.sqrt(inner) / (1 + square / number)
