"""`TaskFigures`: figures about a run's time, its functions, and the use of its threads."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import Accounts, accounts_within
from dasfprof.analysis.model.gpus import GpuDevice, gpu_utilisation
from dasfprof.analysis.model.processes import counter_growth
from dasfprof.analysis.model.steps import task_layers
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.intervals import open_spans, union
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.run_end import RunEnd, left_unasked
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.analysis.run.worker_exits import Why, departure
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.database.columns import Array


class SampledFigures:
    """The part of `RunFigures` that comes from samples."""

    trace: Run

    @cached_property
    def process_cpu_seconds(self) -> float:
        """CPU seconds that all sampled worker processes used, or NaN if none was sampled."""
        grown = counter_growth(self.trace, self.trace.samples, "process_cpu_seconds")
        return float(pd.Series(grown).sum(min_count=1))

    @cached_property
    def file_bytes(self) -> Array:
        """Bytes that each worker instance read from and wrote to disks, without spilled data."""
        nbytes = -self.counted("spill_write_size") - self.counted("spill_read_size")
        for name in ("process_io.read_size", "process_io.write_size"):
            nbytes += np.nan_to_num(counter_growth(self.trace, self.trace.samples, name))
        return np.maximum(nbytes, 0.0)

    def counted(self, name: str) -> Array:
        """Return by how much a counter of `Trace.managed_memory` grew on each worker instance.

        All values are 0 if the counter was not recorded.
        """
        return np.nan_to_num(counter_growth(self.trace, self.trace.managed_memory, name))

    def highest(self, name: str) -> Array:
        """Return the maximum of a column of samples for each worker instance, or NaN."""
        samples = self.trace.samples.reindex(columns=["worker_id", name])
        values = pd.to_numeric(samples[name], errors="coerce").to_numpy(dtype=float)
        return Groups(samples["worker_id"].to_numpy(), len(self.trace.workers)).max(values)

    @cached_property
    def memory_limits(self) -> Array:
        """Memory limit of each worker instance in bytes, or NaN if it has no limit."""
        return self.trace.workers["memory_limit"].to_numpy(dtype=float)

    @cached_property
    def died_of_memory(self) -> bool:
        """Whether a worker certainly ran out of memory."""
        lost = np.flatnonzero(left_unasked(self.trace)).tolist()
        return any(departure(self.trace, life).why is Why.MEMORY for life in lost)

    @cached_property
    def gpus(self) -> tuple[list[GpuDevice], pd.DataFrame]:
        """The GPUs, and the utilization of each over the whole run."""
        return gpu_utilisation(self.trace)


class TaskFigures(SampledFigures):
    """The part of `RunFigures` that comes from task runs and threads.

    All figures refer to the wall time, from the arrival of the first task to the end of the last
    task. Numbers of threads are the mean over the time in which there are any threads. A task run
    that seceded counts only while it occupied its thread.
    """

    def __init__(self, run: Run) -> None:
        self.trace = run

    @cached_property
    def slots(self) -> TaskSlots:
        """The threads that task runs occupied, with times."""
        return self.trace.slots

    @cached_property
    def accounts(self) -> Accounts:
        """The thread-seconds of the wall time, summed by category."""
        return accounts_within(self.trace, self.begin, self.begin + self.wall)

    @cached_property
    def workers(self) -> NamedWorkers:
        """Workers by host and label."""
        return self.trace.named

    @cached_property
    def end(self) -> RunEnd | None:
        """Unfinished tasks at the end of the run, or None if none are known."""
        return self.trace.ending

    @cached_property
    def begin(self) -> float:
        """Arrival of the first task, in seconds from the trace's start, or NaN without tasks."""
        arrival = self.trace.first_arrival
        if np.isfinite(arrival):
            return arrival
        graphs = self.trace.graphs
        first = graphs["time"].min() if self.end is not None and len(graphs) else float("nan")
        return self.trace.seconds_at(first)

    @cached_property
    def wall(self) -> float:
        """Seconds from the arrival of the first task to the end of the last, or 0 without tasks."""
        times, unfinished = self.slots.times, self.trace.unfinished
        # A task that was abandoned because its worker left ends with the worker.
        counted = unfinished.ended if len(times) else slice(None)
        ends = np.append(times.known, unfinished.known[counted])
        # An unfinished task counts as ending with the run.
        if self.end is not None:
            ends = np.append(ends, self.trace.seconds_at(self.end.time))
        known = len(ends) > 0 and np.isfinite(self.begin)
        return max(float(ends.max()) - self.begin, 0.0) if known else 0.0

    @cached_property
    def threads(self) -> float:
        """Mean number of threads over the time with threads, or NaN if there were never any."""
        lives = self.accounts.lives
        begins, ends = union(lives.begin, lives.end)
        there = float((ends - begins).sum())
        return self.thread_seconds / there if there > 0 else float("nan")

    @cached_property
    def thread_seconds(self) -> float:
        """Total thread-seconds of the run."""
        lives = self.accounts.lives
        return float((lives.threads * (lives.end - lives.begin)).sum())

    def seconds_of(self, *classes: ThreadTime) -> float:
        """Return the thread time in the given categories, divided by the number of threads."""
        seconds = float(self.accounts.of_lives[:, list(classes)].sum())
        return seconds / self.threads if self.threads > 0 else 0.0

    def share_of(self, *classes: ThreadTime) -> float:
        """Return the fraction of the thread time that is in the given categories."""
        return self.share(float(self.accounts.of_lives[:, list(classes)].sum()))

    def share(self, seconds: float) -> float:
        """Return thread-seconds as a fraction of the thread time."""
        return seconds / self.thread_seconds if self.thread_seconds > 0 else 0.0

    @cached_property
    def function_names(self) -> Array:
        """Names of the functions, by their codes in the table of tasks."""
        return self.trace.tasks["function"].cat.categories.to_numpy(dtype=object)

    @cached_property
    def functions(self) -> Groups:
        """The task runs by function."""
        codes = self.trace.tasks["function"].cat.codes.to_numpy()
        return Groups(codes, len(self.function_names))

    def rows_of(self, function: str) -> Array:
        """Return the rows of the task runs of a function."""
        return np.flatnonzero((self.function_names == function)[self.functions.codes])

    def inputs_of(self, rows: Array) -> Array:
        """Return a mask of the task runs whose results are inputs of the task runs in `rows`."""
        lengths, items = self.trace.task_dependencies
        of_run = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
        return np.isin(self.trace.tasks["key_id"].to_numpy(), items[np.isin(of_run, rows)])

    @cached_property
    def layers(self) -> Groups:
        """Groups of task runs that do the same work, by function and graph layer."""
        return task_layers(self.trace)

    def task_column(self, name: str) -> Array:
        """Return a column of the task runs as numbers, with NaN for missing columns and values."""
        tasks = self.trace.tasks
        if name not in tasks:
            return np.full(len(tasks), np.nan)
        return tasks[name].to_numpy(dtype=float)

    @cached_property
    def held(self) -> Array:
        """Fraction of the function's duration before it called `secede()`, for each task run."""
        slots, rows = self.slots, slice(len(self.trace.tasks))
        start, stop = slots.times.start[rows], slots.times.stop[rows]
        inside = np.maximum(np.minimum(stop, slots.end[rows]) - start, 0.0)
        return np.divide(inside, stop - start, out=np.ones(len(start)), where=stop > start)

    @cached_property
    def lasted(self) -> Array:
        """Seconds for which each task run's function occupied its thread."""
        return self.trace.tasks["duration"].to_numpy() * self.held

    @cached_property
    def slot_seconds(self) -> Array:
        """Seconds for which each task run occupied its thread, including overhead of Dask."""
        slots, rows = self.slots, slice(len(self.trace.tasks))
        return slots.end[rows] - slots.times.executing[rows]

    @cached_property
    def core_wait(self) -> Array:
        """Seconds for which each task run waited for CPU, or 0 if not recorded."""
        waited: Array = np.clip(np.nan_to_num(self.task_column("run_queue")), 0.0, None)
        return np.minimum(waited * self.held, self.lasted)

    @cached_property
    def storage(self) -> Array:
        """Seconds for which each task run waited for storage, or 0 if not recorded."""
        waited: Array = np.clip(np.nan_to_num(self.task_column("storage")), 0.0, None)
        return np.minimum(waited * self.held, np.maximum(self.working - self.cpu, 0.0))

    @cached_property
    def working(self) -> Array:
        """Seconds for which each task run's function occupied its thread, without CPU wait."""
        return self.lasted - self.core_wait

    @cached_property
    def succeeded(self) -> Array:
        """Mask of task runs that succeeded."""
        ended: Array = (self.trace.tasks["state"] == "memory").to_numpy(dtype=bool)
        return ended | self.trace.tasks["state"].isna().to_numpy()

    @cached_property
    def concurrency(self) -> tuple[Array, Array]:
        """Times at which the number of busy slots changes, and the number after each time."""
        slots = self.trace.all_slots
        return open_spans(slots.times.executing, slots.end)

    @cached_property
    def _idle(self) -> tuple[Array, Array]:
        """Times at which the number of idle threads changes, and the number after each time."""
        lives, (changes, held) = self.accounts.lives, self.concurrency
        times = np.concatenate([changes, lives.begin, lives.end])
        steps = np.concatenate([-np.diff(held, prepend=0), lives.threads, -lives.threads])
        order = np.argsort(times, kind="stable")
        return times[order], np.maximum(np.cumsum(steps[order]), 0)

    def idle_between(self, begins: Array, ends: Array) -> Array:
        """Return the idle thread-seconds in each time range, divided by the number of threads."""
        if not self.threads > 0:
            return np.zeros_like(begins)
        times, idle = self._idle
        return self.integrate(idle / self.threads, begins, ends, times)

    def alive_between(self, begins: Array, ends: Array) -> Array:
        """Return, for each time range, the seconds with at least one unfinished task."""
        times = self.trace.all_slots.times
        edges, number = open_spans(times.arrival, times.known)
        return self.integrate(number > 0, begins, ends, edges)

    def integrate(
        self, values: Array, begins: Array, ends: Array, times: Array | None = None
    ) -> Array:
        """Integrate a step function over each time range.

        `values` are those from each of `times` (by default those of `concurrency`) to the next.
        """
        times = self.concurrency[0] if times is None else times
        if not len(times):
            return np.zeros_like(begins)
        sums = np.append(0.0, np.cumsum(values[:-1] * np.diff(times)))
        return np.interp(ends, times, sums) - np.interp(begins, times, sums)

    @cached_property
    def cpu(self) -> Array:
        """CPU seconds of each task run's thread within its function, or 0 if unknown."""
        cpu: Array = np.nan_to_num(self.task_column("cpu")) * self.held
        return np.clip(cpu, 0.0, self.working)

    @cached_property
    def on_cpu(self) -> Array:
        """Fraction of each task run's time, not counting CPU wait, that it spent on the CPU."""
        share: Array = ratio(self.cpu, self.working)
        return np.nan_to_num(share)
