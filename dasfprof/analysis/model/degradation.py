"""Whether functions get slower as the run goes on, and where the time goes then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.group_sums import GroupSums
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.sorted_rows import GROUP, Rows, SortedRows, group_ids, in_groups
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
    sums, rows = trend_rows(attempts)
    order = np.argsort(pd.factorize(rows[GROUP])[0], kind="stable")  # each group by time
    ordered = {str(name): column.to_numpy()[order] for name, column in rows.items()}
    return trends_of([sums], [ordered])


def trend_rows(attempts: pd.DataFrame) -> tuple[GroupSums, pd.DataFrame]:
    """Return sums of the attempts that succeeded, by function, and rows of what has a trend."""
    attempts = attempts[attempts["succeeded"] & np.isfinite(attempts["start"])]
    function = attempts["function"].cat
    codes, names = function.codes.to_numpy(), list(function.categories)
    columns = {name: attempts[name].to_numpy() for name in ("start", *MEASURES)}
    summed = {name: columns[name] for name in MEASURES}
    groups = Groups(codes, len(names))
    sums = GroupSums.of(names, groups, summed, {"start": columns["start"]})
    return sums, pd.DataFrame({GROUP: group_ids(names)[codes], **columns})


def trends_of(parts: Sequence[GroupSums], rows: Iterable[Rows]) -> Trends:
    """Find trends.

    Parameters
    ----------
    parts
        The sums of all parts of the run.
    rows
        The rows of all parts, sorted by group and start, in pieces.
    """
    sums = GroupSums.merged(parts)
    names: list[Any] = sums.names
    sizes = sums.rows
    medians = {name: np.full((len(names), _STEPS), np.nan) for name in MEASURES}
    starts = np.zeros(len(names) * _STEPS, dtype=np.int64)
    for piece in _whole_steps(in_groups(rows, names), sizes):
        starts += np.bincount(_time_steps(piece, sums), minlength=len(starts))
        codes, cells = pd.factorize(piece.codes * _STEPS + _steps(piece, sizes))
        groups = Groups(codes, len(cells))
        for name, table in medians.items():
            table.ravel()[cells] = groups.median(piece.columns[name])
    for name, table in medians.items():
        table[sums.known[name] < FEWEST] = np.nan
    correlation, count = _count_trend(starts.reshape(-1, _STEPS), sums)
    # The number falls where its inverse would rise.
    falls = (correlation <= -RANK_CORRELATION) & (count <= 1 / LAST_BY_FIRST)
    change = {name: _last_by_first(table) for name, table in medians.items()}
    rises = {
        name: (_rank_correlation(table) >= RANK_CORRELATION) & (change[name] >= LAST_BY_FIRST)
        for name, table in medians.items()
    }
    ranks = np.argsort(np.argsort(np.array(names, dtype=object)))
    return Trends(
        np.array(names, dtype=object),
        sizes,
        count,
        falls,
        change,
        rises,
        _verdicts(falls, count, rises, change, sizes),
        np.lexsort((ranks, -sums.sum("run"))),
    )


def _steps(rows: SortedRows, sizes: Array) -> Array:
    """Return the step of each attempt: equal shares of each function's, in the order of time."""
    of_rows = sizes[rows.codes]
    steps: Array = rows.places * np.minimum(of_rows, _STEPS) // np.maximum(of_rows, 1)
    return steps


def _whole_steps(pieces: Iterable[SortedRows], sizes: Array) -> Iterator[SortedRows]:
    """Cut pieces anew so that each step of a function is in one of them."""
    kept: list[SortedRows] = []
    for piece in pieces:
        whole = _joined([*kept, piece])
        cells = whole.codes * _STEPS + _steps(whole, sizes)
        last = int(np.flatnonzero(cells != cells[-1]).max(initial=-1)) + 1
        if last:
            yield _cut(whole, slice(None, last))
        kept = [_cut(whole, slice(last, None))]
    yield from kept


def _joined(pieces: list[SortedRows]) -> SortedRows:
    if len(pieces) == 1:
        return pieces[0]
    return SortedRows(
        np.concatenate([piece.codes for piece in pieces]),
        np.concatenate([piece.places for piece in pieces]),
        {
            name: np.concatenate([piece.columns[name] for piece in pieces])
            for name in pieces[0].columns
        },
    )


def _cut(rows: SortedRows, part: slice) -> SortedRows:
    columns = {name: column[part] for name, column in rows.columns.items()}
    return SortedRows(rows.codes[part], rows.places[part], columns)


def _time_steps(rows: SortedRows, sums: GroupSums) -> Array:
    """Return in which of the equal steps of its function's time each attempt started."""
    first, last = sums.lowest["start"], sums.highest["start"]
    of_row = _count_steps(sums.rows)[rows.codes]
    within = ratio(rows.columns["start"] - first[rows.codes], (last - first)[rows.codes])
    places = np.minimum(np.nan_to_num(within) * of_row, of_row - 1).astype(np.int64)
    steps: Array = rows.codes * _STEPS + places
    return steps


def _count_steps(sizes: Array) -> Array:
    steps: Array = np.clip(sizes // _COUNTED, 3, _STEPS)
    return steps


def _count_trend(starts: Array, sums: GroupSums) -> tuple[Array, Array]:
    """Compare the number of starts with time.

    The time from a function's first start to its last is cut into equal steps.

    Returns
    -------
    correlation, change
        The rank correlation of the number in each step with the step, and the mean of its last
        third of steps by that of its first; NaN where too few attempts are known.
    """
    table = starts.astype(float)
    told = (sums.rows >= FEWEST) & (sums.highest["start"] > sums.lowest["start"])
    steps = _count_steps(sums.rows)
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
