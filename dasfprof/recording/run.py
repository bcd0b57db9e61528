"""`ProfiledRun`: the handle of a run that is being recorded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import Client
from distributed.comm import CommClosedError

from dasfprof.database import MultiEventDatabase
from dasfprof.database.display import files_html
from dasfprof.errors import SourceNotFoundError, TraceError
from dasfprof.plain_text import clean, count_of, escape, format_size
from dasfprof.recording.cluster_calls import (
    commit_plugin,
    list_files,
    read_chunk,
    stop_scheduler_plugin,
)
from dasfprof.recording.dask_internals.registered_plugins import registered_for_workers
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.step_recorder import StepRecorder

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser

logger = logging.getLogger(__name__)

#: Bytes that one call brings from a remote disk.
CHUNK_BYTES = 1 << 24

#: What a cluster that is gone, or going, makes of a call.
_GONE = (OSError, CommClosedError, TimeoutError, RuntimeError, ValueError)


class ProfiledRun:
    """A run on a cluster: what is recorded, where it is, and how to end it.

    Made by `register_default_profiler` and `profile`. With an asynchronous client the methods
    that talk to the cluster (`flush`, `stop`, `collect`) give awaitables.
    """

    def __init__(
        self,
        client: Client,
        settings: RunSettings,
        plugins: list[str],
        owns_client: bool,
        steps: StepRecorder | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._plugins = plugins
        self._owns_client = owns_client
        self._steps = steps
        self._stopped = False

    @property
    def name(self) -> str:
        """The run's name, the begin of the names of its files."""
        return self._settings.name

    @property
    def directory(self) -> Path:
        """Where the files are, on every host."""
        return Path(self._settings.directory)

    def through(self, client: Client) -> ProfiledRun:
        """Give a handle of the same run that talks to the cluster through another client.

        For when the client that the run was registered with has closed and the cluster has not.
        """
        return ProfiledRun(client, self._settings, self._plugins, False, self._steps)

    def flush(self) -> Any:
        """Write every event recorded so far; a cluster that has closed did so itself."""
        return self._sync(self._flush)

    def stop(self) -> Any:
        """End the recording; the cluster goes on without the profiler.

        When it has returned, every event of finished work is on disk. May be called again, and
        after the cluster was closed: it then does nothing.
        """
        return self._sync(self._stop)

    def end_steps(self) -> None:
        """End what this process itself records, which `stop` does too."""
        if self._steps is not None:
            self._steps.stop()

    def files(self) -> list[Path]:
        """List the run's files that this machine can see; see `collect` for those of others."""
        listed = list_files(self._settings.directory, self._settings.uuid)
        return [self.directory / name for name, _ in listed]

    def collect(self, destination: str | Path) -> Any:
        """Bring the run's files from every host's disk into one directory of this machine.

        The cluster must still be up; what was recorded so far is written first. Files that are
        in `destination` already are brought again if they have grown.

        Returns
        -------
        list of Path
            All of the run's files there.
        """
        return self._sync(self._collect, Path(destination))

    def database(self) -> MultiEventDatabase:
        """Open the run's files on this machine.

        Raises
        ------
        SourceNotFoundError
            If there is none: the workers are on other hosts (`collect`), or nothing was recorded.
        """
        if self._steps is not None and self._steps.is_over:
            self._steps.stop()
        files = self.files()
        if not files:
            raise SourceNotFoundError(
                f"no file of run {self.name!r} in {self.directory}. If the workers run on other "
                "hosts, bring their files here with run.collect(destination)."
            )
        return MultiEventDatabase(files)

    def analyser(self, **options: Any) -> TraceAnalyser:
        """Open the run's files on this machine for analysis; flush first if it goes on."""
        # The one look upwards: the handle opens the analysis that its holder asks for.
        from dasfprof import TraceAnalyser

        return TraceAnalyser(self.database(), **options)

    def __repr__(self) -> str:
        return f"<ProfiledRun {clean(self.name)!r}: {self._in_words()}>"

    def _repr_html_(self) -> str:
        caption = f"ProfiledRun {clean(self.name)!r}: {self._in_words()}"
        try:
            return files_html(caption, self.files())
        except (OSError, TraceError):
            return f"<p>{escape(caption)}</p>"

    def _in_words(self) -> str:
        state = "stopped" if self._stopped else "recording"
        try:
            files = list_files(self._settings.directory, self._settings.uuid)
        except (OSError, TraceError) as error:
            return f"{state}, {clean(self.directory)} cannot be read: {type(error).__name__}"
        size = format_size(sum(size for _, size in files))
        return f"{state}, {count_of(len(files), 'file')}, {size} in {clean(self.directory)}"

    def _sync(self, function: Any, *args: Any) -> Any:
        if self._client.status == "closed" and not self._client.asynchronous:
            # Its event loop may be gone with it, and nothing is left to talk to. This thread may
            # have a loop of its own that runs, as a notebook's has.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(lambda: asyncio.run(function(*args))).result()
        return self._client.sync(function, *args)

    def _cluster_is_up(self) -> bool:
        return bool(self._client.status == "running")

    async def _flush(self) -> None:
        if self._steps is not None:
            await asyncio.to_thread(self._steps.commit)
        if self._stopped or not self._cluster_is_up():
            return
        try:
            for name in self._plugins:
                await self._client.run(commit_plugin, name, on_error="ignore")
                await self._client.run_on_scheduler(commit_plugin, name)
        except _GONE as error:
            logger.debug("the cluster closed during a flush: %r", error)

    async def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if self._steps is not None:
            await asyncio.to_thread(self._steps.stop)
        if self._cluster_is_up():
            try:
                await remove_plugins(self._client, self._plugins)
            except _GONE as error:
                # Each process writes what it has when it closes.
                logger.debug("the cluster closed while the profiler was removed: %r", error)
        if self._owns_client and self._client.status != "closed":
            await self._client.close()

    async def _collect(self, destination: Path) -> list[Path]:
        destination.mkdir(parents=True, exist_ok=True)
        await self._flush()
        arguments = (self._settings.directory, self._settings.uuid)
        brought = {}
        for name, _ in list_files(*arguments):
            brought[name] = destination / name
            if destination.resolve() != self.directory.resolve():
                shutil.copyfile(self.directory / name, brought[name])
        if self._cluster_is_up():
            for run_there in await self._places():
                for name, size in await run_there(list_files, *arguments):
                    if name not in brought:  # else its disk is this machine's, or a shared one
                        brought[name] = destination / name
                        await self._bring(run_there, name, size, brought[name])
        return sorted(brought.values())

    async def _places(self) -> list[Callable[..., Awaitable[Any]]]:
        """Give for each process of the cluster what runs a function there."""

        async def on_worker(address: str, function: Any, *args: Any) -> Any:
            return (await self._client.run(function, *args, workers=[address]))[address]

        addresses = await self._client.run_on_scheduler(_addresses)
        return [self._client.run_on_scheduler, *(partial(on_worker, a) for a in addresses)]

    async def _bring(
        self, run_there: Callable[..., Awaitable[Any]], name: str, size: int, target: Path
    ) -> None:
        source = str(self.directory / name)
        with target.open("wb") as file:
            for offset in range(0, size, CHUNK_BYTES):
                file.write(await run_there(read_chunk, source, offset, CHUNK_BYTES))


async def remove_plugins(client: Client, names: list[str]) -> None:
    """Take plugins off the cluster: workers first, so that the scheduler sees their last tasks."""
    registered = await client.run_on_scheduler(registered_for_workers)
    for name in names:
        if registered is None:  # not told: Dask refuses what is not registered
            with contextlib.suppress(ValueError):
                await client.unregister_worker_plugin(name)
        elif name in registered:
            await client.unregister_worker_plugin(name)
    for name in names:
        await client.run_on_scheduler(stop_scheduler_plugin, name)


def _addresses(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.workers)
