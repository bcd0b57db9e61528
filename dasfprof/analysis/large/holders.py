"""Which workers of a cluster have the files of a run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed import Client

from dasfprof.database import FileDatabase
from dasfprof.database.multi import identity_of, open_run
from dasfprof.database.reader import TraceFile
from dasfprof.errors import (
    DasfprofError,
    InvalidArgumentError,
    MissingExtraError,
    SourceNotFoundError,
)

#: What is told of a file: its path, what tells it from all others, and its bytes.
FileFacts = tuple[str, str, int]


def find_holders(client: Client, source: Any) -> tuple[list[FileFacts], list[list[str]]]:
    """Find the files of a run, as the client or the workers know them.

    Returns
    -------
    files, holders
        The files, and for each the addresses of the workers that have it.

    Raises
    ------
    InvalidArgumentError
        If a file is of DASF's own profiler.
    SourceNotFoundError
        If neither the client nor a worker has such a run, or no worker has one of its files.
    MissingExtraError
        If a worker lacks what it takes.
    """
    _check_workers(client)
    try:
        wanted = files_of(source)
    except SourceNotFoundError:
        everywhere = client.run(_files_there, str(source))
        wanted = _longest(itertools.chain.from_iterable(everywhere.values()))
        if not wanted:
            raise
    else:
        everywhere = client.run(_among, wanted)
    holders = [
        [address for address, found in everywhere.items() if file in found] for file in wanted
    ]
    check_holders(client, wanted, holders)
    return wanted, holders


def check_holders(
    client: Client, wanted: Sequence[FileFacts], holders: Sequence[list[str]]
) -> None:
    """Check that some worker has each file.

    Raises
    ------
    SourceNotFoundError
        If none has one.
    """
    for (path, _, _), having in zip(wanted, holders, strict=True):
        if not having:
            raise SourceNotFoundError(
                f"no worker of {client.scheduler.address} has {path}: put the run's files where "
                "the workers see them, under the same path, or leave client= out."
            )


def files_of(source: Any) -> list[FileFacts]:
    """Return the files of a run that this process sees.

    Raises
    ------
    InvalidArgumentError
        If one is of DASF's own profiler.
    """
    databases = open_run(source).databases
    if not all(isinstance(item, FileDatabase) for item in databases):
        raise InvalidArgumentError(
            "files of DASF's own profiler are analysed in memory: leave client= out."
        )
    return [_facts(item.path) for item in databases if isinstance(item, FileDatabase)]


def _facts(path: Path) -> FileFacts:
    path = path.resolve()
    return str(path), identity_of(TraceFile(path).read_header()), path.stat().st_size


def _files_there(source: str) -> list[FileFacts]:
    try:
        return files_of(source)
    except DasfprofError:
        return []


def _among(wanted: list[FileFacts]) -> list[FileFacts]:
    """Return which files this process has: of the same name and content, by the header."""
    return [file for file in wanted if Path(file[0]).is_file() and _facts(Path(file[0])) == file]


def _longest(found: Any) -> list[FileFacts]:
    """Return each file once: the longest of its copies."""
    kept: dict[str, FileFacts] = {}
    for path, identity, size in found:
        known = kept.get(identity or path)
        if known is None or known[2] < size:
            kept[identity or path] = path, identity, size
    return sorted(kept.values())


def _check_workers(client: Client) -> None:
    def missing() -> list[str]:
        import importlib.util

        return [name for name in ("dasfprof", "pyarrow") if not importlib.util.find_spec(name)]

    for address, lacks in client.run(missing).items():
        if lacks:
            raise MissingExtraError(
                f"the worker {address} lacks {' and '.join(lacks)}: there, too, "
                'pip install "dasfprof[big]".'
            )
