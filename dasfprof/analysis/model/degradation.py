"""Whether functions get slower as the run goes on, and where the time goes then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.database.columns import Array

#: A quantity rises if its rank correlation with time is so high, and its last third so many times
#: its first; it falls if that holds of its inverse.
RANK_CORRELATION = 0.6
LAST_BY_FIRST = 1.3
#: Attempts of a function in order of time are put together in so many steps at most: medians of
#: many attempts tell a trend that the noise of single ones hides.
_STEPS = 30
#: Nothing is said of functions with fewer attempts that succeeded.
FEWEST = 12
#: Attempts in a step of time, on average, for their number to tell anything.
_COUNTED = 4

#: What is compared with time: columns of attempts.
MEASURES = ("run", "elapsed", "cpu", "input_size")

_STEADY = "No degradation."
_FEW = f"Fewer than {FEWEST} attempts succeeded: nothing can be said."
_SLOWER = (
    "No degradation of the run: its attempts take longer, but as many of them start as before."
)
_UNCLEAR = (
    "Not clear: its attempts take longer; their times of start do not tell whether fewer of them "
    "start than before."
)
_NO_TREND = (
    "Not clear: its last attempts take longer than its first, but they do not rise from step to "
    "step."
)
_INPUTS = "Its inputs grow over time, and its time with them: no degradation of the function."
_FUNCTION = (
    "Degradation in the function: it takes longer, and more CPU seconds. Look for state that grows "
    "from call to call, and for a GPU that it stopped using; profile its code."
)
_WAITING = (
    "Degradation in what the function waits for: it takes longer, but no more CPU seconds. Look at "
    "storage, locks, other processes on the host, and whether its GPU is still busy."
)
_UNKNOWN = (
    "Degradation in the function: it takes longer; no file tells its CPU seconds. Look at its code "
    "and at the storage that it reads."
)
_AROUND = (
    "Degradation around the function: the attempts take longer, the function does not. Look at "
    "unspilling and deserialising: memory and local disk."
)
_FED = (
    "Fewer of its tasks start over time, but those take no longer: not the function. Look for what "
    "feeds it: dependencies, the client, the scheduler, workers that left."
)


@dataclass(frozen=True)
class Trends:
    """How the attempts of each function change over time, by place in `functions`."""

    functions: Array
    #: How many attempts succeeded: what the rest is about.
    attempts: Array
    #: Their number in the last third of the time by that in the first, NaN where nothing can be
    #: said; and whether it falls.
    count_change: Array
    count_falls: Array
    #: The same of each of `MEASURES`, and whether it rises.
    change: dict[str, Array]
    rises: dict[str, Array]
    #: What that comes to, in words.
    verdicts: Array
    #: The functions with attempts, that with the most seconds first.
    order: Array


def find_trends(attempts: pd.DataFrame) -> Trends:
    """Find the trends of what `find_attempts` gives."""
    attempts = attempts[attempts["succeeded"] & np.isfinite(attempts["start"])]
    function = attempts["function"].cat
    groups = Groups(function.codes.to_numpy(), len(function.categories))
    correlation, count = _count_trend(groups, attempts["start"].to_numpy())
    # The number falls where its inverse would rise.
    falls = (correlation <= -RANK_CORRELATION) & (count <= 1 / LAST_BY_FIRST)
    steps = _steps(groups)
    rises, change = {}, {}
    for name in MEASURES:
        correlation, change[name] = _trend(groups, steps, attempts[name].to_numpy())
        rises[name] = (correlation >= RANK_CORRELATION) & (change[name] >= LAST_BY_FIRST)
    order = np.argsort(-groups.sum(attempts["run"].to_numpy()), kind="stable")
    return Trends(
        function.categories.to_numpy(dtype=object),
        groups.sizes,
        count,
        falls,
        change,
        rises,
        _verdicts(falls, count, rises, change, groups),
        order[groups.sizes[order] > 0],
    )


def _steps(groups: Groups) -> Array:
    """Return the step of each attempt: equal shares of each function's, in the order of time."""
    places = np.zeros(len(groups.codes), dtype=np.int64)
    firsts = np.repeat(groups.begins[:-1], groups.sizes)
    places[groups.order] = np.arange(len(groups.order)) - firsts
    sizes = groups.sizes[groups.codes]
    steps: Array = places * np.minimum(sizes, _STEPS) // np.maximum(sizes, 1)
    return steps


def _trend(groups: Groups, steps: Array, values: Array) -> tuple[Array, Array]:
    """Compare a quantity with time.

    Returns
    -------
    correlation, change
        The rank correlation of its median in each step with the step, and the mean of its last
        third of steps by that of its first; NaN where too few values are known.
    """
    medians = Groups(groups.codes * _STEPS + steps, groups.count * _STEPS).median(values)
    table = medians.reshape(groups.count, _STEPS)
    table[groups.known(values) < FEWEST] = np.nan
    return _rank_correlation(table), _last_by_first(table)


def _count_trend(groups: Groups, starts: Array) -> tuple[Array, Array]:
    """Compare the number of starts with time, as `_trend` does with a quantity.

    The time from a function's first start to its last is cut into equal steps.
    """
    first, last = groups.min(starts), groups.max(starts)
    steps = np.clip(groups.sizes // _COUNTED, 3, _STEPS)
    of_row = steps[groups.codes]
    within = ratio(starts - first[groups.codes], (last - first)[groups.codes])
    places = np.minimum(np.nan_to_num(within) * of_row, of_row - 1).astype(np.int64)
    cells = np.bincount(groups.codes * _STEPS + places, minlength=groups.count * _STEPS)
    table = cells.reshape(groups.count, _STEPS).astype(float)
    told = (groups.sizes >= FEWEST) & (last > first)
    table[(np.arange(_STEPS) >= steps[:, None]) | ~told[:, None]] = np.nan
    return _rank_correlation(table), _last_by_first(table)


def _rank_correlation(table: Array) -> Array:
    """Return Spearman's rank correlation of each row with the columns; NaN are left out."""
    rows, columns = np.nonzero(np.isfinite(table))
    groups, values = Groups(rows, len(table)), table[rows, columns]
    x, y = groups.ranks(columns.astype(float)), groups.ranks(values)
    x, y = x - groups.mean(x)[rows], y - groups.mean(y)[rows]
    return ratio(groups.sum(x * y), np.sqrt(groups.sum(x * x) * groups.sum(y * y)))


def _last_by_first(table: Array) -> Array:
    """Divide the mean of each row's last third by that of its first; NaN are left out."""
    rows, _ = np.nonzero(np.isfinite(table))
    groups, values = Groups(rows, len(table)), table[np.isfinite(table)]
    places = np.arange(len(rows)) - groups.begins[rows]
    third = np.maximum(groups.sizes // 3, 1)[rows]
    early, late = places < third, places >= groups.sizes[rows] - third
    first = groups.mean(np.where(early, values, np.nan))
    return ratio(groups.mean(np.where(late, values, np.nan)), first)


def _verdicts(
    falls: Array, count: Array, rises: dict[str, Array], change: dict[str, Array], groups: Groups
) -> Array:
    """Say what the steps of the tuning guide come to."""
    run, elapsed, with_cpu = rises["run"], rises["elapsed"], ~np.isnan(change["cpu"])
    longer = (change["run"] >= LAST_BY_FIRST) | (change["elapsed"] >= LAST_BY_FIRST)
    as_many = count > 1 / LAST_BY_FIRST
    cases = [
        (groups.sizes < FEWEST, _FEW),
        ((run | elapsed) & rises["input_size"], _INPUTS),
        (~falls & (run | elapsed), np.where(as_many, _SLOWER, _UNCLEAR)),
        (~falls, np.where(longer, _NO_TREND, _STEADY)),
        (run & rises["cpu"], _FUNCTION),
        (run & with_cpu, _WAITING),
        (run, _UNKNOWN),
        (elapsed, _AROUND),
    ]
    conditions, verdicts = zip(*cases, strict=True)
    return np.select(conditions, verdicts, default=_FED)
