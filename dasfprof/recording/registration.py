"""Registration of the profiler on a cluster: `register_default_profiler` and `profile`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from dasfprof.errors import RegistrationError
from dasfprof.recording.call_profiles.engines import make_engine
from dasfprof.recording.cluster.calls import running_plugins
from dasfprof.recording.cluster.clients import find_client
from dasfprof.recording.cluster.home import Home
from dasfprof.recording.cluster.link import ClusterLink
from dasfprof.recording.cluster.readiness import NO_ANSWER, check_answers, check_processes
from dasfprof.recording.cluster.removal import remove_plugins
from dasfprof.recording.cluster.scheduler_watch import is_on_network
from dasfprof.recording.cluster.time_limit import within
from dasfprof.recording.guard import in_thread
from dasfprof.recording.options import check_options, checked_options
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.worker_profiler import WorkerProfiler
from dasfprof.recording.run import ProfiledRun
from dasfprof.recording.settings import RunSettings, make_settings, switch
from dasfprof.recording.steps.recorder import StepRecorder, stop_recorders

logger = logging.getLogger(__name__)

#: A process has this many times `response_timeout` to import what recording needs.
_PATIENCE = 12

#: The owner of runs that preloads start.
PRELOAD = "preload"
#: Tells this process from others of the same number, on other hosts and later.
_PROCESS = uuid.uuid4().hex


@checked_options
def register_default_profiler(
    pipeline: object = None,
    name: str | None = None,
    enable_nvtx: bool | None = None,
    add_time_suffix: bool | None = None,
    *,
    directory: str | Path | None = None,
    commit_threshold: int | None = None,
    flush_interval: str | float | None = None,
    max_pending: int | None = None,
    segment_size: str | int | None = None,
    sample_interval: str | float | None = None,
    stack_frequency: float | None = None,
    profiler: Literal["cprofile", "profile", "off"] | None = None,
    memory: Literal["tracemalloc"] | None = None,
    log_level: str | None = None,
    log_values: bool | None = None,
    record_prints: bool | None = None,
    arguments: Literal["types", "values", "off"] | None = None,
    record_code: bool | None = None,
    response_timeout: str | float | None = None,
    orphan_timeout: str | float | None = None,
    ship: Literal["auto", "scheduler", "storage", "none"] | None = None,
) -> ProfiledRun:
    """Record everything that a cluster does, until `stop()` is called or the cluster closes.

    If this process is gone for `orphan_timeout`, the run ends by itself.

    Parameters
    ----------
    pipeline
        A DASF ``Pipeline``, any object with a ``.client``, a Dask ``Client`` or a ``Cluster``.
        Default: the client that Dask itself would use.
    name
        Prefix of the trace file names.
    enable_nvtx
        Show each task as a range in NVIDIA Nsight Systems.
    add_time_suffix
        Add the Unix time to the name, so that each run has its own files. Without it, numbers are
        added to the names of the files of a second run with the same name.
    directory
        Directory for the files, on every host. Default: this process's working directory. Or a URL
        that fsspec knows, such as ``"s3://bucket/traces"``: each process writes to a temporary
        directory of its host, and puts what it has written there every 30 s, at 8 MB, and at
        `flush` and the end. It finds its credentials itself.
    commit_threshold, flush_interval
        Number of pending events, and seconds (or text such as ``"500ms"``), after which they are
        written.
    max_pending
        The most pending events; new ones beyond it are dropped and counted.
    segment_size
        Bytes (or text such as ``"1GB"``) of a file after which a process goes on in another.
    sample_interval
        Seconds between two samples of processes, hosts and GPUs.
    stack_frequency
        How many times a second the stacks of tasks, of event loops that do not turn and of the
        client's main thread are looked at, with their lines, such as 20; 0: never. It slows down
        tasks of microseconds.
    profiler
        ``"cprofile"``: calls and times of each function's tasks, in a ``.pstats`` file a worker and
        function beside the trace. Tasks of many small calls take several times as long; from
        Python 3.12 on other Python code of workers as well, event loops among it. ``"profile"``:
        the same in pure Python, many times slower. ``"off"``: neither that, nor samples of stacks.
    memory
        ``"tracemalloc"``: the lines that allocated what each function held at its fullest. Python
        traces a whole process: of task runs that share theirs with others nothing is told, so give
        workers one thread. Tasks of many small objects take ten to forty times as long.
    log_level
        Which records of `logging` from tasks are kept, 20 of each task run: of this level and
        above, such as ``"info"``; ``"off"``: the first error of each task run alone.
    log_values
        Fill the values into their messages, where they are texts and numbers. They may be secrets.
    record_prints
        Keep what tasks print, as logs of the level ``PRINT``: 20 lines of each task run.
    arguments
        What is kept of the arguments of task runs of 10 ms and more, and of failed ones:
        ``"types"``, with dtype, shape and length; ``"values"``: also the values of those that are
        numbers, texts, or built-in containers, cut (they may be secrets); ``"off"``: nothing.
    record_code
        Keep the source of tasks' functions, 100 lines of each; of a library's only name and line.
    response_timeout
        Seconds to wait for the answer of each process, in this call and in those of the handle.
        `flush`, `stop` and `collect` name the processes that do not answer and go on.
    orphan_timeout
        Seconds (or text such as ``"10 minutes"``) after which the run ends by itself if this
        process is gone, as after SIGKILL, or does not reach the scheduler over tcp or tls. If it is
        back in time, the run goes on.
    ship
        ``"auto"``: workers whose directory is neither the client's nor the scheduler's also send
        what they write to the scheduler, and `flush`, `stop` and `collect` copy it from there to
        the client's directory. ``"scheduler"``: all workers do. ``"storage"``: the directory is a
        URL, where all processes put their files; so does ``"auto"`` with a URL. ``"none"``: files
        stay where they are written, and `collect` copies those of workers that are still there.

    Options that are None are read from Dask's config, ``dasfprof.*``. A run of the same process
    that is still being recorded on the cluster is stopped first, with a warning; its files are
    complete. Runs of preloads and of other processes go on, each with its own files.

    Returns
    -------
    ProfiledRun
        For an asynchronous client or cluster, an awaitable of it: ``await`` the call.

    Raises
    ------
    NoClientError
        If there is no Dask client to observe, as with a local executor.
    RegistrationError
        If the cluster is closed or does not answer, or if the scheduler, or every worker, cannot
        record: dasfprof is not installed there, or the directory is not writable. Nothing is left
        on the cluster then. If only some workers can record, the others work unrecorded, and a
        warning names them.
    InvalidArgumentError
        If the value of an option is invalid, or there is no such option.
    """
    nvtx = switch("enable-nvtx", enable_nvtx)
    settings = make_settings(
        name,
        add_time_suffix,
        directory,
        commit_threshold=commit_threshold,
        flush_interval=flush_interval,
        max_pending=max_pending,
        segment_size=segment_size,
        sample_interval=sample_interval,
        stack_frequency=stack_frequency,
        profiler=profiler,
        memory=memory,
        log_level=log_level,
        log_values=log_values,
        record_prints=record_prints,
        arguments=arguments,
        record_code=record_code,
        response_timeout=response_timeout,
        orphan_timeout=orphan_timeout,
        ship=ship,
    )
    return start_run(pipeline, replace(settings, owner=_this_process()), nvtx)


def start_run(pipeline: object, settings: RunSettings, nvtx: bool) -> ProfiledRun:
    """Start to record a run of these settings, see `register_default_profiler`."""
    _check_profiler(settings)
    if settings.memory is not None:
        logger.warning(
            "memory='tracemalloc' tells nothing of tasks that run at a time in one process: give "
            "workers one thread. Tasks of many small objects take ten to forty times as long."
        )
    client, owned = find_client(pipeline)
    steps = StepRecorder(settings, client, pipeline)
    run: ProfiledRun = client.sync(_register, client, settings, nvtx, owned, steps)
    return run


class profile:  # noqa: N801  (a context manager, used like a function)
    """Record what a cluster does during a ``with`` (or ``async with``) block.

    Has the parameters of `register_default_profiler`; ``as`` binds its `ProfiledRun`. When the
    block has ended, normally or by an exception, every event is on disk.

    Examples
    --------
    >>> with dasfprof.profile(client, name="load") as run:  # doctest: +SKIP
    ...     dataframe.groupby("x").mean().compute()
    >>> run.analyser().per_function_bottleneck()  # doctest: +SKIP
    """

    def __init__(self, pipeline: object = None, name: str | None = None, **options: Any) -> None:
        check_options(register_default_profiler, options)
        self._pipeline = pipeline
        self._options = {"name": name, **options}
        self._run: ProfiledRun | None = None

    def __enter__(self) -> ProfiledRun:
        run: Any = register_default_profiler(self._pipeline, **self._options)
        if inspect.iscoroutine(run):
            run.close()
            raise RegistrationError(
                "the client is asynchronous; use `async with dasfprof.profile(client)`."
            )
        self._run = run
        return self._run

    def __exit__(self, *_: object) -> None:
        if self._run is not None:
            self._run.stop()

    async def __aenter__(self) -> ProfiledRun:
        self._run = await register_default_profiler(self._pipeline, **self._options)
        assert self._run is not None
        return self._run

    async def __aexit__(self, *_: object) -> None:
        if self._run is not None:
            await self._run.stop()


async def _register(
    client: Client, settings: RunSettings, nvtx: bool, owned: bool, steps: StepRecorder
) -> ProfiledRun:
    home = Home(settings)
    try:
        if client.status != "running":
            await client
        if is_on_network(client):
            settings = replace(settings, client=client.id)
        plugins = default_plugins(settings, nvtx)
        link = ClusterLink(client, settings.response_timeout)
        await check_answers(link)
        await within(_PATIENCE * link.limit, check_processes(client, settings))
        await _stop_earlier(client, link, settings.owner)
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
            await within(_PATIENCE * link.limit, client.register_plugin(plugin))
            logger.info("Registered %s", describe_plugin(plugin))
    except Exception as error:
        # A plugin that failed on one process stays in the scheduler's list, and would make every
        # worker that starts later fail.
        await remove_plugins(link, [plugin.name for plugin in plugins])
        await home.leave()
        if owned:
            await client.close()
        raise RegistrationError(f"the profiler could not be registered: {error}") from error
    steps.start()
    names = [plugin.name for plugin in plugins]
    return ProfiledRun(client, settings, names, owned, steps, home=home)


def _check_profiler(settings: RunSettings) -> None:
    if settings.profiler is None:
        return
    try:
        make_engine(settings.profiler)
    except RuntimeError as error:
        raise RegistrationError(f"profiler={settings.profiler!r}: {error}.") from error
    if settings.profiler == "profile":
        logger.warning(
            "profiler='profile' is pure Python: tasks of many small calls take many times as long. "
            "profiler='cprofile' takes a fraction of that."
        )


def default_plugins(settings: RunSettings, nvtx: bool) -> list[WorkerPlugin | SchedulerPlugin]:
    """Return the plugins of a run, in the order of their registration."""
    return [SchedulerTaskPlugin(settings), WorkerProfiler(settings, nvtx)]


def describe_plugin(plugin: Any) -> str:
    """Return a plugin's kind and name as DASF logs them."""
    kind = "scheduler" if isinstance(plugin, SchedulerPlugin) else "worker"
    return f"{kind} plugin {plugin.name.rpartition('-')[2]}"


def _this_process() -> str:
    """Return a text that names this process as the owner of a run; a forked child is another."""
    return f"{os.getpid()}-{_PROCESS}"


async def _stop_earlier(client: Client, link: ClusterLink, owner: str) -> None:
    """Stop the earlier run of an owner; a preload has none."""
    names = await client.run_on_scheduler(running_plugins, owner=owner)
    if names and owner != PRELOAD:
        logger.warning("another run was being recorded on this cluster; it is stopped now")
        silent = (await remove_plugins(link, names)).silent
        if silent:
            logger.warning(
                "the other run ends in processes that did not answer once they do: %s",
                ", ".join(silent),
            )
        await in_thread(partial(stop_recorders, names))
    if await client.run_on_scheduler(running_plugins):
        logger.info("others record this cluster as well; their runs go on")
