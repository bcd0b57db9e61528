"""Functions that find the client of a run, check its cluster, and remove plugins from the cluster.

The check determines whether the cluster can be recorded.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Iterable
from typing import Any

from distributed import Client
from distributed.deploy.cluster import Cluster
from distributed.protocol.pickle import dumps

from dasfprof.errors import NoClientError, RegistrationError
from dasfprof.recording.cluster.calls import (
    check_process,
    ping,
    running_plugins,
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
        The object, or None for the client that Dask would use by default.

    Returns
    -------
    client
    owned : bool
        Whether this function created the client for a cluster. The end of the run must then close
        the client.

    Raises
    ------
    NoClientError
        If there is no client.
    RegistrationError
        If the client or the cluster is closed.
    """
    if pipeline is None:
        if not has_client():
            raise NoClientError(
                f"there is no Dask client in this process, and none was passed. {_WHAT_TO_PASS}"
            )
        pipeline = Client.current()
    # The cluster class of dask-gateway is not a subclass of `Cluster`.
    address = getattr(pipeline, "scheduler_address", None)
    if isinstance(pipeline, Cluster) or isinstance(address, str):
        status = status_of(pipeline)
        if status in ("closed", "closing", "failed"):
            raise RegistrationError(f"{pipeline!r} is {status}. Start a new one.")
        asynchronous = bool(pipeline.asynchronous)
        return Client(pipeline, asynchronous=asynchronous, set_as_default=False), True
    # A DASF pipeline has an executor, whose attribute `client` is Dask's client. The executor's
    # method `register_plugin` cannot be used: it calls a method that Dask no longer has.
    executor = getattr(pipeline, "_executor", None)
    candidates = pipeline, getattr(pipeline, "client", None), getattr(executor, "client", None)
    client = next((item for item in candidates if isinstance(item, Client)), None)
    if client is None:
        what = f" (executor: {type(executor).__name__})" if executor is not None else ""
        raise NoClientError(
            f"got an object of type {type(pipeline).__name__}{what}, which has no Dask client, so "
            f"there is no cluster to observe. {_WHAT_TO_PASS}"
        )
    if client.status not in ("running", "connecting", "newly-created"):
        raise RegistrationError(f"{client!r} is {client.status}. Connect a new client.")
    return client, False


def has_client() -> bool:
    """Return whether this process has a client that Dask would use by default."""
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
    """Raise an error if the cluster cannot be recorded. Warn about workers that cannot record."""
    directory = "" if settings.storage else settings.directory
    reasons = dict(await client.run(check_process, directory, settings.storage))
    unfit = {address: reason for address, reason in reasons.items() if reason is not None}
    reason = await client.run_on_scheduler(check_process, directory, settings.storage)
    if reason is None and not unfit:
        return
    if reason is None and len(unfit) < len(reasons):
        logger.warning(
            "%s of %s will not be recorded, and work as usual. %s. Install dasfprof there, "
            "or pass a directory that they can write to.",
            len(unfit),
            count_of(len(reasons), "worker"),
            _named(unfit),
        )
        return
    if reason is not None:
        # Only the scheduler's file contains graphs, steals and the list of workers.
        unfit = {SCHEDULER: reason, **unfit}
    raise RegistrationError(
        f"{len(unfit)} of {len(reasons) + 1} processes cannot record. {_named(unfit)}. The "
        "scheduler and at least one worker must be able to. Install dasfprof where they run, and "
        f"pass a directory that they can write to (tried: {settings.directory!r}). Nothing was "
        "registered."
    )


def _named(reasons: dict[str, str]) -> str:
    """Return a text that names up to `_MOST_NAMED` processes that cannot record, with reasons."""
    named = [f"{process}: {reason}" for process, reason in list(reasons.items())[:_MOST_NAMED]]
    more = len(reasons) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


async def check_answers(link: ClusterLink) -> None:
    """Raise an error if any worker does not answer within the time limit."""
    answers = await link.on_workers(ping)
    if answers.silent:
        named = ", ".join(list(answers.silent)[:_MOST_NAMED])
        raise RegistrationError(NO_ANSWER.format(f"{named}: no answer in {link.limit:g} s"))


#: Seconds between two checks of a worker that did not answer: initial and maximum value.
_CHECK_INTERVAL, _LONGEST_INTERVAL = 1.0, 30.0

#: Placeholder for the names of incomplete files, if the names are unknown.
_ANY_FILE = "any"

#: Background tasks on the scheduler's event loop. This reference keeps them from being collected
#: as garbage.
_background_tasks: set[asyncio.Task[None]] = set()


async def remove_plugins(
    link: ClusterLink, names: list[str], silent_before: Iterable[str] = ()
) -> Answers:
    """Remove plugins from all workers, and then from the scheduler.

    Parameters
    ----------
    silent_before
        Addresses of workers that did not answer an earlier call. The scheduler may have removed
        their plugins since then. Such a worker no longer reports incomplete files, so this function
        assumes that it has some.

    Returns
    -------
    Answers
        For each process, the names of incomplete files (see `stop_on_worker`). If a worker did not
        answer in time, the scheduler removes its plugins after the worker's next message.

    Raises
    ------
    asyncio.TimeoutError, OSError
        If the scheduler did not answer in time, or cannot be reached.
    """
    await link.on_scheduler(forget_for_workers, names)
    answers = await link.on_workers(stop_on_worker, names)
    for process in answers.results.keys() & set(silent_before):
        answers.results[process] = answers.results[process] or [_ANY_FILE]
    # The scheduler is last, so that it records the last tasks of the workers.
    answers.results[SCHEDULER] = await link.on_scheduler(
        stop_on_scheduler, names, list(answers.silent), link.limit
    )
    return answers


async def stop_on_scheduler(
    names: list[str], silent: list[str], limit: float, dask_scheduler: Any
) -> list[str]:
    """Remove plugins from the scheduler and close their files.

    Parameters
    ----------
    silent
        Addresses of workers that did not answer, and may still have the plugins.
    limit
        Seconds to wait for a worker's answer.

    Returns
    -------
    list of str
        Names of files that are not completely in the run's storage.
    """
    unsent: list[str] = []
    for address in silent:
        run_in_background(_stop_when_heard(address, names, limit, dask_scheduler))
    for name in names:
        plugin = dask_scheduler.plugins.get(name)
        if plugin is not None:
            dask_scheduler.remove_plugin(name)
            await plugin.stop()
            sender = getattr(plugin, "sender", None)
            unsent += [] if sender is None else sender.unsent_files()
    return unsent


async def end_run(settings: RunSettings, ending: dict[str, Any], scheduler: Any) -> None:
    """End a run that its client does not end. This function runs on the scheduler.

    Parameters
    ----------
    ending
        Entries to add to the frame that closes each file. See `TraceWriter.ending`.
    """
    prefix, limit = settings.plugin_name(""), settings.response_timeout
    names = [name for name in running_plugins(scheduler) if name.startswith(prefix)]
    forget_for_workers(names, scheduler)
    arguments = dumps((names, ending))
    answers = await ask_workers(dumps(stop_on_worker), arguments, limit, None, scheduler)
    await stop_on_scheduler(names, list(answers.silent), limit, scheduler)


def run_in_background(work: Coroutine[Any, Any, None]) -> None:
    """Schedule a coroutine on the running event loop, without waiting for it."""
    task = asyncio.get_running_loop().create_task(work)
    _background_tasks.add(task)
    task.add_done_callback(_background_tasks.discard)


async def _stop_when_heard(address: str, names: list[str], limit: float, scheduler: Any) -> None:
    """Remove plugins from a worker that did not answer, once it has sent another message."""
    function, arguments = dumps(stop_on_worker), dumps((names,))
    last_seen, interval = math.inf, _CHECK_INTERVAL
    # A worker that left the cluster is not asked: it has closed its files, or has died.
    while scheduler.status.name == "running" and address in scheduler.workers:
        latest = scheduler.workers[address].last_seen
        # Requests would accumulate at a worker that does not handle them, for example because of
        # SIGSTOP.
        if latest > last_seen:
            answers = await ask_workers(function, arguments, limit, [address], scheduler)
            if not answers.silent:
                return
            interval = min(2 * interval, _LONGEST_INTERVAL)
        last_seen = latest
        await asyncio.sleep(interval)
