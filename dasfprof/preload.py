"""``--preload dasfprof.preload``: starts recording with a scheduler or a client.

The process that has the preload determines what is recorded:

============================================  =====================================================
``dask scheduler --preload dasfprof.preload``  the cluster with every worker that joins, until the
                                              scheduler closes; workers need no preload
``distributed.client.preload`` in the config   the cluster that a client connects to, until that
                                              client closes
============================================  =====================================================

Settings are read from Dask's config (``dasfprof.*``) of the process that has the preload. By
default, a scheduler's preload starts a new run every day and removes the oldest runs. Options
change this: ``dask scheduler --preload dasfprof.preload --run-length 12h --keep-size 50GB
--keep-days 30``. If the cluster is already being recorded, the preload of a client starts no
recording. Runs that clients register later are recorded at the same time. Workers without
dasfprof work as usual, but are not recorded. If a client is killed, its run ends automatically
after ``dasfprof.orphan-timeout``.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from distributed import Client, Scheduler

    from dasfprof.handles.run import AsynchronousRun
    from dasfprof.recording.settings import RunSettings

logger = logging.getLogger(__name__)

#: Command-line options of a scheduler's preload. Each of them is also a setting.
_OPTIONS = ("--run-length", "--keep-size", "--keep-days")
#: The runs that this preload has started for clients.
_client_runs: weakref.WeakKeyDictionary[Client, AsynchronousRun] = weakref.WeakKeyDictionary()


async def _start(service: Any, **limits: str | None) -> None:
    """Start recording when a scheduler or client starts."""
    from distributed import Client, Scheduler

    from dasfprof.recording.dask_internals.undocumented import use_dask_logging

    if not isinstance(service, Client):
        use_dask_logging(logging.INFO)
    if isinstance(service, Scheduler):
        await _record_cluster(service, limits)
    elif isinstance(service, Client):
        await _record_client(service)
    else:
        logger.warning("dasfprof.preload records nothing on a %s", type(service).__name__)


def _with_options(setup: Any) -> Any:
    """Turn a setup function into a click command with `_OPTIONS`.

    Dask calls the command with the options that were passed on the command line.
    """
    for option in _OPTIONS:
        setup = click.option(option)(setup)
    return click.command()(setup)


#: Function that Dask calls when a process starts. Dask refuses a command line with two preloads
#: that accept options, and other preloads such as `dask_cuda.initialize` accept options. Therefore
#: this preload accepts options only if the command line contains them.
dask_setup: Any = (
    _with_options(_start)
    if {argument.partition("=")[0] for argument in sys.argv} & set(_OPTIONS)
    else _start
)


async def dask_teardown(service: Any) -> None:
    """End the run of a client when the client closes."""
    from distributed import Client

    # On a scheduler or worker, do nothing, because the plugins are closed together with the server.
    run = _client_runs.pop(service, None) if isinstance(service, Client) else None
    if run is not None:
        try:
            await run.stop()
        except Exception:
            logger.debug("the cluster closed before the profiler was removed", exc_info=True)


async def _record_cluster(scheduler: Scheduler, limits: dict[str, Any]) -> None:
    from dasfprof.config.options import setting
    from dasfprof.database.storage import why_not_writable
    from dasfprof.errors import RegistrationError
    from dasfprof.handles.rotation import Limits, Rotation
    from dasfprof.recording.cluster.calls import aside, check_process

    names = [option.removeprefix("--").replace("-", "_") for option in _OPTIONS]
    run_limits = Limits(**{name: setting(name, limits.get(name)) for name in names})
    settings = _new_run()
    reason = check_process(settings.directory, settings.storage)
    if reason is None and settings.storage:
        target = settings.storage, f"{settings.stored_directory}/begun"
        reason = await aside(why_not_writable, *target)
    if reason is not None:
        raise RegistrationError(
            f"dasfprof records nothing here: {reason}. Set the directory for the trace files with "
            "`dasfprof.directory` in Dask's config or DASK_DASFPROF__DIRECTORY."
        )
    await _begin(scheduler, settings)

    async def begin_next() -> RunSettings:
        return await _begin(scheduler, _new_run())

    Rotation(scheduler, run_limits, settings, begin_next).start()


def _new_run() -> RunSettings:
    from dasfprof.handles.registration import PRELOAD
    from dasfprof.recording.settings import make_settings

    return replace(make_settings(), owner=PRELOAD, removable=True)


async def _begin(scheduler: Scheduler, settings: RunSettings) -> RunSettings:
    """Start recording a run with these settings on a scheduler, and return the settings."""
    from distributed.diagnostics.plugin import SchedulerPlugin
    from distributed.protocol.pickle import dumps

    from dasfprof.handles.registration import default_plugins

    for plugin in default_plugins(settings):
        if isinstance(plugin, SchedulerPlugin):
            if scheduler.status.name == "running":
                await plugin.start(scheduler)
            # A starting scheduler starts its plugins itself, right after its preloads.
            scheduler.add_plugin(plugin, name=plugin.name)
        else:
            await scheduler.register_worker_plugin(
                None, dumps(plugin), name=plugin.name, idempotent=False
            )
    logger.info("dasfprof records run %r in %s", settings.name, settings.source)
    return settings


async def _record_client(client: Client) -> None:
    from dasfprof.handles import script
    from dasfprof.recording.cluster.calls import running_plugins
    from dasfprof.recording.cluster.program import TASK_CLIENT_PREFIX

    # Do not record clients inside tasks, and no clients in processes that another process started:
    # workers that a nanny starts inherit the config.
    if client.id.startswith(TASK_CLIENT_PREFIX) or multiprocessing.parent_process() is not None:
        return
    if script.ClientRecorder.current is not None:
        await script.dask_setup(client)
        return
    if await client.run_on_scheduler(running_plugins):
        logger.info("dasfprof already records this cluster")
        return
    _client_runs[client] = await script.start_run(client)
