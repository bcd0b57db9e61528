"""Undocumented attributes of a worker."""

from __future__ import annotations

from typing import Any

from dasfprof.schema.worker_memory import MEMORY_SIZES


class _NoCorrection:
    """A worker of a Dask without `scheduler_delay`, with a correction of 0."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.scheduler_delay = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


def with_correction(worker: Any) -> Any:
    """Return the worker, or a proxy with a correction of 0 if this Dask has no correction."""
    return worker if hasattr(worker, "scheduler_delay") else _NoCorrection(worker)


def memory_sizes(worker: Any) -> dict[str, int]:
    """Return the `MEMORY_SIZES` of a worker; 0 where there is none or it is unknown."""
    manager = getattr(worker, "memory_manager", None)
    limit = getattr(manager, "memory_limit", None) or 0
    shares = {name: getattr(manager, f"{name}_fraction", None) or 0 for name in MEMORY_SIZES}
    return {name: int(limit * share) for name, share in {**shares, "memory_limit": 1}.items()}


def value_in_memory(data: Any, key: Any) -> Any:
    """Return a result that is in memory; None for others.

    ``data[key]`` would read it back from disk and change the order in which results are spilled.
    """
    fast = getattr(getattr(data, "fast", data), "d", data)
    return fast.get(key) if isinstance(fast, dict) else None


def spilled_bytes(data: Any) -> int:
    """Return how many bytes of a worker's results are on its disk."""
    total = getattr(data, "spilled_total", None)
    return getattr(total, "disk", 0)


def spill_metrics(data: Any) -> dict[Any, float]:
    """Return seconds and bytes that a worker wrote to and read from its disk."""
    return dict(getattr(data, "cumulative_metrics", {}))
