"""Time-weighted means of sampled quantities while tasks ran."""

from __future__ import annotations

import numpy as np

from dasfprof.database.columns import Array


def integrate(times: Array, values: Array, starts: Array, stops: Array) -> tuple[Array, Array]:
    """Integrate a sampled quantity over intervals.

    A sample holds until the next one, the last one for ever; before the first one nothing is
    known.

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
    starts = np.maximum(starts, times[0])
    stops = np.maximum(stops, starts)
    first = np.searchsorted(times, starts, side="right") - 1
    last = np.searchsorted(times, stops, side="right") - 1
    # Whole steps between the sample that holds at the start and the one that holds at the stop;
    # the cumulated sum alone would lose a short task's share in that of a long run.
    cumulated = np.r_[0.0, np.cumsum(values[:-1] * np.diff(times))]
    steps = cumulated[last] - cumulated[np.minimum(first + 1, last)]
    begun = values[first] * (times[np.minimum(first + 1, len(times) - 1)] - starts)
    ended = values[last] * (stops - times[last])
    inside = first == last
    return np.where(inside, values[first] * (stops - starts), begun + steps + ended), stops - starts
