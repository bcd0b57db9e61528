"""`Home`: brings the files of a run from other disks to the client's, or sees them stored."""

from __future__ import annotations

import asyncio
import logging
import shutil
from glob import escape
from pathlib import Path
from time import monotonic
from typing import Any

from dasfprof.database.multi import files_of_run, headers_of_run, without_copies
from dasfprof.database.output import create_exclusively
from dasfprof.database.reader import TraceFile
from dasfprof.database.storage import shown, stored_run, why_not_writable
from dasfprof.errors import CannotWriteError, RegistrationError, TraceError
from dasfprof.recording.cluster.calls import aside
from dasfprof.recording.cluster.files import FileCollector
from dasfprof.recording.cluster.link import GONE, SCHEDULER, ClusterLink
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.places import place_mark, remove_mark, sees_mark
from dasfprof.recording.shipping.uploader import on_their_way

logger = logging.getLogger(__name__)

#: Seconds within which a storage has to answer as a run is registered: libraries try several times.
_ANSWER_LIMIT = 30.0
#: Seconds that `stop` waits for what is on its way, and between two looks.
_LIMIT, _LOOK = 30.0, 0.25
#: Files that a message names.
_MOST_NAMED = 3


async def check_storage(link: ClusterLink, settings: RunSettings) -> None:
    """Raise an error if the scheduler, whose file is needed, cannot write there.

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
            "each worker's, has to find credentials itself. Nothing was registered."
        )


async def wait_for_storage(
    link: ClusterLink, settings: RunSettings, lacking: dict[str, list[str]]
) -> None:
    """Wait for files that are on their way; log which have not come.

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
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    logger.warning(
        "run %r: not all is in %s: %s%s%s. They are tried again for some minutes while these "
        "processes live, and stay in %s on their hosts until then.",
        settings.name,
        shown(settings.storage),
        ", ".join(names[:_MOST_NAMED]),
        more,
        f" ({reasons[0]})" if reasons else "",
        "a directory dasfprof-" + settings.uuid + " for temporary files",
    )


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
