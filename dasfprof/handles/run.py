"""`ProfiledRun`: the handle of a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distributed import Client

from dasfprof.database import MultiEventDatabase
from dasfprof.database.multi import files_of_run
from dasfprof.errors import SourceNotFoundError, TraceError
from dasfprof.recording.cluster.calls import commit_plugins, running_plugins, runs_on_scheduler
from dasfprof.recording.cluster.clients import remove_plugins
from dasfprof.recording.cluster.home import FileCollector, Home
from dasfprof.recording.cluster.link import (
    GONE,
    SCHEDULER,
    Answers,
    ClusterLink,
    error_text,
    silent_processes,
    wait_for_end,
)
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.steps.recorder import StepRecorder
from dasfprof.text import clean, count_of, format_size

if TYPE_CHECKING:
    from dasfprof.handles.analyser import TraceAnalyser
    from dasfprof.handles.live import LiveView

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ProfiledRun:
    """A run that is recorded on a cluster: its files, its analysis, and the way to stop it.

    Returned by `register_default_profiler` and `profile`. With an asynchronous client the methods
    that call the cluster (`flush`, `stop`, `collect`) return awaitables.
    """

    def __init__(
        self,
        client: Client,
        settings: RunSettings,
        plugins: list[str],
        owns_client: bool,
        steps: StepRecorder | None = None,
        *,
        home: Home | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._plugins = plugins
        self._owns_client = owns_client
        self._steps = steps
        self._home = Home(settings) if home is None else home
        self._link = ClusterLink(client, settings.response_timeout)
        self._stopped = False
        #: Reason why `stop` could not end the recording, or empty if it could.
        self._obstacle = ""
        self._unanswered: dict[str, str] = {}

    def __await__(self) -> Generator[Any, None, AsynchronousRun]:
        """Make it possible to await every handle. The result is the handle itself."""
        yield from ()
        return cast("AsynchronousRun", self)

    @property
    def name(self) -> str:
        """The run's name, which is the prefix of its file names."""
        return self._settings.name

    @property
    def directory(self) -> Path:
        """The directory of the run's files. Its path is the same on every host.

        For a run in a storage, it is a temporary directory, from which files are uploaded.
        """
        return Path(self._settings.directory)

    @property
    def source(self) -> str:
        """Source of this run for `open_run`, `TraceAnalyser` and ``dasfprof analyse``."""
        return self._settings.source

    @property
    def unanswered(self) -> dict[str, str]:
        """Addresses of processes that did not answer the last call in time, with reasons.

        The time limit is ``dasfprof.response-timeout``. These processes continue to write their
        files at each flush interval.
        """
        return dict(self._unanswered)

    def through(self, client: Client) -> ProfiledRun:
        """Return a handle of the same run that uses another client.

        Use this if the client that registered the run has closed and the cluster has not.
        """
        return ProfiledRun(
            client, self._settings, self._plugins, False, self._steps, home=self._home
        )

    def flush(self) -> None:
        """Write every event recorded so far.

        If the cluster has closed, all events are already written. Data that workers with separate
        disks have sent to the scheduler is copied to this host. Processes that do not answer within
        ``dasfprof.response-timeout`` are listed in a warning and in `unanswered`.
        """
        return self._sync(self._flush)

    def stop(self) -> None:
        """End the recording.

        The cluster continues without the profiler. When the call returns, every event of finished
        work is on a disk of this host. This includes events of workers with separate disks, unless
        ``ship="off"``. After the client has closed, the call uses the scheduler's address. It does
        nothing if the run has stopped or the cluster has closed. Processes that do not answer
        within ``dasfprof.response-timeout`` are listed in a warning and in `unanswered`. A worker
        that did not answer ends its recording when it answers the scheduler again. Call `stop`
        again to copy all of its files to this host.
        """
        return self._sync(self._stop)

    def end_steps(self) -> None:
        """End the recording of steps in this process. `stop` also does this."""
        if self._steps is not None:
            self._steps.stop()

    def files(self) -> list[Path]:
        """Return the run's files in its local directory.

        Files of workers with other disks are copied to it by `flush`, by `stop`, and at the end of
        a `profile` block. For a run in a storage, this call reads the storage and returns local
        copies.
        """
        if self._steps is not None and self._steps.is_over:
            self._steps.stop()
        return self._home.files()

    def collect(self, destination: str | Path) -> list[Path]:
        """Copy the run's files from every host's disk into one directory of this host.

        The cluster must still be running. Everything recorded so far is written first. Existing
        copies in `destination` are replaced. Processes that do not answer within
        ``dasfprof.response-timeout`` are left out, and named in a warning and in `unanswered`.

        Returns
        -------
        list of Path
            The copies of trace files. Profiles of calls are copied to the same directory.
        """
        return self._sync(self._collect, Path(destination))

    def database(self) -> MultiEventDatabase:
        """Open the run's files on this host.

        Raises
        ------
        SourceNotFoundError
            If there are no files because nothing was recorded, or because they are on other hosts
            (see `flush` and `collect`).
        """
        files = self.files()
        if not files:
            raise SourceNotFoundError(
                f"there are no files of run {self.name!r} in {self.source}. If the workers run "
                "on other hosts, copy their files here with run.collect(destination)."
            )
        return MultiEventDatabase(files)

    def analyser(self, **options: Any) -> TraceAnalyser:
        """Open the run's files on this host for analysis.

        While the run is being recorded, call `flush` first.
        """
        from dasfprof.handles.analyser import TraceAnalyser

        return TraceAnalyser(self.database(), **options)

    @property
    def page(self) -> str:
        """The address of the run's page on Dask's dashboard, or the reason why there is none."""
        link = None if self._link.is_closed else self._client.dashboard_link
        if self._stopped or not link:
            return "no page: " + ("the run has ended" if self._stopped else "there is no dashboard")
        return f"{str(link).rpartition('/')[0]}/dasfprof"

    def watch(self) -> LiveView:
        """Return a view for a notebook, which is updated every second while the run is in progress.

        ``dasfprof watch`` shows the same in a terminal.
        """
        from dasfprof.handles.live import LiveView

        return LiveView(self.files)

    def __repr__(self) -> str:
        description = f"<ProfiledRun {clean(self.name)!r}: {self._state()}"
        try:
            files = files_of_run(self.directory, self._settings.uuid)
            size = format_size(sum(path.stat().st_size for path in files))
        except (OSError, TraceError) as error:
            return f"{description}, {clean(self.directory)} cannot be read: {type(error).__name__}>"
        if self._settings.storage:
            return f"{description}, in {clean(self.source)}>"
        return f"{description}, {count_of(len(files), 'file')}, {size} in {clean(self.directory)}>"

    def _sync(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Return a coroutine's result, or an awaitable of the result for an asynchronous client."""
        if self._client.status == "closed" and not self._client.asynchronous:
            # The client's event loop may have ended. In a notebook, this thread itself runs an
            # event loop, so run the coroutine in another thread.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(lambda: asyncio.run(function(*args))).result()
        return self._client.sync(function, *args)

    def _state(self) -> str:
        if self._stopped:
            return "stopped"
        if self._obstacle:
            return f"not stopped: {clean(self._obstacle)}"
        if self._link.is_closed:
            return "ended with its cluster"
        if self._unanswered:
            return f"recording, {silent_processes(self._unanswered)} did not answer"
        return "recording"

    async def _flush(self) -> None:
        if self._steps is not None:
            await in_thread(self._steps.commit)
        self._unanswered = {}
        if self._stopped or self._link.is_closed:
            return
        try:
            _, answers = await asyncio.gather(
                self._link.on_scheduler(commit_plugins, self._plugins),
                self._link.on_workers(commit_plugins, self._plugins),
            )
        except GONE as error:
            self._add_unanswered({SCHEDULER: error_text(error)})
        else:
            self._add_unanswered({**answers.silent, **await self._home.collect(self._link, {})})

    def _add_unanswered(self, silent: dict[str, str]) -> None:
        """Store and log the processes that did not answer, unless the cluster has closed."""
        self._unanswered.update({} if self._link.is_closed else silent)
        if self._unanswered:
            logger.warning(
                "run %r: no answer from %s. Events that they have not written are not on disk yet",
                self.name,
                silent_processes(self._unanswered),
            )

    async def _stop(self) -> None:
        if self._stopped:
            return
        if self._steps is not None:
            await in_thread(self._steps.stop)
        silent, self._obstacle, self._unanswered = self._unanswered, "", {}
        start = monotonic()
        try:
            answers = Answers()
            if not self._link.is_closed:
                answers = await remove_plugins(self._link, self._plugins, silent)
            self._unanswered = answers.silent
            silent = await self._home.collect(self._link, answers.results)
            if silent and not self._link.is_closed:
                logger.warning(
                    "run %r: some of its files could not be copied here: no answer from %s. Call "
                    "run.collect(destination) to try again.",
                    self.name,
                    silent_processes(silent),
                )
        except GONE as error:
            if not await wait_for_end(self._link, self.files, start + self._link.limit):
                self._unanswered = {SCHEDULER: error_text(error)}
        if self._unanswered:
            self._obstacle = f"{silent_processes(self._unanswered)} did not answer"
            logger.warning(
                "run %r is not stopped: %s. Its files are complete up to the last write. Workers "
                "end it when they reach the scheduler again. Call stop() to try again.",
                self.name,
                self._obstacle,
            )
        self._stopped = not self._obstacle
        if self._stopped:
            await self._home.leave()
        if self._owns_client and self._client.status != "closed":
            await self._client.close()

    async def _collect(self, destination: Path) -> list[Path]:
        destination.mkdir(parents=True, exist_ok=True)
        await self._flush()
        if self._settings.storage:
            return await asyncio.to_thread(self._home.copy_to, destination)
        collector = FileCollector(self._settings, destination, self._home.collector.paths)
        silent = await collector.collect(self._link, without=self._unanswered)
        if silent:
            self._add_unanswered(silent)
        return sorted(path for path in collector.files.values() if path.suffix == ".msgpack")


def recorded_runs(client: Client) -> list[ProfiledRun]:
    """Return handles of all runs that are being recorded on a cluster, whoever registered them."""
    if not client.run_on_scheduler(running_plugins):  # The scheduler may not have dasfprof.
        return []
    runs: list[tuple[RunSettings, list[str]]] = client.run_on_scheduler(runs_on_scheduler)
    return [ProfiledRun(client, settings, plugins, False) for settings, plugins in runs]


if TYPE_CHECKING:

    class AsynchronousRun(ProfiledRun):
        """Type of a handle that was awaited because its client is asynchronous."""

        flush: Callable[[], Awaitable[None]]  # type: ignore[assignment]
        stop: Callable[[], Awaitable[None]]  # type: ignore[assignment]
        collect: Callable[[str | Path], Awaitable[list[Path]]]  # type: ignore[assignment]
