"""The client of the object to profile: checks whether its cluster can be recorded, and removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from distributed import Client
from distributed.deploy.cluster import Cluster
from distributed.protocol.pickle import dumps

from dasfprof.errors import NoClientError, RegistrationError
from dasfprof.recording.cluster.calls import (
    check_process,
    ping,
    stop_on_worker,
)
from dasfprof.recording.cluster.link import SCHEDULER, Answers, ClusterLink, ask_workers, status_of
from dasfprof.recording.dask_internals.undocumented import forget_for_workers
from dasfprof.recording.settings import RunSettings
from dasfprof.text import count_of

_WHAT_TO_PASS = (
    "Pass a distributed.Client, a Cluster, an object with a `.client`, or a DASF Pipeline with a "
    "DaskPipelineExecutor; `Client()` starts a cluster on this machine."
)


def find_client(pipeline: Any) -> tuple[Client, bool]:
    """Return the Dask client of the object that the user wants to profile.

    Parameters
    ----------
    pipeline
        None: the client that Dask itself would use.

    Returns
    -------
    client
    owned : bool
        Whether the client was created here, for a cluster, and is to be closed with the run.

    Raises
    ------
    NoClientError
        If there is none.
    RegistrationError
        If it is closed.
    """
    if pipeline is None:
        if not has_client():
            raise NoClientError(
                f"there is no Dask client in this process, and none was passed. {_WHAT_TO_PASS}"
            )
        pipeline = Client.current()
    # dask-gateway's cluster is no `Cluster`.
    address = getattr(pipeline, "scheduler_address", None)
    if isinstance(pipeline, Cluster) or isinstance(address, str):
        status = status_of(pipeline)
        if status in ("closed", "closing", "failed"):
            raise RegistrationError(f"{pipeline!r} is {status}. Start a new one.")
        asynchronous = bool(pipeline.asynchronous)
        return Client(pipeline, asynchronous=asynchronous, set_as_default=False), True
    # A DASF pipeline has an executor with Dask's client as `client`. Its own `register_plugin`
    # calls a method that Dask no longer has.
    candidates = (
        pipeline,
        getattr(pipeline, "client", None),
        getattr(getattr(pipeline, "_executor", None), "client", None),
    )
    client = next((item for item in candidates if isinstance(item, Client)), None)
    if client is None:
        executor = getattr(pipeline, "_executor", None)
        what = f" (executor: {type(executor).__name__})" if executor is not None else ""
        raise NoClientError(
            f"got an object of type {type(pipeline).__name__}{what}, which has no Dask client, so "
            f"there is no cluster to observe. {_WHAT_TO_PASS}"
        )
    if client.status not in ("running", "connecting", "newly-created"):
        raise RegistrationError(f"{client!r} is {client.status}. Connect a new client.")
    return client, False


def has_client() -> bool:
    """Return whether there is a client that Dask itself would use."""
    try:
        Client.current()
    except ValueError:
        return False
    return True


logger = logging.getLogger(__name__)

NO_ANSWER = (
    "not all processes of the cluster answer ({}). Wait until they are no longer busy, "
    "close them, or set a longer dasfprof.response-timeout. Nothing was registered."
)
#: Maximum number of processes that a message names.
_MOST_NAMED = 3


async def check_processes(client: Client, settings: RunSettings) -> None:
    """Raise an error if a cluster cannot be recorded, and warn about workers that will not be.

    The scheduler needs dasfprof, because only its file contains graphs, steals and workers.
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
        "scheduler and at least one worker must be able to. Install dasfprof where they run, and "
        f"pass a directory that they can write to (tried: {settings.directory!r}). Nothing was "
        "registered."
    )


def _named(reasons: dict[str, str]) -> str:
    """Return a description of the first processes and why they cannot record."""
    named = [f"{where}: {reason}" for where, reason in list(reasons.items())[:_MOST_NAMED]]
    more = len(reasons) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


async def check_answers(link: ClusterLink) -> None:
    """Raise an error if a worker does not answer in time."""
    answers = await link.on_workers(ping)
    if answers.silent:
        named = ", ".join(list(answers.silent)[:_MOST_NAMED])
        raise RegistrationError(NO_ANSWER.format(f"{named}: no answer in {link.limit:g} s"))


#: Seconds between two checks of workers that were silent, and the maximum.
_LOOK, _LONGEST_LOOK = 1.0, 30.0

#: Placeholder for files whose ends may only be on a worker's disk.
_ANY_FILE = "any"

#: Tasks of the scheduler in the background, which must be referenced to stay alive.
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
    await link.on_scheduler(forget_for_workers, names)
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
            sender = getattr(plugin, "sender", None)
            lacking += [] if sender is None else sender.unshipped()
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
    forget_for_workers(names, scheduler)
    arguments = dumps((names, ending))
    told = await ask_workers(dumps(stop_on_worker), arguments, limit, None, scheduler)
    silent = [address for address, (answered, _) in told.items() if not answered]
    await stop_on_scheduler(names, silent, limit, scheduler)


def go_on_with(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in the background of the caller."""
    task = asyncio.get_running_loop().create_task(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)


async def _stop_when_heard(address: str, names: list[str], limit: float, scheduler: Any) -> None:
    """Remove plugins from a worker that was silent, for example because of SIGSTOP.

    It is called once the scheduler has received a message from it, so that no calls wait there
    meanwhile. A worker that has left has closed its files, or died.
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
