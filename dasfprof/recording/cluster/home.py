"""`Home`: copies the files of a run to the client's disk, or checks uploads. `FileCollector`."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import partial
from glob import escape
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from dasfprof.database.multi import files_of_run, headers_of_run, without_copies
from dasfprof.database.output import create_exclusively
from dasfprof.database.reader import TraceFile
from dasfprof.database.storage import Storage, shown, stored_run, why_not_writable
from dasfprof.errors import CannotWriteError, RegistrationError, TraceError
from dasfprof.recording.cluster.calls import aside, list_with_profiles, read_chunk
from dasfprof.recording.cluster.link import GONE, SCHEDULER, ClusterLink, error_text
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings, place_mark, remove_mark, sees_mark
from dasfprof.recording.shipping.sender import on_their_way
from dasfprof.text import name_first

logger = logging.getLogger(__name__)

#: Seconds within which a storage has to answer during registration. Libraries try several times.
_ANSWER_LIMIT = 30.0
#: Seconds that `stop` waits for uploads in progress, and seconds between two checks.
_LIMIT, _LOOK = 30.0, 0.25


async def check_storage(link: ClusterLink, settings: RunSettings) -> None:
    """Raise an error if the scheduler, whose file is needed, cannot write to the storage.

    Raises
    ------
    RegistrationError
        The message says why.
    """
    where = settings.storage, f"{settings.stored_directory}/begun"
    try:
        why = await link.on_scheduler(aside, why_not_writable, *where, limit=_ANSWER_LIMIT)
    except asyncio.TimeoutError:
        why = f"no answer in {_ANSWER_LIMIT:g} s"
    if why is not None:
        raise RegistrationError(
            f"the scheduler cannot write to {shown(settings.storage)}: {why}. Its process, and "
            "each worker's process, needs credentials of its own. Nothing was registered."
        )


async def wait_for_storage(
    link: ClusterLink, settings: RunSettings, lacking: dict[str, list[str]]
) -> None:
    """Wait for uploads in progress, and log which files are missing.

    Parameters
    ----------
    link
        The cluster.
    settings
        The run.
    lacking
        Files that the storage lacks, or their ends, by the process that has them.
    """
    left = {process: dict.fromkeys(names, "") for process, names in lacking.items() if names}
    own = on_their_way(settings.uuid)
    deadline = monotonic() + _LIMIT
    while left or own:
        hindered = [why for files in (*left.values(), own) for why in files.values()]
        if all(hindered) or monotonic() > deadline or link.is_closed:
            _tell(settings, {**left, "this process": own})
            return
        await asyncio.sleep(_LOOK)
        own = on_their_way(settings.uuid)
        left = await _ask(link, settings.uuid, left)


async def _ask(
    link: ClusterLink, run_uuid: str, left: dict[str, dict[str, str]]
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    try:
        workers = [process for process in left if process != SCHEDULER]
        answers = await link.on_workers(aside, on_their_way, run_uuid, workers=workers)
        found = {**{one: left[one] for one in answers.silent}, **answers.results}
        if SCHEDULER in left:
            found[SCHEDULER] = await link.on_scheduler(aside, on_their_way, run_uuid)
    except GONE:
        return left
    return {process: files for process, files in found.items() if files}


def _tell(settings: RunSettings, left: dict[str, dict[str, Any]]) -> None:
    names = [f"{name} on {process}" for process, files in left.items() for name in files]
    reasons = sorted({why for files in left.values() for why in files.values() if why})
    logger.warning(
        "run %r: some files are not in %s yet: %s%s. Uploads are repeated for some minutes while "
        "these processes are running, and until then the files stay in %s on their hosts.",
        settings.name,
        shown(settings.storage),
        name_first(names),
        f" ({reasons[0]})" if reasons else "",
        "a directory dasfprof-" + settings.uuid + " for temporary files",
    )


class Home:
    """The client's directory, to which the run's files are copied if they are written elsewhere.

    Parameters
    ----------
    settings
        The run.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._mark = settings.directory, settings.uuid
        self._collector = FileCollector(settings, Path(settings.directory))
        #: Whether the scheduler uses the same directory, so that its files are here.
        self._is_shared = True

    async def prepare(self, link: ClusterLink) -> None:
        """Mark the directory, and find out whether the scheduler uses the same.

        Raises
        ------
        RegistrationError
            If the scheduler cannot write to the run's storage.
        """
        if self._settings.storage:
            await check_storage(link, self._settings)
        elif self._settings.ship != "off":
            await aside(place_mark, *self._mark)
            self._is_shared = await link.on_scheduler(aside, sees_mark, *self._mark)

    async def leave(self) -> None:
        """Remove the mark, which no worker needs any more."""
        if not self._settings.storage:
            await aside(remove_mark, *self._mark)

    def files(self) -> list[Path]:
        """Return the run's files on this host. Those in a storage are copied here if needed.

        Raises
        ------
        TraceError
            If the storage cannot be read, and there are none here.
        """
        directory, run_uuid = Path(self._settings.directory), self._settings.uuid
        if not self._settings.storage:
            return files_of_run(directory, run_uuid)
        here = headers_of_run(directory, run_uuid)
        try:
            storage = Storage(self._settings.storage)
            copies = stored_run(storage, self._settings.stored_directory).fetch()
        except TraceError as error:
            if not here:
                raise
            logger.warning("run %r: %s", self._settings.name, error)
            copies = []
        here += [(path, TraceFile(path).read_header()) for path in copies]
        return [path for path, _ in without_copies(here)]

    def copy_to(self, destination: Path) -> list[Path]:
        """Copy the same files into a directory, with the profiles of calls next to them."""
        copies = []
        for path in self.files():
            copy = destination / path.name
            if copy in copies:
                copy = create_exclusively(copy)
            shutil.copyfile(path, copy)
            copies.append(copy)
            for profile in path.parent.glob(f"{escape(path.stem)}.*.pstats"):
                shutil.copyfile(profile, destination / profile.name)
        return copies

    @property
    def copies(self) -> set[Path]:
        """The files that were copied here."""
        return self._collector.paths

    async def bring(
        self, link: ClusterLink, lacking: dict[str, list[str]] | None = None
    ) -> dict[str, str]:
        """Copy what the scheduler has in addition to this directory.

        Parameters
        ----------
        link
            The cluster.
        lacking
            Files that the scheduler lacks, or the storage, or their ends, by the process that has
            them.

        Returns
        -------
        dict
            Processes that did not answer in time, by address, and why.
        """
        if self._settings.storage:
            await wait_for_storage(link, self._settings, lacking or {})
            return {}
        workers = [address for address, names in (lacking or {}).items() if names]
        if self._is_shared and not workers:
            return {}
        if link.is_closed:
            logger.warning(
                "run %r: its cluster has closed. What its scheduler received after the last "
                "flush() is in %s on the scheduler's host, if that still exists",
                self._settings.name,
                self._settings.directory,
            )
            return {}
        try:
            return await self._collector.collect(link, workers)
        except CannotWriteError as error:
            logger.warning("run %r: %s Its files are on other hosts.", self._settings.name, error)
            return {}


# --- `FileCollector`: copies a run's files from the disks of a cluster's hosts to this host -------

#: Bytes that one call reads from a remote disk.
CHUNK_BYTES = 1 << 20


class _Found(NamedTuple):
    """A file, and the process whose disk has it, or None for this process."""

    process: str | None
    name: str
    size: int


class FileCollector:
    """Copies the files of one run into one directory.

    If several disks have a file, such as a worker's own and the scheduler's copy, the longest is
    used. When called again, it copies what has been added since.

    Parameters
    ----------
    settings
        The run.
    destination
        A directory of this machine. Files of the run that are there are replaced, unless it is the
        run's own directory.
    copies
        Files in the run's directory that were copied there: those on the disk that they came from
        may be longer by now.
    """

    def __init__(
        self, settings: RunSettings, destination: Path, copies: Container[Path] = ()
    ) -> None:
        #: Copies, including profiles of calls, by the file's identity.
        self.files: dict[str, Path] = {}
        self._source = Path(settings.directory)
        self._arguments = (settings.directory, settings.uuid)
        self._destination = destination
        self._copies = copies
        #: Copies of an earlier collection, by the identity of the file.
        self._there: dict[str, Path] = {}
        #: Bytes of each copy, by its origin.
        self._fetched: dict[tuple[str | None, str], tuple[Path, int]] = {}

    @property
    def paths(self) -> set[Path]:
        """The files that were fetched from other processes."""
        return {path for path, _ in self._fetched.values()}

    async def collect(
        self, link: ClusterLink, workers: list[str] | None = None, *, without: Container[str] = ()
    ) -> dict[str, str]:
        """Copy files of this host, the scheduler and the workers that are not here.

        Parameters
        ----------
        link
            The cluster.
        workers
            Addresses of those that are asked; None: all.
        without
            Those that are not asked, since they have not answered just now.

        Returns
        -------
        dict
            Processes that did not answer in time, by address, and why.

        Raises
        ------
        CannotWriteError
            If a copy cannot be written.
        """
        there = await aside(list_with_profiles, str(self._destination), self._arguments[1])
        self._there = {identity: self._destination / name for name, _, identity in there}
        listed = await aside(list_with_profiles, *self._arguments)
        best = {identity: _Found(None, name, size) for name, size, identity in listed}
        silent: dict[str, str] = {}
        if not link.is_closed:
            try:
                silent = await self._find_others(link, best, workers, without)
            except GONE as error:
                silent = {SCHEDULER: error_text(error)}
        for identity, found in best.items():
            if found.process is None:
                self.files[identity] = await self._take(found)
            elif found.process not in silent:
                try:
                    self.files[identity] = await self._fetch(link, found, identity)
                except CannotWriteError:
                    raise
                except GONE as error:
                    silent[found.process] = error_text(error)
        return silent

    async def _find_others(
        self,
        link: ClusterLink,
        best: dict[str, _Found],
        workers: list[str] | None,
        without: Container[str],
    ) -> dict[str, str]:
        """Replace files that are longer on other disks, or that are on no disk of this host."""
        here = dict(best)
        arguments = (list_with_profiles, *self._arguments)
        of_scheduler = await link.on_scheduler(aside, *arguments)
        if workers is None:
            workers = await link.on_scheduler(_addresses)
        asked = [address for address in workers if address not in without]
        answers = await link.on_workers(aside, *arguments, workers=asked)
        for process, files in {SCHEDULER: of_scheduler, **answers.results}.items():
            for name, size, identity in files:
                local, known = here.get(identity), best.get(identity)
                if known is not None and known.size >= size:
                    continue
                if local is not None and local.name == name and not self._is_copy(name):
                    continue  # The file is on a disk that both see.
                best[identity] = _Found(process, name, size)
        return answers.silent

    def _is_copy(self, name: str) -> bool:
        path = self._source / name
        return path in self._copies or path in self.paths

    async def _take(self, found: _Found) -> Path:
        """Copy a file of this host, if it is not there already."""
        path = self._source / found.name
        if self._is_home:
            return path
        copy, _ = self._fetched.setdefault((None, found.name), (self._new_path(found.name), 0))
        await in_thread(partial(_copy, path, copy))
        return copy

    async def _fetch(self, link: ClusterLink, found: _Found, identity: str) -> Path:
        """Copy what a file on another disk has in addition to its copy."""
        assert found.process is not None
        origin = found.process, found.name
        path, have = self._fetched.get(origin) or self._begin_copy(found.name, identity)
        if path.suffix != ".msgpack":
            have = 0  # Profiles are written completely each time.
        source = str(self._source / found.name)
        while have < found.size:
            data = await link.on_process(
                found.process, aside, read_chunk, source, have, CHUNK_BYTES
            )
            if not data:
                break
            await in_thread(partial(_put, path, have, data))
            have += len(data)
            self._fetched[origin] = path, have
        return path

    @property
    def _is_home(self) -> bool:
        return self._destination.resolve() == self._source.resolve()

    def _begin_copy(self, name: str, identity: str) -> tuple[Path, int]:
        """Return a copy and its size in bytes. An earlier copy is continued, as files only grow."""
        if identity in self._there and not self._is_home:
            return self._there[identity], self._there[identity].stat().st_size
        return self._new_path(name), 0

    def _new_path(self, name: str) -> Path:
        """Return a path for a copy, with a number if the name is that of another file."""
        path = self._destination / name
        if self._is_home:
            with _writing(path):
                return create_exclusively(path)
        number = 1
        while path in self.paths:
            number += 1
            path = self._destination / f"{Path(name).stem}-{number}{Path(name).suffix}"
        return path


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise an error with the path that cannot be written.

    Other errors mean that a process does not answer.
    """
    try:
        yield
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be written: {error.strerror or error}.") from error


def _copy(path: Path, copy: Path) -> None:
    with _writing(copy):
        shutil.copyfile(path, copy)


def _put(path: Path, position: int, data: bytes) -> None:
    with _writing(path), path.open("r+b" if position else "wb") as file:
        file.seek(position)
        file.write(data)


def _addresses(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.workers)
