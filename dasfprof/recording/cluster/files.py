"""`FileCollector`: copies a run's files from the disks of a cluster's hosts to this machine."""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dasfprof.database.output import create_exclusively
from dasfprof.errors import CannotWriteError
from dasfprof.recording.cluster.calls import aside, list_with_profiles, read_chunk
from dasfprof.recording.cluster.link import GONE, SCHEDULER, ClusterLink, error_text
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings

#: Bytes that one call reads from a remote disk.
CHUNK_BYTES = 1 << 20


class _Found(NamedTuple):
    """A file, and the process that has it on its disk; None: this one."""

    process: str | None
    name: str
    size: int


class FileCollector:
    """Copies the files of one run into one directory.

    Of a file that several disks have, as a worker's own and what the scheduler received of it, the
    longest is copied. Called again, it copies what has been added since.

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
        #: The copies, those of profiles of calls too, by the file's identity.
        self.files: dict[str, Path] = {}
        self._source = Path(settings.directory)
        self._arguments = (settings.directory, settings.uuid)
        self._destination = destination
        self._copies = copies
        #: Bytes of each copy, by where it came from.
        self._fetched: dict[tuple[str | None, str], tuple[Path, int]] = {}

    @property
    def paths(self) -> set[Path]:
        """The files that were fetched from other processes."""
        return {path for path, _ in self._fetched.values()}

    async def collect(
        self, link: ClusterLink, workers: list[str] | None = None, *, without: Container[str] = ()
    ) -> dict[str, str]:
        """Copy files of this machine, of the scheduler's and of the workers' that are not here.

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
                    self.files[identity] = await self._fetch(link, found)
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
        """Replace what is longer on other disks, or on no disk that this machine sees."""
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
                    continue  # on a disk that both see
                best[identity] = _Found(process, name, size)
        return answers.silent

    def _is_copy(self, name: str) -> bool:
        path = self._source / name
        return path in self._copies or path in self.paths

    async def _take(self, found: _Found) -> Path:
        """Copy a file of this machine, if it is not there already."""
        path = self._source / found.name
        if self._is_home:
            return path
        copy, _ = self._fetched.setdefault((None, found.name), (self._new_path(found.name), 0))
        await in_thread(partial(_copy, path, copy))
        return copy

    async def _fetch(self, link: ClusterLink, found: _Found) -> Path:
        """Copy what a file on another disk has beyond its copy."""
        assert found.process is not None
        origin = found.process, found.name
        path, have = self._fetched.get(origin) or (self._new_path(found.name), 0)
        if path.suffix != ".msgpack":
            have = 0  # profiles are written anew each time
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

    def _new_path(self, name: str) -> Path:
        """Return a path for a copy; with a number if the name is that of another file."""
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
    """Say what cannot be written: other errors mean that a process does not answer."""
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
