"""`TaskFigures`: a run's time, its functions, and how its threads were used."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dasfprof.analysis.diagnosis.sampled_figures import SampledFigures
from dasfprof.analysis.model.accounting import Accounts, ThreadTime, make_accounts
from dasfprof.analysis.model.busy_time import USES
from dasfprof.analysis.model.slots import TaskSlots, task_slots
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


class TaskFigures(SampledFigures):
    """The figures of a run that rest on its task runs and threads, a part of `RunFigures`.

    Wall time is from the first task's arrival to the last one's end; threads are those that the
    run had on average in this time.

    Parameters
    ----------
    trace
        The trace.
    """

    #: The first classes of the accounts: tasks hold the thread.
    BUSY = USES

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def slots(self) -> TaskSlots:
        """The threads that task runs held."""
        return task_slots(self.trace)

    @cached_property
    def accounts(self) -> Accounts:
        """Where every thread-second went."""
        return make_accounts(self.trace)

    @cached_property
    def workers(self) -> NamedWorkers:
        """The workers by host and label."""
        return NamedWorkers(self.trace)

    # --- time ------------------------------------------------------------------------------------

    @cached_property
    def begin(self) -> float:
        """When the first task arrived, in seconds from the trace's begin; NaN without tasks."""
        times = self.slots.times
        return float(times.arrival.min()) if len(times) else float("nan")

    @cached_property
    def wall(self) -> float:
        """Seconds from the first task's arrival to the last one's end; 0 without tasks."""
        times = self.slots.times
        return max(float(times.known.max()) - self.begin, 0.0) if len(times) else 0.0

    @cached_property
    def threads(self) -> float:
        """The threads that the run had, on average."""
        lives = self.accounts.lives
        overlap = np.minimum(lives.end, self.begin + self.wall) - np.maximum(
            lives.begin, self.begin
        )
        seconds = float((lives.threads * np.maximum(overlap, 0.0)).sum())
        return seconds / self.wall if self.wall > 0 and seconds > 0 else float("nan")

    def seconds_of(self, *classes: ThreadTime) -> float:
        """Return the thread-seconds of classes of the accounts by the threads: wall seconds."""
        seconds = float(self.accounts.of_lives[:, list(classes)].sum())
        return seconds / self.threads if self.threads > 0 else 0.0

    def share_of(self, *classes: ThreadTime) -> float:
        """Return the share of the run's thread-seconds that classes of the accounts have."""
        return self.seconds_of(*classes) / self.wall if self.wall > 0 else 0.0

    @cached_property
    def unsubmitted(self) -> float:
        """Wall seconds for which threads idled between tasks, as nothing was submitted."""
        lives = self.accounts.lives
        end = self.begin + self.wall
        before = np.clip(self.begin - lives.begin, 0.0, None)
        after = np.clip(lives.end - end, 0.0, None)
        outside = float((lives.threads * np.minimum(before + after, lives.end - lives.begin)).sum())
        return max(self.seconds_of(ThreadTime.NOTHING_SUBMITTED) - outside / self.threads, 0.0)

    # --- functions -------------------------------------------------------------------------------

    @cached_property
    def function_names(self) -> Array:
        """The functions, as numbered in the table of tasks."""
        names: Array = self.trace.tasks["function"].cat.categories.to_numpy(dtype=object)
        return names

    @cached_property
    def functions(self) -> Groups:
        """The task runs by function."""
        codes = self.trace.tasks["function"].cat.codes.to_numpy()
        return Groups(codes, len(self.function_names))

    def task_column(self, name: str) -> Array:
        """Return a column of the task runs as numbers; NaN where it, or a value, is not there."""
        tasks = self.trace.tasks
        if name not in tasks:
            return np.full(len(tasks), np.nan)
        values: Array = tasks[name].to_numpy(dtype=float)
        return values

    @cached_property
    def core_wait(self) -> Array:
        """Seconds that each task run waited for a core; 0 where that was not recorded."""
        waited: Array = np.clip(np.nan_to_num(self.task_column("run_queue")), 0.0, None)
        waited = np.minimum(waited, self.trace.tasks["duration"].to_numpy())
        return waited

    @cached_property
    def working(self) -> Array:
        """Seconds that each task run's function took, without waiting for a core."""
        seconds: Array = self.trace.tasks["duration"].to_numpy() - self.core_wait
        return seconds

    @cached_property
    def succeeded(self) -> Array:
        """Whether each task run ended in memory."""
        ended: Array = (self.trace.tasks["state"] == "memory").to_numpy(dtype=bool)
        return ended | self.trace.tasks["state"].isna().to_numpy()

    # --- how many threads were in use ------------------------------------------------------------

    @cached_property
    def concurrency(self) -> tuple[Array, Array]:
        """How many slots were held: times, and the number from each on."""
        times = np.concatenate([self.slots.times.executing, self.slots.end])
        steps = np.repeat([1, -1], len(self.slots.end))
        order = np.argsort(times, kind="stable")
        return times[order], np.cumsum(steps[order])

    def idle_between(self, begins: Array, ends: Array) -> Array:
        """Return wall seconds that threads were idle within spans: thread-seconds by threads."""
        return self._integrate(np.maximum(1 - self.concurrency[1] / self.threads, 0), begins, ends)

    def alone_between(self, begins: Array, ends: Array) -> Array:
        """Return for how long within spans no more than one task held a thread."""
        return self._integrate((self.concurrency[1] <= 1).astype(float), begins, ends)

    def _integrate(self, values: Array, begins: Array, ends: Array) -> Array:
        times = self.concurrency[0]
        sums = np.append(0.0, np.cumsum(values[:-1] * np.diff(times)))
        found: Array = np.interp(ends, times, sums) - np.interp(begins, times, sums)
        return found

    # --- CPU, memory and devices -----------------------------------------------------------------

    @cached_property
    def cpu(self) -> Array:
        """CPU seconds of each task run's thread within its function; 0 where unknown."""
        cpu: Array = np.clip(np.nan_to_num(self.task_column("cpu")), 0.0, self.working)
        return cpu

    @cached_property
    def on_cpu(self) -> Array:
        """The share of its time for which each task run used the CPU, waits for a core left out."""
        share: Array = ratio(self.cpu, self.working)
        return np.nan_to_num(share)
