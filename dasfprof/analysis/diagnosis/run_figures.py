"""`RunFigures`: what the rules of the diagnosis rest on, each analysis done once and on demand."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.attempts import find_attempts
from dasfprof.analysis.bindings import Bindings, find_bindings
from dasfprof.analysis.busy_lanes import USES
from dasfprof.analysis.critical_path import CriticalPath, find_path, path_segments
from dasfprof.analysis.degradation import degradation_of
from dasfprof.analysis.diagnosis.out_of_line import OutOfLine
from dasfprof.analysis.diagnosis.sampled_figures import SampledFigures
from dasfprof.analysis.diagnosis.wording import excerpt
from dasfprof.analysis.distinct import distinct
from dasfprof.analysis.groups import Groups, ratio
from dasfprof.analysis.named_workers import NamedWorkers
from dasfprof.analysis.replay import gain
from dasfprof.analysis.sizing import chunk_sizing
from dasfprof.analysis.task_slots import TaskSlots, task_slots
from dasfprof.analysis.time_accounting import CLASSES, Accounts, make_accounts
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.database.keys import TUPLE

_CLASSES = list(CLASSES)
#: Runs with more tasks are not replayed: a replay takes about 10 us a task.
_MOST_REPLAYED = 50_000


class RunFigures(SampledFigures):
    """The figures of a run, as the rules ask for them.

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

    # --- shared analyses -------------------------------------------------------------------------

    @cached_property
    def slots(self) -> TaskSlots:
        """The threads that task runs held."""
        return task_slots(self.trace)

    @cached_property
    def bindings(self) -> Bindings:
        """What each run waited for."""
        return find_bindings(self.trace)

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path."""
        return find_path(self.trace)

    @cached_property
    def path_table(self) -> pd.DataFrame:
        """The segments of the critical path."""
        return path_segments(self.trace, self.slots, self.bindings, self.path)

    @cached_property
    def accounts(self) -> Accounts:
        """Where every thread-second went."""
        return make_accounts(self.trace)

    @cached_property
    def out_of_line(self) -> OutOfLine:
        """Stragglers and slow workers."""
        return OutOfLine(self)

    @cached_property
    def degradation(self) -> pd.DataFrame:
        """Whether functions get slower."""
        return degradation_of(self.attempts)

    @cached_property
    def chunk_sizing(self) -> dict[str, dict[str, Any]]:
        """What tasks cost, and how large they should be, by function: most overhead first."""
        rows = chunk_sizing(self.trace).to_dict("records")
        return {str(row["Function"]): {str(k): v for k, v in row.items()} for row in rows}

    @cached_property
    def attempts(self) -> pd.DataFrame:
        """Every attempt at a task."""
        return find_attempts(self.trace)

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

    def seconds_of(self, *classes: str) -> float:
        """Give the thread-seconds of classes of the accounts by the threads: wall seconds."""
        places = [_CLASSES.index(name) for name in classes]
        seconds = float(self.accounts.of_lives[:, places].sum())
        return seconds / self.threads if self.threads > 0 else 0.0

    def share_of(self, *classes: str) -> float:
        """Give the share of the run's thread-seconds that classes of the accounts have."""
        return self.seconds_of(*classes) / self.wall if self.wall > 0 else 0.0

    @cached_property
    def unsubmitted(self) -> float:
        """Wall seconds for which threads idled between tasks, as nothing was submitted."""
        lives = self.accounts.lives
        end = self.begin + self.wall
        before = np.clip(self.begin - lives.begin, 0.0, None)
        after = np.clip(lives.end - end, 0.0, None)
        outside = float((lives.threads * np.minimum(before + after, lives.end - lives.begin)).sum())
        return max(self.seconds_of("Nothing submitted") - outside / self.threads, 0.0)

    def path_seconds(self, kind: str) -> float:
        """Give the seconds of the critical path that are of a kind."""
        table = self.path_table
        return float(table.loc[table["Kind"] == kind, "Duration (s)"].sum())

    def saved(self, estimate: float, **change: Any) -> float:
        """Give the wall seconds that a change saves, by a replay of the run.

        Parameters
        ----------
        estimate
            What to take where no replay is to be had: it foretells nothing, or the run has so
            many tasks that it would take long.
        change
            See `dasfprof.analysis.replay.gain`.
        """
        if len(self.trace.tasks) > _MOST_REPLAYED:
            return estimate
        found = gain(self.trace, **change)
        return max(found, 0.0) if np.isfinite(found) else estimate

    def with_durations(self, rows: Array, seconds: Array | float) -> Array:
        """Give the durations of all task runs, with others for some rows."""
        durations = self.trace.tasks["duration"].to_numpy(dtype=float).copy()
        durations[rows] = np.minimum(durations[rows], seconds)
        return durations

    def path_seconds_of(self, function: int) -> float:
        """Give the seconds of the critical path for which a function ran."""
        table = self.path_table
        own = (table["Kind"] == "Compute") & (table["Function"] == self.function_names[function])
        return float(table.loc[own, "Duration (s)"].sum())

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
        """Give a column of the task runs as numbers; NaN where it, or a value, is not there."""
        tasks = self.trace.tasks
        if name not in tasks:
            return np.full(len(tasks), np.nan)
        values: Array = tasks[name].to_numpy(dtype=float)
        return values

    def width(self, function: str) -> int:
        """Give the most tasks that a step of the graph has of a function.

        Those of a collection are the ones whose tuples begin alike; other keys make one step.
        """
        keys, tasks = self.trace.keys, self.trace.tasks
        own = distinct(tasks["key_id"].to_numpy()[(tasks["function"] == function).to_numpy(bool)])
        heads = keys.head_ids[own]
        in_tuples = np.array([kind >= TUPLE for kind, _ in keys.heads], dtype=bool)
        steps = np.unique(np.where(in_tuples[heads], heads, -1), return_counts=True)[1]
        return int(steps.max(initial=0))

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
        """Give the wall seconds that threads were idle within spans: thread-seconds by threads."""
        return self._integrate(np.maximum(1 - self.concurrency[1] / self.threads, 0), begins, ends)

    def alone_between(self, begins: Array, ends: Array) -> Array:
        """Give for how long within spans no more than one task held a thread."""
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

    @property
    def hosts(self) -> int:
        """The number of hosts that tasks ran on."""
        return int(self.trace.tasks["host"].nunique())

    # --- names -----------------------------------------------------------------------------------

    def key_text(self, row: int) -> str:
        """Give the key of a task run as text."""
        return self.text_of_key(int(self.trace.tasks["key_id"].iloc[row]))

    def text_of_key(self, key_id: int) -> str:
        """Give a key as text, or its begin."""
        return excerpt(str(self.trace.keys.texts(np.array([key_id]))[0]))

    def address(self, worker: int) -> str:
        """Give the address of a named worker's last life, or its label."""
        lives = np.flatnonzero(self.workers.of_lives == worker)
        address = self.trace.workers["address"].iloc[lives[-1]]
        return str(self.workers.labels[worker] if address is None else address)
