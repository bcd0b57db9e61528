"""What keeps tasks from being sent to a worker, as the scheduler knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dasfprof.schema.steps import ANNOTATION

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
        (begin, name, state, count, first.key, _restrictions(first))
        for (name, state), (begin, first, count) in found.items()
    ]


def _restrictions(task: Any) -> dict[str, Any]:
    """Return the workers, hosts and resources that a task is restricted to."""
    asked = {
        "workers": sorted(task.worker_restrictions or ()),
        "hosts": sorted(task.host_restrictions or ()),
        "resources": dict(task.resource_restrictions or {}),
    }
    return {name: value for name, value in asked.items() if value}


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
