"""Facts that are missing from a trace: their number by cause, and how it is reported."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dasfprof.text import count_of, elide, name_first

logger = logging.getLogger(__name__)

#: The words for each cause.
CAUSES: Mapping[str, str] = {
    "too fast": "came faster than they were written",
    "disk full": "found the disk full",
    "disk gone": "could not be written: the disk or the directory was gone, or did not answer",
    "not encoded": "held a value that cannot be encoded",
    "recorder failed": "were lost to an error of the recorder: the log has the first",
    "no memory": "found no memory to be encoded in",
    "interrupted": "were being written as a signal or the end of the program interrupted that",
    "too many stacks": "lack their stack: the file has 20,000 others",
    "too many functions": "are in no profile of calls: the worker has those of 200 other functions",
    "too many logs": "were logged by task runs beyond 20 of each, or 10,000 of a worker",
    "too much storage": "of storage are of task runs beyond 10,000 whose ends were not seen yet",
    "too many tracebacks": "lack their traceback: the worker has those of 1000 other task runs",
}

#: Characters of the name of a kind of events in a message.
_LONGEST_NAME = 60

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Losses:
    """Counts dropped facts by cause; logs the first loss, and the total at the end.

    Any thread may add.

    Parameters
    ----------
    path
        Returns the file's path, for messages: the path is final when the file is created.
    """

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        #: Facts dropped by cause; causes that did not occur are absent.
        self.by_cause: dict[str, int] = {}
        #: Errors caught in hooks and in encoding.
        self.errors = 0
        self._told: dict[str, int] = {}
        self._errors_told = 0
        self._warned = False
        self._lock = threading.RLock()

    @property
    def dropped(self) -> int:
        """Number of dropped facts, of all causes."""
        return sum(self.by_cause.copy().values())

    def add(self, cause: str, count: int = 1) -> None:
        """Count facts as dropped. Logs nothing, as logging may block the thread that records."""
        if count:
            with self._lock:
                self.by_cause[cause] = self.by_cause.get(cause, 0) + count

    def warn(self, what: str, error: Exception | None = None, trace: bool = False) -> None:
        """Log the first loss and the number so far; later calls do nothing."""
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
        """Log the total number of losses, if any."""
        if self.by_cause:
            told = describe_losses(self.dropped, self.by_cause)
            logger.warning("the trace %s is closed; it lacks %s.", self._path(), told)

    def about(self) -> dict[str, Any]:
        """Return the entries of every frame that count the losses of its segment (FORMAT.md)."""
        of_segment = {
            cause: count - self._told.get(cause, 0) for cause, count in self.by_cause.copy().items()
        }
        of_segment = {cause: count for cause, count in of_segment.items() if count}
        dropped, errors = sum(of_segment.values()), self.errors - self._errors_told
        about: dict[str, Any] = {"dropped": dropped, "errors": errors}
        return {**about, "dropped_by": of_segment} if of_segment else about

    def begin_segment(self) -> None:
        """Count from here: the frames of the last segment have told of what was lost before."""
        self._told, self._errors_told = self.by_cause.copy(), self.errors


def cause_of(error: BaseException) -> str:
    """Return the cause of a loss, by the error that writing raised."""
    return "disk full" if is_full(error) else "disk gone"


def is_full(error: BaseException) -> bool:
    """Return whether an error says that the disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def describe_losses(dropped: int, by_cause: Mapping[str, int]) -> str:
    """Describe how many facts were dropped and why.

    Facts without a cause, as in traces of earlier versions, are reported as such.

    Examples
    --------
    >>> describe_losses(3, {"disk full": 3})
    '3 facts: 3 found the disk full'
    >>> describe_losses(3, {"disk full": 2})
    '3 facts: 2 found the disk full, 1 for an unknown cause'
    """
    known = {cause: by_cause[cause] for cause in CAUSES if cause in by_cause}
    told = [f"{count:,} {CAUSES[cause]}" for cause, count in known.items()]
    unknown = dropped - sum(known.values())
    if unknown > 0:
        told.append(f"{unknown:,} for an unknown cause")
    return f"{dropped:,} fact{'s' * (dropped != 1)}: {', '.join(told)}"


def describe_unknown_events(by_name: Mapping[str, int]) -> str:
    """Describe the events of a plugin's file whose kinds this version does not know.

    Examples
    --------
    >>> describe_unknown_events({"Pause": 3})
    '3 events of kinds that this version of dasfprof does not know: Pause (3)'
    """
    counts = sorted(by_name.items(), key=lambda item: -item[1])
    names = [f"{elide(name, _LONGEST_NAME)} ({count:,})" for name, count in counts]
    events = count_of(sum(by_name.values()), "event")
    return f"{events} of kinds that this version of dasfprof does not know: {name_first(names)}"
