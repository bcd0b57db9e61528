"""What is read of a worker beyond its documented attributes."""

from __future__ import annotations

from typing import Any

from dasfprof.recording.dask_internals import names


class _NoCorrection:
    """Stands for a worker whose correction of the clock is not told."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        setattr(self, names.SCHEDULER_DELAY.attribute, 0.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


def with_correction(worker: Any) -> Any:
    """Return the worker, or what has a correction of 0 where this Dask tells none."""
    return worker if hasattr(worker, names.SCHEDULER_DELAY.attribute) else _NoCorrection(worker)


def memory_limit(worker: Any) -> int:
    """Return the worker's limit of memory in bytes; 0 without one, or where it is not told."""
    manager = getattr(worker, names.MEMORY_MANAGER.attribute, None)
    return getattr(manager, "memory_limit", None) or 0


def value_in_memory(data: Any, key: Any) -> Any:
    """Return a result that is plainly in memory; None for others.

    ``data[key]`` would bring it back from disk, and change the order in which results are spilled.
    """
    fast = getattr(getattr(data, names.SPILL_FAST.attribute, data), "d", data)
    return fast.get(key) if isinstance(fast, dict) else None


def spilled_bytes(data: Any) -> int:
    """Return how many bytes of a worker's results lie on its disk."""
    total = getattr(data, names.SPILLED_TOTAL.attribute, None)
    return getattr(total, "disk", 0)


def spill_metrics(data: Any) -> dict[Any, float]:
    """Return seconds and bytes that a worker wrote to and read from its disk."""
    return dict(getattr(data, names.SPILL_METRICS.attribute, {}))
