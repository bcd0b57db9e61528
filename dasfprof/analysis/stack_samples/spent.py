"""`spent`: how the time of groups of samples was spent, and how sure their shares are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.stack_samples.task_samples import LOCK, WAITING, Samples
from dasfprof.database.columns import Array

#: How many standard deviations a margin of 95 % has.
_DEVIATIONS = 1.96


_Rows = TypeVar("_Rows", bound="_Columns")


class _Columns:
    """Arrays of one length."""

    def take(self: _Rows, rows: Array) -> _Rows:
        """Return some rows, by their places."""
        return type(self)(**{name: values[rows] for name, values in vars(self).items()})


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


@dataclass(frozen=True)
class Spent(Split):
    """How the seconds of each group were spent, and which share of all seconds they are."""

    share: Array
    #: By how much the share may be off in 95 of 100 cases.
    margin: Array

    def parts(self, row: int) -> dict[str, float]:
        """Return the shares of a group's time, in words for what it was spent with."""
        parts = {
            "computing": self.computing,
            "waiting for a core": self.core_wait,
            "waiting for the interpreter's lock": self.lock_wait,
            "waiting": self.waiting,
        }
        seconds = float(self.seconds[row])
        return {name: float(part[row]) / seconds for name, part in parts.items() if seconds > 0}


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
    found = split(parts_of(samples, domains).summed(groups, count))
    share, margin = _shares(samples.interval, found.seconds)
    return Spent(**vars(found), share=share, margin=margin)


def parts_of(samples: Samples, domains: Array) -> Parts:
    """Return what of each sample's time adds up.

    The kernel counts a thread's time on a core and without one between two samples, in which it
    may run several lines. So these sums are exact for a function, and which of its lines they
    belong to is told by what the thread did at the samples: lines at which it waited for something
    else get none of them.

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
    parts = []
    for seconds_of in (samples.cpu, samples.run_queue):
        measured = np.where(known, seconds_of, np.nan)
        active = domain.sum(np.where(is_active, measured, np.nan))
        # Of all seconds in which the samples without a count are like the others.
        total = domain.sum(measured) * ratio(domain.sum(samples.interval), counted)
        own = np.where(known, measured, 0.0)
        mean = ratio(domain.sum(measured), counted)[domains] * samples.interval
        scaled = np.where(active[domains] > 0, own * ratio(total, active)[domains], mean)
        parts.append(np.where(is_active, scaled, 0.0))
    return Parts(
        seconds=samples.interval,
        samples=np.ones(len(samples)),
        computing=parts[0],
        core_wait=parts[1],
        lock=np.where(samples.activity == LOCK, samples.interval, 0.0),
        waits=np.where(samples.activity == WAITING, samples.interval, 0.0),
        told=(counted[domains] > 0).astype(float),
    )


def split(parts: Parts) -> Split:
    """Say what the seconds of groups were spent with."""
    seconds = parts.seconds
    over = np.maximum(ratio(parts.computing + parts.core_wait, seconds), 1.0)
    computing, core_wait = parts.computing / over, parts.core_wait / over
    rest = np.maximum(seconds - computing - core_wait, 0.0)
    lock = np.minimum(parts.lock, np.maximum(rest - parts.waits, 0.0))
    told = parts.told > 0
    lock = np.where(told, lock, np.nan)
    return Split(
        seconds=seconds,
        samples=parts.samples.astype(np.int64),
        computing=np.where(told, computing, np.nan),
        core_wait=np.where(told, core_wait, np.nan),
        lock_wait=lock,
        waiting=np.where(told, rest - lock, np.nan),
    )


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
