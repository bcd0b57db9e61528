"""`Sender`: sends a process's files to the scheduler or a storage, in a background thread.

The package's docstring describes the design. The files themselves are the queue. Therefore no data
has to be dropped, and a sender never has more than one piece in memory.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import chain
from pathlib import Path
from time import monotonic

from dasfprof.database import FileDatabase
from dasfprof.database.storage import reason
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.file_tails import PIECE_BYTES, FileTail, profiles_of

logger = logging.getLogger(__name__)

#: Seconds until a failed attempt is repeated: the first pause, the longest pause, and the longest
#: pause after the files were closed.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_AT_END = 0.5, 30.0, 1.0
#: Maximum seconds for which the event loop of a closing process waits for a sender.
_LOOP_LIMIT = 2.0
#: Minimum time limit (seconds) of an attempt.
_SHORTEST_LIMIT = 0.1


class NotTakenError(Exception):
    """Raised if the target does not accept data for now. The message contains the reason."""


class OverError(NotTakenError):
    """Raised if the target accepts no more data. The message is empty if the run has ended."""


class Sender(ABC):
    """Sends the files of one process in a background thread.

    Parameters
    ----------
    owner
        Name of the process in log messages.
    databases
        The databases whose files are sent. After each write to the first database, all files are
        checked for new data.
    is_closing
        A function that returns whether the process is about to end.
    abandoned
        Files of processes that ended before they had sent these files completely.
    """

    #: Name of the background thread.
    thread: str
    #: Name of the target in log messages.
    where: str
    #: Whether the run's directory on this host is removed after all files have arrived.
    moves = False
    #: Number of bytes per read.
    piece_bytes = PIECE_BYTES
    #: Seconds between two checks of the files for new data. After that pause, the thread waits up
    #: to `write_wait` seconds for the next write to the first database.
    pause, write_wait = 1.0, 0.0
    #: Maximum seconds for sending the remaining data after the files were closed: in a process that
    #: continues, and in a process that ends.
    end_limit, exit_limit = 2.5, 1.0

    def __init__(
        self,
        settings: RunSettings,
        owner: str,
        databases: Sequence[FileDatabase],
        is_closing: Callable[[], bool],
        abandoned: Sequence[Path] = (),
    ) -> None:
        #: Id of the run.
        self.run_uuid = settings.uuid
        #: Reason why the last attempt to send failed, or empty if the attempt succeeded.
        self.trouble = ""
        self._settings, self._owner, self._is_closing = settings, owner, is_closing
        self._abandoned = [FileTail([path], 0, self.piece_bytes) for path in abandoned]
        #: The databases, each with the tails of its files (segments).
        self._files: list[tuple[FileDatabase, list[FileTail]]] = [(db, []) for db in databases]
        # Several threads search for new segments, and must not create two tails for one segment.
        self._segments_lock = threading.Lock()
        self._has_warned, self._failures, self._failure_pause = False, 0, 0.0
        #: Number of requests to send all data, and number of requests that were handled, with or
        #: without success.
        self._requests = self._handled_requests = 0
        #: Time when sending ends, on the monotonic clock. None while the run is recorded, and its
        #: files are not closed.
        self.deadline: float | None = None
        #: Whether the closed files have arrived completely (`_done`), and whether this sender sends
        #: no more data (`_over`).
        self._done = self._over = False
        self._written = False
        self._changed = threading.Condition()
        databases[0].writer.after_drain = self._wrote
        _senders.add(self)
        name = f"dasfprof-{self.thread} {owner}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @abstractmethod
    def _send(self, limit: float, *, wait: bool, last: bool) -> None:
        """Send the data after the offset of each `FileTail`, and advance the offsets.

        `limit` is a time limit in seconds. If `wait` is true, return only after the data is on the
        target's disk. If `last` is true, the files are closed. Raise `OverError` if the target
        accepts no more data, and another error if some data did not arrive.
        """

    @abstractmethod
    def _arrived(self) -> Iterable[Path]:
        """Return the files that have arrived completely. This host can delete them."""

    def _is_due(self) -> bool:
        """Return whether new data is to be sent now, even if no method has requested it."""
        return True

    def _leave_loop(self) -> None:  # noqa: B027  (optional)
        """Stop using this process's event loop, because the loop may end."""

    @property
    def _tails(self) -> list[FileTail]:
        with self._segments_lock:
            for database, tails in self._files:
                paths = database.writer.paths
                for segment in range(len(tails), len(paths)):
                    tails.append(FileTail(paths, segment, self.piece_bytes))
            return [*self._abandoned, *chain.from_iterable(tails for _, tails in self._files)]

    def commit(self) -> None:
        """Send the data in the files, and wait until it has arrived or the attempt has failed."""
        self._request(0.5 * self._settings.response_timeout)

    def unsent_files(self) -> list[str]:
        """Return the names of files that have not arrived completely."""
        if self._done and self.moves:
            return []
        tails = self._tails
        unsent = [tail.path for tail in tails if tail.unsent()]
        unsent += [path for tail in tails for path in profiles_of(tail.path)]
        return [path.name for path in unsent]

    async def end(self) -> None:
        """Send the remaining data of the closed files.

        The event loop is not blocked, except for a moment in a closing process.
        """
        if self._is_closing():
            self.finish()
        else:
            await in_thread(self.finish)

    def finish(self) -> None:
        """Send the remaining data of the closed files, in the background if it takes long."""
        if not self._is_closing():
            self._finish(self.end_limit, 0.5 * self._settings.response_timeout)
            return
        # The event loop of a closing process may end at any await, and the interpreter ends daemon
        # threads. Therefore this blocks for a moment, and continues in a thread that is not a
        # daemon. The interpreter waits for such threads.
        self._leave_loop()
        limits = self.exit_limit, self.exit_limit
        thread = threading.Thread(target=self._finish, args=limits, name="dasfprof-last-blocks")
        thread.start()
        thread.join(min(self.exit_limit, _LOOP_LIMIT))

    def _finish(self, limit: float, wait: float) -> None:
        self.deadline = monotonic() + limit
        self._request(wait, until_done=True)

    def _request(self, limit: float, until_done: bool = False) -> None:
        """Request that the background thread sends all data, and wait for at most `limit` seconds.

        The wait ends after one attempt or, if `until_done` is true, after the last attempt.
        """
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
        # Send the first data immediately, so that a failure is logged early. The first attempt also
        # imports libraries and opens connections, which is impossible while the interpreter exits.
        while not self._over:
            request, deadline = self._requests, self.deadline
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
        """Wait until the next check of the files is due, and return whether to send data."""
        with self._changed:
            self._changed.wait_for(self._has_request, self._failure_pause or self.pause)
            # The other databases are written as often as the first. If nothing is written to the
            # first, their data is sent after this wait.
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
            if self._failures > 1:  # One failure may mean that a scheduler is busy for a while.
                self._warn(self.trouble)
            return False
        self.trouble, self._failures, self._failure_pause = "", 0, 0.0
        return True

    def _remove(self) -> None:
        """Delete from this host's disk the files that have arrived at the target."""
        for path in self._arrived():
            with suppress(OSError):
                path.unlink()
        if self.moves:
            with suppress(OSError):  # The directory may contain files of other processes.
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
    """Return the closed files of this process that are not completely in the run's storage.

    For each file name, the result has the reason why the last upload failed, or an empty text if it
    did not fail.
    """
    return {
        name: sender.trouble
        for sender in list(_senders)
        if sender.run_uuid == run_uuid and sender.deadline is not None
        for name in sender.unsent_files()
    }
