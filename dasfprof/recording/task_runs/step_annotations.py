"""The annotation by which a client tells the scheduler in which step a graph was computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dasfprof.schema.steps import ANNOTATION


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
