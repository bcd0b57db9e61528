"""`Sender`: sends what a process has written to where the run's files go. The package says why.

The process's own files are the queue: nothing has to be dropped, and memory is that of one piece. A
thread of its own sends, and a target that does not answer keeps nobody else waiting.
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

#: Seconds until what could not be sent is tried again, at first and at most; and at most when the
#: files are closed.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_AT_END = 0.5, 30.0, 1.0
#: The most seconds that the event loop of a closing process waits, and the least for one try.
_LOOP_LIMIT, _LEAST = 2.0, 0.1


class NotTakenError(Exception):
    """The other side says why it did not take something now."""


class OverError(NotTakenError):
    """Nothing more is taken of this process's files; the text says why, empty: the run ended."""


class Sender(ABC):
    """Sends the files of one process from a thread of its own.

    Parameters
    ----------
    settings
        The run.
    owner
        Whose files these are, for messages.
    databases
        The files. When the first one was written, all are looked at.
    is_closing
        Returns whether the process is about to end.
    left
        See `FileTails`.
    """

    #: What its thread is called, and where it sends, in messages.
    thread: str
    where: str
    #: Whether nothing of a run stays on this disk once it has arrived.
    moves = False
    #: Bytes of one read.
    piece_bytes = PIECE_BYTES
    #: Seconds until the next look at the files, and then for which one of them is awaited.
    pause, write_wait = 1.0, 0.0
    #: Seconds for which the rest is tried when the files are closed: in a process that goes on, and
    #: in one that ends.
    end_limit, exit_limit = 2.5, 1.0

    def __init__(
        self,
        settings: RunSettings,
        owner: str,
        databases: Sequence[FileDatabase],
        is_closing: Callable[[], bool],
        left: Sequence[Path] = (),
    ) -> None:
        #: Identifies the run.
        self.run_uuid = settings.uuid
        #: Why nothing could be sent just now; empty if it could.
        self.trouble = ""
        self._settings, self._owner, self._is_closing = settings, owner, is_closing
        self._tails = FileTails(databases, self.piece_bytes, left)
        self._told, self._failures, self._failure_pause = False, 0, 0.0
        #: How often somebody asked for all to be sent, and for how many of these it was tried.
        self._asked = self._tried_for = 0
        #: When to give up, on the monotonic clock; None while the run is recorded.
        self._deadline: float | None = None
        #: Whether all of the closed files has arrived; and whether nothing more will be sent.
        self._done = self._over = False
        self._written = False
        self._changed = threading.Condition()
        databases[0].writer.after_drain = self._wrote
        _senders.add(self)
        name = f"dasfprof-{self.thread} {owner}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @abstractmethod
    def _send(self, limit: float, *, wait: bool, last: bool) -> None:
        """Send what follows the offsets of the tails, and move these.

        `wait`: return when it is on the disk there. `last`: the files are closed. Raises
        `OverError` if nothing more is taken, and other errors if something did not arrive.
        """

    @abstractmethod
    def _arrived(self) -> Iterable[Path]:
        """Return files that are elsewhere in full, and are not needed here any more."""

    def _is_due(self) -> bool:
        """Return whether to send, although nobody asks for it."""
        return True

    def _leave_loop(self) -> None:  # noqa: B027  (not all use it)
        """Use this process's event loop no more: it may end."""

    @property
    def is_ending(self) -> bool:
        """Whether the files are closed."""
        return self._deadline is not None

    def commit(self) -> None:
        """Return when what is in the files has arrived, or could not be sent now."""
        self._ask(0.5 * self._settings.response_timeout)

    def unshipped(self) -> list[str]:
        """Return the names of files that have not arrived, or of which the end has not."""
        if self._done and self.moves:
            return []
        tails = list(self._tails)
        lacking = [tail.path for tail in tails if tail.unsent()]
        lacking += [path for tail in tails for path in profiles_of(tail.path)]
        return [path.name for path in lacking]

    async def end(self) -> None:
        """Send what is left. The files are closed by now."""
        if self._is_closing():
            self.finish()
        else:
            await in_thread(self.finish)

    def finish(self) -> None:
        """Do the same; the thread goes on if that takes longer than a run's end may take.

        The event loop of a closing process may end at any await, and the interpreter ends daemons:
        so it waits here for a moment, and the interpreter for a thread that is no daemon.
        """
        if not self._is_closing():
            self._finish(self.end_limit, 0.5 * self._settings.response_timeout)
            return
        self._leave_loop()
        limits = self.exit_limit, self.exit_limit
        thread = threading.Thread(target=self._finish, args=limits, name="dasfprof-last-blocks")
        thread.start()
        thread.join(min(self.exit_limit, _LOOP_LIMIT))

    def _finish(self, give_up: float, wait: float) -> None:
        self._deadline = monotonic() + give_up
        self._ask(wait, until_done=True)

    def _ask(self, limit: float, until_done: bool = False) -> None:
        """Have all sent; wait until that was tried, or succeeded."""
        with self._changed:
            self._asked += 1
            asked = self._asked
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._over or (not until_done and self._tried_for >= asked), limit
            )

    def _is_asked(self) -> bool:
        return self._asked > self._tried_for

    def _wrote(self) -> None:
        with self._changed:
            self._written = True
            self._changed.notify_all()

    def _run(self) -> None:
        # What is there is sent at once: a failure is told early, and libraries are loaded and
        # connected, which they cannot be any more while the interpreter exits.
        while not self._over:
            asked, deadline = self._asked, self._deadline
            done = self._try_to_send(deadline) and deadline is not None
            if done:
                self._remove()
            with self._changed:
                self._tried_for, self._done = asked, done
                self._over |= done or (deadline is not None and monotonic() > deadline)
                self._changed.notify_all()
            while not (self._over or self._wait()):
                pass
        _senders.discard(self)
        if self.moves and not self._done:
            logger.warning(
                "not all of the trace of %s is in %s; all of it stays in %s on this host.",
                self._owner,
                self.where,
                self._settings.directory,
            )

    def _wait(self) -> bool:
        """Wait for something to send; return whether to look at the files for it."""
        with self._changed:
            self._changed.wait_for(self._is_asked, self._failure_pause or self.pause)
            # The other files are written as often as the first; where nothing is written to that,
            # they are sent alone.
            self._changed.wait_for(lambda: self._written or self._is_asked(), self.write_wait)
            self._written = False
        return bool(self._failure_pause) or self._is_asked() or self._is_due()

    def _try_to_send(self, deadline: float | None) -> bool:
        """Send what is in the files; return whether all of it has arrived."""
        left = self._settings.response_timeout if deadline is None else deadline - monotonic()
        try:
            is_last = deadline is not None
            self._send(max(left, _LEAST), wait=self._is_asked() or is_last, last=is_last)
        except OverError as error:
            self._over = True
            if str(error):
                self._tell(str(error))
            return False
        except (Exception, CancelledError) as error:
            self._failures += 1
            longest = _LONGEST_PAUSE if deadline is None else _LONGEST_AT_END
            self._failure_pause = min(max(2 * self._failure_pause, _FIRST_PAUSE), longest)
            self.trouble = str(error) if isinstance(error, NotTakenError) else reason(error)
            if self._failures > 1:  # a scheduler may be busy for a while
                self._tell(self.trouble)
            return False
        self.trouble, self._failures, self._failure_pause = "", 0, 0.0
        return True

    def _remove(self) -> None:
        """Remove what has arrived from this disk."""
        for path in self._arrived():
            with suppress(OSError):
                path.unlink()
        if self.moves:
            with suppress(OSError):  # others write there, too
                Path(self._settings.directory).rmdir()

    def _tell(self, trouble: str) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                "the trace of %s does not reach %s now: %s. Further failures are not logged. "
                "Everything is in %s on this host; %s copies what has not arrived while this "
                "process is there.",
                self._owner,
                self.where,
                trouble,
                self._settings.directory,
                "run.collect(destination)" if self._settings.client else "`dasfprof collect`",
            )


#: Those of this process that go on.
_senders: set[Sender] = set()


def on_their_way(run_uuid: str) -> dict[str, str]:
    """Return the closed files of a run that have not arrived, of this process, and why."""
    found = [one for one in list(_senders) if one.run_uuid == run_uuid and one.is_ending]
    return {name: one.trouble for one in found for name in one.unshipped()}
