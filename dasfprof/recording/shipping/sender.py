"""`Sender`: sends a process's files to the scheduler or a storage, in a background thread.

The package's docstring describes the design. The files themselves are the queue, so nothing has to
be dropped, and the memory is that of one piece.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from time import monotonic

from dasfprof.database import FileDatabase
from dasfprof.database.storage import reason
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.file_tails import PIECE_BYTES, FileTails, profiles_of

logger = logging.getLogger(__name__)

#: Seconds until a failed attempt is repeated, at first and at most, and at most when the files are
#: closed.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_AT_END = 0.5, 30.0, 1.0
#: Maximum seconds for which the event loop of a closing process waits.
_LOOP_LIMIT = 2.0
#: Minimum time limit (seconds) of an attempt.
_SHORTEST_LIMIT = 0.1


class NotTakenError(Exception):
    """The target does not accept data for now, for the reason in the message."""


class OverError(NotTakenError):
    """The target accepts no more data. The message has the reason, or is empty if the run ended."""


class Sender(ABC):
    """Sends the files of one process in a background thread.

    Parameters
    ----------
    settings
        The run.
    owner
        Name of the process, for messages.
    databases
        The files. When the first of them was written, all of them are checked for new data.
    is_closing
        Returns whether the process is about to end.
    abandoned
        See `FileTails`.
    """

    #: Name of its thread.
    thread: str
    #: Name of the target, for messages.
    where: str
    #: Whether the run's directory on this host is removed when everything has arrived.
    moves = False
    #: Number of bytes per read.
    piece_bytes = PIECE_BYTES
    #: Seconds until the next check of the files, and maximum seconds to wait for a write then.
    pause, write_wait = 1.0, 0.0
    #: Seconds for which sending is tried after the files were closed, in a process that continues
    #: and in one that ends.
    end_limit, exit_limit = 2.5, 1.0

    def __init__(
        self,
        settings: RunSettings,
        owner: str,
        databases: Sequence[FileDatabase],
        is_closing: Callable[[], bool],
        abandoned: Sequence[Path] = (),
    ) -> None:
        #: Identifies the run.
        self.run_uuid = settings.uuid
        #: Reason why the last attempt failed, or empty if it succeeded.
        self.trouble = ""
        self._settings, self._owner, self._is_closing = settings, owner, is_closing
        self._tails = FileTails(databases, self.piece_bytes, abandoned)
        self._has_warned, self._failures, self._failure_pause = False, 0, 0.0
        #: Number of requests to send everything, and of requests for which this was tried.
        self._requests = self._handled_requests = 0
        #: When to stop trying, on the monotonic clock. None while the run is recorded.
        self._deadline: float | None = None
        #: Whether the closed files have arrived completely, and whether nothing more will be sent.
        self._done = self._over = False
        self._written = False
        self._changed = threading.Condition()
        databases[0].writer.after_drain = self._wrote
        _senders.add(self)
        name = f"dasfprof-{self.thread} {owner}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @abstractmethod
    def _send(self, limit: float, *, wait: bool, last: bool) -> None:
        """Send the data after the offsets of the tails, and advance the offsets.

        With `wait`, return when the data is on the target's disk. With `last`, the files are
        closed. Raises `OverError` if the target accepts no more data, and other errors if some data
        did not arrive.
        """

    @abstractmethod
    def _arrived(self) -> Iterable[Path]:
        """Return the files that have arrived completely, and are no longer needed here."""

    def _is_due(self) -> bool:
        """Return whether to send new data without a request."""
        return True

    def _leave_loop(self) -> None:  # noqa: B027  (optional)
        """Stop using this process's event loop, because it may end."""

    @property
    def is_ending(self) -> bool:
        """Whether the files are closed."""
        return self._deadline is not None

    def commit(self) -> None:
        """Return when the data in the files has arrived, or an attempt to send it failed."""
        self._request(0.5 * self._settings.response_timeout)

    def unsent_files(self) -> list[str]:
        """Return the names of files that have not arrived completely."""
        if self._done and self.moves:
            return []
        tails = list(self._tails)
        unsent = [tail.path for tail in tails if tail.unsent()]
        unsent += [path for tail in tails for path in profiles_of(tail.path)]
        return [path.name for path in unsent]

    async def end(self) -> None:
        """Send the remaining data of the closed files. See `finish`."""
        if self._is_closing():
            self.finish()
        else:
            await in_thread(self.finish)

    def finish(self) -> None:
        """Send the remaining data of the closed files, in the background if it takes long.

        The event loop of a closing process may end at any await, and the interpreter ends daemon
        threads. So this blocks for a moment, and the interpreter waits for a thread that is not a
        daemon.
        """
        if not self._is_closing():
            self._finish(self.end_limit, 0.5 * self._settings.response_timeout)
            return
        self._leave_loop()
        limits = self.exit_limit, self.exit_limit
        thread = threading.Thread(target=self._finish, args=limits, name="dasfprof-last-blocks")
        thread.start()
        thread.join(min(self.exit_limit, _LOOP_LIMIT))

    def _finish(self, limit: float, wait: float) -> None:
        self._deadline = monotonic() + limit
        self._request(wait, until_done=True)

    def _request(self, limit: float, until_done: bool = False) -> None:
        """Request that everything is sent, and wait until this was tried, or until it succeeded."""
        with self._changed:
            self._requests += 1
            request = self._requests
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._over or (not until_done and self._handled_requests >= request), limit
            )

    def _has_request(self) -> bool:
        return self._requests > self._handled_requests

    def _wrote(self) -> None:
        with self._changed:
            self._written = True
            self._changed.notify_all()

    def _run(self) -> None:
        # The first data is sent immediately, so that a failure is logged early, and libraries are
        # loaded and connected, which is impossible while the interpreter exits.
        while not self._over:
            request, deadline = self._requests, self._deadline
            done = self._try_to_send(deadline) and deadline is not None
            if done:
                self._remove()
            with self._changed:
                self._handled_requests, self._done = request, done
                self._over |= done or (deadline is not None and monotonic() > deadline)
                self._changed.notify_all()
            while not (self._over or self._wait()):
                pass
        _senders.discard(self)
        if self.moves and not self._done:
            logger.warning(
                "the trace of %s is not completely in %s. All of it stays in %s on this host.",
                self._owner,
                self.where,
                self._settings.directory,
            )

    def _wait(self) -> bool:
        """Wait for the next check, and return whether to send."""
        with self._changed:
            self._changed.wait_for(self._has_request, self._failure_pause or self.pause)
            # The other files are written as often as the first. If nothing is written to the first,
            # they are sent without it.
            self._changed.wait_for(lambda: self._written or self._has_request(), self.write_wait)
            self._written = False
        return bool(self._failure_pause) or self._has_request() or self._is_due()

    def _try_to_send(self, deadline: float | None) -> bool:
        """Send the data in the files, and return whether all of it has arrived."""
        limit = self._settings.response_timeout if deadline is None else deadline - monotonic()
        try:
            is_last = deadline is not None
            wait = self._has_request() or is_last
            self._send(max(limit, _SHORTEST_LIMIT), wait=wait, last=is_last)
        except OverError as error:
            self._over = True
            if str(error):
                self._warn(str(error))
            return False
        except (Exception, CancelledError) as error:
            self._failures += 1
            longest = _LONGEST_PAUSE if deadline is None else _LONGEST_AT_END
            self._failure_pause = min(max(2 * self._failure_pause, _FIRST_PAUSE), longest)
            self.trouble = str(error) if isinstance(error, NotTakenError) else reason(error)
            if self._failures > 1:  # A scheduler may be busy for a while.
                self._warn(self.trouble)
            return False
        self.trouble, self._failures, self._failure_pause = "", 0, 0.0
        return True

    def _remove(self) -> None:
        """Remove the files that have arrived from this disk."""
        for path in self._arrived():
            with suppress(OSError):
                path.unlink()
        if self.moves:
            with suppress(OSError):  # Other processes write to this directory, too.
                Path(self._settings.directory).rmdir()

    def _warn(self, trouble: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the trace of %s does not reach %s now: %s. Further failures are not logged. "
                "Everything is in %s on this host. While this process is running, %s copies the "
                "missing data.",
                self._owner,
                self.where,
                trouble,
                self._settings.directory,
                "run.collect(destination)" if self._settings.client else "`dasfprof collect`",
            )


#: The active senders of this process.
_senders: set[Sender] = set()


def files_to_upload(run_uuid: str) -> dict[str, str]:
    """Return this process's closed files of a run that have not arrived, with the reasons."""
    senders = [each for each in list(_senders) if each.run_uuid == run_uuid and each.is_ending]
    return {name: sender.trouble for sender in senders for name in sender.unsent_files()}
