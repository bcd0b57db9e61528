"""`RunSettings`: the settings of a run, which the plugins take to every worker."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from dask.system import cpu_count
from dask.utils import parse_bytes, parse_timedelta

from dasfprof.config import setting
from dasfprof.database import FileDatabase
from dasfprof.database.file import DEFAULT_COMMIT_THRESHOLD
from dasfprof.database.storage import shown
from dasfprof.database.stored_names import run_directory
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.dask_internals.names import missing
from dasfprof.recording.shipping.places import ShipName, choose_place, local_directory

#: Bytes of a run's name. A file's has the plugin, the host and the worker behind it, and the limit
#: of most file systems is 255.
_LONGEST_NAME = 100
#: The profilers of calls that can be asked for.
ProfilerName = Literal["cprofile", "profile"]
#: What can trace the allocations of tasks.
MemoryTracer = Literal["tracemalloc"]
#: How arguments of task runs can be recorded.
ArgumentsKept = Literal["types", "values", "off"]

#: The levels of records of tasks that can be asked for.
_LOG_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": 1 << 30,
}

#: Bytes; more than a header.
_LEAST_SEGMENT = 1000
#: Looks a second. Each takes up to 6 ms of waiting.
_HIGHEST_FREQUENCY = 100


@dataclass(frozen=True)
class RunSettings:
    """A run's name and identity, the directory of its files and how they are written.

    Remote workers do not have the client's config, so everything that they need is here.
    """

    #: Prefix of the names of the run's files.
    name: str
    #: The directory of the files, the same path on every host; with `storage` one of each host.
    directory: str
    commit_threshold: int = DEFAULT_COMMIT_THRESHOLD
    #: Seconds.
    flush_interval: float = 1.0
    max_pending: int = 100_000
    #: Bytes of a file after which a process begins another.
    segment_size: int = 256_000_000
    #: Seconds.
    sample_interval: float = 0.1
    #: Looks a second at the stacks of tasks, blocked event loops and the client; 0: none.
    stack_frequency: float = 0.0
    #: What counts the calls of tasks' functions; None: nothing.
    profiler: ProfilerName | None = None
    #: What traces the allocations of tasks; None: nothing.
    memory: MemoryTracer | None = None
    #: The least level of records of `logging` of tasks, and whether messages have their values.
    log_level: int = logging.WARNING
    log_values: bool = False
    #: Whether what tasks print is kept.
    record_prints: bool = False
    #: Whether arguments of task runs are kept, and by what.
    arguments: ArgumentsKept = "types"
    #: Whether the source of tasks' functions is kept.
    record_code: bool = True
    #: Seconds to wait for the answer of each process.
    response_timeout: float = 5.0
    #: Seconds for which the client may be gone before the run ends by itself.
    orphan_timeout: float = 300.0
    #: Whether workers send their files to the scheduler: where they need to, all, or none; or
    #: all processes to `storage`.
    ship: ShipName = "auto"
    #: URL of the storage to which files are put; empty: none.
    storage: str = ""
    #: Whose run it is, see `dasfprof.recording.registration`: owners record beside each other.
    owner: str = ""
    #: Id of the client with whose process the run ends; empty: it ends with the cluster.
    client: str = ""
    #: Identifies the run among others with the same name.
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: Unix seconds.
    created: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if self.storage:
            object.__setattr__(self, "directory", local_directory(self.uuid))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle: what goes to a storage is first written to a directory of this host."""
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def source(self) -> str:
        """What `dasfprof.open_run` takes for this run."""
        return os.path.join(shown(self.storage) or self.directory, self.name)

    @property
    def stored_directory(self) -> str:
        """The name of the run's directory in `storage`."""
        return run_directory(self.name, self.created, self.uuid)

    def plugin_name(self, plugin: str) -> str:
        """Return the unique name of a plugin of this run on the cluster."""
        return f"dasfprof-{self.uuid}-{plugin}"

    def open_database(self, plugin: str, owner: str, header: dict[str, Any]) -> FileDatabase:
        """Return a new database for one plugin in this process.

        Parameters
        ----------
        plugin
            ``TracePlugin``, ``SchedulerPlugin`` or ``ResourceMonitor``.
        owner
            The worker's name, or ``scheduler``: the last part of the file's name.
        header
            Further entries of the file's header.
        """
        host = socket.gethostname()
        lost = missing(plugin)
        parts = [self.name, plugin, *(_file_part(part) for part in (host, owner))]
        return FileDatabase(
            Path(self.directory, "-".join(parts) + ".msgpack"),
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
                **({"missing": lost} if lost else {}),
                **header,
            },
        )


def make_settings(
    name: str | None = None,
    add_time_suffix: bool | None = None,
    directory: str | Path | None = None,
    **options: Any,
) -> RunSettings:
    """Return the settings, with those that are None read from Dask's config.

    Raises
    ------
    InvalidArgumentError
        If the name cannot begin a file's or contains a path separator, the directory is no path or
        URL, or does not go with `ship`, a number is not a number or not positive, or a switch is
        neither True nor False.
    """
    name = str(setting("name", name))
    check_name(name)
    if switch("add-time-suffix", add_time_suffix):
        name = f"{name}-{int(time.time())}"
    place = choose_place(setting("directory", directory), setting("ship", options.get("ship")))
    profiler, sampled = _profiler(options.get("profiler"))
    settings = RunSettings(
        name,
        place.directory,
        commit_threshold=_whole("commit-threshold", options.get("commit_threshold")),
        flush_interval=_seconds("flush-interval", options.get("flush_interval")),
        max_pending=_whole("max-pending", options.get("max_pending")),
        segment_size=_bytes("segment-size", options.get("segment_size")),
        sample_interval=_seconds("sample-interval", options.get("sample_interval")),
        stack_frequency=_frequency(
            "stack-frequency", options.get("stack_frequency") if sampled else 0
        ),
        profiler=profiler,
        memory=_memory(options.get("memory")),
        log_level=_log_level(options.get("log_level")),
        log_values=switch("log-values", options.get("log_values")),
        record_prints=switch("record-prints", options.get("record_prints")),
        arguments=_arguments(options.get("arguments")),
        record_code=switch("record-code", options.get("record_code")),
        response_timeout=_seconds("response-timeout", options.get("response_timeout")),
        orphan_timeout=_seconds("orphan-timeout", options.get("orphan_timeout")),
        ship=place.ship,
        storage=place.storage,
    )
    if not 1 <= settings.commit_threshold <= settings.max_pending:
        raise InvalidArgumentError(
            f"commit_threshold={settings.commit_threshold}, max_pending={settings.max_pending}: "
            "the first must be at least 1 and no more than the second."
        )
    return settings


def check_name(name: str) -> None:
    """Check that a run's name can begin the names of its files.

    Raises
    ------
    InvalidArgumentError
        If it cannot.
    """
    if not name or name != Path(name).name or name in (".", "..") or "\0" in name:
        raise InvalidArgumentError(
            f"name={name!r}: a run's name is the prefix of file names, so it must not be empty or "
            "contain a path separator or a null; the place of the files is set by the directory."
        )
    if len(os.fsencode(name)) > _LONGEST_NAME:
        raise InvalidArgumentError(
            f"name={name!r}: a run's name is the prefix of file names, so it must not be longer "
            f"than {_LONGEST_NAME} bytes."
        )


def switch(name: str, given: Any) -> bool:
    """Return the value of a switch, from the argument or from Dask's config.

    Raises
    ------
    InvalidArgumentError
        If it is neither True nor False, such as text.
    """
    value = setting(name, given)
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name.replace('-', '_')}={value!r} must be True or False.")
    return value


def _bytes(name: str, given: Any) -> int:
    value = setting(name, given)
    try:
        size = int(parse_bytes(value))
    except (ValueError, TypeError, OverflowError):
        size = 0
    if isinstance(value, bool) or size < _LEAST_SEGMENT:
        raise InvalidArgumentError(
            f"{name.replace('-', '_')}={value!r} must be a size of at least 1 kB, such as '256MB'."
        )
    return size


def _whole(name: str, given: Any) -> int:
    value = setting(name, given)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgumentError(
            f"{name.replace('-', '_')}={value!r} must be a whole number of events, such as 5000."
        )
    return value


def _seconds(name: str, given: Any) -> float:
    value = setting(name, given)
    try:
        seconds = float(parse_timedelta(value, default="s"))
    except (ValueError, KeyError, TypeError):
        seconds = -1.0
    if not seconds > 0:
        raise InvalidArgumentError(
            f"{name.replace('-', '_')}={value!r} must be a positive time, such as 0.1 or '100ms'."
        )
    return seconds


def _profiler(given: Any) -> tuple[ProfilerName | None, bool]:
    """Return the profiler of calls, and whether stacks may be sampled."""
    value = setting("profiler", given)
    if value is None or value in get_args(ProfilerName):
        return value, True
    if value != "off":
        raise InvalidArgumentError(
            f"profiler={value!r} must be 'cprofile', 'profile' (the same in pure Python, many "
            "times slower), 'off' (nor are stacks sampled) or None."
        )
    return None, False


def _choice(name: str, given: Any, choices: tuple[Any, ...], words: str) -> Any:
    value = setting(name, given)
    if value not in choices:
        raise InvalidArgumentError(f"{name}={value!r} must be {words}.")
    return value


def _memory(given: Any) -> MemoryTracer | None:
    words = "'tracemalloc' (which lines of tasks allocate what they hold) or None"
    tracer: MemoryTracer | None = _choice("memory", given, (*get_args(MemoryTracer), None), words)
    return tracer


def _log_level(given: Any) -> int:
    value = setting("log-level", given)
    level = _LOG_LEVELS.get(value.lower()) if isinstance(value, str) else None
    if level is None:
        raise InvalidArgumentError(
            f"log_level={value!r} must be one of {', '.join(_LOG_LEVELS)}: the least of records "
            "that are kept; off: the first error of each task run alone."
        )
    return level


def _arguments(given: Any) -> ArgumentsKept:
    words = (
        "'types' (with dtype, shape and length), 'values' (of plain types as well: they may be "
        "secrets) or 'off'"
    )
    kept: ArgumentsKept = _choice("arguments", given, get_args(ArgumentsKept), words)
    return kept


def _frequency(name: str, given: Any) -> float:
    value = setting(name, given)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _HIGHEST_FREQUENCY:
        raise InvalidArgumentError(
            f"{name.replace('-', '_')}={value!r} must be a number of times a second from 0 (never) "
            f"to {_HIGHEST_FREQUENCY}, such as 20."
        )
    return float(value)


def _file_part(text: str) -> str:
    """Return text as a safe part of a file's name."""
    scheme, _, rest = str(text).rpartition("://")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", rest if scheme else str(text))[:80] or "_"
