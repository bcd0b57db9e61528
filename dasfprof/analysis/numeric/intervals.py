"""Intervals of equal length over a run, and overlaps of time ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

#: Default of the maximum number of intervals of a run.
_USUAL = 60
#: Maximum number of intervals. A table with more rows would not fit into memory.
_MOST = 10_000_000
_NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True)
class Intervals:
    """Intervals of equal length, the first of which starts with the run.

    Attributes
    ----------
    begin
        Unix seconds.
    seconds
        Length of each interval.
    count
        Number of intervals. 0 for a run without events.
    """

    begin: float
    seconds: float
    count: int

    @classmethod
    def of_span(cls, begin: float, end: float, seconds: float | None) -> Intervals:
        """Divide a time range into intervals.

        None chooses a length that gives at most 60 intervals.

        Raises
        ------
        InvalidArgumentError
            If the length is not positive, or the intervals would be too many.
        """
        if seconds is not None and not (np.isfinite(seconds) and seconds > 0):
            raise InvalidArgumentError(
                f"interval={seconds!r}: expected a positive number of seconds, or None for an "
                "automatic length."
            )
        if not begin <= end:
            return cls(0.0, float(seconds or _NICE[0]), 0)
        if seconds is None:
            fits = (length for length in _NICE if (end - begin) / length <= _USUAL)
            seconds = next(fits, float(np.ceil((end - begin) / _USUAL)))
        count = np.floor((end - begin) / seconds) + 1
        if count > _MOST:
            raise InvalidArgumentError(
                f"interval={seconds!r}: the run takes {end - begin:.0f} s, which would be "
                f"{count:.0f} intervals. Pass a length that gives at most {_MOST}."
            )
        return cls(begin, float(seconds), int(count))

    def starts(self) -> Array:
        """Return the start of each interval, in seconds from the run's start."""
        return np.arange(self.count) * self.seconds

    def places(self, times: Array) -> Array:
        """Return the interval of each time.

        Times outside of the run are in the nearest interval.
        """
        # Clocks have a resolution of microseconds: 128.2 - 127.2 counts as a second.
        places = np.floor(np.round(times - self.begin, 6) / self.seconds)
        return np.clip(places, 0, max(self.count - 1, 0)).astype(np.int64)

    def spread(self, starts: Array, seconds: Array, amounts: Array) -> Array:
        """Spread amounts over the intervals, each evenly over the seconds from its start.

        Anything outside of the run counts in the nearest interval.
        """
        stops = starts + seconds
        first, last = self.places(starts), self.places(stops)
        within = first == last
        inside = [(first[within], amounts[within])]
        starts, stops, first, last = starts[~within], stops[~within], first[~within], last[~within]
        rate = amounts[~within] / seconds[~within]
        begun = np.maximum(self.begin + (first + 1) * self.seconds - starts, 0.0)
        ended = np.maximum(stops - self.begin - last * self.seconds, 0.0)
        inside += [(first, rate * begun), (last, rate * ended)]
        # For full intervals between the first and the last: steps of their rates up and down.
        steps = [(first + 1, rate), (last, -rate)]
        spans = [(first + 1, np.ones(len(rate))), (last, -np.ones(len(rate)))]
        amounts, rates, complete = map(self._summed, (inside, steps, spans))
        rates = np.where(np.cumsum(complete) > 0, np.maximum(np.cumsum(rates), 0.0), 0.0)
        return amounts + rates * self.seconds

    def _summed(self, pairs: list[tuple[Array, Array]]) -> Array:
        codes, values = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        return Groups(codes, self.count + 1).sum(values)[: self.count]


def union(begins: Array, ends: Array) -> tuple[Array, Array]:
    """Return the times in which at least one range is open, as sorted disjoint ranges."""
    order = np.argsort(begins, kind="stable")
    begins, latest = begins[order], np.maximum.accumulate(ends[order])
    if not len(begins):
        return begins, latest
    apart = np.flatnonzero(begins[1:] > latest[:-1]) + 1
    return begins[np.r_[0, apart]], latest[np.r_[apart - 1, len(begins) - 1]]


def open_spans(begins: Array, ends: Array, *further: Array) -> tuple[Array, Array]:
    """Return the bounds of ranges, with further times, and the number of open ranges after each."""
    times = np.concatenate([ends, begins, *further])
    steps = np.zeros(len(times), dtype=np.int64)
    steps[: len(ends)], steps[len(ends) : len(ends) + len(begins)] = -1, 1
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(steps[order])


def overlap(begins: Array, ends: Array, first: Array, last: Array) -> Array:
    """Return for each range how much of it lies within other, sorted and disjoint ranges."""
    edges = np.stack([first, last], axis=1).ravel()
    if not len(edges):
        return np.zeros(len(begins))
    inside = np.arange(len(edges) - 1) % 2 == 0
    passed = np.append(0.0, np.cumsum(np.diff(edges) * inside))
    return np.interp(ends, edges, passed) - np.interp(begins, edges, passed)


# --- Time-weighted means of sampled quantities while tasks ran ------------------------------------

#: Maximum validity of a sample: multiple of the usual distance between samples, or seconds. Later
#: values are unknown, because the sampler had stopped or the device was lost.
_HELD_DISTANCES = 3.0
_HELD_SECONDS = 1.0


def held_until(times: Array) -> Array:
    """Return until when each sample is valid: until the next one, unless that is much later.

    The usual distance is the median. A single sample is always valid.

    Parameters
    ----------
    times
        Sorted times of the samples.
    """
    distances = np.diff(times)
    if not len(distances):
        return np.full(len(times), np.inf)
    longest = max(_HELD_SECONDS, _HELD_DISTANCES * float(np.median(distances)))
    return np.minimum(np.r_[times[1:], np.inf], times + longest)


class SampledIntervals:
    """Time ranges, and the samples that are valid within each.

    A sample is valid until `held_until`. Before the first sample, the value is unknown.

    Parameters
    ----------
    times
        Sorted times of the samples, at least one.
    starts, stops
        The time ranges.
    """

    def __init__(self, times: Array, starts: Array, stops: Array) -> None:
        # Append a step after all ends, so that the result for a range does not depend on other
        # ranges.
        beyond = np.nextafter(max(stops.max(initial=times[-1]), times[-1]), np.inf)
        ends = np.minimum(held_until(times), beyond)
        # If a sample is not valid until the next one, a step to unknown follows it.
        self._steps = np.column_stack([times, ends]).ravel()
        self._starts = np.maximum(starts, times[0])
        self._stops = np.maximum(stops, self._starts)
        #: Step at the start of each range, and at its end.
        self._first = np.searchsorted(self._steps, self._starts, side="right") - 1
        self._last = np.searchsorted(self._steps, self._stops, side="right") - 1
        #: Seconds of each range with a valid sample.
        self.covered = self.integrals(np.ones(len(times)))

    def integrals(self, values: Array) -> Array:
        """Integrate a quantity over each range. Its samples must not contain NaN."""
        steps, first, last = self._steps, self._first, self._last
        values = np.column_stack([values, np.zeros(len(values))]).ravel()
        # Complete steps between the step at the start and the step at the end. A cumulative sum
        # alone would lose the precision of a short task in a long run.
        cumulated = np.r_[0.0, np.cumsum(values[:-1] * np.diff(steps))]
        complete = cumulated[last] - cumulated[np.minimum(first + 1, last)]
        begun = values[first] * (steps[np.minimum(first + 1, len(steps) - 1)] - self._starts)
        ended = values[last] * (self._stops - steps[last])
        within = values[first] * (self._stops - self._starts)
        return np.where(first == last, within, begun + complete + ended)
