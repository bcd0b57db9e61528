"""Functions that return facts about task runs and transfers that ended, for the Dask plugins."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals.inspection.views import restrictions
from dasfprof.recording.dask_internals.worker_calls import (
    ExecuteFailureEvent,
    GatherDepBusyEvent,
    GatherDepSuccessEvent,
)
from dasfprof.recording.task_runs.logs import raised_at
from dasfprof.recording.task_runs.task_notes import FACTS
from dasfprof.schema.steps import ANNOTATION


def failed_run(event: Any, task: Any) -> tuple[Any, ...]:
    """Return the `FACTS` of a task run that failed or was rescheduled."""
    dependencies = () if task is None else task.dependencies
    facts = {"key": event.key, "state": "rescheduled", "size": 0}
    facts["dependencies"] = tuple([dependency.key for dependency in dependencies])
    facts["input_size"] = sum(dependency.nbytes or 0 for dependency in dependencies)
    if type(event) is ExecuteFailureEvent:
        facts |= {"run_id": event.run_id, "state": "erred"}
        facts |= {"start": event.start, "stop": event.stop, "exception": event.exception_text}
        facts["raised_at"] = raised_at(event.traceback_text)
    else:
        # Dask does not measure the times of rescheduled task runs.
        facts["run_id"] = getattr(task, "run_id", None)
    return tuple(map(facts.get, FACTS))


def transfer(event: Any, ledger: Any) -> tuple[Any, ...]:
    """Return facts about a transfer, as a tuple.

    They are: start, seconds, the other worker's address, keys, bytes, state, seconds on the
    network, and seconds of deserializing.
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
    spent = {"network": 0.0, "deserialize": 0.0}
    for label, value, unit in ledger.metrics:
        if unit == "seconds" and label in spent:
            spent[label] += value
    return (time() - seconds, seconds, event.worker, keys, size, state, *spent.values())


#: States of unassigned tasks whose dependencies are in memory.
HELD_BACK = ("queued", "no-worker")
_UNSENT = ("waiting", *HELD_BACK)


def unsent_tasks(
    waiting: Mapping[Any, tuple[float, str]], tasks: Mapping[Any, Any]
) -> list[tuple[Any, ...]]:
    """Return rows of `UNSENT_TASKS`: one row for each prefix and state of unassigned tasks.

    Parameters
    ----------
    waiting
        The time and the stimulus at which each task became known, by key.
    """
    groups: dict[tuple[str, str], tuple[float, Any, int]] = {}
    for key, (since, _) in dict(waiting).items():
        task = tasks.get(key)
        if task is not None and task.state in _UNSENT:
            kind = task.prefix.name, task.state
            start, first, count = groups.get(kind, (since, task, 0))
            groups[kind] = min(start, since), first, count + 1
    return [
        (start, name, state, count, first.key, restrictions(first))
        for (name, state), (start, first, count) in groups.items()
    ]


def remove_step(annotations: Any, tasks: Mapping[Any, Any]) -> Any:
    """Return the step in which a client computed a graph, or None if there is no step.

    Also remove the annotation with the step from the graph's tasks.

    Parameters
    ----------
    annotations
        The graph's annotations by name. Each annotation is a dict of values by key.
    """
    marked = (annotations or {}).get(ANNOTATION)
    if not marked:
        return None
    for key in marked:
        task = tasks.get(key)
        if task is not None and task.annotations:
            task.annotations.pop(ANNOTATION, None)
    return next(iter(marked.values()))
