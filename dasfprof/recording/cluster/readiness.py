"""Whether the processes of a cluster can be recorded, as a run is registered."""

from __future__ import annotations

import logging

from distributed import Client

from dasfprof.errors import RegistrationError
from dasfprof.recording.cluster.calls import check_process, ping
from dasfprof.recording.cluster.link import ClusterLink
from dasfprof.recording.settings import RunSettings
from dasfprof.text import count_of

logger = logging.getLogger(__name__)

NO_ANSWER = (
    "not all processes of the cluster answer ({}). Wait until they are no longer busy, "
    "close them, or set a longer dasfprof.response-timeout. Nothing was registered."
)
#: Processes that a message names.
_MOST_NAMED = 3


async def check_processes(client: Client, settings: RunSettings) -> None:
    """Raise an error if a cluster cannot be recorded; warn of workers that will not be.

    The scheduler needs dasfprof: only its file holds graphs, steals and workers.
    """
    directory = "" if settings.storage else settings.directory
    reasons = dict(await client.run(check_process, directory, settings.storage))
    unfit = {where: reason for where, reason in reasons.items() if reason is not None}
    scheduler = await client.run_on_scheduler(check_process, directory, settings.storage)
    if scheduler is None and (not unfit or len(unfit) < len(reasons)):
        if unfit:
            logger.warning(
                "%s of %s will not be recorded, and work as usual. %s. Install dasfprof there, "
                "or pass a directory that they can write to.",
                len(unfit),
                count_of(len(reasons), "worker"),
                _named(unfit),
            )
        return
    if scheduler is not None:
        unfit = {"the scheduler": scheduler, **unfit}
    raise RegistrationError(
        f"{len(unfit)} of {len(reasons) + 1} processes cannot record. {_named(unfit)}. The "
        "scheduler and at least one worker have to: install dasfprof where they run, and pass a "
        f"directory that they can write to (tried: {settings.directory!r}). Nothing was "
        "registered."
    )


def _named(reasons: dict[str, str]) -> str:
    """Describe the first processes and why they cannot record."""
    named = [f"{where}: {reason}" for where, reason in list(reasons.items())[:_MOST_NAMED]]
    more = len(reasons) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


async def check_answers(link: ClusterLink) -> None:
    """Raise an error if a worker does not answer in time."""
    answers = await link.on_workers(ping)
    if answers.silent:
        named = ", ".join(list(answers.silent)[:_MOST_NAMED])
        raise RegistrationError(NO_ANSWER.format(f"{named}: no answer in {link.limit:g} s"))
