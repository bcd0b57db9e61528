"""Removal of a run's plugins from a cluster, by its client or by the scheduler itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from distributed.protocol.pickle import dumps

from dasfprof.recording.cluster.calls import forget_worker_plugins, stop_on_worker
from dasfprof.recording.cluster.link import SCHEDULER, Answers, ClusterLink, ask_workers

#: Seconds between two looks at workers that were silent, and the most.
_LOOK, _LONGEST_LOOK = 1.0, 30.0

#: Stands for files of which ends may be on a worker's disk alone.
_ANY_FILE = "any"

#: What the scheduler does by itself: its event loop alone would not keep it.
_going_on: set[asyncio.Task[None]] = set()


async def remove_plugins(
    link: ClusterLink, names: list[str], silent_before: Iterable[str] = ()
) -> Answers:
    """Remove plugins from workers first, so that the scheduler records their last tasks.

    Parameters
    ----------
    link
        The cluster.
    names
        The plugins.
    silent_before
        Workers that did not answer an earlier call. The scheduler may have removed the plugins
        since, and nobody was told which files lack their ends.

    Returns
    -------
    Answers
        The files of which the scheduler, or the storage, lacks the end, see `stop_on_worker`. From
        those that did not answer in time the scheduler removes the plugins as it hears of them.

    Raises
    ------
    asyncio.TimeoutError, OSError
        If the scheduler did not answer in time, or cannot be reached.
    """
    await link.on_scheduler(forget_worker_plugins, names)
    answers = await link.on_workers(stop_on_worker, names)
    for process in answers.results.keys() & set(silent_before):
        answers.results[process] = answers.results[process] or [_ANY_FILE]
    silent = list(answers.silent)
    answers.results[SCHEDULER] = await link.on_scheduler(
        stop_on_scheduler, names, silent, link.limit
    )
    return answers


async def stop_on_scheduler(
    names: list[str], silent: list[str], limit: float, dask_scheduler: Any
) -> list[str]:
    """Remove plugins from the scheduler and close their files.

    Parameters
    ----------
    names
        The plugins.
    silent
        Addresses of workers that may still have them.
    limit
        Seconds to wait for a worker's answer.

    Returns
    -------
    list of str
        Files of which the run's storage lacks the end.
    """
    lacking: list[str] = []
    for address in silent:
        go_on_with(_stop_when_heard(address, names, limit, dask_scheduler))
    for name in names:
        plugin = dask_scheduler.plugins.get(name)
        if plugin is not None:
            dask_scheduler.remove_plugin(name)
            await plugin.stop()
            uploader = getattr(plugin, "uploader", None)
            lacking += [] if uploader is None else uploader.unshipped()
    return lacking


async def end_run(names: list[str], limit: float, ending: dict[str, Any], scheduler: Any) -> None:
    """End a run that no client ends. Runs on the scheduler.

    Parameters
    ----------
    names
        The plugins.
    limit
        Seconds to wait for the answer of each worker.
    ending
        What the files say of it, see `TraceWriter.ending`.
    scheduler
        The scheduler.
    """
    forget_worker_plugins(names, scheduler)
    arguments = dumps((names, ending))
    told = await ask_workers(dumps(stop_on_worker), arguments, limit, None, scheduler)
    silent = [address for address, (answered, _) in told.items() if not answered]
    await stop_on_scheduler(names, silent, limit, scheduler)


def go_on_with(work: Coroutine[Any, Any, None]) -> None:
    """Do work beside whatever calls this."""
    task = asyncio.get_running_loop().create_task(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)


async def _stop_when_heard(address: str, names: list[str], limit: float, scheduler: Any) -> None:
    """Remove plugins from a worker that was silent, such as one that SIGSTOP had stopped.

    It is asked once the scheduler has heard of it, so that no calls wait there meanwhile. One that
    has left has closed its files, or died.
    """
    function, arguments = dumps(stop_on_worker), dumps((names,))
    heard, look = _last_heard(address, scheduler), _LOOK
    while scheduler.status.name == "running" and address in scheduler.workers:
        await asyncio.sleep(look)
        now = _last_heard(address, scheduler)
        if now > heard:
            told = await ask_workers(function, arguments, limit, [address], scheduler)
            if all(answered for answered, _ in told.values()):
                return
            heard, look = now, min(2 * look, _LONGEST_LOOK)


def _last_heard(address: str, scheduler: Any) -> float:
    worker = scheduler.workers.get(address)
    return 0.0 if worker is None else float(worker.last_seen)
