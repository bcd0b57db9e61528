"""`Home`: brings the files of a run from other disks to the client's directory."""

from __future__ import annotations

import logging
import shutil
from glob import escape
from pathlib import Path

from dasfprof.database.multi import files_of_run, headers_of_run, without_copies
from dasfprof.database.output import create_exclusively
from dasfprof.database.reader import TraceFile
from dasfprof.database.stored_runs import stored_run
from dasfprof.errors import CannotWriteError, TraceError
from dasfprof.recording.cluster.calls import aside
from dasfprof.recording.cluster.files import FileCollector
from dasfprof.recording.cluster.link import ClusterLink
from dasfprof.recording.cluster.to_storage import check_storage, wait_for_storage
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.marks import place_mark, remove_mark, sees_mark

logger = logging.getLogger(__name__)


class Home:
    """The client's directory, to which the run's files come if they are written elsewhere.

    Parameters
    ----------
    settings
        The run.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._mark = settings.directory, settings.uuid
        self._collector = FileCollector(settings, Path(settings.directory))
        #: Whether the scheduler has the same directory, so that what it writes is here.
        self._is_shared = True

    async def prepare(self, link: ClusterLink) -> None:
        """Mark the directory, and find out whether the scheduler has it, too.

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
        """Remove the mark: no worker looks for it any more."""
        if not self._settings.storage:
            await aside(remove_mark, *self._mark)

    def files(self) -> list[Path]:
        """Return the run's files on this machine, those of a storage copied here as far as needed.

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
            copies = stored_run(self._settings.storage, self._settings.stored_directory).fetch()
        except TraceError as error:
            if not here:
                raise
            logger.warning("run %r: %s", self._settings.name, error)
            copies = []
        here += [(path, TraceFile(path).read_header()) for path in copies]
        return [path for path, _ in without_copies(here)]

    def copy_to(self, destination: Path) -> list[Path]:
        """Copy the same files into a directory, with the profiles of calls beside them."""
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
        """The files that were brought here."""
        return self._collector.paths

    async def bring(
        self, link: ClusterLink, lacking: dict[str, list[str]] | None = None
    ) -> dict[str, str]:
        """Copy what the scheduler has more than this directory.

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
                "run %r: its cluster has closed; what its scheduler received after the last "
                "flush() is in %s on the scheduler's host, if that is still there",
                self._settings.name,
                self._settings.directory,
            )
            return {}
        try:
            return await self._collector.collect(link, workers)
        except CannotWriteError as error:
            logger.warning("run %r: %s Its files are on other hosts.", self._settings.name, error)
            return {}
