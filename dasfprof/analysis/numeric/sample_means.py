"""Time-weighted means of sampled quantities while tasks ran."""

from __future__ import annotations

import numpy as np

from dasfprof.database.columns import Array

#: A sample holds for no longer than this many usual distances between samples, or these seconds.
#: What comes later is not known: the sampler had stopped, or the device was lost.
_HELD_DISTANCES = 3.0
_HELD_SECONDS = 1.0


def held_until(times: Array) -> Array:
    """Return until when each sample holds: until the next one, if that is not long after it.

    The usual distance is the median. A sample that is the only one holds for ever.

    Parameters
    ----------
    times
        The samples' times in order.
    """
    distances = np.diff(times)
    if not len(distances):
        return np.full(len(times), np.inf)
    longest = max(_HELD_SECONDS, _HELD_DISTANCES * float(np.median(distances)))
    ends: Array = np.minimum(np.r_[times[1:], np.inf], times + longest)
    return ends


def integrate(times: Array, values: Array, starts: Array, stops: Array) -> tuple[Array, Array]:
    """Integrate a sampled quantity over intervals.

    A sample holds as long as `held_until` says; before the first one nothing is known.

    Parameters
    ----------
    times, values
        The samples, in the order of time, without NaN.
    starts, stops
        The intervals.

    Returns
    -------
    integrals, covered
        For each interval the integral, and the seconds of it for which there was a sample.
    """
    if not len(times):
        return np.zeros(len(starts)), np.zeros(len(starts))
    # Where a sample does not hold until the next one, a step to nothing follows it.
    ends = np.minimum(held_until(times), max(stops.max(initial=times[-1]), times[-1]))
    steps = np.column_stack([times, ends]).ravel()
    held = np.column_stack([values, np.zeros(len(values))]).ravel()
    known = np.tile([1.0, 0.0], len(values))
    starts = np.maximum(starts, times[0])
    stops = np.maximum(stops, starts)
    return _integrate(steps, held, starts, stops), _integrate(steps, known, starts, stops)


def _integrate(times: Array, values: Array, starts: Array, stops: Array) -> Array:
    """Integrate steps, the last one without end, over intervals that begin within them."""
    first = np.searchsorted(times, starts, side="right") - 1
    last = np.searchsorted(times, stops, side="right") - 1
    # Whole steps between the one that holds at the start and the one that holds at the stop;
    # the cumulated sum alone would lose a short task's share in that of a long run.
    cumulated = np.r_[0.0, np.cumsum(values[:-1] * np.diff(times))]
    steps = cumulated[last] - cumulated[np.minimum(first + 1, last)]
    begun = values[first] * (times[np.minimum(first + 1, len(times) - 1)] - starts)
    ended = values[last] * (stops - times[last])
    found: Array = np.where(first == last, values[first] * (stops - starts), begun + steps + ended)
    return found
