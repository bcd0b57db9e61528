"""First uses: the first runs of functions on workers that take far longer than later ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.database.columns import Array

#: First runs take so many times as long as later ones, usually,
_TIMES = 3.0
#: on so large a share of the workers,
_WORKERS = 0.5
#: and so small a share of the later runs takes a third as long as the first ones.
_LATER = 0.1


@dataclass(frozen=True)
class FirstUses:
    """First runs that take far longer than later runs of their function do."""

    #: Rows of `Trace.tasks`.
    rows: Array
    #: Seconds of each beyond the median of its function's later runs, and that median.
    excess: Array
    usual: Array


def find_first_uses(
    functions: Groups, worker: Array, start: Array, held: Array, seconds: Array
) -> FirstUses:
    """Find first uses.

    A first run on a worker is one that began before any of its function had ended there: where
    several begin at once, all wait for the same import or compilation.

    Parameters
    ----------
    functions
        The runs by function.
    worker, start, held, seconds
        Of each run its worker, when it began, for how long it held its thread, and that without
        waits for a core; NaN of one that is not to be compared with others.
    """
    cells, distinct = pd.factorize(worker.astype(np.int64) * functions.count + functions.codes)
    places = Groups(cells, len(distinct))
    first = start < places.min(start + held)[cells]
    later = Groups(np.where(first, -1, functions.codes), functions.count)
    usual = later.median(np.where(first, np.nan, seconds))[functions.codes]
    with np.errstate(invalid="ignore"):
        long = seconds > _TIMES * usual
    slow_places = places.max((first & long).astype(float)) > 0
    of_place = np.zeros(len(distinct), dtype=np.int64)
    of_place[cells] = functions.codes
    share = Groups(of_place, functions.count).mean(slow_places.astype(float))
    slow = np.flatnonzero(first & long)
    typical = Groups(functions.codes[slow], functions.count).median(seconds[slow])
    with np.errstate(invalid="ignore"):
        late = later.mean((seconds * _TIMES > typical[functions.codes]).astype(float))
        found = (share >= _WORKERS) & (late <= _LATER)
    rows = np.flatnonzero(first & long & found[functions.codes])
    return FirstUses(rows, (seconds - usual)[rows], usual[rows])
