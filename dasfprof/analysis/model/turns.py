"""Whether task runs wait in turn, for something that serves one at a time."""

from __future__ import annotations

import numpy as np

from dasfprof.database.columns import Array

#: They end evenly: so many of them within such a part of the usual distance.
_EVEN, _NEAR = 0.8, 0.25
#: Of those that begin together the first lasts as long, another twice as long or more, within such
#: a part. The fewest that tell, by how many there are at once.
_FIRST_NEAR, _ROUNDS = 0.35, 3
#: Most wait for others: the usual run lasts so many times as long as it is served.
_WAITS = 1.5


def find_turn(start: Array, stop: Array) -> float | None:
    """Return the seconds for which each run is served, if that is one at a time; else None.

    Then one ends after the other, evenly; and of those that begin together the first is served at
    once, the second after it. Runs that wait for something of their own take as long from the
    first on.
    """
    order = np.argsort(stop, kind="stable")
    start, stop = start[order], stop[order]
    events = np.concatenate([start, stop])
    steps = np.repeat([1, -1], len(start))[np.lexsort((np.repeat([1, 0], len(start)), events))]
    at_once = int(np.cumsum(steps).max(initial=0))
    if at_once < 2 or len(start) < _ROUNDS * at_once:
        return None
    before = np.append(-np.inf, np.maximum.accumulate(stop)[:-1])
    served = stop - np.maximum(start, before)
    usual = float(np.median(served))
    even = np.mean(np.abs(served - usual) <= _NEAR * usual) >= _EVEN
    length = stop - start
    first = length[0] <= (1 + _FIRST_NEAR) * usual
    behind = length[start < stop[0]].max() >= (2 - _FIRST_NEAR) * usual
    waits = np.median(length) >= _WAITS * usual
    return usual if even and first and behind and waits else None
