"""Functions that the client runs on workers and on the scheduler.

Those marked `by_value` also run on workers without dasfprof; they import everything they use.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.cluster.by_value import by_value
from dasfprof.recording.dask_internals.registered_plugins import forget_for_workers
from dasfprof.recording.guard import in_thread


@by_value
def check_process(directory: str) -> str | None:
    """Return why this process cannot record; None if it can."""
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
    """Write everything that these plugins have recorded so far."""
    for name in names:
        database = getattr(dask_worker.plugins.get(name), "database", None)
        if database is not None:
            from dasfprof.recording.guard import in_thread

            await in_thread(database.commit)


async def commit_on_scheduler(names: list[str], dask_scheduler: Any) -> None:
    """Write everything that these plugins have recorded so far."""
    for name in names:
        database = getattr(dask_scheduler.plugins.get(name), "database", None)
        if database is not None:
            await in_thread(database.commit)


@by_value
async def settle_worker(prefix: str, dask_worker: Any) -> None:
    """Return when everything that a run's plugins recorded is on disk.

    On a closing worker, return when their files are closed: the worker may have been told to close
    at the same time.
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
    """Remove plugins from a worker, which closes their files."""
    for name in names:
        if name in dask_worker.plugins:
            await dask_worker.plugin_remove(name)


def forget_worker_plugins(names: list[str], dask_scheduler: Any) -> None:
    """Remove plugins from those that new workers get."""
    forget_for_workers(dask_scheduler, names)


async def stop_on_scheduler(names: list[str], dask_scheduler: Any) -> None:
    """Remove plugins from the scheduler and close their files."""
    for name in names:
        plugin = dask_scheduler.plugins.get(name)
        if plugin is not None:
            dask_scheduler.remove_plugin(name)
            await plugin.stop()


@by_value
def ping() -> None:
    """Do nothing: the answer shows that the process responds."""


@by_value
async def run_pickled(function: bytes, args: tuple[Any, ...], dask_scheduler: Any) -> Any:
    """Run a pickled function on the scheduler.

    The scheduler keeps each function that it runs in its log of events, and no arguments.
    """
    import inspect
    import pickle

    result = pickle.loads(function)(*args, dask_scheduler=dask_scheduler)
    return await result if inspect.isawaitable(result) else result


@by_value
def running_plugins(dask_scheduler: Any) -> list[str]:
    """Return the names of dasfprof's plugins on the scheduler or registered for its workers."""
    try:
        from dasfprof.recording.dask_internals.registered_plugins import registered_for_workers
    except ImportError:  # a scheduler without dasfprof records no run
        return []
    names = [*dask_scheduler.plugins, *(registered_for_workers(dask_scheduler) or ())]
    return [name for name in names if name.startswith("dasfprof-")]


@by_value
def list_with_profiles(directory: str, run_uuid: str) -> list[tuple[str, int]]:
    """Return names and sizes in bytes of the run's files on this disk, profiles of calls too.

    A worker without dasfprof has no files.
    """
    from glob import escape
    from pathlib import Path

    try:
        from dasfprof.database.multi import files_of_run
    except ImportError:
        return []
    traces = files_of_run(Path(directory), run_uuid)
    profiles = {
        path for trace in traces for path in Path(directory).glob(f"{escape(trace.stem)}.*.pstats")
    }
    return [(path.name, path.stat().st_size) for path in (*traces, *sorted(profiles))]


@by_value
def read_chunk(path: str, offset: int, size: int) -> bytes:
    """Return a part of a file on this host's disk."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
