"""What the threads that task runs held were used for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.constants import as_type, is_nothing
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import TaskSlots
from dasfprof.database.columns import Array

#: Uses of a thread that a task run holds.
COMPUTING, CORE_WAIT, STORAGE, BLOCKED, CPU_UNKNOWN = range(5)
DESERIALIZE, SPILL, OVERHEAD = range(5, 8)
USES = 8


def busy_seconds(run: Run, slots: TaskSlots, before: Array, inside: Array, after: Array) -> Array:
    """Split the thread-seconds of each task run by use.

    Parameters
    ----------
    run, slots
        The run and the slots of its task runs.
    before, inside, after
        Thread-seconds of each run before, in and after its function.

    Returns
    -------
    array
        Seconds, of shape (`USES`, runs); they sum to those given.
    """
    costs = recorded_costs(run, len(inside))
    length = slots.times.stop - slots.times.start
    seconds = uses_of(length, costs, before, inside, after)
    finishing = np.bincount(slots.worker, weights=after, minlength=len(run.workers))
    spill = after * spilling_shares(run, finishing)[slots.worker]
    seconds[SPILL] += spill
    seconds[OVERHEAD] -= spill
    return seconds


#: What is recorded of the costs of each task run, and what stands for what is not.
COSTS = {"cpu": np.nan, "run_queue": 0.0, "storage": 0.0, "deserialize": 0.0, "disk_read": 0.0}


def recorded_costs(run: Run, count: int) -> dict[str, Array]:
    """Return the costs of a trace's task runs; of runs of no worker's file they are missing."""
    return {name: _column(run, name, count, missing) for name, missing in COSTS.items()}


def uses_of(
    length: Array, costs: Mapping[str, Array], before: Array, inside: Array, after: Array
) -> Array:
    """Split the thread-seconds of task runs as `busy_seconds`, as far as each alone tells.

    What their workers wrote to disk after their functions counts as overhead; `length` has the
    seconds of functions.
    """
    seconds = np.zeros((USES, len(inside)))
    unspill = np.minimum(costs["disk_read"], before)
    seconds[DESERIALIZE] = np.minimum(costs["deserialize"], before - unspill)
    seconds[SPILL] = unspill
    seconds[OVERHEAD] = (before - unspill - seconds[DESERIALIZE]) + after
    # A run that seceded held its thread for a part of its function only.
    share = np.divide(inside, length, out=np.zeros_like(inside), where=length > 0)
    known = ~np.isnan(costs["cpu"])
    split = _split_running(
        inside, costs["cpu"] * share, costs["run_queue"] * share, costs["storage"] * share
    )
    for use, spent in zip((COMPUTING, CORE_WAIT, STORAGE, BLOCKED), split, strict=True):
        np.copyto(seconds[use], spent, where=known)
    np.copyto(seconds[CPU_UNKNOWN], inside, where=~known)
    return seconds


def unspill_seconds(run: Run, before: Array) -> Array:
    """Return for how long before its function the inputs of each run were read from disk."""
    read: Array = np.minimum(_column(run, "disk_read", len(before)), before)
    return read


@dataclass(frozen=True)
class RunningSeconds:
    """The seconds of functions by what their threads did."""

    #: On a core; NaN where nobody recorded it.
    cpu: Array
    #: Waiting for a core, for a storage, and none of the three; NaN where the wait for a core was
    #: not recorded, without which none can be told. The second is NaN, and in the third, where it
    #: was not recorded itself.
    core_wait: Array
    storage: Array
    blocked: Array

    def of(self, rows: Array, share: Array) -> RunningSeconds:
        """The seconds of some rows, of each its share."""
        return RunningSeconds(*(part[rows] * share for part in self.parts()))

    def parts(self) -> tuple[Array, Array, Array, Array]:
        """The seconds by what threads did, in the order of the fields."""
        return self.cpu, self.core_wait, self.storage, self.blocked


def running_seconds(tasks: pd.DataFrame) -> RunningSeconds:
    """Split the seconds of each task run's function.

    Parameters
    ----------
    tasks
        `Trace.tasks`.
    """
    duration, cpu = tasks["duration"].to_numpy(), tasks["cpu"].to_numpy(dtype=float)
    core_wait = as_type(tasks["run_queue"].to_numpy(), float)
    storage = as_type(tasks["storage"].to_numpy(), float)
    return RunningSeconds(*_split_running(duration, np.maximum(cpu, 0.0), core_wait, storage))


def _split_running(
    seconds: Array, cpu: Array, core_wait: Array, storage: Array
) -> tuple[Array, Array, Array, Array]:
    """Split seconds in functions: on a core, waiting for one, for a storage, and the rest: blocked.

    What a thread waited for a core within calls of a storage is of both: it counts as the first,
    as far as both leave room.
    """
    computing = np.minimum(cpu, seconds)
    if is_nothing(core_wait):
        return computing, core_wait, core_wait, core_wait
    waiting = np.minimum(np.maximum(core_wait, 0.0), seconds - computing)
    rest = seconds - computing - waiting
    stored = np.minimum(np.maximum(storage, 0.0), rest)
    return computing, waiting, stored, rest - np.nan_to_num(stored)


def spilling_shares(run: Run, finishing: Array) -> Array:
    """Estimate which share of the time after functions each worker wrote to disk in.

    A result is stored, and others are spilled to make room, before the run's thread is given back.
    What spilling took is known by worker alone, and is spread over its runs.

    Parameters
    ----------
    run
        The run, which need not have its task runs.
    finishing
        Thread-seconds of each worker after functions.
    """
    memory, count = run.managed_memory, len(run.workers)
    if "spill_write" not in memory or not len(memory):
        return np.zeros(count)
    worker, written = memory["worker_id"].to_numpy(), memory["spill_write"].to_numpy(dtype=float)
    known = np.isfinite(written)
    most, least = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(most, worker[known], written[known])
    np.minimum.at(least, worker[known], written[known])
    spilled = np.where(most > least, most - least, 0.0)
    share = np.divide(spilled, finishing, out=np.zeros(count), where=finishing > 0)
    shares: Array = np.minimum(share, 1.0)
    return shares


def _column(run: Run, name: str, count: int, unknown: float = 0.0) -> Array:
    """Return a column of the task runs, none below 0; `unknown`, 0 or NaN, is of what lacks it.

    Runs of no worker's file do.
    """
    column = np.full(count, unknown)
    if name in run.tasks:
        values = run.tasks[name].to_numpy(dtype=float)
        # The one takes the number of a number and NaN, the other NaN.
        highest = np.maximum if np.isnan(unknown) else np.fmax
        highest(values, 0.0, out=column[: len(values)])
    return column
