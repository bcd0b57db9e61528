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


class SampledIntervals:
    """Intervals, and the samples that hold within each.

    A sample holds as long as `held_until` says; before the first one nothing is known.

    Parameters
    ----------
    times
        The samples' times in order; one at least.
    starts, stops
        The intervals.
    """

    def __init__(self, times: Array, starts: Array, stops: Array) -> None:
        # Behind all stops, so that what is found of an interval does not depend on the others.
        beyond = np.nextafter(max(stops.max(initial=times[-1]), times[-1]), np.inf)
        ends = np.minimum(held_until(times), beyond)
        # Where a sample does not hold until the next one, a step to nothing follows it.
        self._steps = np.column_stack([times, ends]).ravel()
        self._starts = np.maximum(starts, times[0])
        self._stops = np.maximum(stops, self._starts)
        #: The step that holds at the start of each interval, and at its stop.
        self._first = np.searchsorted(self._steps, self._starts, side="right") - 1
        self._last = np.searchsorted(self._steps, self._stops, side="right") - 1
        #: The seconds of each interval for which there was a sample.
        self.covered = self.integrals(np.ones(len(times)))

    def integrals(self, values: Array) -> Array:
        """Integrate a quantity by its samples, without NaN, over each interval."""
        steps, first, last = self._steps, self._first, self._last
        values = np.column_stack([values, np.zeros(len(values))]).ravel()
        # Whole steps between the one that holds at the start and the one that holds at the stop;
        # the cumulated sum alone would lose a short task's share in that of a long run.
        cumulated = np.r_[0.0, np.cumsum(values[:-1] * np.diff(steps))]
        whole = cumulated[last] - cumulated[np.minimum(first + 1, last)]
        begun = values[first] * (steps[np.minimum(first + 1, len(steps) - 1)] - self._starts)
        ended = values[last] * (self._stops - steps[last])
        within = values[first] * (self._stops - self._starts)
        found: Array = np.where(first == last, within, begun + whole + ended)
        return found
