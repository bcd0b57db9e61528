"""Where a run's files are written and where they are sent, from what the user gave."""

from __future__ import annotations

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
