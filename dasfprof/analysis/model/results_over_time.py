"""The results that workers held over a run, by the function that made them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.held_results import ends_of_lives, release_times
from dasfprof.analysis.model.times import ordered_times
from dasfprof.analysis.trace import Trace
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


def results_over_time(trace: Trace, points: int = 1000) -> ResultsOverTime | None:
    """Find what was held at so many moments of a run; None where nothing tells.

    A result is held from its task's end until the scheduler let it go, or its worker left.
    """
    tasks = trace.tasks
    size = tasks["size"].to_numpy(dtype=float)
    release, begin = release_times(trace), ordered_times(trace).done
    life = tasks["worker_id"].to_numpy()
    end = max(trace.end - trace.begin, 0.0)
    stop = np.minimum(release, ends_of_lives(trace)[life])
    rows = np.flatnonzero((size > 0) & (stop > begin) & (begin <= end))
    if not len(rows):
        return None
    size, begin, stop = size[rows], begin[rows], stop[rows]
    codes = tasks["function"].cat.codes.to_numpy()[rows]
    peak = _peak(begin, stop, size)
    times = np.unique(np.append(np.linspace(0.0, end, points), peak))
    names = tasks["function"].cat.categories
    by_function = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    each = np.stack([_at(times, begin[own], stop[own], size[own]) for own in by_function])
    most = each.max(axis=1)
    order = np.argsort(-most, kind="stable")
    shown = order[most[order] >= _LEAST * each.sum(axis=0).max()]
    shown = shown if len(shown) <= _MOST - (len(shown) < len(order)) else shown[: _MOST - 1]
    held, labels = each[shown], [str(names[code]) for code in shown]
    if len(shown) < len(order):
        held = np.vstack([held, each[order[len(shown) :]].sum(axis=0)])
        labels.append(OTHERS)
    return ResultsOverTime(times, labels, held, peak)


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
