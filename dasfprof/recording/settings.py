"""`RunSettings`: the settings of a run, which the plugins take to every worker."""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask.utils import parse_timedelta

from dasfprof.config import setting
from dasfprof.database import FileDatabase
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.dask_internals.names import missing

#: Bytes of a run's name. A file's has the plugin, the host and the worker behind it, and the limit
#: of most file systems is 255.
_LONGEST_NAME = 100


@dataclass(frozen=True)
class RunSettings:
    """A run's name and identity, the directory of its files and how they are written.

    Remote workers do not have the client's config, so everything that they need is here.
    """

    #: Prefix of the names of the run's files.
    name: str
    #: The directory of the files, the same path on every host.
    directory: str
    commit_threshold: int = 5000
    #: Seconds.
    flush_interval: float = 1.0
    max_pending: int = 100_000
    #: Seconds.
    sample_interval: float = 0.1
    #: Seconds to wait for the answer of each process.
    response_timeout: float = 5.0
    #: Identifies the run among others with the same name.
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: Unix seconds.
    created: float = field(default_factory=time.time)

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
            header={
                "plugin": plugin,
                "run": self.name,
                "run_uuid": self.uuid,
                "run_created": self.created,
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
        If the name cannot begin a file's or contains a path separator, the directory is no path, a
        number is not a number or not positive, or a switch is neither True nor False.
    """
    name = str(setting("name", name))
    if not name or name != Path(name).name or name in (".", "..") or "\0" in name:
        raise InvalidArgumentError(
            f"name={name!r}: a run's name is the prefix of file names, so it must not be empty or "
            "contain a path separator or a null; set the place of the files with directory=."
        )
    if len(os.fsencode(name)) > _LONGEST_NAME:
        raise InvalidArgumentError(
            f"name={name!r}: a run's name is the prefix of file names, so it must not be longer "
            f"than {_LONGEST_NAME} bytes."
        )
    if switch("add-time-suffix", add_time_suffix):
        name = f"{name}-{int(time.time())}"
    given = setting("directory", directory) or "."
    if not isinstance(given, str | os.PathLike) or "\0" in str(given):
        raise InvalidArgumentError(
            f"directory={given!r} must be a str or a path, such as 'traces'."
        )
    chosen = Path(given).expanduser().absolute()
    settings = RunSettings(
        name,
        str(chosen),
        commit_threshold=_whole("commit-threshold", options.get("commit_threshold")),
        flush_interval=_seconds("flush-interval", options.get("flush_interval")),
        max_pending=_whole("max-pending", options.get("max_pending")),
        sample_interval=_seconds("sample-interval", options.get("sample_interval")),
        response_timeout=_seconds("response-timeout", options.get("response_timeout")),
    )
    if not 1 <= settings.commit_threshold <= settings.max_pending:
        raise InvalidArgumentError(
            f"commit_threshold={settings.commit_threshold}, max_pending={settings.max_pending}: "
            "the first must be at least 1 and no more than the second."
        )
    return settings


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


def _file_part(text: str) -> str:
    """Return text as a safe part of a file's name."""
    scheme, _, rest = str(text).rpartition("://")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", rest if scheme else str(text))[:80] or "_"
