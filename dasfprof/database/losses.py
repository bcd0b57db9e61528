"""Facts that did not get into a trace: how many, for what cause, and who is told."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

logger = logging.getLogger(__name__)

Cause = Literal["too fast", "disk full", "disk gone", "not encoded"]

#: What each cause means, for people.
CAUSES: Mapping[str, str] = {
    "too fast": "came faster than they were written",
    "disk full": "found the disk full",
    "disk gone": "could not be written: the disk or the directory was gone, or did not answer",
    "not encoded": "held a value that cannot be encoded",
}

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Losses:
    """Counts facts dropped by cause, and tells of them: the first in one line, all at the end.

    Any thread may add.

    Parameters
    ----------
    path
        Gives the file's path, for messages: it is settled when the file is created.
    """

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        #: Facts dropped by cause; causes that did not occur are absent.
        self.by_cause: dict[str, int] = {}
        #: Errors caught in hooks and in encoding.
        self.errors = 0
        self._warned = False
        self._lock = threading.RLock()

    @property
    def dropped(self) -> int:
        """Facts dropped, of all causes."""
        return sum(self.by_cause.copy().values())

    def add(self, cause: Cause, count: int = 1) -> None:
        """Count facts as dropped; logs nothing, since that may block what records."""
        if count:
            with self._lock:
                self.by_cause[cause] = self.by_cause.get(cause, 0) + count

    def warn(self, what: str, error: Exception | None = None, trace: bool = False) -> None:
        """Log the first loss, with its number; later calls do nothing."""
        if not self._warned:
            self._warned = True
            why = f" ({error})" if error else ""
            logger.warning(
                "%s the trace %s%s; %s dropped so far. The number of all is logged when it is "
                "closed, and is in the trace if that can be written again.",
                what,
                self._path(),
                why,
                f"{self.dropped:,}",
                exc_info=error if trace else None,
            )

    def warn_of_all(self) -> None:
        """Log the number of all losses, if there are any."""
        if self.by_cause:
            told = told_losses(self.dropped, self.by_cause)
            logger.warning("the trace %s is closed, without %s.", self._path(), told)

    def about(self) -> dict[str, Any]:
        """Give what every frame tells of losses so far (FORMAT.md)."""
        about: dict[str, Any] = {"dropped": self.dropped, "errors": self.errors}
        if self.by_cause:
            about["dropped_by"] = self.by_cause.copy()
        return about


def cause_of(error: BaseException) -> Cause:
    """Tell the cause of a loss from the error that writing raised."""
    return "disk full" if is_full(error) else "disk gone"


def is_full(error: BaseException) -> bool:
    """Tell whether an error says that there is no room: on the disk, or in a quota."""
    return isinstance(error, OSError) and error.errno in _FULL


def told_losses(dropped: int, by_cause: Mapping[str, int]) -> str:
    """Say how many facts were dropped and why.

    What the causes do not account for (traces of earlier versions tell none) has an unknown cause.

    Examples
    --------
    >>> told_losses(3, {"disk full": 3})
    '3 facts: 3 found the disk full'
    >>> told_losses(3, {"disk full": 2})
    '3 facts: 2 found the disk full, 1 for a cause that the trace does not tell'
    """
    known = {cause: by_cause[cause] for cause in CAUSES if cause in by_cause}
    told = [f"{count:,} {CAUSES[cause]}" for cause, count in known.items()]
    unknown = dropped - sum(known.values())
    if unknown > 0:
        told.append(f"{unknown:,} for a cause that the trace does not tell")
    return f"{dropped:,} fact{'s' * (dropped != 1)}: {', '.join(told)}"
