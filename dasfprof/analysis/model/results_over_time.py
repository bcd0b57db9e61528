"""The results that workers held over a run, by the function that made them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.held_results import ends_of_lives, release_times
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array

#: Functions that are told apart, of those that ever held such a share of the peak; the last of them
#: is all others.
_MOST, _LEAST = 8, 0.01
OTHERS = "other functions"


@dataclass(frozen=True)
class ResultsOverTime:
    """Bytes of results by function, each counted once, in memory or spilled."""

    #: Seconds from the trace's begin, ascending; the moment of the peak is one of them.
    times: Array
    #: The functions that ever held most first, and those bytes, a row a function.
    functions: list[str]
    held: Array
    #: When most was held by all together.
    peak: float


def results_over_time(trace: Run, points: int = 1000) -> ResultsOverTime | None:
    """Find what was held at so many moments of a run; None where nothing tells.

    A result is held from its task's end until the scheduler let it go, or its worker left.
    """
    rows, size, begin, stop = _lives_of_results(trace)
    if not len(rows):
        return None
    peak = _peak(begin, stop, size)
    times = np.unique(np.append(np.linspace(0.0, max(trace.wall, 0.0), points), peak))
    by_function = results_at(trace, times)
    names, each = list(by_function), np.stack(list(by_function.values()))
    most = each.max(axis=1)
    order = np.argsort(-most, kind="stable")
    shown = order[most[order] >= _LEAST * each.sum(axis=0).max()]
    shown = shown if len(shown) <= _MOST - (len(shown) < len(order)) else shown[: _MOST - 1]
    held, labels = each[shown], [names[code] for code in shown]
    if len(shown) < len(order):
        held = np.vstack([held, each[order[len(shown) :]].sum(axis=0)])
        labels.append(OTHERS)
    return ResultsOverTime(times, labels, held, peak)


def results_at(trace: Run, times: Array) -> dict[str, Array]:
    """Find how many bytes of each function's results were held at times, which are in order."""
    rows, size, begin, stop = _lives_of_results(trace)
    codes = trace.tasks["function"].cat.codes.to_numpy()[rows]
    names = trace.tasks["function"].cat.categories
    found = {}
    for code in np.unique(codes).tolist():
        own = np.flatnonzero(codes == code)
        found[str(names[code])] = _at(times, begin[own], stop[own], size[own])
    return found


def _lives_of_results(trace: Run) -> tuple[Array, Array, Array, Array]:
    """Return the rows of `Trace.tasks` with results, their bytes, and from when to when."""
    tasks = trace.tasks
    size = tasks["size"].to_numpy(dtype=float)
    begin, life = trace.times.done, tasks["worker_id"].to_numpy()
    stop = np.minimum(release_times(trace), ends_of_lives(trace)[life])
    there = (size > 0) & (stop > begin) & (begin <= max(trace.wall, 0.0))
    rows = np.flatnonzero(there)
    return rows, size[rows], begin[rows], stop[rows]


def _peak(begin: Array, stop: Array, size: Array) -> float:
    """Return when most was held."""
    at = np.append(begin, stop)
    change = np.append(size, -size)
    # What is let go makes room for what is made at the same time.
    order = np.lexsort((change, at))
    return float(at[order][np.cumsum(change[order]).argmax()])


def _at(times: Array, begin: Array, stop: Array, size: Array) -> Array:
    """Return how many bytes were held at times."""
    change = np.zeros(len(times) + 1)
    np.add.at(change, np.searchsorted(times, begin, side="left"), size)
    np.subtract.at(change, np.searchsorted(times, stop, side="left"), size)
    held: Array = np.maximum(np.cumsum(change[:-1]), 0.0)
    return held
