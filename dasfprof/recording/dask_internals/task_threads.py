"""Which threads of a worker run a task now, and in which functions of Dask tasks begin."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from dasfprof.recording.dask_internals import names


def task_threads(worker: Any) -> dict[int, Any]:
    """Return the key of the task that runs in each thread, by the thread's identity."""
    running: dict[int, Any] = getattr(worker, names.ACTIVE_THREADS.attribute)
    return running.copy()


def first_functions() -> tuple[CodeType, ...]:
    """Return the functions that call the functions of tasks and actors, as far as there are any."""
    found = (name.find() for name in (names.RUN_TASK, names.RUN_ACTOR))
    return tuple(inspect.unwrap(each).__code__ for each in found if each is not None)
