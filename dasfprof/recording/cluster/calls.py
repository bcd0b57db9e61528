"""Functions that the client runs on workers and on the scheduler.

Functions marked `by_value` also run on workers without dasfprof, so they import everything they
use.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.cluster.by_value import by_value
from dasfprof.recording.guard import in_thread


@by_value
def check_process(directory: str, storage: str) -> str | None:
    """Return why this process cannot record, or None if it can.

    With a storage's URL, an empty directory stands for this host's directory for temporary files.
    """
    import os
    import tempfile

    try:
        import dasfprof.recording  # noqa: F401
    except ImportError as error:
        return f"dasfprof is not installed there ({error})"
    try:
        if storage:
            from dasfprof.database.storage import check_backend

            check_backend(storage)
            directory = directory or tempfile.gettempdir()
    except (ImportError, ValueError) as error:
        return str(error)
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
        commit = getattr(dask_worker.plugins.get(name), "commit", None)
        if commit is not None:
            from dasfprof.recording.guard import in_thread

            await in_thread(commit)


async def commit_on_scheduler(names: list[str], dask_scheduler: Any) -> None:
    """Write everything that these plugins have recorded so far."""
    for name in names:
        if name in dask_scheduler.plugins:
            await in_thread(dask_scheduler.plugins[name].commit)


@by_value
async def settle_worker(prefix: str, dask_worker: Any) -> None:
    """Return when everything that a run's plugins recorded is on disk.

    On a closing worker, return when their files are closed, because the worker may have been told
    to close at the same time.
    """
    import asyncio

    def remaining_plugins() -> list[Any]:
        plugins = list(dask_worker.plugins.items())
        return [plugin for name, plugin in plugins if name.startswith(prefix)]

    for plugin in remaining_plugins():
        commit = getattr(plugin, "commit", None)
        if commit is not None:
            from dasfprof.recording.guard import in_thread

            await in_thread(commit)
    await asyncio.sleep(0.02)
    while dask_worker.status.name == "closing" and remaining_plugins():
        await asyncio.sleep(0.01)


@by_value
async def stop_on_worker(
    names: list[str], ending: dict[str, Any] | None = None, *, dask_worker: Any
) -> list[str]:
    """Remove plugins from a worker, which closes their files.

    Parameters
    ----------
    names
        The plugins.
    ending
        Entries of the closing frames, see `TraceWriter.ending`.

    Returns
    -------
    list of str
        Names of files that are not completely on the scheduler's disk or in the run's storage, if
        the worker sends its files there.
    """
    unsent: list[str] = []
    for name in names:
        plugin = dask_worker.plugins.get(name)
        if plugin is not None:
            if ending is not None and hasattr(plugin, "end_with"):
                plugin.end_with(ending)
            await dask_worker.plugin_remove(name)
            sender = getattr(plugin, "sender", None)
            unsent += [] if sender is None else sender.unsent_files()
    return unsent


def report_client(name: str, dask_scheduler: Any) -> bool:
    """Report to the scheduler that the client's process of a run exists.

    Return whether the run is being recorded.

    Parameters
    ----------
    name
        The scheduler's plugin of the run.
    """
    plugin = dask_scheduler.plugins.get(name)
    if plugin is not None:
        plugin.absence.reset()
    return plugin is not None


@by_value
def ping() -> None:
    """Do nothing. The answer shows that the process responds."""


@by_value
async def run_pickled(function: bytes, args: tuple[Any, ...], dask_scheduler: Any) -> Any:
    """Run a pickled function on the scheduler.

    The scheduler stores each function that it runs in its log of events, but not its arguments.
    """
    import inspect
    import pickle

    result = pickle.loads(function)(*args, dask_scheduler=dask_scheduler)
    return await result if inspect.isawaitable(result) else result


@by_value
def running_plugins(dask_scheduler: Any, owner: str | None = None) -> list[str]:
    """Return the names of dasfprof's plugins on the scheduler or registered for its workers.

    With an owner, plugins of other owners' runs are left out.
    """
    try:
        from dasfprof.recording.dask_internals.undocumented import registered_for_workers
    except ImportError:  # A scheduler without dasfprof records no run.
        return []
    others: tuple[str, ...] = ()
    if owner is not None:
        plugins = dask_scheduler.plugins.items()
        runs = [plugin.settings for name, plugin in plugins if name.startswith("dasfprof-")]
        others = tuple(run.plugin_name("") for run in runs if run.owner != owner)
    names = [*dask_scheduler.plugins, *(registered_for_workers(dask_scheduler) or ())]
    return [name for name in names if name.startswith("dasfprof-") and not name.startswith(others)]


def runs_on_scheduler(dask_scheduler: Any) -> list[tuple[Any, list[str]]]:
    """Return the settings and the names of the plugins of each run that is being recorded."""
    names = running_plugins(dask_scheduler)
    plugins = [dask_scheduler.plugins[name] for name in names if name in dask_scheduler.plugins]
    return [
        (run, [name for name in names if name.startswith(run.plugin_name(""))])
        for run in [plugin.settings for plugin in plugins]
    ]


@by_value
async def aside(function: Any, *args: Any) -> Any:
    """Run a function that reads a disk in a thread, so that the event loop does not wait for it."""
    import asyncio
    from functools import partial

    return await asyncio.get_running_loop().run_in_executor(None, partial(function, *args))


@by_value
def list_with_profiles(directory: str, run_uuid: str) -> list[tuple[str, int, str]]:
    """Return name, size and identity of the run's files and of profiles of calls next to them.

    Copies of a file have the same identity. A worker without dasfprof has no files.
    """
    from glob import escape
    from pathlib import Path

    try:
        from dasfprof.database.multi import headers_of_run, identity_of
    except ImportError:
        return []
    identities = {
        trace: identity_of(header) or trace.name
        for trace, header in headers_of_run(Path(directory), run_uuid)
    }
    profiles = {
        path: path.name
        for trace in identities
        for path in Path(directory).glob(f"{escape(trace.stem)}.*.pstats")
    }
    files = {**identities, **profiles}
    return [(path.name, path.stat().st_size, identity) for path, identity in files.items()]


@by_value
def read_chunk(path: str, offset: int, size: int) -> bytes:
    """Return a part of a file on this host's disk."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
