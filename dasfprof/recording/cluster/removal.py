"""Removal of a run's plugins from a cluster."""

from __future__ import annotations

from dasfprof.recording.cluster.calls import (
    forget_worker_plugins,
    stop_on_scheduler,
    stop_on_worker,
)
from dasfprof.recording.cluster.link import SCHEDULER, Answers, ClusterLink


async def remove_plugins(link: ClusterLink, names: list[str]) -> Answers:
    """Remove plugins from workers first, so that the scheduler records their last tasks.

    Returns
    -------
    Answers
        The files of which the scheduler, or the storage, lacks the end, see `stop_on_worker`. Those
        that did not answer in time may still have the plugins.

    Raises
    ------
    asyncio.TimeoutError, OSError
        If the scheduler did not answer in time, or cannot be reached.
    """
    await link.on_scheduler(forget_worker_plugins, names)
    answers = await link.on_workers(stop_on_worker, names)
    answers.results[SCHEDULER] = await link.on_scheduler(stop_on_scheduler, names)
    return answers
