"""`Run`: a recorded run in normal form, made once of its `Trace`. All that follows takes this."""

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
    """The tables of a trace, and what they mean: stages, slots, workers, one clock.

    Its tables are those of the `Trace`, without a copy. `tasks` has the task runs that ended.
    `whole` is the same run with those that had not ended in `tasks` as well. All arrays are worked
    out when they are first asked for, and nobody may change them.
    """

    @classmethod
    def of(cls, trace: Trace) -> Run:
        """Return the run of a trace: always the same one."""
        if isinstance(trace, Run):
            return trace
        if "_run" not in vars(trace):
            made = cls(**{field.name: getattr(trace, field.name) for field in fields(Trace)})
            vars(trace).setdefault("_run", made)
        return cast("Run", vars(trace)["_run"])

    # --- One clock: the scheduler's, in seconds from the run's begin ------------------------------

    @property
    def wall(self) -> float:
        """Seconds from its begin to its end; NaN without any event."""
        return self.end - self.begin

    def since_begin(self, times: Any) -> Array:
        """Return Unix times, a column or an array, as seconds from the run's begin."""
        return np.asarray(times, dtype=float) - self.begin

    def seconds_at(self, time: float) -> float:
        """Return a Unix time as seconds from the run's begin."""
        return float(time) - self.begin

    def on_one_clock(self, times: Any, lives: Any) -> Array:
        """Return Unix times that processes of workers read as such seconds.

        Parameters
        ----------
        times
            A column or an array of them.
        lives
            Rows of `workers`, one each.
        """
        return self.since_begin(times) - self.offsets[np.asarray(lives)]

    #: The seconds that each worker's clock is ahead of the scheduler's.
    offsets = cached_property(clock_offsets)

    #: By how many seconds each of `offsets` may be wrong.
    offset_errors = cached_property(clock_errors)

    # --- Task runs --------------------------------------------------------------------------------

    @property
    def whole(self) -> Run:
        """The run with those that had not ended after those that had, see `with_open_runs`."""
        return with_open_runs(self)

    @property
    def open(self) -> pd.DataFrame:
        """The task runs that had not ended, with the columns of `tasks`."""
        return self.whole.tasks.iloc[len(self.tasks) :]

    #: Those of `scheduler_only` that are known to have run; `slots` has them after `tasks`.
    unseen = cached_property(unseen_runs)

    #: Those of `scheduler_only` that are not known to have run.
    unfinished = cached_property(unfinished_runs)

    #: When each of `tasks` came to each stage, NaN where nobody recorded that.
    recorded = cached_property(recorded_times)

    #: The same, in order and without gaps.
    times = cached_property(ordered_times)

    #: The seconds that each of `tasks` had each status.
    statuses = cached_property(status_seconds)

    #: The threads that `tasks` and `unseen` held.
    slots = cached_property(task_slots)

    #: When the first task came to the scheduler; infinite without any.
    first_arrival = cached_property(first_arrival)

    def of_slots(self, name: str) -> Array:
        """Return a column of the rows of `slots`: of `tasks`, and after them of `unseen`."""
        return np.append(self.tasks[name], self.unseen[name])

    # --- Workers, and the end ---------------------------------------------------------------------

    #: The workers by host and label.
    named = cached_property(NamedWorkers)

    @cached_property
    def lives(self) -> WorkerLives:
        """When each worker was there, with how many threads and in which status."""
        return worker_lives(self, self.slots)

    @property
    def joined(self) -> Array:
        """When each of `workers` joined, in seconds from the run's begin; NaN: unknown."""
        return self.since_begin(self.workers["joined"])

    @property
    def left(self) -> Array:
        """When each of `workers` left; NaN: it did not."""
        return self.since_begin(self.workers["left"])

    #: What was under way as the run ended; None if nothing, as far as is known.
    ending = cached_property(find_run_end)
