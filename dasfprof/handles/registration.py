"""Registration of the profiler on a cluster: `register_default_profiler` and `profile`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from dasfprof.errors import RegistrationError
from dasfprof.handles.local_run import LocalRun
from dasfprof.handles.run import ProfiledRun
from dasfprof.recording.cluster.calls import running_plugins
from dasfprof.recording.cluster.clients import (
    NO_ANSWER,
    check_answers,
    check_processes,
    find_client,
    has_client,
    remove_plugins,
)
from dasfprof.recording.cluster.home import Home
from dasfprof.recording.cluster.link import ClusterLink, is_on_network
from dasfprof.recording.cluster.program import announce, this_process
from dasfprof.recording.cluster.task_clients import sent_before
from dasfprof.recording.dask_internals.inspection.looks import within
from dasfprof.recording.guard import in_thread
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.worker_profiler import WorkerProfiler
from dasfprof.recording.settings import RunSettings, check_names, documented, make_settings
from dasfprof.recording.steps.recorder import StepRecorder, stop_recorders

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dasfprof.config.options import Options
    from dasfprof.handles.run import AsynchronousRun

logger = logging.getLogger(__name__)

#: Time in which a process has to import what recording needs, as a multiple of `response_timeout`.
_PATIENCE = 12

#: Module of the separate process that serves a run's page on the dashboard.
_COMPANION = "dasfprof.handles.live"
#: Owner of the runs that preloads start.
PRELOAD = "preload"


@documented
def register_default_profiler(
    pipeline: object = None,
    name: str | None = None,
    enable_nvtx: bool | None = None,
    add_time_suffix: bool | None = None,
    **options: Unpack[Options],
) -> ProfiledRun:
    """Record everything that a cluster does, until `stop()` is called or the cluster closes.

    On a cluster that this process did not create, tasks of other processes' clients are recorded
    without names, errors and source. Their thread time is the category *Other clients*.

    If this process is gone for `orphan_timeout`, the run ends automatically.

    Options that are None are read from Dask's config, ``dasfprof.*``. If this process is already
    recording a run on the cluster, that run is stopped first, with a warning. Its files are
    complete. Runs of preloads and of other processes continue with their own files.

    Parameters
    ----------
    pipeline
        A DASF ``Pipeline``, any object with a ``.client``, a Dask ``Client`` or a ``Cluster``.
        The default is the client that Dask itself would use. Without a client, computations of this
        process on Dask's local schedulers (threads, processes, sync) are recorded.
    {options}

    Returns
    -------
    ProfiledRun
        For an asynchronous client or cluster, an awaitable of it: ``await`` the call.

    Raises
    ------
    NoClientError
        If the object has no Dask client to observe, for example a pipeline with a local executor.
    RegistrationError
        If the cluster is closed or does not answer, or if the scheduler or all workers cannot
        record, because dasfprof is not installed or the directory is not writable. Nothing is left
        on the cluster then. If only some workers can record, the others work unrecorded, and a
        warning lists them.
    InvalidArgumentError
        If an option or its value is invalid.
    """
    settings = make_settings(
        name=name, enable_nvtx=enable_nvtx, add_time_suffix=add_time_suffix, **options
    )
    # The owner contains the process, so a forked child has another owner than its parent.
    return start_run(pipeline, replace(settings, owner=this_process()))


def start_run(pipeline: object, settings: RunSettings) -> ProfiledRun:
    """Start recording a run with these settings. See `register_default_profiler`."""
    if pipeline is None and not has_client():
        return LocalRun(settings)
    client, owned = find_client(pipeline)
    steps = StepRecorder(settings, client)
    return client.sync(_register, client, settings, owned, steps)


@documented
class profile:  # noqa: N801  (a context manager, used like a function)
    """Record what a cluster does during a ``with`` (or ``async with``) block.

    ``as`` binds a `ProfiledRun`. When the block has ended, normally or by an exception, every event
    is on disk.

    Parameters
    ----------
    pipeline
        See `register_default_profiler`.
    {options}

    Examples
    --------
    >>> with dasfprof.profile(client, name="load") as run:  # doctest: +SKIP
    ...     dataframe.groupby("x").mean().compute()
    >>> run.analyser().per_function_bottleneck()  # doctest: +SKIP
    """

    def __init__(
        self,
        pipeline: object = None,
        name: str | None = None,
        enable_nvtx: bool | None = None,
        add_time_suffix: bool | None = None,
        **options: Unpack[Options],
    ) -> None:
        check_names(options)
        first = name, enable_nvtx, add_time_suffix
        self._start = partial(register_default_profiler, pipeline, *first, **options)

    def __enter__(self) -> ProfiledRun:
        run: Any = self._start()
        if inspect.iscoroutine(run):
            run.close()
            raise RegistrationError(
                "the client is asynchronous. Use `async with dasfprof.profile(client)`."
            )
        self._run: ProfiledRun = run
        return self._run

    def __exit__(self, *_: object) -> None:
        self._run.stop()

    async def __aenter__(self) -> AsynchronousRun:
        self._awaited: AsynchronousRun = await self._start()
        return self._awaited

    async def __aexit__(self, *_: object) -> None:
        await self._awaited.stop()


async def _register(
    client: Client, settings: RunSettings, owned: bool, steps: StepRecorder
) -> ProfiledRun:
    home = Home(settings)
    try:
        if client.status != "running":
            await client
        if is_on_network(client):
            settings = replace(settings, client=client.id)
        if not owned and client.cluster is None:  # Other clients may use the cluster as well.
            settings = replace(settings, process=this_process())
        plugins = default_plugins(settings)
        link = ClusterLink(client, settings.response_timeout)
        await check_answers(link)
        await within(_PATIENCE * link.limit, check_processes(client, settings))
        await _stop_earlier(client, link, settings.owner)
        await announce(client)
        await home.prepare(link)
    except BaseException as error:
        await home.leave()
        if owned:
            await client.close()
        if isinstance(error, asyncio.TimeoutError):
            raise RegistrationError(NO_ANSWER.format(error)) from error
        raise
    try:
        for plugin in plugins:
            if settings.process and isinstance(plugin, WorkerProfiler):
                name = settings.plugin_name("SchedulerPlugin")
                plugin.recorder.hidden = await client.run_on_scheduler(sent_before, name)
            await within(_PATIENCE * link.limit, client.register_plugin(plugin))
            logger.info("Registered the plugin %s", plugin.name)
    except Exception as error:
        # If a plugin failed on one process, it is still in the scheduler's list, and would make
        # every new worker fail.
        await remove_plugins(link, [plugin.name for plugin in plugins])
        await home.leave()
        if owned:
            await client.close()
        raise RegistrationError(f"the profiler could not be registered: {error}") from error
    steps.start()
    names = [plugin.name for plugin in plugins]
    return ProfiledRun(client, settings, names, owned, steps, home=home)


def default_plugins(settings: RunSettings) -> list[WorkerPlugin | SchedulerPlugin]:
    """Return the plugins of a run, in the order of their registration."""
    return [SchedulerTaskPlugin(settings, _COMPANION), WorkerProfiler(settings)]


async def _stop_earlier(client: Client, link: ClusterLink, owner: str) -> None:
    """Stop a run that the owner of a new run is still recording on the cluster.

    `owner` is the process that registers the new run, or `PRELOAD`. Earlier runs of `PRELOAD` are
    not stopped.
    """
    names = await client.run_on_scheduler(running_plugins, owner=owner)
    if names and owner != PRELOAD:
        logger.warning("another run was being recorded on this cluster and is stopped now")
        silent = (await remove_plugins(link, names)).silent
        if silent:
            logger.warning(
                "in processes that did not answer, the other run ends when they do: %s",
                ", ".join(silent),
            )
        await in_thread(partial(stop_recorders, names))
    if await client.run_on_scheduler(running_plugins):
        logger.info("others also record this cluster, and their runs continue")
