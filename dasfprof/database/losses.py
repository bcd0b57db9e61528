"""`Losses`: counts the dropped events of a trace by cause. Functions turn the counts into text."""

from __future__ import annotations

import errno
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dasfprof.text import count_of, elide, name_first

logger = logging.getLogger(__name__)

#: Description of each cause, which completes a sentence that begins with the number of events.
CAUSES: Mapping[str, str] = {
    "too fast": "came faster than they could be written",
    "disk full": "found the disk full",
    "disk gone": "could not be written: the disk or the directory was removed, or did not answer",
    "not encoded": "contained a value that cannot be encoded",
    "recorder failed": (
        "were lost because of an error in the recorder, the first of which is in the log"
    ),
    "no memory": "could not be encoded because memory ran out",
    "interrupted": "were being written when a signal or the end of the program interrupted this",
    "too many stacks": "lack their stack, because the file has 20,000 others",
    "too many functions": (
        "are not in a profile of calls, because the worker has profiles of 200 other functions"
    ),
    "too many logs": (
        "were logged after the first 20 of their task run, or after 10,000 on their worker"
    ),
    "too much storage": "of storage belong to task runs beyond 10,000 that had not ended yet",
    "too many tracebacks": (
        "lack their traceback, because the worker has those of 1000 other task runs"
    ),
}

#: Maximum number of characters of an event kind's name in a message.
_LONGEST_NAME = 60

#: Error numbers that mean that the disk or a quota is full.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Losses:
    """Counts of dropped events by cause.

    The first loss and the final total are logged. Any thread may add counts.

    Parameters
    ----------
    path
        A function that returns the file's path, for messages. The path may change until the file is
        created.
    """

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        #: Number of dropped events by cause. Causes that did not occur are missing.
        self.by_cause: dict[str, int] = {}
        #: Number of errors that were caught in hooks and during encoding.
        self.errors = 0
        #: Number of dropped events by cause, and number of errors, in earlier segments.
        self._earlier_losses: dict[str, int] = {}
        self._earlier_errors = 0
        self._warned = False
        self._lock = threading.RLock()

    @property
    def dropped(self) -> int:
        """The total number of dropped events."""
        return sum(self.by_cause.copy().values())

    def add(self, cause: str, count: int = 1) -> None:
        """Count dropped events."""
        # Log nothing here, because logging may block the thread that records.
        if count:
            with self._lock:
                self.by_cause[cause] = self.by_cause.get(cause, 0) + count

    def warn(self, what: str, error: Exception | None = None, trace: bool = False) -> None:
        """Log that events were dropped, and how many so far. Only the first call logs this.

        `what` is the beginning of the message, and `error` is the cause of the loss. If `trace` is
        true, the error's traceback is also logged.
        """
        if not self._warned:
            self._warned = True
            why = f" ({error})" if error else ""
            logger.warning(
                "%s the trace %s%s; %s dropped so far. The total is logged when the trace is "
                "closed. The trace also contains it if it can be written again.",
                what,
                self._path(),
                why,
                f"{self.dropped:,}",
                exc_info=error if trace else None,
            )

    def warn_of_all(self) -> None:
        """Log the total number of dropped events, if any were dropped."""
        if self.by_cause:
            description = describe_losses(self.dropped, self.by_cause)
            logger.warning("the trace %s is closed; it lacks %s.", self._path(), description)

    def about(self) -> dict[str, Any]:
        """Return the entries by which each frame reports its segment's losses (FORMAT.md)."""
        by_cause = Counter(self.by_cause.copy()) - Counter(self._earlier_losses)
        errors = self.errors - self._earlier_errors
        about: dict[str, Any] = {"dropped": by_cause.total(), "errors": errors}
        return {**about, "dropped_by": dict(by_cause)} if by_cause else about

    def begin_segment(self) -> None:
        """Make `about` count from 0 again, for the frames of a new segment."""
        self._earlier_losses, self._earlier_errors = self.by_cause.copy(), self.errors


def cause_of(error: BaseException) -> str:
    """Return the cause under which a loss is counted, given the error that was raised."""
    is_full = isinstance(error, OSError) and error.errno in _FULL
    return "disk full" if is_full else "disk gone"


def describe_losses(dropped: int, by_cause: Mapping[str, int]) -> str:
    """Return a description of the number of dropped events and of the causes.

    Examples
    --------
    >>> describe_losses(3, {"disk full": 3})
    '3 facts: 3 found the disk full'
    >>> describe_losses(3, {"disk full": 2})
    '3 facts: 2 found the disk full, 1 for an unknown reason'
    """
    known = {cause: by_cause[cause] for cause in CAUSES if cause in by_cause}
    parts = [f"{count:,} {CAUSES[cause]}" for cause, count in known.items()]
    # Events in traces of earlier versions may have no known cause.
    unknown = dropped - sum(known.values())
    if unknown > 0:
        parts.append(f"{unknown:,} for an unknown reason")
    return f"{count_of(dropped, 'fact')}: {', '.join(parts)}"


def describe_unknown_events(by_name: Mapping[str, int]) -> str:
    """Return a description of events in a plugin's file whose kinds this version does not know.

    Examples
    --------
    >>> describe_unknown_events({"Pause": 3})
    '3 events of kinds that this version of dasfprof does not know: Pause (3)'
    """
    counts = sorted(by_name.items(), key=lambda item: -item[1])
    names = [f"{elide(name, _LONGEST_NAME)} ({count:,})" for name, count in counts]
    events = count_of(sum(by_name.values()), "event")
    return f"{events} of kinds that this version of dasfprof does not know: {name_first(names)}"
