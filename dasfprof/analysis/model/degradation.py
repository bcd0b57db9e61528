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
    "Degradation in the function: it takes longer, and more CPU seconds. Compare what its first "
    "and last tasks are called with: they may have more to do. Else look for state that grows from "
    "call to call, and for a GPU that it stopped using; profile its code."
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


def trend_rows(attempts: pd.DataFrame) -> pd.DataFrame:
    """Return what trends rest on, of what `find_attempts` gives: 25 bytes for most attempts."""
    rows = attempts[attempts["succeeded"] & np.isfinite(attempts["start"])]
    columns: pd.DataFrame = rows[["function", "start", *MEASURES]]
    return columns.astype(dict.fromkeys(MEASURES, np.float32))


def find_trends(rows: pd.DataFrame) -> Trends:
    """Find the trends of what `trend_rows` gives."""
    codes, functions = pd.factorize(rows["function"])
    names = np.asarray(functions, dtype=object)
    groups = Groups(codes, len(names))
    sizes, start = groups.sizes, rows["start"].to_numpy()
    of_rows = sizes[codes]
    # The step of each attempt: equal shares of each function's, in the order of time.
    steps = groups.places(start) * np.minimum(of_rows, _STEPS) // np.maximum(of_rows, 1)
    cells = Groups(codes * _STEPS + steps, len(names) * _STEPS)
    medians = {}
    for name in MEASURES:
        values = rows[name].to_numpy()
        few = (groups.known(values) < FEWEST)[:, None]
        medians[name] = np.where(few, np.nan, cells.median(values).reshape(-1, _STEPS))
    correlation, count = _count_trend(groups, start)
    # The number falls where its inverse would rise.
    falls = (correlation <= -RANK_CORRELATION) & (count <= 1 / LAST_BY_FIRST)
    change = {name: _last_by_first(table) for name, table in medians.items()}
    rises = {
        name: (_rank_correlation(table) >= RANK_CORRELATION) & (change[name] >= LAST_BY_FIRST)
        for name, table in medians.items()
    }
    ranks = np.argsort(np.argsort(names))
    return Trends(
        names,
        sizes,
        count,
        falls,
        change,
        rises,
        _verdicts(falls, count, rises, change, sizes),
        np.lexsort((ranks, -groups.sum(rows["run"].to_numpy()))),
    )


def _count_trend(groups: Groups, start: Array) -> tuple[Array, Array]:
    """Compare the number of starts with time.

    The time from a function's first start to its last is cut into equal steps.

    Returns
    -------
    correlation, change
        The rank correlation of the number in each step with the step, and the mean of its last
        third of steps by that of its first; NaN where too few attempts are known.
    """
    codes, sizes = groups.codes, groups.sizes
    first, last = groups.min(start), groups.max(start)
    steps = np.clip(sizes // _COUNTED, 3, _STEPS)
    of_row = steps[codes]
    within = np.nan_to_num(ratio(start - first[codes], (last - first)[codes]))
    places = codes * _STEPS + np.minimum(within * of_row, of_row - 1).astype(np.int64)
    table = np.bincount(places, minlength=len(sizes) * _STEPS).reshape(-1, _STEPS).astype(float)
    enough = (sizes >= FEWEST) & (last > first)
    table[(np.arange(_STEPS) >= steps[:, None]) | ~enough[:, None]] = np.nan
    return _rank_correlation(table), _last_by_first(table)


def _rank_correlation(table: Array) -> Array:
    """Return Spearman's rank correlation of each row with the columns; NaN are left out."""
    columns = np.where(np.isfinite(table), np.arange(table.shape[1]), np.nan)
    ranks = (pd.DataFrame(each).rank(axis=1) for each in (columns, table))
    x, y = (each.sub(each.mean(axis=1), axis=0).to_numpy() for each in ranks)
    return ratio(np.nansum(x * y, 1), np.sqrt(np.nansum(x * x, 1) * np.nansum(y * y, 1)))


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
    falls: Array, count: Array, rises: dict[str, Array], change: dict[str, Array], sizes: Array
) -> Array:
    """Say what the steps of the tuning guide come to."""
    run, elapsed, with_cpu = rises["run"], rises["elapsed"], ~np.isnan(change["cpu"])
    longer = (change["run"] >= LAST_BY_FIRST) | (change["elapsed"] >= LAST_BY_FIRST)
    as_many = count > 1 / LAST_BY_FIRST
    cases = [
        (sizes < FEWEST, _FEW),
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
