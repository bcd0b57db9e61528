"""The plugins that a scheduler gives to each worker that joins."""

from __future__ import annotations

from typing import Any


def registered_for_workers(dask_scheduler: Any) -> list[str] | None:
    """Return the names of the plugins; None if this Dask has no list of them."""
    plugins = getattr(dask_scheduler, "worker_plugins", None)
    return None if plugins is None else list(plugins)


def forget_for_workers(dask_scheduler: Any, plugins: list[str]) -> None:
    """Remove plugins from those that new workers get."""
    registered = getattr(dask_scheduler, "worker_plugins", {})
    for name in plugins:
        registered.pop(name, None)
