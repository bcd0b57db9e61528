"""The mark that shows a process whether its directory is the client's, or the scheduler's."""

from __future__ import annotations

import logging
from pathlib import Path

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
