"""Tasks that no worker had begun at the end of a run, as far as the scheduler named them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from dask.utils import key_split

from dasfprof.analysis.model.open_runs import RELEASED, WAITING
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.run_end import How

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
    end, trace = run.end, run.trace
    if end is None:
        return []
    state: dict[str, Any] = end.state or {}
    found = {
        str(key): WAITING
        for holder in (*(state.get("clients") or ()), *(state.get("workers") or ()))
        for key in holder.get("keys") or ()
    }
    found |= {str(task["key"]): NO_WORKER for task in state.get("held_back") or ()}
    unsent = trace.unsent if "key" in trace.unsent else trace.unsent.iloc[:0]
    if len(unsent):
        keys = trace.keys.texts(unsent["key"].to_numpy()).tolist()
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
    trace = run.trace
    ids = [run.all.tasks["key_id"], trace.scheduler_only.get("key_id", ())]
    known = np.unique(np.concatenate([np.asarray(column, dtype=np.int64) for column in ids]))
    functions, names = trace.keys.functions()
    near = {str(key_split(key)) for key in wanted}
    codes = np.flatnonzero([name in near for name in names])
    known = known[np.isin(functions[known], codes)]
    return wanted & set(trace.keys.texts(known).tolist())
