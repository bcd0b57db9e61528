"""Functions that the client runs on workers and on the scheduler, and what they need there."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dasfprof.database.multi import files_of_run


def by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a copy of a function that is pickled with its code, not by its module's name.

    A worker that has no dasfprof can run it too, and say so. The function must import all that it
    uses.
    """
    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


def check_process(directory: str) -> str | None:
    """Tell why recording cannot work in this process; None if it can. Runs by value."""
    import os
    import tempfile

    try:
        import dasfprof.recording  # noqa: F401
    except ImportError as error:
        return f"dasfprof is not installed there ({error})"
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        return f"the directory cannot be written ({error})"
    return None


async def commit_plugin(name: str, dask_worker: Any = None, dask_scheduler: Any = None) -> None:
    """Write everything that this process's plugin of that name recorded so far."""
    plugin = (dask_worker or dask_scheduler).plugins.get(name)
    database = getattr(plugin, "database", None)
    if database is not None:
        await asyncio.to_thread(database.commit)


async def stop_scheduler_plugin(name: str, dask_scheduler: Any) -> None:
    """Take the plugin off the scheduler and close its file."""
    plugin = dask_scheduler.plugins.get(name)
    if plugin is not None:
        dask_scheduler.remove_plugin(name)
        await plugin.stop()


def running_plugins(dask_scheduler: Any) -> list[str]:
    """Name all plugins of dasfprof that are on the scheduler or registered for its workers."""
    names = [*dask_scheduler.plugins, *dask_scheduler.worker_plugins]
    return [name for name in names if name.startswith("dasfprof-")]


def list_files(directory: str, run_uuid: str) -> list[tuple[str, int]]:
    """List the run's files on this process's disk: names and bytes."""
    found = files_of_run(Path(directory), run_uuid)
    return [(path.name, path.stat().st_size) for path in found]


def read_chunk(path: str, offset: int, size: int) -> bytes:
    """Read the next part of a file on this host's disk."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
