"""Unfinished tasks of which no row tells: not begun, never sent, or lost with the scheduler."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from dask.utils import key_split

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.analysis.run.open_runs import RELEASED, WAITING
from dasfprof.analysis.run.run_end import How
from dasfprof.analysis.run.times import to_ticks
from dasfprof.database.columns import Array

# --- Unfinished tasks of which no row tells: never sent, or of a scheduler that was killed --------

#: A step function: times, and the value from each on.
Steps = tuple[Array, Array]

NONE: Steps = (np.empty(0), np.empty(0, dtype=np.int64))


@once_per_trace
def live_at_counts(run: Run) -> Array:
    """Count the tasks of which rows tell that had come and not ended when the scheduler counted."""
    at = _counted(run)
    if not len(at):
        return np.empty(0, dtype=np.int64)
    times, more = run.slots.times, run.unfinished
    order = np.argsort(at, kind="stable")
    live = np.zeros(len(at), dtype=np.int64)
    for sign, some in (
        *((1, arrivals) for arrivals in (times.arrival, more.arrival)),
        *((-1, ends) for ends in (times.known, more.known)),
    ):
        passed = np.bincount(np.searchsorted(at[order], some), minlength=len(at) + 1)
        live[order] += sign * np.cumsum(passed[:-1])
    return live


def untold_tasks(run: Run) -> Steps:
    """Count the unfinished tasks that the scheduler knew and of which no row tells.

    Returns
    -------
    times, counts
        What the scheduler counted from time to time less what rows tell of. Between two counts
        it is the lesser of them, from the arrival of a graph on.
    """
    states = run.scheduler_states
    if not len(states):
        return _unsent(run)
    at = _counted(run)
    more = np.nan_to_num(states["unfinished"].to_numpy(dtype=float)).astype(np.int64)
    more = np.maximum(more - live_at_counts(run), 0)
    if not more.any():
        return NONE
    gone = states["occasion"].iloc[-1] == "client-left"
    held = np.minimum(more, np.append(more[1:], 0 if gone else more[-1]))
    # What is new at a count came with the last graph before it.
    graphs = np.append(-np.inf, np.sort(run.since_begin(run.graphs["time"])))
    came = to_ticks(graphs[np.searchsorted(graphs, at, side="right") - 1])
    came = np.where(came > np.append(-np.inf, at[:-1]), came, at)
    times = np.concatenate([came, at])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([more, held])[order]


def _counted(run: Run) -> Array:
    """Return when the scheduler counted its unfinished tasks."""
    states = run.scheduler_states
    if not len(states):
        return np.empty(0)
    return to_ticks(run.since_begin(states["time"]))


def _unsent(run: Run) -> Steps:
    """Count what an older scheduler's file says had not been sent when recording ended."""
    unsent = run.unsent
    if not len(unsent):
        return NONE
    times = to_ticks(run.since_begin(unsent["time"]))
    order = np.argsort(times, kind="stable")
    counts = np.cumsum(unsent["tasks"].to_numpy(dtype=float)[order]).astype(np.int64)
    return times[order], counts


# --- Tasks that no worker had begun at the end of a run, as far as the scheduler named them -------

NO_WORKER = "no-worker"


class UnsentTask(NamedTuple):
    """A task without a task run."""

    #: Its text.
    key: str
    function: str
    #: waiting, no-worker, or released by the client.
    status: str


def unsent_tasks(run: Run, sent: set[str] | None = None) -> list[UnsentTask]:
    """List the tasks that no worker had begun at the end, as far as their keys are known.

    The scheduler names the first 20 unfinished ones of each client and worker, and the first 100
    that no worker may run.

    Parameters
    ----------
    run
        The run.
    sent
        What `sent_tasks` found in all parts of the run of which it is one; None: it is all.
    """
    sent = sent_tasks(run) if sent is None else sent
    return [task for task in _named_tasks(run) if task.key not in sent]


def sent_tasks(run: Run) -> set[str]:
    """Return which of the tasks that the scheduler named at the end have task runs."""
    return _sent(run, {task.key for task in _named_tasks(run)})


def _named_tasks(run: Run) -> list[UnsentTask]:
    end = run.ending
    if end is None:
        return []
    state: dict[str, Any] = end.state or {}
    found = {
        str(key): WAITING
        for holder in (*(state.get("clients") or ()), *(state.get("workers") or ()))
        for key in holder.get("keys") or ()
    }
    found |= {str(task["key"]): NO_WORKER for task in state.get("held_back") or ()}
    unsent = run.unsent if "key" in run.unsent else run.unsent.iloc[:0]
    if len(unsent):
        keys = run.keys.texts(unsent["key"].to_numpy()).tolist()
        states = unsent["state"].astype(object).tolist()
        for key, name in zip(keys, states, strict=True):
            found.setdefault(key, NO_WORKER if name == NO_WORKER else WAITING)
    return [
        UnsentTask(key, str(key_split(key)), RELEASED if end.how is How.LEFT else status)
        for key, status in found.items()
    ]


def _sent(run: Run, wanted: set[str]) -> set[str]:
    """Return which of some keys, as texts, have task runs."""
    if not wanted:
        return set()
    ids = [run.open["key_id"], run.scheduler_only.get("key_id", ())]
    ids.append(run.tasks["key_id"])
    known = np.unique(np.concatenate([np.asarray(column, dtype=np.int64) for column in ids]))
    functions, names = run.keys.functions()
    near = {str(key_split(key)) for key in wanted}
    codes = np.flatnonzero([name in near for name in names])
    known = known[np.isin(functions[known], codes)]
    return wanted & set(run.keys.texts(known).tolist())
