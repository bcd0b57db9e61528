"""``--preload dasfprof.preload``: starts recording with a scheduler, a worker or a client.

============================================  =====================================================
``dask scheduler --preload dasfprof.preload``  the whole cluster, every worker that joins, until the
                                              scheduler closes; workers need no preload of their own
``dask worker --preload dasfprof.preload``     this worker, if the scheduler records nothing; such
                                              workers of one scheduler make one run
``distributed.client.preload`` in the config   whatever cluster a client connects to, until that
                                              client closes; how ``dasfprof run`` gets into a script
============================================  =====================================================

Settings are read from Dask's config, ``dasfprof.*``, of the process with the preload. If the
cluster is already being recorded, no recording is started. Runs that clients register later are
recorded beside that of a preload, which goes on. Workers without dasfprof work unrecorded. A client
that is killed cannot end its run: that ends by itself after ``dasfprof.orphan-timeout``.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import uuid
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

# `dasfprof run` imports this module before the script imports Dask, so Dask is imported at use.
if TYPE_CHECKING:
    from distributed import Client, Scheduler, Worker

    from dasfprof.handles.run import AsynchronousRun, ProfiledRun

logger = logging.getLogger(__name__)

#: Seconds to wait for a scheduler whose clients a script has closed.
_RECONNECT_TIMEOUT = 3.0
#: Seconds between two attempts to connect to a scheduler that has not started yet.
_RETRY_INTERVAL = 0.1

#: Handles the clients of this process; set by `dasfprof run`.
recorder: ClientRecorder | None = None
#: The runs that were started for clients without a `recorder`.
_client_runs: weakref.WeakKeyDictionary[Client, AsynchronousRun] = weakref.WeakKeyDictionary()


async def dask_setup(service: Any) -> None:
    """Start recording. Dask calls it with a starting scheduler, worker or client."""
    from distributed import Client, Scheduler, Worker

    if isinstance(service, Scheduler):
        await _record_cluster(service)
    elif isinstance(service, Worker):
        await _record_worker(service)
    elif isinstance(service, Client):
        await _record_client(service)
    else:
        logger.warning("dasfprof.preload records nothing on a %s", type(service).__name__)


async def dask_teardown(service: Any) -> None:
    """End the run of a client; the plugins of a server close with the server."""
    from distributed import Client

    run = _client_runs.pop(service, None) if isinstance(service, Client) else None
    if run is not None:
        try:
            await run.stop()
        except Exception:
            logger.debug("the cluster closed before the profiler was removed", exc_info=True)


async def _record_cluster(scheduler: Scheduler) -> None:
    from distributed.diagnostics.plugin import SchedulerPlugin
    from distributed.protocol.pickle import dumps

    from dasfprof.database.storage import why_not_writable
    from dasfprof.errors import RegistrationError
    from dasfprof.handles.registration import PRELOAD, default_plugins
    from dasfprof.recording.cluster.calls import aside, check_process
    from dasfprof.recording.settings import make_settings

    settings = replace(make_settings(), owner=PRELOAD)
    reason = check_process(settings.directory, settings.storage)
    if reason is None and settings.storage:
        where = settings.storage, f"{settings.stored_directory}/begun"
        reason = await aside(why_not_writable, *where)
    if reason is not None:
        raise RegistrationError(
            f"dasfprof records nothing here: {reason}. Set the directory for the trace files with "
            "`dasfprof.directory` in Dask's config or DASK_DASFPROF__DIRECTORY."
        )
    for plugin in default_plugins(settings):
        if isinstance(plugin, SchedulerPlugin):
            # The scheduler starts its plugins itself, right after its preloads.
            scheduler.add_plugin(plugin, name=plugin.name)
        else:
            await scheduler.register_worker_plugin(
                None, dumps(plugin), name=plugin.name, idempotent=False
            )
    logger.info("dasfprof records run %r in %s", settings.name, settings.source)


async def _record_worker(worker: Worker) -> None:
    from distributed.diagnostics.plugin import WorkerPlugin

    from dasfprof.config import setting
    from dasfprof.handles.registration import default_plugins
    from dasfprof.recording.settings import make_settings

    scheduler_id, started, recording = await _ask_scheduler(worker)
    if recording:
        logger.info("dasfprof already records this cluster; this worker is part of that run")
        return
    settings = make_settings(add_time_suffix=False)
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{scheduler_id}/{settings.name}").hex
    suffix = f"-{int(started)}" if setting("add_time_suffix") else ""
    settings = replace(settings, name=settings.name + suffix, uuid=identity, created=started)
    for plugin in default_plugins(settings):
        if isinstance(plugin, WorkerPlugin):
            await worker.plugin_add(plugin, name=plugin.name)
    logger.info("dasfprof records run %r in %s", settings.name, settings.source)


async def _ask_scheduler(worker: Worker) -> tuple[str, float, bool]:
    """Return the scheduler's id, its start in Unix seconds, and whether it records its cluster.

    Waits for the scheduler, as Dask does: a worker may start before its scheduler.
    """
    import asyncio

    from distributed.protocol.pickle import dumps

    from dasfprof.recording.cluster.calls import running_plugins

    while True:
        try:
            # A scheduler answers when it and its own preloads have started.
            identity = await worker.scheduler.identity()
            break
        except (OSError, TimeoutError, asyncio.TimeoutError):
            await asyncio.sleep(_RETRY_INTERVAL)
    answer = await worker.scheduler.run_function(function=dumps(running_plugins))
    return identity["id"], float(identity["started"]), bool(answer.get("result"))


async def _record_client(client: Client) -> None:
    from dasfprof.recording.cluster.calls import running_plugins

    # Tasks create clients too, and workers that a nanny starts inherit the config.
    if client.id.startswith("Client-worker-") or multiprocessing.parent_process() is not None:
        return
    if recorder is not None:
        if recorder.pid == os.getpid():
            await recorder.follow(client)
        return
    if await client.run_on_scheduler(running_plugins):
        logger.info("dasfprof already records this cluster")
        return
    _client_runs[client] = await _start_run(client)


def _start_run(client: Client, **options: Any) -> Any:
    """Return an awaitable of a run, of a client that is connecting, that no registration ends."""
    from dasfprof.handles.registration import PRELOAD, start_run
    from dasfprof.recording.settings import make_settings

    return start_run(client, replace(make_settings(**options), owner=PRELOAD))


@dataclass
class RecordedCluster:
    """A cluster that a script's client connected to, and its run."""

    run: ProfiledRun
    address: str
    security: Any
    #: The cluster object, where the client was made from one.
    cluster: weakref.ref[Any] | None

    def finish(self) -> None:
        """End the recording and copy the files of other hosts here, unless the cluster has closed.

        The script may have closed its client and left the cluster running, so a new one is used.
        """
        from distributed import Client

        from dasfprof.database.storage import is_url

        self.run.end_steps()
        if self._is_known_to_be_closed():
            return
        try:
            client = Client(
                self.address,
                security=self.security,
                set_as_default=False,
                timeout=_RECONNECT_TIMEOUT,
            )
        except (OSError, TimeoutError, ValueError) as error:
            logger.debug("the scheduler at %s is gone: %r", self.address, error)
            return
        with client:
            run = self.run.through(client)
            run.stop()
            if not is_url(run.source):
                run.collect(run.directory)

    def _is_known_to_be_closed(self) -> bool:
        from dasfprof.recording.cluster.link import status_of

        cluster = self.cluster() if self.cluster is not None else None
        return status_of(cluster) in ("closed", "failed")


@dataclass
class ClientRecorder:
    """Records each cluster that a client of this process connects to, once.

    A run goes on when its client closes and others connect; `finish` ends all runs.

    Parameters
    ----------
    name
        Name of the runs; numbers are added to it for those after the first.
    options
        Further options of a recording; those that are None: by the config.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    pid: int = field(default_factory=os.getpid)
    clusters: list[RecordedCluster] = field(default_factory=list)
    #: Messages that say why clusters were not recorded.
    refusals: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def follow(self, client: Client) -> None:
        """Start recording the cluster that the client is connected to."""
        from dasfprof.errors import DasfprofError

        address = client.scheduler.address
        try:
            await self._record(client, address)
        except DasfprofError as error:
            self.refusals.append(f"{address} was not recorded: {error}")
        except Exception as error:  # a scheduler that is not distributed's, for example
            what = f"{type(error).__name__}: {error}"
            self.refusals.append(f"{address} was not recorded, as its scheduler answers: {what}")

    async def _record(self, client: Client, address: str) -> None:
        from dasfprof.recording.cluster.calls import running_plugins

        scheduler_id = (await client.scheduler.identity())["id"]
        with self._lock:
            if scheduler_id in self._seen:
                return
            self._seen.add(scheduler_id)
            number = len(self._seen)
        if await client.run_on_scheduler(running_plugins):
            self.refusals.append(
                f"{address} was being recorded already, by a preload or another client; that run "
                "goes on."
            )
            return
        name = self.name if number == 1 else f"{self.name}-{number}"
        run = await _start_run(client, name=name, **self.options)
        cluster = None if client.cluster is None else weakref.ref(client.cluster)
        self.clusters.append(RecordedCluster(run, address, client.security, cluster))

    def finish(self) -> None:
        """End all runs. When it returns, every event of finished work is on disk."""
        for cluster in self.clusters:
            try:
                cluster.finish()
            except Exception as error:
                logger.debug("could not end a run", exc_info=True)
                self.refusals.append(
                    f"{cluster.address}: the recording could not be ended: {error!r}"
                )
