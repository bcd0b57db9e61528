"""Functions that get slower during the run, and causes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.database.columns import Array

#: Thresholds: a quantity rises if its rank correlation with time and the ratio of its last third to
#: its first third are at least this. It falls if its inverse rises.
RANK_CORRELATION = 0.6
LAST_BY_FIRST = 1.3
#: Maximum number of time steps by which the attempts of a function are grouped. The medians of
#: steps show a trend that the noise of single attempts hides.
_STEPS = 30
#: Minimum number of successful attempts of a function for a verdict.
FEWEST = 12
#: Minimum mean number of attempts per time step, so that the numbers of two steps can be compared.
_COUNTED = 4

#: Columns of attempts that are checked for a trend over time.
MEASURES = ("run", "elapsed", "cpu", "input_size")

_STEADY = "No degradation."
_FEW = f"Fewer than {FEWEST} attempts succeeded, which is too few for a verdict."
_SLOWER = "No degradation of the run: attempts take longer, but as many of them start as before."
_UNCLEAR = (
    "Not clear: attempts take longer, but their start times do not show whether fewer of them "
    "start than before."
)
_NO_TREND = (
    "Not clear: the last attempts take longer than the first, but durations do not rise steadily."
)
_INPUTS = "Inputs grow over time, and durations with them. The function itself does not degrade."
_FUNCTION = (
    "Degradation in the function: it takes longer, and more CPU seconds. Compare the arguments "
    "of its first and last tasks: later tasks may have more to do. If not, look for state that "
    "grows from call to call, and for a GPU that it no longer uses. Profile its code."
)
_WAITING = (
    "Degradation in something that the function waits for: it takes longer, but no more CPU "
    "seconds. Check storage, locks, other processes on the host, and whether its GPU is still "
    "busy."
)
_UNKNOWN = (
    "Degradation in the function: it takes longer, and its CPU seconds are not recorded. Check "
    "its code and the storage that it reads."
)
_AROUND = (
    "Degradation around the function: attempts take longer, but the function does not. Check "
    "unspilling and deserializing: memory and local disk."
)
_FED = (
    "Fewer of its tasks start over time, but they take no longer, so the function is not the "
    "cause. Check what comes before it: dependencies, the client, the scheduler, and workers "
    "that left."
)


@dataclass(frozen=True)
class Trends:
    """Trends of the attempts of each function over time, in arrays indexed by `functions`."""

    functions: Array
    #: Number of successful attempts. The other fields are computed from these.
    attempts: Array
    #: Ratio of the number of attempts in the last third of the time to the number in the first
    #: third (NaN if unknown), and whether this number falls.
    count_change: Array
    count_falls: Array
    #: For each of `MEASURES`, the ratio of its last third to its first third, and whether it rises.
    change: dict[str, Array]
    rises: dict[str, Array]
    #: Verdict as a sentence.
    verdicts: Array
    #: Indices of functions with attempts, sorted by total seconds in descending order.
    order: Array


def trend_rows(attempts: pd.DataFrame) -> pd.DataFrame:
    """Return the rows and columns of `find_attempts` that trends need (25 bytes per row)."""
    rows = attempts[attempts["succeeded"] & np.isfinite(attempts["start"])]
    columns: pd.DataFrame = rows[["function", "start", *MEASURES]]
    return columns.astype(dict.fromkeys(MEASURES, np.float32))


def find_trends(rows: pd.DataFrame) -> Trends:
    """Return the trends of rows from `trend_rows`."""
    codes, functions = pd.factorize(rows["function"])
    names = np.asarray(functions, dtype=object)
    groups = Groups(codes, len(names))
    sizes, start = groups.sizes, rows["start"].to_numpy()
    of_rows = sizes[codes]
    # The attempts of each function, in the order of time, are divided into equal steps.
    steps = groups.places(start) * np.minimum(of_rows, _STEPS) // np.maximum(of_rows, 1)
    cells = Groups(codes * _STEPS + steps, len(names) * _STEPS)
    medians = {}
    for name in MEASURES:
        values = rows[name].to_numpy()
        few = (groups.known(values) < FEWEST)[:, None]
        medians[name] = np.where(few, np.nan, cells.median(values).reshape(-1, _STEPS))
    correlation, count = _count_trend(groups, start)
    # A number falls if its inverse would rise.
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
    """Return two measures of how often each function starts over time.

    The first one is the rank correlation of its rate of starts with time. The second one is the
    mean rate in the last third of the time, divided by the mean rate in the first third. Both are
    NaN if there are too few attempts.
    """
    codes, sizes = groups.codes, groups.sizes
    first, last = groups.min(start), groups.max(start)
    steps = np.clip(sizes // _COUNTED, 3, _STEPS)
    of_row = steps[codes]
    within = np.nan_to_num(ratio(start - first[codes], (last - first)[codes]))
    indices = codes * _STEPS + np.minimum(within * of_row, of_row - 1).astype(np.int64)
    table = np.bincount(indices, minlength=len(sizes) * _STEPS).reshape(-1, _STEPS).astype(float)
    enough = (sizes >= FEWEST) & (last > first)
    table[(np.arange(_STEPS) >= steps[:, None]) | ~enough[:, None]] = np.nan
    return _rank_correlation(table), _last_by_first(table)


def _rank_correlation(table: Array) -> Array:
    """Return Spearman's rank correlation of each row with its column indices, ignoring NaN."""
    columns = np.where(np.isfinite(table), np.arange(table.shape[1]), np.nan)
    x, y = (pd.DataFrame(each).rank(axis=1) for each in (columns, table))
    return x.corrwith(y, axis=1).to_numpy()


def _last_by_first(table: Array) -> Array:
    """Return the mean of each row's last third divided by the mean of its first third.

    NaN values are ignored.
    """
    rows, _ = np.nonzero(np.isfinite(table))
    groups, values = Groups(rows, len(table)), table[np.isfinite(table)]
    indices = np.arange(len(rows)) - groups.begins[rows]
    third = np.maximum(groups.sizes // 3, 1)[rows]
    early, late = indices < third, indices >= groups.sizes[rows] - third
    first = groups.mean(np.where(early, values, np.nan))
    return ratio(groups.mean(np.where(late, values, np.nan)), first)


def _verdicts(
    falls: Array, count: Array, rises: dict[str, Array], change: dict[str, Array], sizes: Array
) -> Array:
    """Return the verdict of each function, from fields of `Trends`."""
    run, elapsed, with_cpu = rises["run"], rises["elapsed"], ~np.isnan(change["cpu"])
    longer = (change["run"] >= LAST_BY_FIRST) | (change["elapsed"] >= LAST_BY_FIRST)
    as_many = count > 1 / LAST_BY_FIRST
    # The first condition that applies decides.
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
