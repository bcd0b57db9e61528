"""Whether anything that a scheduler has under way has changed: a cheap look."""

from __future__ import annotations

from typing import Any

from dasfprof.recording.dask_internals.inspection.primitives import primitives


def fingerprint(scheduler: Any) -> tuple[Any, ...]:
    """Return what is another after each change of tasks, workers, clients and primitives."""
    return (
        getattr(scheduler, "transition_counter", None),
        [(worker.address, worker.status) for worker in scheduler.workers.values()],
        list(scheduler.clients),
        primitives(scheduler),
    )
