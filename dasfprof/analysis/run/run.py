"""`Run`: a recorded run in normal form, made once of its `Trace`. All that follows takes this."""

from __future__ import annotations

import os
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from dasfprof.analysis.run.open_runs import with_open_runs
from dasfprof.analysis.run.run_end import RunEnd, find_run_end
from dasfprof.analysis.run.slots import (
    TaskSlots,
    UnfinishedRuns,
    first_arrival,
    status_seconds,
    task_slots,
    unfinished_runs,
    unseen_runs,
)
from dasfprof.analysis.run.times import (
    TaskTimes,
    clock_errors,
    clock_offsets,
    ordered_times,
    recorded_times,
)
from dasfprof.analysis.run.workers import NamedWorkers, WorkerLives, worker_lives
from dasfprof.analysis.trace import Trace
from dasfprof.database import find_runs
from dasfprof.database.columns import Array


class Run(Trace):
    """The tables of a trace, and what they mean: stages, slots, workers, one clock.

    Its tables are those of the `Trace`, without a copy: `tasks` has the task runs that ended.
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

    @classmethod
    def all_of(cls, source: str | os.PathLike[str]) -> list[Run]:
        """Return the runs of a source: of a directory each that is in it.

        Raises
        ------
        SourceNotFoundError
            If there is none.
        """
        found = [run.files for run in find_runs(Path(source))] if Path(source).is_dir() else []
        sources: list[Any] = list(found) or [source]
        return [cls.of(Trace.from_database(one, progress=False)) for one in sources]

    # --- One clock: the scheduler's, in seconds from the run's begin ------------------------------

    @property
    def wall(self) -> float:
        """Seconds from its begin to its end; NaN without any event."""
        return self.end - self.begin

    def since_begin(self, times: Any) -> Array:
        """Return Unix times, a column or an array, as seconds from the run's begin."""
        seconds: Array = np.asarray(times, dtype=float) - self.begin
        return seconds

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
        seconds: Array = self.since_begin(times) - self.offsets[np.asarray(lives)]
        return seconds

    @property
    def offsets(self) -> Array:
        """The seconds that each worker's clock is ahead of the scheduler's, see `clock_offsets`."""
        return clock_offsets(self)

    @property
    def offset_errors(self) -> Array:
        """By how many seconds each of `offsets` may be wrong, see `clock_errors`."""
        return clock_errors(self)

    # --- Task runs --------------------------------------------------------------------------------

    @property
    def whole(self) -> Run:
        """The run with those that had not ended after those that had, see `with_open_runs`."""
        return with_open_runs(self)

    @property
    def open(self) -> pd.DataFrame:
        """The task runs that had not ended, with the columns of `tasks`."""
        return self.whole.tasks.iloc[len(self.tasks) :]

    @property
    def unseen(self) -> pd.DataFrame:
        """Those of `scheduler_only` that are known to have run; `slots` has them after `tasks`."""
        return unseen_runs(self)

    @property
    def unfinished(self) -> UnfinishedRuns:
        """Those of `scheduler_only` that are not known to have run."""
        return unfinished_runs(self)

    @property
    def recorded(self) -> dict[str, Array]:
        """When each of `tasks` came to each stage, NaN where nobody recorded that."""
        return recorded_times(self)

    @property
    def times(self) -> TaskTimes:
        """The same, in order and without gaps."""
        return ordered_times(self)

    @property
    def statuses(self) -> dict[str, Array]:
        """The seconds that each of `tasks` had each status."""
        return status_seconds(self)

    @property
    def slots(self) -> TaskSlots:
        """The threads that `tasks` and `unseen` held."""
        return task_slots(self)

    @property
    def first_arrival(self) -> float:
        """When the first task came to the scheduler; infinite without any."""
        return first_arrival(self)

    # --- Workers, and the end ---------------------------------------------------------------------

    @cached_property
    def named(self) -> NamedWorkers:
        """The workers by host and label."""
        return NamedWorkers(self)

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

    @property
    def ending(self) -> RunEnd | None:
        """What was under way as the run ended; None if nothing, as far as is known."""
        return find_run_end(self)
