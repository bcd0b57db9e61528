"""Functions that the client runs on workers and on the scheduler.

Functions that are decorated with `by_value` also run on workers without dasfprof. Therefore their
bodies import everything that they use.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.cluster.by_value import by_value


@by_value
def check_process(directory: str, storage: str) -> str | None:
    """Return why this process cannot record, or None if it can.

    `storage` is a URL, or empty if the run uses no storage. If the run uses a storage, an empty
    `directory` stands for this host's directory for temporary files.
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
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except (ImportError, ValueError) as error:
        return str(error)
    except OSError as error:
        return f"the directory {directory!r} cannot be written ({error})"
    return None


@by_value
async def commit_plugins(names: list[str], dask_worker: Any) -> None:
    """Write everything that the plugins with these names have recorded so far.

    `dask_worker` is a worker. On the scheduler, Dask passes the scheduler.
    """
    for name in names:
        commit = getattr(dask_worker.plugins.get(name), "commit", None)
        if commit is not None:
            from dasfprof.recording.guard import in_thread

            await in_thread(commit)


@by_value
async def settle_worker(prefix: str, dask_worker: Any) -> None:
    """Wait until everything that a run's plugins recorded on this worker is on disk.

    If the worker is closing, wait until the plugins have closed their files.

    Parameters
    ----------
    prefix
        The start of the names of the run's plugins.
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
    # The worker may have received the request to close at the same time as this call.
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
    ending
        Entries to add to the frame that closes each file. See `TraceWriter.ending`.

    Returns
    -------
    list of str
        Names of the files that the worker has not completely sent to the scheduler or to the run's
        storage. Empty if the worker does not send its files.
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
    """Inform the scheduler that the process of a run's client is still alive.

    Return whether the run is being recorded. `name` is the name of the run's plugin on the
    scheduler.
    """
    plugin = dask_scheduler.plugins.get(name)
    if plugin is not None:
        plugin.absence.reset()
    return plugin is not None


@by_value
def ping() -> None:
    """Do nothing. If this call returns, the process responds."""


@by_value
async def run_pickled(function: bytes, args: tuple[Any, ...], dask_scheduler: Any) -> Any:
    """Run a pickled function on the scheduler."""
    import inspect
    import pickle

    # The scheduler logs each function that a client runs on it, but not the function's arguments.
    # Here, the pickled function is an argument, so it is not logged.
    result = pickle.loads(function)(*args, dask_scheduler=dask_scheduler)
    return await result if inspect.isawaitable(result) else result


@by_value
def running_plugins(dask_scheduler: Any, owner: str | None = None) -> list[str]:
    """Return the names of dasfprof's plugins for the scheduler and for the workers.

    If `owner` is not None, plugins of runs with another owner are left out.
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
    names = [*dask_scheduler.plugins, *registered_for_workers(dask_scheduler)]
    return [name for name in names if name.startswith("dasfprof-") and not name.startswith(others)]


def runs_on_scheduler(dask_scheduler: Any) -> list[tuple[Any, list[str]]]:
    """Return, for each run that is being recorded, its settings and the names of its plugins."""
    names = running_plugins(dask_scheduler)
    plugins = [dask_scheduler.plugins[name] for name in names if name in dask_scheduler.plugins]
    return [
        (run, [name for name in names if name.startswith(run.plugin_name(""))])
        for run in [plugin.settings for plugin in plugins]
    ]


@by_value
async def aside(function: Any, *args: Any) -> Any:
    """Run a function in another thread, so that the event loop does not wait for the disk."""
    import asyncio
    from functools import partial

    return await asyncio.get_running_loop().run_in_executor(None, partial(function, *args))


@by_value
def list_with_profiles(directory: str, run_uuid: str) -> list[tuple[str, int, str]]:
    """List the trace files of a run, and the call profiles next to these files.

    Each item has a file's name, its size in bytes, and its identity, which is the same for copies.
    """
    from pathlib import Path

    try:
        from dasfprof.database.multi import headers_of_run, identity_of
        from dasfprof.recording.shipping.file_tails import profiles_of
    except ImportError:
        # A worker without dasfprof writes no files.
        return []
    identities = {
        trace: identity_of(header) or trace.name
        for trace, header in headers_of_run(Path(directory), run_uuid)
    }
    profiles = {path: path.name for trace in identities for path in profiles_of(trace)}
    files = {**identities, **profiles}
    return [(path.name, path.stat().st_size, identity) for path, identity in files.items()]


@by_value
def read_chunk(path: str, offset: int, size: int) -> bytes:
    """Return a part of a file on this host's disk."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
