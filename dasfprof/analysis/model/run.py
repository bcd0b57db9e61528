"""`Run`: a recorded run in normal form, made once of its `Trace`.

A trace has what was recorded, on the clocks of those who did. A `Run` has its task runs with those
that had not ended, on the scheduler's clock, with the threads that they held, and its workers by
name; each fact is worked out when it is first asked for, and once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from dasfprof.analysis.model.clock_offsets import clock_offsets
from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.run_end import RunEnd, find_run_end
from dasfprof.analysis.model.slots import (
    TaskSlots,
    UnfinishedRuns,
    recorded_threads,
    task_slots,
    unfinished_runs,
    unseen_runs,
)
from dasfprof.analysis.model.statuses import status_seconds
from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.model.times import TaskTimes, ordered_times, recorded_times
from dasfprof.analysis.model.workers import NamedWorkers, WorkerLives, worker_lives
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

Result = TypeVar("Result")
AnyRun: TypeAlias = "Trace | Run"


class fact(Generic[Result]):  # noqa: N801
    """A property of what has a trace, which is worked out once and kept with the trace.

    So what has it is a view that costs nothing to make, and no trace refers to itself: windows of
    a run beyond memory are gone as soon as nobody needs them.
    """

    def __init__(self, find: Callable[[Any], Result]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: Callable[[Trace], Any], name: str) -> None:
        @once_per_trace
        @wraps(self._find)
        def known(trace: Trace) -> Result:
            return self._find(owner(trace))

        self._known = known

    def __get__(self, view: Any, owner: Any = None) -> Result:
        return self._known(view.trace)


class Steps(NamedTuple):
    """The steps of the pipeline to which task runs belong."""

    #: Task run ``i`` belongs to ``names[codes[i]]``; the last name is `NO_STEP`.
    codes: Array
    names: list[str]


class TaskRuns:
    """Task runs of a run: first a row each that a worker's file tells of, then the `unseen` ones.

    Parameters
    ----------
    trace
        A trace that has them.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        #: Those that workers tell of, with the columns of `Trace.tasks`, and times as recorded.
        self.tasks = trace.tasks
        #: Whether the scheduler's file tells of them.
        self.at_scheduler = "sent" in trace.tasks

    def __len__(self) -> int:
        return len(self.tasks) + len(self.unseen)

    @fact
    def unseen(self) -> pd.DataFrame:
        """Those that are known to have run and that no worker's file holds."""
        return unseen_runs(self.trace)

    @fact
    def unfinished(self) -> UnfinishedRuns:
        """Those of which only the scheduler knows, and not that they ran: no rows of this."""
        return unfinished_runs(self.trace)

    @fact
    def recorded(self) -> dict[str, Array]:
        """The times of `tasks`, in seconds from the run's begin; NaN where nobody recorded one."""
        return recorded_times(self.trace)

    @fact
    def times(self) -> TaskTimes:
        """The times of `tasks` put in order, those missing that nobody recorded filled in."""
        return ordered_times(self.trace)

    @fact
    def statuses(self) -> dict[str, Array]:
        """The seconds that each of `tasks` had each status; NaN where nothing is known of it."""
        return status_seconds(self.trace)

    @fact
    def slots(self) -> TaskSlots:
        """When each came to each stage, and which thread-seconds it held."""
        return task_slots(self.trace)

    @fact
    def lives(self) -> WorkerLives:
        """The lives of the workers, on which these ran."""
        return worker_lives(self.trace, self.slots)

    @fact
    def threads(self) -> tuple[Array, list[str]]:
        """For each of `tasks` the number of its thread, -1: unknown; and their names."""
        return recorded_threads(self.trace)

    @fact
    def has_steps(self) -> bool:
        """Whether the step of any of `tasks` is known."""
        return has_steps(self.trace)

    @fact
    def steps(self) -> Steps:
        """The step of each."""
        return Steps(*step_groups(self.tasks, self.unseen))

    @fact
    def steps_of_tasks(self) -> Steps:
        """The step of each of `tasks`."""
        return Steps(*step_groups(self.tasks))

    def column(self, name: str) -> Array:
        """Return a column that both `tasks` and `unseen` have."""
        return np.concatenate([self.tasks[name].to_numpy(), self.unseen[name].to_numpy()])


class Run:
    """A recorded run in normal form.

    Parameters
    ----------
    trace
        What was recorded.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        #: Its begin in Unix seconds; NaN where nothing was recorded.
        self.begin = trace.begin
        #: From its earliest fact to its latest.
        self.seconds = trace.end - trace.begin

    # --- clocks ----------------------------------------------------------------------------------

    def since(self, times: Any) -> Any:
        """Return Unix times, a column or one, as seconds from the begin."""
        return times - self.begin

    def at(self, table: pd.DataFrame, column: str = "time") -> Array:
        """Return times of a table that workers wrote: seconds from the begin, scheduler's clock.

        Parameters
        ----------
        table
            A table of the trace that has ``worker_id``.
        column
            The column of the times.
        """
        times = table[column].to_numpy(dtype=float) - self.begin
        found: Array = times - self.offsets[table["worker_id"].to_numpy()]
        return found

    @fact
    def offsets(self) -> Array:
        """By how many seconds the clock of each of `Trace.workers` is ahead of the scheduler's."""
        return clock_offsets(self.trace)

    # --- what ran where --------------------------------------------------------------------------

    @fact
    def workers(self) -> NamedWorkers:
        """The workers by host and label."""
        return NamedWorkers(self.trace)

    @fact
    def labels(self) -> Array:
        """The label of the worker of each row of `Trace.workers`."""
        labels: Array = self.workers.labels[self.workers.of_lives]
        return labels

    @property
    def ended(self) -> TaskRuns:
        """The task runs that ended."""
        return TaskRuns(self.trace)

    @property
    def all(self) -> TaskRuns:
        """The task runs that ended, and after them in `TaskRuns.tasks` those that had not."""
        return TaskRuns(with_open_runs(self.trace))

    @property
    def open_tasks(self) -> pd.DataFrame:
        """The rows of ``all.tasks`` that had not ended."""
        return self.all.tasks.iloc[len(self.ended.tasks) :]

    @fact
    def end(self) -> RunEnd | None:
        """What was under way at the end; None if nothing, as far as is known."""
        return find_run_end(self.trace)


def run_of(source: AnyRun) -> Run:
    """Return the normal form of a trace."""
    return source if isinstance(source, Run) else Run(source)


def once_per_run(analysis: Callable[[Run], Result]) -> Callable[[AnyRun], Result]:
    """Keep the answer of an analysis as long as the trace of the run lives.

    All who ask get the same object: nobody may change it. Several threads may ask at a time.
    """
    of_trace = once_per_trace(_of_trace(analysis))

    @wraps(analysis)
    def known(source: AnyRun) -> Result:
        return of_trace(run_of(source).trace)

    return known


def _of_trace(analysis: Callable[[Any], Result]) -> Callable[[Trace], Result]:
    @wraps(analysis)
    def of_trace(trace: Trace) -> Result:
        return analysis(Run(trace))

    return of_trace
