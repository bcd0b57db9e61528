"""Workers, and hosts, on which a function takes longer than on the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.database.columns import Array

#: A place is slow for a function if its median is so many times the median of the others' medians,
TIMES_OTHERS = 1.5
#: the rank sum of its runs is so many standard deviations above what chance gives,
RANK_SUM_Z = 3.3
#: and it has so many runs, as have the others.
FEWEST = 6


@dataclass(frozen=True)
class Slowness:
    """How slow each function is in each place (a worker, a host) where it ran."""

    #: The pair of each run.
    of_run: Array
    #: The function, the place and the number of runs of each pair.
    function: Array
    place: Array
    runs: Array
    #: The median seconds of each pair, and of the medians of its function in the other places.
    median: Array
    median_elsewhere: Array
    #: The standardised rank sum (Wilcoxon, Mann and Whitney) of its runs among its function's.
    z: Array
    #: Whether it is slow by the three rules of this module.
    slow: Array


def measure_slowness(function: Array, place: Array, seconds: Array) -> Slowness:
    """Compare places by the seconds of the runs of each function there.

    Parameters
    ----------
    function, place
        Their number for each run.
    seconds
        What the run took.
    """
    places = int(place.max(initial=-1)) + 1
    of_run, pairs = pd.factorize(function.astype(np.int64) * max(places, 1) + place, sort=True)
    of_pair, where = np.divmod(pairs, max(places, 1))
    functions = Groups(function, int(function.max(initial=-1)) + 1)
    groups = Groups(of_run, len(pairs))
    median = groups.median(seconds)
    elsewhere = _median_of_others(of_pair, median, functions.count)
    here = groups.sizes.astype(float)
    total = functions.sizes[of_pair].astype(float)
    there = total - here
    spread = np.sqrt(here * there * (total + 1) / 12)
    z = ratio(groups.sum(functions.ranks(seconds)) - here * (total + 1) / 2, spread)
    with np.errstate(invalid="ignore"):
        slow = (median >= TIMES_OTHERS * elsewhere) & (z >= RANK_SUM_Z)
    slow &= (here >= FEWEST) & (there >= FEWEST)
    return Slowness(of_run, of_pair, where, groups.sizes, median, elsewhere, z, slow)


def _median_of_others(groups: Array, values: Array, count: int) -> Array:
    """Return each value the median of the others in its group; NaN where there is no other."""
    grouped = Groups(groups, count)
    places = grouped.places(values)
    ordered = np.empty(len(values))
    begins = grouped.begins[groups]
    ordered[begins + places] = values
    others = grouped.sizes[groups] - 1

    def other(number: Array) -> Array:
        """Return the value of a place among the others: they close up where one is left out."""
        found: Array = ordered[begins + number + (number >= places)]
        return found

    alone = others == 0
    low = np.where(alone, 0, (others - 1) // 2)
    high = np.where(alone, 0, others // 2)
    low, high = low - alone, high - alone
    medians = (other(low) + other(high)) / 2
    return np.where(alone, np.nan, medians)
