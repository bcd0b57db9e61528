"""Functions that the client runs on workers and on the scheduler.

Those marked `by_value` run on workers that have no dasfprof too; they import all that they use.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.by_value import by_value
from dasfprof.recording.dask_internals.registered_plugins import forget_for_workers
from dasfprof.recording.guard import in_thread


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
async def commit_on_worker(names: list[str], dask_worker: Any) -> None:
    """Write everything that these plugins recorded so far."""
    for name in names:
        database = getattr(dask_worker.plugins.get(name), "database", None)
        if database is not None:
            from dasfprof.recording.guard import in_thread

            await in_thread(database.commit)


async def commit_on_scheduler(names: list[str], dask_scheduler: Any) -> None:
    """Write everything that these plugins recorded so far."""
    for name in names:
        database = getattr(dask_scheduler.plugins.get(name), "database", None)
        if database is not None:
            await in_thread(database.commit)


@by_value
async def settle_worker(prefix: str, dask_worker: Any) -> None:
    """Return when what plugins of a run recorded is on disk.

    On a worker that closes, when their files are closed: it may have been told so at the same time
    as this was sent.
    """
    import asyncio

    def left() -> list[Any]:
        plugins = list(dask_worker.plugins.items())
        return [plugin for name, plugin in plugins if name.startswith(prefix)]

    for plugin in left():
        database = getattr(plugin, "database", None)
        if database is not None:
            from dasfprof.recording.guard import in_thread

            await in_thread(database.commit)
    await asyncio.sleep(0.02)
    while dask_worker.status.name == "closing" and left():
        await asyncio.sleep(0.01)


@by_value
async def stop_on_worker(names: list[str], dask_worker: Any) -> None:
    """Take plugins off a worker, which closes their files."""
    for name in names:
        if name in dask_worker.plugins:
            await dask_worker.plugin_remove(name)


def forget_worker_plugins(names: list[str], dask_scheduler: Any) -> None:
    """Have workers that come from now on be without these plugins."""
    forget_for_workers(dask_scheduler, names)


async def stop_on_scheduler(names: list[str], dask_scheduler: Any) -> None:
    """Take plugins off the scheduler and close their files."""
    for name in names:
        plugin = dask_scheduler.plugins.get(name)
        if plugin is not None:
            dask_scheduler.remove_plugin(name)
            await plugin.stop()


@by_value
def ping() -> None:
    """Tell that a process answers."""


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
        from dasfprof.database.multi import files_of_run
    except ImportError:
        return []
    found = files_of_run(Path(directory), run_uuid)
    return [(path.name, path.stat().st_size) for path in found]


@by_value
def read_chunk(path: str, offset: int, size: int) -> bytes:
    """Read the next part of a file on this host's disk."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
