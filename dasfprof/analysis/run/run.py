"""`Run`: a recorded run in normal form, which all analyses use.

It is computed once from its `Trace`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from dasfprof.analysis.run.run_end import find_run_end
from dasfprof.analysis.run.slots import (
    find_first_arrival,
    finished_slots,
    task_slots,
    unfinished_runs,
    unlisted_runs,
    unseen_runs,
)
from dasfprof.analysis.run.task_runs import (
    all_task_runs,
    clock_offsets,
    ordered_times,
    recorded_times,
    status_seconds,
)
from dasfprof.analysis.run.workers import NamedWorkers, WorkerLives, worker_lives
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


class Run(Trace):
    """A trace with derived facts: stages of task runs, slots, workers, and one clock.

    The tables are those of the `Trace`, which are not copied, and `task_runs`. All arrays are
    computed when they are first used, and must not be changed.
    """

    @classmethod
    def from_trace(cls, trace: Trace) -> Run:
        """Return the run of a trace, always as the same object."""
        return trace if isinstance(trace, Run) else _run_of(trace)

    @property
    def wall(self) -> float:
        """Seconds from the start of the run to its end, or NaN if there are no events."""
        return self.end - self.begin

    def since_begin(self, times: Any) -> Array:
        """Convert a column or an array of Unix times to seconds from the run's start."""
        return np.asarray(times, dtype=float) - self.begin

    def seconds_at(self, time: float) -> float:
        """Convert a Unix time to seconds from the run's start."""
        return float(time) - self.begin

    def on_one_clock(self, times: Any, lives: Any) -> Array:
        """Convert Unix times of workers' clocks to seconds from the run's start.

        Parameters
        ----------
        times
            A column or an array of Unix times.
        lives
            For each time, the row of the worker in `workers` whose clock showed it.
        """
        return self.since_begin(times) - self.offsets[np.asarray(lives)]

    #: Seconds by which each worker's clock is ahead of the scheduler's clock.
    offsets = clock_offsets

    #: All task runs: the rows of `tasks`, which are finished, and then the unfinished task runs,
    #: whose ``state`` is one of `OPEN_STATES`.
    task_runs = all_task_runs

    #: Rows of `scheduler_only` that certainly ran. In `slots`, they follow the rows of `tasks`.
    unseen = unseen_runs

    #: Rows of `scheduler_only` that may not have run. Those of them that are not in `task_runs`.
    unfinished = unfinished_runs
    unlisted = unlisted_runs

    #: For each stage, the time at which each of `task_runs` reached it, or NaN if not recorded.
    recorded = recorded_times

    #: The same times in order. Missing times are replaced.
    times = ordered_times

    #: For each status, the seconds for which each of `task_runs` had it.
    statuses = status_seconds

    #: Slots (threads of workers) that `tasks` and `unseen` occupied.
    slots = finished_slots

    #: Slots that `task_runs` and `unseen` occupied.
    all_slots = task_slots

    #: Time at which the scheduler received the first task, or infinity if there are no tasks.
    first_arrival = find_first_arrival

    def of_slots(self, name: str, *, unfinished: bool = False) -> Array:
        """Return the values of a column for the rows of `slots`, or `all_slots` if `unfinished`."""
        return np.append((self.task_runs if unfinished else self.tasks)[name], self.unseen[name])

    #: Workers, by host and label.
    named = once_per_trace(NamedWorkers)

    @property
    @once_per_trace
    def lives(self) -> WorkerLives:
        """When each worker instance existed, with its number of threads and its statuses."""
        return worker_lives(self, self.all_slots)

    @property
    def joined(self) -> Array:
        """When each of `workers` joined, in seconds from the run's start, or NaN if unknown."""
        return self.since_begin(self.workers["joined"])

    @property
    def left(self) -> Array:
        """When each of `workers` left, in seconds from the run's start, or NaN if it did not."""
        return self.since_begin(self.workers["left"])

    #: Work in progress when the run ended, or None if none is known.
    ending = find_run_end


@once_per_trace
def _run_of(trace: Trace) -> Run:
    return Run(**{field.name: getattr(trace, field.name) for field in fields(Trace)})
