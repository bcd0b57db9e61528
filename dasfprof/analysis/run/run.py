"""`Run`: a recorded run in normal form, computed once from its `Trace`, as input of analyses."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from dasfprof.analysis.run.open_runs import with_open_runs
from dasfprof.analysis.run.run_end import find_run_end
from dasfprof.analysis.run.slots import (
    first_arrival,
    status_seconds,
    task_slots,
    unfinished_runs,
    unseen_runs,
)
from dasfprof.analysis.run.times import clock_errors, clock_offsets, ordered_times, recorded_times
from dasfprof.analysis.run.workers import NamedWorkers, WorkerLives, worker_lives
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


class Run(Trace):
    """The tables of a trace with derived facts: stages, slots, workers, one clock.

    Its tables are those of the `Trace`, without a copy. `tasks` contains the task runs that ended.
    `whole` is the same run with unfinished task runs in `tasks` as well. All arrays are computed
    when they are first used, and must not be changed.
    """

    @classmethod
    def from_trace(cls, trace: Trace) -> Run:
        """Return the run of a trace, which is always the same object."""
        if isinstance(trace, Run):
            return trace
        if "_run" not in vars(trace):
            made = cls(**{field.name: getattr(trace, field.name) for field in fields(Trace)})
            vars(trace).setdefault("_run", made)
        return cast("Run", vars(trace)["_run"])

    # --- One clock: the scheduler's, in seconds from the run's start ------------------------------

    @property
    def wall(self) -> float:
        """Seconds from its start to its end, or NaN without events."""
        return self.end - self.begin

    def since_begin(self, times: Any) -> Array:
        """Return Unix times, a column or an array, as seconds from the run's start."""
        return np.asarray(times, dtype=float) - self.begin

    def seconds_at(self, time: float) -> float:
        """Return a Unix time as seconds from the run's start."""
        return float(time) - self.begin

    def on_one_clock(self, times: Any, lives: Any) -> Array:
        """Return Unix times of workers' clocks as seconds from the run's start.

        Parameters
        ----------
        times
            A column or an array of them.
        lives
            Rows of `workers`, one each.
        """
        return self.since_begin(times) - self.offsets[np.asarray(lives)]

    #: Seconds that each worker's clock is ahead of the scheduler's clock.
    offsets = cached_property(clock_offsets)

    #: Maximum error of each of `offsets` in seconds.
    offset_errors = cached_property(clock_errors)

    # --- Task runs --------------------------------------------------------------------------------

    @property
    def whole(self) -> Run:
        """The run with unfinished task runs after those that ended. See `with_open_runs`."""
        return with_open_runs(self)

    @property
    def open(self) -> pd.DataFrame:
        """The unfinished task runs, with the columns of `tasks`."""
        return self.whole.tasks.iloc[len(self.tasks) :]

    #: Rows of `scheduler_only` that are known to have run. `slots` has them after `tasks`.
    unseen = cached_property(unseen_runs)

    #: Rows of `scheduler_only` that are not known to have run.
    unfinished = cached_property(unfinished_runs)

    #: Times at which each of `tasks` reached each stage, or NaN if not recorded.
    recorded = cached_property(recorded_times)

    #: The same times, ordered and without gaps.
    times = cached_property(ordered_times)

    #: Seconds that each of `tasks` had each status.
    statuses = cached_property(status_seconds)

    #: Threads that `tasks` and `unseen` occupied.
    slots = cached_property(task_slots)

    #: Time at which the first task came to the scheduler, or infinite without tasks.
    first_arrival = cached_property(first_arrival)

    def of_slots(self, name: str) -> Array:
        """Return a column of the rows of `slots`: of `tasks`, and then of `unseen`."""
        return np.append(self.tasks[name], self.unseen[name])

    # --- Workers, and the end ---------------------------------------------------------------------

    #: Workers by host and label.
    named = cached_property(NamedWorkers)

    @cached_property
    def lives(self) -> WorkerLives:
        """When each worker existed, with its threads and statuses."""
        return worker_lives(self, self.slots)

    @property
    def joined(self) -> Array:
        """When each of `workers` joined, in seconds from the run's start, or NaN if unknown."""
        return self.since_begin(self.workers["joined"])

    @property
    def left(self) -> Array:
        """When each of `workers` left, or NaN if it did not."""
        return self.since_begin(self.workers["left"])

    #: What was unfinished when the run ended, or None if nothing is known to be.
    ending = cached_property(find_run_end)
