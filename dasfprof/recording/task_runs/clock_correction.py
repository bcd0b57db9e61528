"""Dask's correction of a worker's clock, and how to take it off a task's start again.

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
        #: Numbers of earlier corrections, by key of the running task that was given a thread then.
        self.of_earlier: dict[Any, int] = {}

    def change(self, correction: float, running: Iterable[Any]) -> None:
        """Take a new correction, from now on in force; `running` are the keys of running tasks."""
        for key in running:
            self.of_earlier.setdefault(key, self.number)
        self.current = correction
        self.number += 1
        self.by_number[self.number] = correction
        self.by_number.pop(self.number - _MOST_CORRECTIONS, None)


def uncorrected(
    start: float,
    duration: float,
    executing: float | None,
    done: float,
    corrections: Sequence[float],
) -> float:
    """Give a task's start in the worker's own time, where Dask does not tell the correction.

    Dask reads its correction a little after the task was given a thread, and a heartbeat may have
    changed it in between: the first one counts that fits what else is known.

    Parameters
    ----------
    start
        As Dask tells it, seconds.
    duration
        Of the task, seconds.
    executing, done
        When the task was given a thread and when the worker knew that it had ended, in the worker's
        own time.
    corrections
        Seconds: what was in force as the task was given a thread, and all that followed.
    """
    earliest, latest = executing or 0.0, done - duration
    for correction in corrections:
        if earliest <= start - correction <= latest:
            return start - correction
    # The clock was set, or what was in force is not known.
    return max(earliest, min(start - corrections[-1], latest))
