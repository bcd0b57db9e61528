"""Dask's correction of a worker's clock, and how to take it off a task's start again.

A worker shifts the start and stop of each task by its estimate of the scheduler's clock, Dask's
``scheduler_delay``, which each heartbeat may change.
"""

from __future__ import annotations

from collections.abc import Sequence


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
