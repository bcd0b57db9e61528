"""`Uploader`: puts what a process has written into a storage, piece by piece.

The process's own files are the queue, so there is nothing to drop, and memory is that of one
piece. All is done in a thread of its own, which a storage that hangs keeps from nothing but the
next piece. A piece that could not be put is put again, the same bytes under the same name: the
storage may have it already, and then nothing changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from time import monotonic

from dasfprof.database import FileDatabase
from dasfprof.database.runs import file_directory, piece_name
from dasfprof.database.storage import Storage, reason, shown
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.shipper import FileTail, FileTails

logger = logging.getLogger(__name__)

#: A piece is put when it has so many bytes, or after so many seconds.
PIECE_BYTES, PIECE_SECONDS = 8_000_000, 30.0
#: Seconds between two looks at the files' sizes.
_LOOK = 1.0
#: Seconds until a piece that could not be put is tried again, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
#: Seconds for which a process that goes on tries to put what is left when the run has ended, and
#: the same for one that ends.
_END_LIMIT, _EXIT_LIMIT = 300.0, 10.0
#: The most seconds that the event loop of a closing process waits.
_LOOP_LIMIT = 2.0

#: Those of this process that have not put all.
_uploaders: set[Uploader] = set()


class Uploader:
    """Puts the files of one process into a storage from a thread of its own.

    Parameters
    ----------
    settings
        The run.
    owner
        Whose files these are, for messages.
    databases
        The files.
    is_closing
        Returns whether the process is about to end.
    """

    def __init__(
        self,
        settings: RunSettings,
        owner: str,
        databases: Sequence[FileDatabase],
        is_closing: Callable[[], bool],
    ) -> None:
        #: Identifies the run.
        self.run_uuid = settings.uuid
        self._settings = settings
        self._owner = owner
        self._is_closing = is_closing
        self._tails = FileTails(databases, PIECE_BYTES)
        self._storage: Storage | None = None
        #: Lengths of pieces that may be there although putting them failed, by the file's id.
        self._tried: dict[str, int] = {}
        #: When each profile of calls was written that is there.
        self._profiles: dict[Path, int] = {}
        #: Why nothing could be put just now; empty if it could.
        self.trouble = ""
        self._told = False
        #: How often somebody asked for all to be put, and for how many of these it was tried.
        self._asked = self._tried_for = 0
        #: When to give up, on the monotonic clock; None while the run is recorded.
        self._deadline: float | None = None
        #: Whether all of the closed files is there.
        self._done = False
        self._changed = threading.Condition()
        _uploaders.add(self)
        threading.Thread(target=self._run, name=f"dasfprof-uploader {owner}", daemon=True).start()

    @property
    def is_ending(self) -> bool:
        """Whether the files are closed."""
        return self._deadline is not None

    def commit(self) -> None:
        """Put what is in the files; return when it is there, or could not be put now."""
        self._ask(0.5 * self._settings.response_timeout)

    def unshipped(self) -> list[str]:
        """Return the names of files that the storage lacks, or their ends."""
        if self._done:
            return []
        return [tail.path.name for tail in self._tails if tail.path.exists()]

    async def end(self) -> None:
        """Put what is left. The files are closed by now."""
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
            self._finish(_END_LIMIT, 0.5 * self._settings.response_timeout)
            return
        thread = threading.Thread(
            target=self._finish, args=(_EXIT_LIMIT, _EXIT_LIMIT), name="dasfprof-last-pieces"
        )
        thread.start()
        thread.join(_LOOP_LIMIT)

    def _finish(self, give_up: float, wait: float) -> None:
        self._deadline = monotonic() + give_up
        self._ask(wait, until_done=True)

    def _ask(self, limit: float, until_done: bool = False) -> None:
        """Have all put; wait until that was tried, or succeeded."""
        with self._changed:
            self._asked += 1
            asked = self._asked
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._done or (not until_done and self._tried_for >= asked), limit
            )

    def _run(self) -> None:
        # The first piece is put at once: a failure is told early, and the library is loaded and
        # connected, which it cannot do any more while the interpreter exits.
        self._put_all()
        last, pause = float("-inf"), 0.0
        while not self._done:
            with self._changed:
                self._changed.wait_for(self._is_asked, pause or _LOOK)
            asked, deadline, now = self._asked, self._deadline, monotonic()
            is_due = now - last >= PIECE_SECONDS or any(map(_is_full, self._tails))
            if not (is_due or pause or self._is_asked()):
                continue
            if self._put_all():
                pause, ended = 0.0, deadline is not None
                last = now if any(tail.offset for tail in self._tails) else last
            else:
                ended, longest = False, _LONGEST_PAUSE if deadline is None else _LOOK
                pause = min(max(2 * pause, _FIRST_PAUSE), longest)
            if ended:
                self._remove()
            with self._changed:
                self._tried_for, self._done = asked, ended
                self._changed.notify_all()
            if deadline is not None and now > deadline:
                break
        _uploaders.discard(self)
        if not self._done:
            logger.warning(
                "not all of the trace of %s is in %s; all of it stays in %s on this host.",
                self._owner,
                shown(self._settings.storage),
                self._settings.directory,
            )

    def _is_asked(self) -> bool:
        return self._asked > self._tried_for

    def _put_all(self) -> bool:
        """Put what is in the files; return whether all of it is there."""
        try:
            if self._storage is None:
                self._storage = Storage(self._settings.storage)
            for tail in self._tails:
                self._put_file(self._storage, tail)
        except Exception as error:  # of whatever library
            self._tell(reason(error))
            return False
        if self.trouble:
            self.trouble = ""
            logger.info("the trace of %s reaches its storage again", self._owner)
        return True

    def _put_file(self, storage: Storage, tail: FileTail) -> None:
        while data := tail.read(self._tried.get(tail.id)):
            where = self._directory(tail)
            self._tried[tail.id] = len(data)
            storage.put(f"{where}/{piece_name(tail.offset)}", data)
            del self._tried[tail.id]
            tail.offset += len(data)
        for path in _profiles_of(tail.path):
            written = path.stat().st_mtime_ns
            if self._profiles.get(path) != written:
                storage.put(f"{self._directory(tail)}/{path.name}", path.read_bytes())
                self._profiles[path] = written

    def _directory(self, tail: FileTail) -> str:
        run = self._settings.stored_directory
        return f"{run}/{file_directory(tail.path.stem, tail.id)}"

    def _remove(self) -> None:
        """Remove what is in the storage from this disk."""
        for tail in self._tails:
            for path in (*_profiles_of(tail.path), tail.path):
                with suppress(OSError):
                    path.unlink()
        with suppress(OSError):  # others write there, too
            Path(self._settings.directory).rmdir()

    def _tell(self, trouble: str) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                "the trace of %s does not reach %s now: %s. It is tried again, and further "
                "failures are not logged; until then everything is in %s on this host.",
                self._owner,
                shown(self._settings.storage),
                trouble,
                self._settings.directory,
            )
        self.trouble = trouble


def upload_files(
    settings: RunSettings,
    owner: str,
    databases: Sequence[FileDatabase],
    is_closing: Callable[[], bool] = lambda: False,
) -> Uploader | None:
    """Begin to put a process's files into the run's storage; return None if it has none."""
    if not settings.storage or not databases:
        return None
    return Uploader(settings, owner, databases, is_closing)


def on_their_way(run_uuid: str) -> dict[str, str]:
    """Return the closed files of a run that its storage lacks, of this process, and why."""
    found = [one for one in list(_uploaders) if one.run_uuid == run_uuid and one.is_ending]
    return {name: one.trouble for one in found for name in one.unshipped()}


def _is_full(tail: FileTail) -> bool:
    try:
        return tail.path.stat().st_size - tail.offset >= PIECE_BYTES
    except OSError:
        return False


def _profiles_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{escape(path.stem)}.*.pstats"))
