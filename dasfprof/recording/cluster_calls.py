"""Functions that the client runs on workers and on the scheduler.

Those marked `by_value` run on workers that have no dasfprof too; they import all that they use.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.by_value import by_value

__all__ = [
    "by_value",
    "check_process",
    "commit_plugin",
    "list_files",
    "read_chunk",
    "running_plugins",
    "stop_scheduler_plugin",
]


@by_value
def check_process(directory: str) -> str | None:
    """Tell why recording cannot work in this process; None if it can."""
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
        return f"the directory {directory!r} cannot be written ({error})"
    return None


@by_value
async def commit_plugin(name: str, dask_worker: Any = None, dask_scheduler: Any = None) -> None:
    """Write everything that this process's plugin of that name recorded so far."""
    import asyncio

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


@by_value
def running_plugins(dask_scheduler: Any) -> list[str]:
    """Name all plugins of dasfprof that are on the scheduler or registered for its workers."""
    try:
        from dasfprof.recording.dask_internals.registered_plugins import registered_for_workers
    except ImportError:  # no run can be on a scheduler that has no dasfprof
        return []
    names = [*dask_scheduler.plugins, *(registered_for_workers(dask_scheduler) or ())]
    return [name for name in names if name.startswith("dasfprof-")]


@by_value
def list_files(directory: str, run_uuid: str) -> list[tuple[str, int]]:
    """List the run's files on this process's disk: names and bytes.

    A worker without dasfprof has none.
    """
    from pathlib import Path

    try:
        from dasfprof.database.multi import find_runs
        from dasfprof.database.reader import TraceFile
    except ImportError:
        return []
    return [
        (path.name, path.stat().st_size)
        for run in find_runs(Path(directory))
        for path in run.files
        if TraceFile(path).read_header().get("run_uuid") == run_uuid
    ]


@by_value
def read_chunk(path: str, offset: int, size: int) -> bytes:
    """Read the next part of a file on this host's disk."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
