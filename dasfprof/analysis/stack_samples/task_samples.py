"""`task_samples`: the samples of stacks of tasks, each with the task run that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.database.columns import Array

#: Seconds by which the time of a sample is rounded.
_ROUNDED = 0.5 / 1024
#: What a thread did at a sample, by number.
UNKNOWN, RUNNING, LOCK, WAITING = 0, 1, 2, 3
_ACTIVITIES = {"running": RUNNING, "lock": LOCK, "waiting": WAITING}


@dataclass(frozen=True)
class Samples:
    """Samples of stacks as arrays of one length."""

    #: Rows of `Trace.stacks`; -1: unknown.
    stack: Array
    #: Unix seconds, and the seconds that each stands for.
    time: Array
    interval: Array
    #: Of the thread in that time, seconds; NaN: unknown.
    cpu: Array
    run_queue: Array
    #: One of `UNKNOWN`, `RUNNING`, `LOCK`, `WAITING`.
    activity: Array
    #: The shares of its function's time for which its task runs computed, and waited for a core, as
    #: was counted from begin to end of each; NaN: unknown.
    computed: Array
    queued: Array

    def __len__(self) -> int:
        return len(self.stack)

    @classmethod
    def of(cls, table: pd.DataFrame) -> Samples:
        """Return the samples of a table of a `Trace`."""
        if not len(table):
            return cls(np.empty(0, dtype=np.int64), *(np.empty(0) for _ in range(7)))
        activity = table["activity"].astype("category").cat
        codes = [*(_ACTIVITIES.get(str(each), UNKNOWN) for each in activity.categories), UNKNOWN]
        return cls(
            stack=table["stack"].to_numpy(dtype=np.int64),
            time=table["time"].to_numpy(dtype=float),
            interval=np.maximum(np.nan_to_num(table["interval"].to_numpy(dtype=float)), 0.0),
            cpu=table["cpu"].to_numpy(dtype=float),
            run_queue=table["run_queue"].to_numpy(dtype=float),
            activity=np.array(codes, dtype=np.int8)[activity.codes.to_numpy()],
            computed=np.full(len(table), np.nan),
            queued=np.full(len(table), np.nan),
        )

    def take(self, rows: Array) -> Samples:
        """Return some of them, by their places or by a truth for each."""
        return Samples(**{name: values[rows] for name, values in vars(self).items()})


@once_per_trace
def run_of_samples(run: Run) -> Array:
    """Return the task run of each row of `Trace.task_samples`.

    A row of the tasks of `with_open_runs`; -1 where no task run of that thread and time is known.
    """
    samples, runs = run.task_samples, run.whole.tasks
    found = np.full(len(samples), -1, dtype=np.int64)
    if not len(samples) or not len(runs) or "thread" not in runs:
        return found
    threads: dict[str, int] = {}
    of_samples, of_runs = _threads(samples, threads), _threads(runs, threads)
    start = runs["start"].to_numpy(dtype=float)
    stop = start + runs["duration"].to_numpy(dtype=float)
    time = samples["time"].to_numpy(dtype=float)
    rows = np.flatnonzero((of_runs >= 0) & np.isfinite(stop))
    # All threads one after the other on one axis of time.
    first = min(time.min(), start[rows].min(initial=np.inf))
    span = max(time.max(), stop[rows].max(initial=-np.inf)) - first + 1.0
    begins = of_runs[rows] * span + start[rows] - first
    order = np.argsort(begins, kind="stable")
    rows, begins = rows[order], begins[order]
    places = np.searchsorted(begins, of_samples * span + time - first + _ROUNDED, "right") - 1
    near = rows[np.maximum(places, 0)] if len(rows) else np.zeros(len(time), dtype=np.int64)
    belongs = (places >= 0) & (of_samples >= 0) & (of_runs[near] == of_samples)
    belongs &= time - _ROUNDED <= stop[near]
    found[belongs] = near[belongs]
    return found


def _threads(table: pd.DataFrame, known: dict[str, int]) -> Array:
    """Number the threads of workers; -1 where a row has none."""
    column = table["thread"].astype("category").cat
    names = [str(name) for name in column.categories]
    numbers = np.array([*(known.setdefault(name, len(known)) for name in names), -1], np.int64)
    threads = numbers[column.codes.to_numpy()]
    # More than any number of threads: equal identities on two workers are two threads.
    spread = table["worker_id"].to_numpy(dtype=np.int64) * (1 << 20)
    return np.where(threads >= 0, threads + spread, -1)


def samples_of(
    run: Run, function: str | None = None, step: str | None = None
) -> tuple[Samples, Array]:
    """Return the samples of the task runs of a function and a step; None: of all.

    Returns
    -------
    samples, functions
        The samples, and a number for the function of each.
    """
    runs, tasks = run_of_samples(run), run.whole.tasks
    of_runs = np.ones(len(tasks) + 1, dtype=bool)  # the last: of no known task run
    for column, wanted in (("function", function), ("step", step)):
        if wanted is None:
            continue
        of_runs[-1] = False
        if column in tasks:
            of_runs[:-1] &= (tasks[column].astype(object) == wanted).to_numpy()
        else:
            of_runs[:-1] = False
    functions = np.zeros(len(tasks) + 1, dtype=np.int64)
    if "function" in tasks:
        functions[:-1] = 1 + tasks["function"].cat.codes.to_numpy()
    rows = np.flatnonzero(of_runs[runs])
    samples, runs = Samples.of(run.task_samples).take(rows), runs[rows]
    # What was counted since before the run began is of another's.
    start = np.append(tasks["start"].to_numpy(dtype=float), np.nan)[runs]
    crosses = samples.time - samples.interval < start - 2 * _ROUNDED
    ended = np.append(np.arange(len(tasks)) < len(run.tasks), False)
    shares = [
        np.where(ended, _shares(tasks, name, functions[:-1], of_runs[:-1] & ended[:-1]), np.nan)
        for name in ("cpu", "run_queue")
    ]
    samples = replace(
        samples,
        cpu=np.where(crosses, np.nan, samples.cpu),
        run_queue=np.where(crosses, np.nan, samples.run_queue),
        computed=shares[0][runs],
        queued=shares[1][runs],
    )
    return samples, functions[runs]


def _shares(tasks: pd.DataFrame, column: str, functions: Array, counted: Array) -> Array:
    """Return which share of its function's time each task run's has of a count; NaN: unknown."""
    if column not in tasks:
        return np.full(len(tasks) + 1, np.nan)
    values, seconds = (tasks[name].to_numpy(dtype=float) for name in (column, "duration"))
    known = counted & np.isfinite(values) & np.isfinite(seconds)
    groups = Groups(np.where(known, functions, -1), int(functions.max(initial=0)) + 1)
    share = np.minimum(ratio(groups.sum(values), groups.sum(seconds)), 1.0)
    return np.append(share[functions], np.nan)
