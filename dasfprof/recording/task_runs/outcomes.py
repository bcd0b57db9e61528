"""Facts about the ends of task runs and transfers on a worker, for `WorkerTaskPlugin`."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals.inspection.views import restrictions
from dasfprof.recording.dask_internals.undocumented import value_in_memory
from dasfprof.recording.dask_internals.worker_calls import (
    ExecuteFailureEvent,
    GatherDepBusyEvent,
    GatherDepSuccessEvent,
    fetch_seconds,
)
from dasfprof.recording.task_runs.logs import raised_at
from dasfprof.recording.task_runs.results import ResultDescriber, type_name
from dasfprof.recording.task_runs.task_notes import FACTS
from dasfprof.schema.steps import ANNOTATION

_RUNNING = ("executing", "long-running")
STATES = {"memory": "memory", "error": "erred", "rescheduled": "rescheduled"}


def failed_run(event: Any, task: Any) -> tuple[Any, ...]:
    """Return the `FACTS` of a run that failed or was rescheduled; Dask times failed runs only."""
    facts = {"key": event.key, "state": "rescheduled", "size": 0, **_inputs(task)}
    if type(event) is ExecuteFailureEvent:
        facts |= {"run_id": event.run_id, "state": "erred"}
        facts |= {"start": event.start, "stop": event.stop, "exception": event.exception_text}
        facts["raised_at"] = raised_at(event.traceback_text)
    else:
        facts["run_id"] = getattr(task, "run_id", None)
    return tuple(map(facts.get, FACTS))


def ends_here(task: Any, start: str, finish: str, executing: bool) -> bool:
    """Return whether a change of state ends a run of a task on this worker.

    Parameters
    ----------
    task
        The worker's.
    start, finish
        States; `finish` is one of `STATES`.
    executing
        Whether the task was seen to begin on this worker.
    """
    if start in _RUNNING:
        # Where the worker could not store the result, a change to "error" follows.
        return finish != "memory" or task.state == "memory"
    return executing


def run_by_state(
    task: Any, start: str, finish: str, data: Any, describe: ResultDescriber
) -> tuple[Any, ...]:
    """Return the `FACTS` of a run that ended, from public attributes and states of the task.

    Parameters
    ----------
    task
        The worker's.
    start, finish
        States; `finish` is one of `STATES`.
    data
        The worker's mapping of results.
    describe
        Returns the type, dtype and shape of a result.
    """
    state = "cancelled" if (start, finish) == ("cancelled", "memory") else STATES[finish]
    is_stored = state == "memory"
    span: dict[str, Any] = next(
        (s for s in reversed(task.startstops) if s["action"] == "compute"), {}
    )
    if finish == "rescheduled":
        span = {}  # Dask keeps none; any span belongs to an earlier run
    _, dtype, shape = describe(value_in_memory(data, task.key) if is_stored else None)
    facts = {"key": task.key, "prefix": task.prefix, "run_id": task.run_id, "state": state}
    facts |= {"size": task.nbytes or 0 if is_stored else 0, "dtype": dtype, "shape": shape}
    facts |= {"start": span.get("start"), "stop": span.get("stop"), **_inputs(task)}
    if is_stored:
        facts["type"] = type_name(task.type)
    if state == "erred":
        facts["exception"] = task.exception_text or None
        facts["raised_at"] = raised_at(task.traceback_text)
    return tuple(map(facts.get, FACTS))


def transfer(event: Any, ledger: Any) -> tuple[Any, ...]:
    """Return the facts of a transfer.

    These are its start, seconds, the other worker, keys, size, state, and the seconds on the
    network and of deserialising.
    """
    kind = type(event)
    keys: tuple[Any, ...] = ()
    if kind is GatherDepSuccessEvent:
        keys = tuple(event.data)
        state = "success" if keys else "missing"
    else:
        state = "busy" if kind is GatherDepBusyEvent else "failed"
    seconds = perf_counter() - ledger.start
    size = event.total_nbytes if state == "success" else 0
    told = fetch_seconds(ledger.metrics)
    return (time() - seconds, seconds, event.worker, keys, size, state, *told)


def _inputs(task: Any) -> dict[str, Any]:
    """Return the keys of a task's dependencies and the sum of their sizes."""
    dependencies = task.dependencies if task is not None else ()
    keys = tuple([dependency.key for dependency in dependencies])
    size = sum(dependency.nbytes or 0 for dependency in dependencies)
    return {"dependencies": keys, "input_size": size}


# --- What keeps tasks from being sent to a worker, as the scheduler knows it ----------------------

#: States of tasks whose dependencies are in memory and that no worker has.
HELD_BACK = ("queued", "no-worker")
_UNSENT = ("waiting", *HELD_BACK)


def unsent_tasks(
    waiting: Mapping[Any, tuple[float, str]], tasks: Mapping[Any, Any]
) -> list[tuple[Any, ...]]:
    """Return a row of `UNSENT_TASKS` for each prefix and state of tasks that no worker has.

    Parameters
    ----------
    waiting
        By key: when and by which stimulus the task became known.
    tasks
        The scheduler's tasks by key.
    """
    found: dict[tuple[str, str], tuple[float, Any, int]] = {}
    for key, (since, _) in dict(waiting).items():
        task = tasks.get(key)
        if task is not None and task.state in _UNSENT:
            kind = task.prefix.name, task.state
            begin, first, count = found.get(kind, (since, task, 0))
            found[kind] = min(begin, since), first, count + 1
    return [
        (begin, name, state, count, first.key, restrictions(first))
        for (name, state), (begin, first, count) in found.items()
    ]


# --- The annotation by which a client tells the scheduler in which step a graph was computed ------


def take_step(annotations: Any, tasks: Mapping[Any, Any]) -> Any:
    """Return the step of a graph, and remove its annotation from the tasks.

    Parameters
    ----------
    annotations
        Those of the graph: values by key, by name.
    tasks
        The scheduler's tasks by key.
    """
    marked = (annotations or {}).get(ANNOTATION)
    if not marked:
        return None
    for key in marked:
        task = tasks.get(key)
        if task is not None and task.annotations:
            task.annotations.pop(ANNOTATION, None)
    return next(iter(marked.values()))
