"""Whether a cluster can put files into a run's storage, and whether it has."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any

from dasfprof.database.storage import shown, why_not_writable
from dasfprof.errors import RegistrationError
from dasfprof.recording.cluster.calls import aside
from dasfprof.recording.cluster.link import GONE, SCHEDULER, ClusterLink
from dasfprof.recording.settings import RunSettings
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
