"""`Home`, the directory of a run on the client's host, and `FileCollector`, which copies files.

`FileCollector` copies the files of a run from the disks of the cluster's hosts.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import partial
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
from dasfprof.recording.shipping.file_tails import profiles_of
from dasfprof.recording.shipping.sender import files_to_upload
from dasfprof.text import name_first

logger = logging.getLogger(__name__)

#: Seconds within which a storage has to answer during registration. The limit is long, because the
#: libraries for storages repeat requests that fail.
_ANSWER_LIMIT = 30.0
#: Seconds for which `stop` waits for uploads in progress, and seconds between two checks.
_LIMIT, _CHECK_INTERVAL = 30.0, 0.25


async def wait_for_storage(
    link: ClusterLink, settings: RunSettings, lacking: dict[str, list[str]]
) -> None:
    """Wait for uploads to the run's storage, and log which files are still missing after that.

    Parameters
    ----------
    lacking
        For each process, the names of its files that are not completely in the storage.
    """
    # For each process: the file names, each with the reason why the file is not in the storage, or
    # with an empty text if the reason is unknown.
    pending = {process: dict.fromkeys(names, "") for process, names in lacking.items() if names}
    local = files_to_upload(settings.uuid)
    deadline = monotonic() + _LIMIT
    while pending or local:
        by_process = {**pending, "this process": local}
        reasons = [reason for files in by_process.values() for reason in files.values()]
        if all(reasons) or monotonic() > deadline or link.is_closed:
            names = [f"{name} on {where}" for where, files in by_process.items() for name in files]
            logger.warning(
                "run %r: some files are not in %s yet: %s%s. Uploads are repeated for some minutes "
                "while these processes are running, and until then the files stay in the directory "
                "dasfprof-%s for temporary files on their hosts.",
                settings.name,
                shown(settings.storage),
                name_first(names),
                f" ({min(filter(None, reasons))})" if any(reasons) else "",
                settings.uuid,
            )
            return
        await asyncio.sleep(_CHECK_INTERVAL)
        local = files_to_upload(settings.uuid)
        pending = await _files_to_upload(link, settings.uuid, pending)


async def _files_to_upload(
    link: ClusterLink, run_uuid: str, pending: dict[str, dict[str, str]]
) -> dict[str, dict[str, str]]:
    """Return, for each process in `pending`, the files that are not uploaded yet.

    If a process does not answer, its files in `pending` count as not uploaded.
    """
    try:
        workers = [process for process in pending if process != SCHEDULER]
        answers = await link.on_workers(aside, files_to_upload, run_uuid, workers=workers)
        files = {**{process: pending[process] for process in answers.silent}, **answers.results}
        if SCHEDULER in pending:
            files[SCHEDULER] = await link.on_scheduler(aside, files_to_upload, run_uuid)
    except GONE:
        return pending
    return {process: names for process, names in files.items() if names}


class Home:
    """The directory of a run on the client's host, and the copies of remote files in it."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._mark = settings.directory, settings.uuid
        #: Copies the run's files from other processes into this directory.
        self.collector = FileCollector(settings, Path(settings.directory))
        #: Whether the scheduler writes its files to this same directory, as on a shared disk.
        self._is_shared = True

    async def prepare(self, link: ClusterLink) -> None:
        """Check whether the scheduler uses the same directory, or can write to the run's storage.

        Raises
        ------
        RegistrationError
            If the scheduler cannot write to the run's storage.
        """
        if not self._settings.storage:
            if self._settings.ship != "off":
                # If the scheduler sees this mark, both processes use the same directory.
                await aside(place_mark, *self._mark)
                self._is_shared = await link.on_scheduler(aside, sees_mark, *self._mark)
            return
        target = self._settings.storage, f"{self._settings.stored_directory}/begun"
        try:
            reason = await link.on_scheduler(aside, why_not_writable, *target, limit=_ANSWER_LIMIT)
        except asyncio.TimeoutError:
            reason = f"no answer in {_ANSWER_LIMIT:g} s"
        # The scheduler's file is indispensable, while files of workers may be missing.
        if reason is not None:
            raise RegistrationError(
                f"the scheduler cannot write to {shown(target[0])}: {reason}. The scheduler and "
                "each worker need their own credentials. Nothing was registered."
            )

    async def leave(self) -> None:
        """Remove the run's mark (see `place_mark`) from the directory, when the run has ended."""
        if not self._settings.storage:
            await aside(remove_mark, *self._mark)

    def files(self) -> list[Path]:
        """Return the paths of the run's files on this host, after fetching files from the storage.

        Raises
        ------
        TraceError
            If the storage cannot be read, and this host has no files of the run.
        """
        directory, run_uuid = Path(self._settings.directory), self._settings.uuid
        if not self._settings.storage:
            return files_of_run(directory, run_uuid)
        files = headers_of_run(directory, run_uuid)
        try:
            storage = Storage(self._settings.storage)
            copies = stored_run(storage, self._settings.stored_directory).fetch()
        except TraceError as error:
            if not files:
                raise
            logger.warning("run %r: %s", self._settings.name, error)
            copies = []
        files += [(path, TraceFile(path).read_header()) for path in copies]
        return [path for path, _ in without_copies(files)]

    def copy_to(self, destination: Path) -> list[Path]:
        """Copy the run's files and call profiles, and return the paths of the copied traces."""
        copies = []
        for path in self.files():
            copy = destination / path.name
            if copy in copies:
                copy = create_exclusively(copy)
            shutil.copyfile(path, copy)
            copies.append(copy)
            for profile in profiles_of(path):
                shutil.copyfile(profile, destination / profile.name)
        return copies

    async def collect(self, link: ClusterLink, lacking: dict[str, list[str]]) -> dict[str, str]:
        """Copy the run's files from other hosts, or wait for uploads if the run has a storage.

        Parameters
        ----------
        lacking
            For each process, the names of its files that are not completely on the scheduler's
            disk or in the storage.

        Returns
        -------
        dict
            Addresses of processes that did not answer in time, with reasons.
        """
        if self._settings.storage:
            await wait_for_storage(link, self._settings, lacking)
            return {}
        workers = [address for address, names in lacking.items() if names]
        if self._is_shared and not workers:
            return {}
        if link.is_closed:
            logger.warning(
                "run %r: its cluster has closed. Events that its scheduler received after the last "
                "flush() are in %s on the scheduler's host, if that still exists",
                self._settings.name,
                self._settings.directory,
            )
            return {}
        try:
            return await self.collector.collect(link, workers)
        except CannotWriteError as error:
            logger.warning("run %r: %s Its files are on other hosts.", self._settings.name, error)
            return {}


#: Bytes that one call reads from a remote disk.
CHUNK_BYTES = 1 << 20


class _Source(NamedTuple):
    """A file, and the process that has it on its disk (None if that is this process)."""

    process: str | None
    name: str
    size: int


class FileCollector:
    """Copies the files of one run into one directory.

    If a file exists on several disks, the longest copy is used. Later calls of `collect` copy only
    the bytes that were added since.

    Parameters
    ----------
    destination
        A directory of this host. Files of the run in this directory are replaced, unless the run
        is recorded into it.
    copies
        Files in the run's directory that are copies themselves. Their originals on other disks may
        have become longer.
    """

    def __init__(
        self, settings: RunSettings, destination: Path, copies: Container[Path] = ()
    ) -> None:
        #: Paths of the copies, including call profiles, by identity of the file.
        self.files: dict[str, Path] = {}
        self._source = Path(settings.directory)
        self._arguments = (settings.directory, settings.uuid)
        self._destination = destination
        self._is_home = destination.resolve() == self._source.resolve()
        self._copies = copies
        #: Paths of copies that an earlier collector made, by identity of the file.
        self._earlier_copies: dict[str, Path] = {}
        #: Path and bytes of each copy, by process and name of the original file.
        self._fetched: dict[tuple[str | None, str], tuple[Path, int]] = {}

    @property
    def paths(self) -> set[Path]:
        """The files that were fetched from other processes."""
        return {path for path, _ in self._fetched.values()}

    async def collect(
        self, link: ClusterLink, workers: list[str] | None = None, *, without: Container[str] = ()
    ) -> dict[str, str]:
        """Copy all files of the run that the destination does not have completely.

        Parameters
        ----------
        workers
            Addresses of the workers to ask, or None for all workers.
        without
            Addresses of workers not to ask, because they have just failed to answer.

        Returns
        -------
        dict
            Addresses of processes that did not answer in time, with reasons.

        Raises
        ------
        CannotWriteError
            If a copy cannot be written.
        """
        earlier = await aside(list_with_profiles, str(self._destination), self._arguments[1])
        self._earlier_copies = {identity: self._destination / name for name, _, identity in earlier}
        local = await aside(list_with_profiles, *self._arguments)
        sources = {identity: _Source(None, name, size) for name, size, identity in local}
        silent: dict[str, str] = {}
        if not link.is_closed:
            try:
                silent = await self._find_longer(link, sources, workers, without)
            except GONE as error:
                silent = {SCHEDULER: error_text(error)}
        for identity, source in sources.items():
            if source.process is None:
                self.files[identity] = await self._copy_local(source.name)
            elif source.process not in silent:
                try:
                    self.files[identity] = await self._fetch(link, source, identity)
                except CannotWriteError:
                    raise
                except GONE as error:
                    silent[source.process] = error_text(error)
        return silent

    async def _find_longer(
        self,
        link: ClusterLink,
        sources: dict[str, _Source],
        workers: list[str] | None,
        without: Container[str],
    ) -> dict[str, str]:
        """Replace entries of `sources` by longer copies of the same files on other disks.

        Files that this host does not have are added. Return the processes that did not answer, with
        reasons.
        """
        local_names = {identity: source.name for identity, source in sources.items()}
        arguments = (list_with_profiles, *self._arguments)
        files_of_scheduler = await link.on_scheduler(aside, *arguments)
        if workers is None:
            workers = await link.on_scheduler(_addresses)
        asked = [address for address in workers if address not in without]
        answers = await link.on_workers(aside, *arguments, workers=asked)
        for process, files in {SCHEDULER: files_of_scheduler, **answers.results}.items():
            for name, size, identity in files:
                path = self._source / name
                is_copy = path in self._copies or path in self.paths
                # If both processes have a file with this name and identity, they share the disk.
                is_shared = local_names.get(identity) == name and not is_copy
                if not is_shared and (identity not in sources or sources[identity].size < size):
                    sources[identity] = _Source(process, name, size)
        return answers.silent

    async def _copy_local(self, name: str) -> Path:
        """Copy a file of this host to the destination, unless the run is recorded there."""
        path = self._source / name
        if self._is_home:
            return path
        copy, _ = self._fetched.setdefault((None, name), (self._new_path(name), 0))
        with _writing(copy):
            await in_thread(partial(shutil.copyfile, path, copy))
        return copy

    async def _fetch(self, link: ClusterLink, source: _Source, identity: str) -> Path:
        """Copy a file from another disk, or only the bytes that an existing copy lacks."""
        assert source.process is not None
        origin = source.process, source.name
        if origin in self._fetched:
            path, size = self._fetched[origin]
        elif identity in self._earlier_copies and not self._is_home:  # Files only grow.
            path = self._earlier_copies[identity]
            size = path.stat().st_size
        else:
            path, size = self._new_path(source.name), 0
        if path.suffix != ".msgpack":
            size = 0  # Profiles are written completely each time.
        arguments = aside, read_chunk, str(self._source / source.name)
        while size < source.size:
            data = await link.on_process(source.process, *arguments, size, CHUNK_BYTES)
            if not data:
                break
            with _writing(path):
                await in_thread(partial(_write_at, path, size, data))
            size += len(data)
            self._fetched[origin] = path, size
        return path

    def _new_path(self, name: str) -> Path:
        """Return a path for a copy, with a number in the name if another file has this name."""
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
    """Replace an `OSError` by a `CannotWriteError` that names the path."""
    try:
        yield
    except OSError as error:
        # Callers interpret any other `OSError` as a process that does not answer.
        raise CannotWriteError(f"{path} cannot be written: {error.strerror or error}.") from error


def _write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b" if position else "wb") as file:
        file.seek(position)
        file.write(data)


def _addresses(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.workers)
