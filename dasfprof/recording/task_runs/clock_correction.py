"""Dask's correction of a worker's clock, and how to subtract it from a task's start again.

A worker shifts the start and stop of each task by its estimate of the scheduler's clock, Dask's
``scheduler_delay``, which each heartbeat may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

#: Stands for the number of a correction where a task was running before recording began.
UNKNOWN = 0

#: Corrections that are kept: those of more than an hour.
_MOST_CORRECTIONS = 10_000


class ClockCorrections:
    """Dask's corrections of one worker's clock, numbered from 1.

    Changed on the worker's event loop alone.
    """

    def __init__(self) -> None:
        #: The correction in force, seconds, and its number.
        self.current, self.number = 0.0, UNKNOWN
        #: The latest corrections by number, seconds.
        self.by_number: dict[int, float] = {}
        #: The latest corrections, seconds. One may come and go while no task begins or ends, so
        #: that only the thread that was given it has seen it: the worker's hooks add that one.
        self.known: set[float] = set()
        #: Numbers of earlier corrections, by key of the running task that was given a thread then.
        self.of_earlier: dict[Any, int] = {}

    def change(self, correction: float, running: Iterable[Any]) -> None:
        """Set the correction in force; `running` holds the keys of the running tasks."""
        for key in running:
            self.of_earlier.setdefault(key, self.number)
        self.current = correction
        self.number += 1
        if len(self.known) >= _MOST_CORRECTIONS:
            self.known.clear()
        self.known.add(correction)
        self.by_number[self.number] = correction
        self.by_number.pop(self.number - _MOST_CORRECTIONS, None)


def uncorrected(
    start: float,
    duration: float,
    executing: float | None,
    done: float,
    corrections: Sequence[float],
) -> float:
    """Return a task's start in the worker's own time, where the correction is not recorded.

    Dask reads its correction a little after the task got a thread, and a heartbeat may have changed
    it in between: the first correction is used that fits the other times.

    Parameters
    ----------
    start
        The start by Dask, seconds.
    duration
        The task's duration, seconds.
    executing, done
        When the task got a thread and when the worker knew that it had ended, in the worker's own
        time.
    corrections
        The correction in force when the task got a thread and all later ones, seconds.
    """
    earliest, latest = executing or 0.0, done - duration
    for correction in corrections:
        if earliest <= start - correction <= latest:
            return start - correction
    # The clock was set, or the correction in force is unknown.
    return max(earliest, min(start - corrections[-1], latest))
