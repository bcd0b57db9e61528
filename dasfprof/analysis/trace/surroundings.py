"""`Surroundings`: with what a run was recorded, as the headers of its files tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dasfprof.text import count_of


@dataclass(frozen=True)
class Surroundings:
    """With what a run was recorded. What no file tells is empty."""

    #: Of packages and Python, by name; several of one with a slash.
    versions: dict[str, str] = field(default_factory=dict)
    #: Of Dask and of the recording, by name.
    settings: dict[str, str] = field(default_factory=dict)
    #: Of each host the cores that its processes may run on, as Dask counts them.
    cores: dict[str, int] = field(default_factory=dict)
    #: The client's program. Its arguments are not recorded, only their number.
    command: str = ""
    #: Dask's own schedulers that ran its tasks without a cluster: threads, processes, sync.
    local: tuple[str, ...] = ()

    @classmethod
    def of(cls, headers: Iterable[Mapping[str, Any]]) -> Surroundings:
        """Gather what the headers of the files of a run tell."""
        headers = list(headers)
        cores: dict[str, int] = {}
        for header in headers:
            host, number = str(header.get("host", "")), header.get("cores")
            if isinstance(number, int):
                cores[host] = max(number, cores.get(host, 0))
        commands = dict.fromkeys(filter(None, map(_command, headers)))
        versions, settings = (_told(headers, entry) for entry in ("versions", "settings"))
        local = {str(header.get("local_scheduler") or "") for header in headers} - {""}
        return cls(versions, settings, cores, ", ".join(commands), tuple(sorted(local)))


def _told(headers: list[Mapping[str, Any]], entry: str) -> dict[str, str]:
    """Return the versions or settings that headers name, several of one with a slash."""
    found: dict[str, set[str]] = {}
    for header in headers:
        told = header.get(entry)
        for name, version in told.items() if isinstance(told, dict) else ():
            found.setdefault(str(name), set()).add(str(version))
    return {name: " / ".join(sorted(versions)) for name, versions in found.items()}


def _command(header: Mapping[str, Any]) -> str:
    command, number = header.get("command"), header.get("command_arguments")
    if not isinstance(command, str):
        return ""
    if not isinstance(number, int) or number < 1:
        return command
    return f"{command} ({count_of(number, 'argument')}, not recorded)"


# The profiles of calls that workers wrote beside their trace files: which there are, and where.


def call_profiles(events: pd.DataFrame, directories: Mapping[int, Path]) -> pd.DataFrame:
    """Return the last event of each worker and function, with the path of the file.

    Parameters
    ----------
    events
        All events.
    directories
        Of the files of each worker.
    """
    last = events.drop_duplicates(["worker_id", "name"], keep="last").reset_index(drop=True)
    files = zip(last.pop("file").astype(object), last["worker_id"].tolist(), strict=True)
    paths = [
        # Else it leads to another place than that of the trace.
        str(directories[worker] / name)
        if isinstance(name, str) and worker in directories and Path(name).name == name
        else None
        for name, worker in files
    ]
    return last.assign(path=pd.Series(paths, dtype=object))
