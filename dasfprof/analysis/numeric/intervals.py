"""Intervals of equal length over a run, overlaps of time ranges, and time-weighted means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

#: Default maximum number of intervals of a run.
_USUAL = 60
#: Maximum number of intervals. A table with more rows would not fit into memory.
_MOST = 10_000_000
_NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True)
class Intervals:
    """Intervals of equal length. The first one starts when the run starts.

    Attributes
    ----------
    begin
        Start of the first interval in Unix seconds.
    seconds
        Length of each interval in seconds.
    count
        Number of intervals. 0 for a run without events.
    """

    begin: float
    seconds: float
    count: int

    @classmethod
    def of_span(cls, begin: float, end: float, seconds: float | None) -> Intervals:
        """Divide a time range into intervals.

        If `seconds` is None, a length is chosen that gives at most 60 intervals.

        Raises
        ------
        InvalidArgumentError
            If the length is not positive, or there would be too many intervals.
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
        """Return the index of the interval that contains each time, or of the nearest interval."""
        # Clocks have a resolution of microseconds, so 128.2 - 127.2 must count as exactly one
        # second.
        places = np.floor(np.round(times - self.begin, 6) / self.seconds)
        return np.clip(places, 0, max(self.count - 1, 0)).astype(np.int64)


def union(begins: Array, ends: Array) -> tuple[Array, Array]:
    """Return the union of time ranges as sorted, disjoint ranges."""
    order = np.argsort(begins, kind="stable")
    begins, latest = begins[order], np.maximum.accumulate(ends[order])
    if not len(begins):
        return begins, latest
    apart = np.flatnonzero(begins[1:] > latest[:-1]) + 1
    return begins[np.r_[0, apart]], latest[np.r_[apart - 1, len(begins) - 1]]


def open_spans(begins: Array, ends: Array, *further: Array) -> tuple[Array, Array]:
    """Return all given times, sorted, and the number of time ranges in progress after each.

    The given times are the starts and ends of the time ranges, and the times in `further`.
    """
    times = np.concatenate([ends, begins, *further])
    steps = np.zeros(len(times), dtype=np.int64)
    steps[: len(ends)], steps[len(ends) : len(ends) + len(begins)] = -1, 1
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(steps[order])


def overlap(begins: Array, ends: Array, first: Array, last: Array) -> Array:
    """Return the length of the part of each range that lies within other ranges.

    The other ranges (`first` to `last`) are sorted and disjoint.
    """
    edges = np.stack([first, last], axis=1).ravel()
    if not len(edges):
        return np.zeros(len(begins))
    inside = np.arange(len(edges) - 1) % 2 == 0
    passed = np.append(0.0, np.cumsum(np.diff(edges) * inside))
    return np.interp(ends, edges, passed) - np.interp(begins, edges, passed)


#: Maximum time for which a sample is valid: this multiple of the usual interval between samples, or
#: this number of seconds if that is longer. Later values are unknown, because the sampler had
#: stopped or the device was lost.
_HELD_DISTANCES = 3.0
_HELD_SECONDS = 1.0


def held_until(times: Array) -> Array:
    """Return the time until which each sample is valid, given the sorted times of the samples."""
    distances = np.diff(times)
    if not len(distances):
        return np.full(len(times), np.inf)
    # A sample is valid until the next sample, unless that comes much later than usual.
    longest = max(_HELD_SECONDS, _HELD_DISTANCES * float(np.median(distances)))
    return np.minimum(np.r_[times[1:], np.inf], times + longest)


class SampledIntervals:
    """Integrates sampled quantities over the time ranges `starts` to `stops`.

    `times` are the sorted times of at least one sample. Times without a valid sample (see
    `held_until`) add nothing to the integrals.
    """

    def __init__(self, times: Array, starts: Array, stops: Array) -> None:
        # Append a step after the end of all ranges, so that the result for a range does not depend
        # on other ranges.
        beyond = np.nextafter(max(stops.max(initial=times[-1]), times[-1]), np.inf)
        ends = np.minimum(held_until(times), beyond)
        # Each sample has two steps: from its time to the end of its validity, and then an unknown
        # value until the next sample.
        self._steps = np.column_stack([times, ends]).ravel()
        self._starts = np.maximum(starts, times[0])
        self._stops = np.maximum(stops, self._starts)
        #: Index of the step at the start of each range, and of the step at its end.
        self._first = np.searchsorted(self._steps, self._starts, side="right") - 1
        self._last = np.searchsorted(self._steps, self._stops, side="right") - 1
        #: Seconds of each range for which there is a valid sample.
        self.covered = self.integrals(np.ones(len(times)))

    def integrals(self, values: Array) -> Array:
        """Integrate a quantity over each range. Its samples must not contain NaN."""
        steps, first, last = self._steps, self._first, self._last
        values = np.column_stack([values, np.zeros(len(values))]).ravel()
        # Sum up the complete steps between the step at the start and the step at the end. A
        # difference of two cumulative sums alone would lack precision for a short task in a long
        # run.
        cumulated = np.r_[0.0, np.cumsum(values[:-1] * np.diff(steps))]
        complete = cumulated[last] - cumulated[np.minimum(first + 1, last)]
        begun = values[first] * (steps[np.minimum(first + 1, len(steps) - 1)] - self._starts)
        ended = values[last] * (self._stops - steps[last])
        within = values[first] * (self._stops - self._starts)
        return np.where(first == last, within, begun + complete + ended)
