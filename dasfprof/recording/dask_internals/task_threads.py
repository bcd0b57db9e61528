"""Which threads of a worker run a task now, and in which functions of Dask tasks begin."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from dasfprof.recording.dask_internals import names


def are_known(worker: Any) -> bool:
    """Return whether a worker tells which task runs in a thread."""
    return hasattr(worker, "active_threads")


def task_threads(worker: Any) -> dict[int, Any]:
    """Return the key of the task that runs in each thread, by the thread's identity."""
    running: dict[int, Any] = worker.active_threads
    return running.copy()


def first_functions() -> tuple[CodeType, ...]:
    """Return the functions that call the functions of tasks and actors, as far as there are any."""
    found = (
        names.RUN_TASK.find("_run_task_simple"),
        names.RUN_ACTOR.find("_run_actor"),
    )
    return tuple(inspect.unwrap(each).__code__ for each in found if each is not None)
