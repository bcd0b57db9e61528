"""`ProfiledRun`: the handle of a run that is being recorded."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from distributed import Client

from dasfprof.database import MultiEventDatabase
from dasfprof.database.display import files_html
from dasfprof.database.reader import TraceFile
from dasfprof.database.writing_process import Writer, writer_of
from dasfprof.errors import SourceNotFoundError, TraceError
from dasfprof.recording.cluster.calls import (
    commit_on_scheduler,
    commit_on_worker,
    forget_worker_plugins,
    list_files,
    read_chunk,
    stop_on_scheduler,
    stop_on_worker,
)
from dasfprof.recording.cluster.link import GONE, SCHEDULER, ClusterLink
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.steps.recorder import StepRecorder
from dasfprof.text import clean, count_of, escape, format_size

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser

logger = logging.getLogger(__name__)

#: Bytes that one call brings from a remote disk.
CHUNK_BYTES = 1 << 22

#: Processes that a message names.
_MOST_NAMED = 3

#: Seconds between two looks at files that are about to be closed.
_POLL_INTERVAL = 0.1


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
        self._link = ClusterLink(client, settings.response_timeout)
        self._stopped = False
        #: Why `stop` could not end the recording, in words.
        self._obstacle = ""
        self._unanswered: dict[str, str] = {}

    def __await__(self) -> Generator[Any, None, ProfiledRun]:
        """Return the handle: ``await register_default_profiler(...)`` suits any client."""
        yield from ()
        return self

    @property
    def name(self) -> str:
        """The run's name, the begin of the names of its files."""
        return self._settings.name

    @property
    def directory(self) -> Path:
        """Where the files are, on every host."""
        return Path(self._settings.directory)

    @property
    def unanswered(self) -> dict[str, str]:
        """Processes that did not answer the last call, by address, and why in words.

        They were not waited for longer than ``dasfprof.response-timeout``. Their files hold what
        they wrote by themselves.
        """
        return dict(self._unanswered)

    def through(self, client: Client) -> ProfiledRun:
        """Give a handle of the same run that talks to the cluster through another client.

        For when the client that the run was registered with has closed and the cluster has not.
        """
        return ProfiledRun(client, self._settings, self._plugins, False, self._steps)

    def flush(self) -> Any:
        """Write every event recorded so far; a cluster that has closed did so itself.

        A process that does not answer within ``dasfprof.response-timeout`` is not waited for: it
        is named in a warning and in `unanswered`.
        """
        return self._sync(self._flush)

    def stop(self) -> Any:
        """End the recording; the cluster goes on without the profiler.

        When it has returned, every event of finished work is on disk. After the client was closed
        the profiler is taken off through the scheduler's address. May be called again, and after
        the cluster was closed: it then does nothing.

        A process that does not answer within ``dasfprof.response-timeout`` is not waited for: it
        is named in a warning and in `unanswered`. The next call asks again.
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
        in `destination` already are brought again if they have grown. A process that does not
        answer within ``dasfprof.response-timeout`` is left out, and named in a warning and in
        `unanswered`.

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
        state = self._state()
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

    def _state(self) -> str:
        if self._stopped:
            return "stopped"
        if self._obstacle:
            return f"not stopped: {clean(self._obstacle)}"
        if self._link.is_closed:
            return "ended with its cluster"
        if self._unanswered:
            return f"recording, {_named(self._unanswered)} did not answer"
        return "recording"

    async def _flush(self) -> None:
        if self._steps is not None:
            await in_thread(self._steps.commit)
        self._unanswered = {}
        if self._stopped or self._link.is_closed:
            return
        try:
            _, answers = await asyncio.gather(
                self._link.on_scheduler(commit_on_scheduler, self._plugins),
                self._link.on_workers(commit_on_worker, self._plugins),
            )
        except GONE as error:
            self._miss({SCHEDULER: _reason(error)})
        else:
            self._miss(answers.silent)

    def _miss(self, silent: dict[str, str]) -> None:
        """Keep who did not answer, and warn of it; a cluster that has closed needs no warning."""
        self._unanswered.update({} if self._link.is_closed else silent)
        if self._unanswered:
            logger.warning(
                "run %r: no answer from %s; what only they have in memory is not on disk yet",
                self.name,
                _named(self._unanswered),
            )

    async def _stop(self) -> None:
        if self._stopped:
            return
        if self._steps is not None:
            await in_thread(self._steps.stop)
        self._obstacle, self._unanswered = "", {}
        began = monotonic()
        try:
            if not self._link.is_closed:
                self._unanswered = await remove_plugins(self._link, self._plugins)
        except GONE as error:
            if not await self._has_ended(began + self._link.limit):
                self._unanswered = {SCHEDULER: _reason(error)}
        if self._unanswered:
            self._obstacle = f"{_named(self._unanswered)} did not answer"
            logger.warning(
                "run %r is not stopped: %s. Its files are whole up to what was written last; "
                "stop() asks again.",
                self.name,
                self._obstacle,
            )
        self._stopped = not self._obstacle
        if self._owns_client and self._client.status != "closed":
            await self._client.close()

    async def _has_ended(self, deadline: float) -> bool:
        """Tell whether the cluster has closed, as far as this process can know it."""
        while not self._link.is_closed and not self._files_are_final():
            if monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_INTERVAL)
        return True

    def _files_are_final(self) -> bool:
        """Tell whether this machine sees files of the run, and nobody writes them any more."""
        try:
            files = [TraceFile(path) for path in self.files()]
            ended = (f.is_closed() or writer_of(f.read_header()) is Writer.ENDED for f in files)
            return bool(files) and all(ended)
        except (OSError, TraceError):
            return False

    async def _collect(self, destination: Path) -> list[Path]:
        destination.mkdir(parents=True, exist_ok=True)
        await self._flush()
        arguments = (self._settings.directory, self._settings.uuid)
        brought = {}
        for name, _ in list_files(*arguments):
            brought[name] = destination / name
            if destination.resolve() != self.directory.resolve():
                shutil.copyfile(self.directory / name, brought[name])
        if not self._link.is_closed:
            try:
                await self._collect_others(destination, brought)
            except GONE as error:
                self._miss({SCHEDULER: _reason(error)})
        return sorted(brought.values())

    async def _collect_others(self, destination: Path, brought: dict[str, Path]) -> None:
        """Bring the files that are on no disk which this machine sees."""
        arguments = (self._settings.directory, self._settings.uuid)
        of_scheduler = await self._link.on_scheduler(list_files, *arguments)
        there = await self._link.on_scheduler(_addresses)
        asked = [address for address in there if address not in self._unanswered]
        answers = await self._link.on_workers(list_files, *arguments, workers=asked)
        silent = answers.silent
        for process, files in {SCHEDULER: of_scheduler, **answers.results}.items():
            for name, size in files:
                if name in brought:  # its disk is this machine's, or a shared one
                    continue
                brought[name] = destination / name
                try:
                    await self._bring(process, name, size, brought[name])
                except GONE as error:
                    silent[process] = _reason(error)
                    break
        if silent:
            self._miss(silent)

    async def _bring(self, process: str, name: str, size: int, target: Path) -> None:
        source = str(self.directory / name)
        with target.open("wb") as file:
            for offset in range(0, size, CHUNK_BYTES):
                file.write(
                    await self._link.on_process(process, read_chunk, source, offset, CHUNK_BYTES)
                )


async def remove_plugins(link: ClusterLink, names: list[str]) -> dict[str, str]:
    """Take plugins off the cluster: workers first, so that the scheduler sees their last tasks.

    Returns
    -------
    dict
        Workers that did not answer in time, by address, and why. They may still have them.

    Raises
    ------
    asyncio.TimeoutError, OSError
        If the scheduler did not answer in time, or cannot be reached.
    """
    await link.on_scheduler(forget_worker_plugins, names)
    answers = await link.on_workers(stop_on_worker, names)
    await link.on_scheduler(stop_on_scheduler, names)
    return answers.silent


def _addresses(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.workers)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _named(silent: dict[str, str]) -> str:
    """Name processes that did not answer, and say why of each."""
    named = [f"{process} ({reason})" for process, reason in list(silent.items())[:_MOST_NAMED]]
    more = len(silent) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
