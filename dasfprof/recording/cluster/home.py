"""`Home`: brings the files of a run from other disks to the client's directory."""

from __future__ import annotations

import logging
from pathlib import Path

from dasfprof.errors import CannotWriteError
from dasfprof.recording.cluster.calls import aside
from dasfprof.recording.cluster.files import FileCollector
from dasfprof.recording.cluster.link import ClusterLink
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
        """Mark the directory, and find out whether the scheduler has it, too."""
        if self._settings.ship != "none":
            await aside(place_mark, *self._mark)
            self._is_shared = await link.on_scheduler(aside, sees_mark, *self._mark)

    async def leave(self) -> None:
        """Remove the mark: no worker looks for it any more."""
        await aside(remove_mark, *self._mark)

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
            Files that the scheduler lacks, or their ends, by the worker that has them.

        Returns
        -------
        dict
            Processes that did not answer in time, by address, and why.
        """
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
