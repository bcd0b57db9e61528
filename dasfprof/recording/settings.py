"""`RunSettings`: the settings of a run, which are sent to every worker.

This module also creates and finds the mark of a run: a hidden, empty file in the run's directory. A
process that sees the mark shares this directory with the process that created the mark.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import os
import socket
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import dask
from dask.system import cpu_count

from dasfprof import system
from dasfprof.config.options import (
    RECORDING,
    AllOptions,
    RunOptions,
    ShipName,
    ensure_defaults,
    setting,
)
from dasfprof.database import FileDatabase
from dasfprof.database.runs import run_directory
from dasfprof.database.storage import check_backend, is_url, shown
from dasfprof.errors import InvalidArgumentError, UnknownOptionError
from dasfprof.recording.dask_internals.names import missing
from dasfprof.recording.probes.process import job_of_process
from dasfprof.schema.tasks import MARK
from dasfprof.text import file_part

if TYPE_CHECKING:
    from typing_extensions import Unpack

Call = TypeVar("Call", bound=Callable[..., Any])


def documented(call: Call) -> Call:
    """Replace ``{options}`` in a function's docstring, and ``**options`` in its signature.

    The replacements are the options of a recording. This is a decorator.
    """
    doc = inspect.getdoc(call) or ""
    options = (
        f"{option.name}\n{textwrap.indent(textwrap.fill(option.meaning, 92), '    ')}"
        for option in RECORDING.values()
    )
    call.__doc__ = doc.replace("{options}", "\n".join(options))
    function: Any = vars(call).get("__init__", call)
    parameters = dict(inspect.signature(function).parameters)
    types = get_type_hints(AllOptions)
    del parameters["options"], function.__annotations__["options"]
    for name in types.keys() - parameters.keys():
        function.__annotations__[name] = types[name]
    for name in RECORDING:
        parameters.setdefault(
            name,
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=types[name]
            ),
        )
    function.__signature__ = inspect.Signature(list(parameters.values()))
    return call


def check_names(options: Iterable[str]) -> None:
    """Raise an `UnknownOptionError` if a name is not the name of a recording option.

    The message lists all options.
    """
    for option in options:
        if option not in RECORDING:
            near = difflib.get_close_matches(option, RECORDING, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UnknownOptionError(
                f"there is no option {option}.{hint} The options are {', '.join(RECORDING)}."
            )


ensure_defaults()


@dataclass(frozen=True, kw_only=True)
class RunSettings(RunOptions):
    """A run's name, identity, directory and options.

    The settings contain everything that workers need, because remote workers do not have the
    client's config.
    """

    #: Prefix of the names of the run's files.
    name: str
    #: The directory of the files. Its path is the same on every host. If the run has a storage, it
    #: is a temporary directory on each host.
    directory: str
    #: URL of the storage to which files are uploaded, or empty if the run has no storage.
    storage: str = ""
    #: Owner of the run (see `dasfprof.handles.registration`). Runs of different owners can be
    #: recorded at the same time.
    owner: str = ""
    #: Id of the client whose process ends the run. If empty, the run ends with the cluster.
    client: str = ""
    #: Identifier of a process (see `this_process`). Only the tasks of this process's clients are
    #: recorded with texts. If empty, the tasks of all clients are recorded with texts.
    process: str = ""
    #: Whether the preload that records the run may remove the run's files when they are old.
    removable: bool = False
    #: Id of the run. It distinguishes runs with the same name.
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: Time when the run was created, in Unix seconds.
    created: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if self.storage:
            object.__setattr__(self, "directory", local_directory(self.uuid))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle the settings.

        If the run has a storage, `directory` is set to a temporary directory of this host.
        """
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def source(self) -> str:
        """The argument with which `dasfprof.open_run` opens this run."""
        return os.path.join(shown(self.storage) or self.directory, self.name)

    @property
    def mark(self) -> str:
        """The name of the annotation that marks hidden tasks (see `HiddenTasks`)."""
        return f"{MARK}{self.uuid}"

    @property
    def stored_directory(self) -> str:
        """The name of the run's directory in `storage`."""
        return run_directory(self.name, self.created, self.uuid)

    def plugin_name(self, plugin: str) -> str:
        """Return the name under which a plugin of this run is registered on the cluster."""
        return f"dasfprof-{self.uuid}-{plugin}"

    def open_database(self, plugin: str, owner: str, header: dict[str, Any]) -> FileDatabase:
        """Return a new database for one plugin in this process.

        Parameters
        ----------
        plugin
            ``TracePlugin``, ``SchedulerPlugin`` or ``ResourceMonitor``.
        owner
            The last part of the file's name, such as the worker's name, or ``scheduler``.
        header
            Further entries of the file's header.
        """
        system.check_recording()
        host = socket.gethostname()
        lost, job = missing(plugin), job_of_process()
        optional = {"removable": self.removable, "job": job, "missing": lost}
        name = f"{self.name}-{plugin}-{file_part(host)}-{file_part(owner)}.msgpack"
        return FileDatabase(
            Path(self.directory, name),
            commit_threshold=self.commit_threshold,
            flush_interval=self.flush_interval,
            max_pending=self.max_pending,
            new=True,
            segment_size=self.segment_size,
            header={
                "plugin": plugin,
                "run": self.name,
                "run_uuid": self.uuid,
                "run_created": self.created,
                "cores": cpu_count(),
                **{fact: value for fact, value in optional.items() if value},
                **system.header_facts(),
                **header,
            },
        )


def make_settings(**given: Unpack[AllOptions]) -> RunSettings:
    """Return the settings of a new run.

    Options that are missing or None get their values from Dask's config.

    Raises
    ------
    RegistrationError
        If processes of this system cannot be recorded.
    InvalidArgumentError
        If an option or its value is invalid.
    """
    system.check_recording()
    check_names(given)
    values: dict[str, Any] = {name: setting(name, given.get(name)) for name in RECORDING}
    if values.pop("add_time_suffix"):
        values["name"] += f"-{int(time.time())}"
    values |= place_options(values["directory"], values["ship"])
    settings = RunSettings(**values)
    if not 1 <= settings.commit_threshold <= settings.max_pending:
        raise InvalidArgumentError(
            f"commit_threshold={settings.commit_threshold}, max_pending={settings.max_pending}: "
            "the first must be at least 1 and no more than the second."
        )
    return settings


# `recorded_settings`: settings of Dask and of the run that may explain why two runs differ.

#: Names of the recorded settings of Dask's config. Their values are read on the scheduler.
_DASK_SETTINGS = (
    "array.chunk-size",
    "dataframe.shuffle.method",
    "distributed.comm.compression",
    "distributed.p2p.storage.disk",
    "distributed.scheduler.active-memory-manager.start",
    "distributed.scheduler.work-stealing",
    "distributed.scheduler.worker-saturation",
    "distributed.worker.memory.pause",
    "distributed.worker.memory.spill",
    "distributed.worker.memory.target",
    "distributed.worker.memory.terminate",
    "optimization.fuse.active",
)
#: Options that are not recorded, because they do not affect the computation, or because the run's
#: files show their values anyway.
_NOT_SETTINGS = {"response_timeout", "orphan_timeout", "ship", "enable_nvtx"}


def recorded_settings(settings: RunSettings) -> dict[str, str]:
    """Return the settings for the header of the scheduler's file.

    The keys are the names of the settings in Dask's config. The values are texts.
    """
    values = {name: dask.config.get(name, None) for name in _DASK_SETTINGS}
    values |= {
        f"dasfprof.{option.name.replace('_', '-')}": getattr(settings, option.name)
        for option in fields(RunOptions)
        if option.name not in _NOT_SETTINGS
    }
    return {name: str(value) for name, value in values.items()}


def place_options(directory: Any, ship: ShipName) -> dict[str, Any]:
    """Return the fields of `RunSettings` that determine where files are written and sent.

    Raises
    ------
    InvalidArgumentError
        If the directory is neither a path nor a URL that fsspec knows, or if it contradicts `ship`.
    MissingExtraError
        If the URL needs a package that is not installed in this process's environment.
    """
    given = directory or "."
    if not isinstance(given, str | os.PathLike) or "\0" in str(given):
        raise InvalidArgumentError(
            f"directory={given!r} must be a str or a path, such as 'traces', or a URL, such as "
            "'s3://bucket/traces'."
        )
    if is_url(given):
        url = str(given).rstrip("/")
        if ship not in ("auto", "storage"):
            raise InvalidArgumentError(
                f"ship={ship!r} contradicts directory={shown(url)!r}: to upload files to a URL, "
                "pass ship='auto' or ship='storage'."
            )
        check_backend(url)
        return {"directory": "", "storage": url, "ship": "storage"}
    if ship == "storage":
        raise InvalidArgumentError(
            "ship='storage' needs the storage's URL as directory, such as 's3://bucket/traces'. "
            f"Got {os.fspath(given)!r}."
        )
    return {"directory": str(Path(given).expanduser().absolute()), "ship": ship}


def local_directory(run_uuid: str) -> str:
    """Return the directory to which the processes of this host write files before the upload."""
    return str(Path(tempfile.gettempdir(), f"dasfprof-{run_uuid}"))


logger = logging.getLogger(__name__)


def mark_of(directory: str, run_uuid: str) -> Path:
    """Return the path of the mark of a run in a directory, which is a hidden, empty file."""
    return Path(directory, f".dasfprof-{run_uuid}")


def place_mark(directory: str, run_uuid: str) -> None:
    """Create the mark of a run in a directory, if the directory can be written."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        mark_of(directory, run_uuid).touch()
    # Without a mark, workers send their files unless they share the scheduler's directory.
    except OSError as error:
        logger.debug("no mark in %s: %s", directory, error)


def sees_mark(directory: str, run_uuid: str) -> bool:
    """Return whether this process sees the mark of a run in a directory."""
    return mark_of(directory, run_uuid).exists()


def remove_mark(directory: str, run_uuid: str) -> None:
    """Remove the mark of a run from a directory, if it exists."""
    try:
        mark_of(directory, run_uuid).unlink(missing_ok=True)
    except OSError as error:
        logger.debug("the mark in %s cannot be removed: %s", directory, error)
