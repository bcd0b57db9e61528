"""Where a run's files are written and sent, and the mark by which a process knows."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from dasfprof.config.options import ShipName
from dasfprof.database.storage import check_backend, is_url, shown
from dasfprof.errors import InvalidArgumentError


class Place(NamedTuple):
    """Where a run's files are."""

    #: An absolute path; empty with `storage`.
    directory: str
    #: A URL; empty without.
    storage: str
    ship: ShipName


def choose_place(directory: Any, ship: ShipName) -> Place:
    """Return where files are written and sent.

    Raises
    ------
    InvalidArgumentError
        If the directory is neither a path nor a URL that fsspec knows, or does not go with `ship`.
    MissingExtraError
        If a URL needs a package that is not installed here.
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
                f"ship={ship!r} does not go with directory={shown(url)!r}: files are put there "
                "with 'auto' and 'storage'."
            )
        check_backend(url)
        return Place("", url, "storage")
    if ship == "storage":
        raise InvalidArgumentError(
            f"ship='storage' needs the storage's URL as directory, such as 's3://bucket/traces'; "
            f"got {os.fspath(given)!r}."
        )
    return Place(str(Path(given).expanduser().absolute()), "", ship)


def local_directory(run_uuid: str) -> str:
    """Return where processes of this host write what goes to a storage."""
    return str(Path(tempfile.gettempdir(), f"dasfprof-{run_uuid}"))


logger = logging.getLogger(__name__)


def mark_of(directory: str, run_uuid: str) -> Path:
    """Return the path of a run's mark: a hidden file, which is no trace."""
    return Path(directory, f".dasfprof-{run_uuid}")


def place_mark(directory: str, run_uuid: str) -> None:
    """Put the mark into the directory unless it is there.

    Where that cannot be written, there is none: workers then ship if they do not share the
    scheduler's directory.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        mark_of(directory, run_uuid).touch()
    except OSError as error:
        logger.debug("no mark in %s: %s", directory, error)


def sees_mark(directory: str, run_uuid: str) -> bool:
    """Return whether this process's directory has the mark."""
    return mark_of(directory, run_uuid).exists()


def remove_mark(directory: str, run_uuid: str) -> None:
    """Remove the mark, if it is there."""
    try:
        mark_of(directory, run_uuid).unlink(missing_ok=True)
    except OSError as error:
        logger.debug("the mark in %s stays: %s", directory, error)
