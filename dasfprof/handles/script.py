"""Runs a script as Python would, while every cluster that its clients use is recorded.

`dasfprof run` uses it to run the user's script, and so do the processes of trials. Dask is imported
only when it is needed, because a script may set options that Dask reads on import.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import logging
import os
import runpy
import sys
import threading
import types
import weakref
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.dask_internals.patch import WhenImported

if TYPE_CHECKING:
    from distributed import Client

    from dasfprof.handles.run import ProfiledRun
    from dasfprof.recording.cluster.changed_options import ChangedOptions
    from dasfprof.recording.dask_internals.local_schedulers import Compute


logger = logging.getLogger(__name__)


def apply_config(config: Path | None, args: list[str]) -> tuple[str, ...]:
    """Apply a file of Dask's config to the script, and return the script's arguments.

    Arguments in a resource profile of ``dasfprof tune`` replace the script's arguments with the
    same names.
    """
    change_clusters({})
    if config is None:
        return tuple(args)
    import yaml

    try:
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"--config {config}: not valid YAML: {error}") from error
    # Dask reads the file when it is imported.
    os.environ["DASK_CONFIG"] = str(config.absolute())
    if "dask" in sys.modules:
        import dask

        dask.config.refresh(paths=[*dask.config.paths, str(config.absolute())])

    # A resource profile also contains settings that Dask does not read from the file: options of
    # local clusters, environment variables, and arguments.
    def texts_at(*path: str) -> dict[str, str]:
        data = content
        for key in path:
            data = data.get(key) if isinstance(data, dict) else None
        return {str(n): str(v) for n, v in data.items()} if isinstance(data, dict) else {}

    for variable, value in texts_at("distributed", "nanny", "pre-spawn-environ").items():
        os.environ.setdefault(variable, value)
    return with_arguments(args, texts_at("dasfprof", "tuned", "arguments"))


def change_clusters(settings: dict[str, Any]) -> list[ChangedOptions]:
    """Override the options of local clusters that this process creates.

    Parameters
    ----------
    settings
        Keyword arguments of `ChangedOptions`. If there are none, options are changed only if Dask's
        config contains a resource profile of ``dasfprof tune``.

    Returns
    -------
    list
        Empty at first. When ``distributed`` has been imported, a `ChangedOptions` with these
        settings is added.
    """
    changes: list[ChangedOptions] = []

    def place() -> None:
        import dask

        if changes or not (settings or dask.config.get("dasfprof.tuned", default=None)):
            return
        try:
            from dasfprof.recording.cluster.changed_options import ChangedOptions

            changes.append(ChangedOptions(**settings))
            changes[0].place()
        except Exception:  # The script must import Dask even if this fails.
            logger.warning("options of local clusters are not changed", exc_info=True)

    # When `distributed` has been imported, so have Dask's modules.
    when_imported("distributed", place)
    return changes


def when_imported(module: str, call: Callable[[], object]) -> None:
    """Call a function when a module has been imported, or now if it already is."""
    if module in sys.modules:
        call()
    else:
        WhenImported((module,), call).start()


def with_arguments(given: Sequence[str], changed: Mapping[str, str]) -> tuple[str, ...]:
    """Return a program's arguments, with other values for some of them.

    `changed` has the new values by name, such as ``--chunk``. Arguments that the program did not
    have are appended.
    """
    arguments = list(given)
    for name, value in changed.items():
        indices = [i for i, argument in enumerate(arguments) if argument.partition("=")[0] == name]
        for i in indices:
            if "=" in arguments[i]:
                arguments[i] = f"{name}={value}"
            else:
                arguments[i + 1 : i + 2] = [value]
        if not indices:
            arguments += [name, value]
    return tuple(arguments)


#: Seconds to wait for the scheduler of a cluster after the script closed its clients.
_RECONNECT_TIMEOUT = 3.0


@dataclass
class ScriptResult:
    """How a script ended, with the script's globals, which keep the script's clusters open."""

    exit_code: int
    #: Whether Ctrl-C ended the script.
    interrupted: bool = False
    #: Module that contains the script's globals. If they were deleted, their clusters would close.
    remains: Any = None


def run_script(target: str, args: tuple[str, ...], *, as_module: bool) -> ScriptResult:
    """Run a file or a module as ``__main__``. A file may be a directory or zip with a ``__main__``.

    ``sys.argv``, ``sys.path[0]`` and ``__main__`` are set as Python would set them, and are not
    reset. An uncaught exception is printed as Python prints it, without frames of dasfprof.
    """
    sys.argv = [target, *args]
    try:
        if as_module:
            _set_first_path(os.getcwd())
            remains: Any = runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif os.path.isdir(target) or zipfile.is_zipfile(target):
            _set_first_path(None)  # runpy puts the target there.
            remains = runpy.run_path(target, run_name="__main__")
        else:
            _set_first_path(os.path.dirname(os.path.realpath(target)))
            remains = _run_file(os.path.abspath(target))
    except SystemExit as end:
        return ScriptResult(_exit_code(end.code), remains=end)
    except BaseException as error:
        error.__traceback__ = _of_script(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return ScriptResult(1, isinstance(error, KeyboardInterrupt), remains=error)
    return ScriptResult(0, remains=remains)


def _set_first_path(path: str | None) -> None:
    """Replace the first item of ``sys.path``, the directory of the `dasfprof` command.

    If `path` is None, only remove it.
    """
    if not getattr(sys.flags, "safe_path", False):  # Only Python 3.11 and later have this flag.
        sys.path[:1] = [] if path is None else [path]


def _run_file(path: str) -> types.ModuleType:
    """Execute a file in a new ``__main__``, because `runpy.run_path` would set another argv[0]."""
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __loader__=loader, __cached__=None, __builtins__=builtins)
    code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = module
    exec(code, vars(module))
    return module


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0)
    sys.stderr.write(f"{code}\n")
    return 1


def _of_script(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Remove the first frames of a traceback, which belong to this module and runpy."""
    ours = (__name__, "runpy")
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") in ours:
        traceback = traceback.tb_next
    return traceback


def observe_clients(name: str, options: dict[str, Any]) -> ClientRecorder:
    """Return a recorder that records the cluster of every client in this process."""
    recorder = ClientRecorder.current = ClientRecorder(name, options)
    when_imported("distributed.client", _add_preload)
    when_imported("dask", recorder.listen)
    return recorder


def _add_preload() -> None:
    import dask

    # Dask logs each preload module that it imports at level INFO, which would be displayed.
    logging.getLogger("distributed.preloading").addFilter(
        lambda record: __name__ not in record.getMessage()
    )
    modules = dask.config.get("distributed.client.preload", default=[])
    modules = [modules] if isinstance(modules, str) else list(modules)
    arguments = dask.config.get("distributed.client.preload-argv", default=[])
    if arguments and not isinstance(arguments[0], str):  # There is one list per module.
        arguments = [*arguments, []]
    dask.config.set(
        {
            "distributed.client.preload": [*modules, __name__],
            "distributed.client.preload-argv": arguments,
        }
    )


async def dask_setup(client: Client) -> None:
    """Record the cluster of a client that has connected. Dask calls this function as a preload."""
    # A process that this process starts may inherit the config.
    recorder = ClientRecorder.current
    if recorder is not None and recorder.pid == os.getpid():
        await recorder.follow(client)


def start_run(client: Client, **options: Any) -> Any:
    """Start a run on the cluster of a client that is connecting. Return an awaitable of the run.

    Later registrations do not end the run.
    """
    from dasfprof.handles import registration
    from dasfprof.recording.settings import make_settings

    settings = replace(make_settings(**options), owner=registration.PRELOAD)
    return registration.start_run(client, settings)


@dataclass
class RecordedRun:
    """A run on a cluster that the script used, or in the script's own process."""

    run: ProfiledRun
    #: Address of the cluster's scheduler, or a description of the process.
    address: str
    security: Any = None
    #: Cluster object, if the script's client was created from one.
    cluster: weakref.ref[Any] | None = None

    def finish(self) -> None:
        """End the recording and copy all files to this host, unless the cluster has closed."""
        from distributed import Client

        from dasfprof.database.storage import is_url
        from dasfprof.handles.local_run import LocalRun
        from dasfprof.recording.cluster.link import status_of

        if isinstance(self.run, LocalRun):
            self.run.stop()
            return
        self.run.end_steps()
        cluster = self.cluster() if self.cluster is not None else None
        if status_of(cluster) in ("closed", "failed"):
            return
        try:
            # The script may have closed its client.
            client = Client(
                self.address,
                security=self.security,
                set_as_default=False,
                timeout=_RECONNECT_TIMEOUT,
            )
        except (OSError, TimeoutError, ValueError) as error:
            logger.debug("the scheduler at %s has ended: %r", self.address, error)
            return
        with client:
            run = self.run.through(client)
            run.stop()
            if not is_url(run.source):
                run.collect(run.directory)


@dataclass
class ClientRecorder:
    """Records each cluster to which a client of this process connects, as one run per cluster.

    A run continues when its client closes and others connect. `finish` ends all runs. All
    computations on Dask's local schedulers are recorded as one further run.

    Parameters
    ----------
    name
        Name of the first run. Further runs have a number after it.
    options
        Further options of a recording. Options that are None come from Dask's config.
    """

    #: The recorder of this process, or None before `observe_clients` is called.
    current: ClassVar[ClientRecorder | None] = None

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    pid: int = field(default_factory=os.getpid)
    clusters: list[RecordedRun] = field(default_factory=list)
    #: Messages that say why clusters were not recorded.
    refusals: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_local: bool = False
    _leave: list[Callable[[], None]] = field(default_factory=list)

    def listen(self) -> None:
        """Register callbacks for the first computation on one of Dask's local schedulers."""
        from dasfprof.recording.dask_internals.local_schedulers import (
            availability,
            observe_computes,
            observe_first_build,
        )

        if availability() == "available":
            self._leave.append(observe_computes(self))
            self._leave.append(observe_first_build(self._note_lines))

    def _note_lines(self) -> None:
        """Start recording which lines build layers. Do this before the first computation."""
        from dasfprof.recording.dask_internals.graphs import place_hooks, remove_hooks

        place_hooks()
        self._leave.append(remove_hooks)

    def computes(self, compute: Compute) -> None:
        """Start a run at the first computation on one of Dask's local schedulers."""
        from dasfprof.errors import DasfprofError
        from dasfprof.handles.local_run import LocalRun
        from dasfprof.recording.settings import make_settings

        with self._lock:
            if self._is_local:
                return
            self._is_local = True
            name = f"{self.name}-local" if self._seen else self.name
            self._seen = self._seen or {"local"}
            try:
                run = LocalRun(make_settings(name=name, **self.options))
            except DasfprofError as error:
                self.refusals.append(f"computations without a cluster were not recorded: {error}")
                return
            self.clusters.append(RecordedRun(run, "the script's own process"))
        compute.listeners = (*compute.listeners, run.listener)
        run.listener.computes(compute)

    def began(self, *_: Any) -> None:
        """Do nothing, because the run's recorder observes tasks."""

    ended = computed = began

    async def follow(self, client: Client) -> None:
        """Record the cluster to which a client has connected, unless it is already recorded."""
        from dasfprof.errors import DasfprofError

        address = client.scheduler.address
        try:
            await self._record(client, address)
        except DasfprofError as error:
            self.refusals.append(f"{address} was not recorded: {error}")
        except Exception as error:  # For example, the scheduler may not belong to distributed.
            answer = f"{type(error).__name__}: {error}"
            self.refusals.append(
                f"{address} was not recorded, because its scheduler answers: {answer}"
            )

    async def _record(self, client: Client, address: str) -> None:
        from dasfprof.recording.cluster.program import announce

        await announce(client)
        scheduler_id = (await client.scheduler.identity())["id"]
        with self._lock:
            if scheduler_id in self._seen:
                return
            self._seen.add(scheduler_id)
            number = len(self._seen)
        name = self.name if number == 1 else f"{self.name}-{number}"
        run = await start_run(client, name=name, **self.options)
        cluster = None if client.cluster is None else weakref.ref(client.cluster)
        self.clusters.append(RecordedRun(run, address, client.security, cluster))

    def finish(self) -> None:
        """End all runs. When it returns, every event of finished work is on disk."""
        for leave in self._leave:
            leave()
        for cluster in self.clusters:
            try:
                cluster.finish()
            except Exception as error:
                logger.debug("could not end a run", exc_info=True)
                self.refusals.append(f"{cluster.address}: recording could not be ended: {error!r}")
