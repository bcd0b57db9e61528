"""`FileCollector`: copies a run's files from the disks of a cluster's hosts to this machine."""

from __future__ import annotations

import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

from dasfprof.recording.cluster.calls import list_with_profiles, read_chunk
from dasfprof.recording.cluster.link import GONE, SCHEDULER, ClusterLink, error_text
from dasfprof.recording.settings import RunSettings

#: Bytes that one call reads from a remote disk.
CHUNK_BYTES = 1 << 22


class FileCollector:
    """Copies the files of one run into one directory.

    Parameters
    ----------
    link
        The cluster.
    settings
        The run.
    destination
        An existing directory of this machine.
    """

    def __init__(self, link: ClusterLink, settings: RunSettings, destination: Path) -> None:
        #: The copies, those of profiles of calls too, by the name of the file.
        self.files: dict[str, Path] = {}
        self._link = link
        self._source = Path(settings.directory)
        self._arguments = (settings.directory, settings.uuid)
        self._destination = destination

    async def collect(self, *, without: Container[str]) -> dict[str, str]:
        """Copy the files of this machine, then those of the other hosts.

        Parameters
        ----------
        without
            Addresses of workers that are not asked, since they have not answered just now.

        Returns
        -------
        dict
            Processes that did not answer in time, by address, and why.
        """
        for name, _ in list_with_profiles(*self._arguments):
            self.files[name] = self._destination / name
            if self._destination.resolve() != self._source.resolve():
                shutil.copyfile(self._source / name, self.files[name])
        if self._link.is_closed:
            return {}
        try:
            return await self._collect_others(without)
        except GONE as error:
            return {SCHEDULER: error_text(error)}

    async def _collect_others(self, without: Container[str]) -> dict[str, str]:
        """Copy the files that are on no disk that this machine sees."""
        of_scheduler = await self._link.on_scheduler(list_with_profiles, *self._arguments)
        workers = await self._link.on_scheduler(_addresses)
        asked = [address for address in workers if address not in without]
        answers = await self._link.on_workers(list_with_profiles, *self._arguments, workers=asked)
        silent = answers.silent
        for process, files in {SCHEDULER: of_scheduler, **answers.results}.items():
            for name, size in files:
                if name in self.files:  # on a disk of this machine, or a shared one
                    continue
                self.files[name] = self._destination / name
                try:
                    await self._copy(process, name, size)
                except GONE as error:
                    silent[process] = error_text(error)
                    break
        return silent

    async def _copy(self, process: str, name: str, size: int) -> None:
        source = str(self._source / name)
        with self.files[name].open("wb") as file:
            for offset in range(0, size, CHUNK_BYTES):
                file.write(
                    await self._link.on_process(process, read_chunk, source, offset, CHUNK_BYTES)
                )


def _addresses(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.workers)
