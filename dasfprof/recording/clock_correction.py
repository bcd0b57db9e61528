"""Dask's correction of a worker's clock, and how to take it off a task's start again.

A worker shifts the start and stop of each task by its estimate of the scheduler's clock, which each
heartbeat may change.
"""

from __future__ import annotations


class Correction:
    """Seconds that a worker adds to its clock, until the next correction takes their place.

    Parameters
    ----------
    seconds
        Dask's ``scheduler_delay``.
    """

    __slots__ = ("following", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.following: Correction | None = None

    def followed_by(self, seconds: float) -> Correction:
        """Give the correction that is in force from now on."""
        self.following = Correction(seconds)
        return self.following

    def uncorrected(
        self, start: float, duration: float, executing: float | None, done: float
    ) -> float:
        """Give a task's start in the worker's own time.

        Dask reads its correction a little after the task was given a thread, and a heartbeat may
        have changed it in between: the first one counts that fits what else is known.

        Parameters
        ----------
        start
            As Dask tells it, seconds.
        duration
            Of the task, seconds.
        executing, done
            When the task was given a thread, with this correction in force, and when the worker
            knew that it had ended, in the worker's own time.
        """
        earliest, latest = executing or 0.0, done - duration
        correction = self
        while not earliest <= start - correction.seconds <= latest:
            if correction.following is None:  # the clock was set, or what was in force is not known
                return max(earliest, min(start - correction.seconds, latest))
            correction = correction.following
        return float(start - correction.seconds)
