"""`Shipper`: sends what a worker has written to the scheduler. The package says why and when."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FuturesTimeoutError  # another one on Python 3.10
from functools import partial
from glob import escape
from pathlib import Path
from time import monotonic
from typing import Any

from distributed import rpc

from dasfprof.database import FileDatabase, frames
from dasfprof.recording.guard import in_thread
from dasfprof.recording.settings import RunSettings, sees_mark
from dasfprof.recording.shipping.receiver import is_receiving, operation

# --- `FileTail`: reads the whole frames that another thread appends to a file ---------------------

#: Bytes that one read takes, if nothing else is said; up to the second where a frame is longer.
PIECE_BYTES = 1 << 20
_LONGEST = 1 << 28


class FileTails:
    """The tails of the files of some databases; of those of long runs each segment has one.

    Parameters
    ----------
    databases
        The databases.
    piece
        See `FileTail`.
    """

    def __init__(self, databases: Sequence[FileDatabase], piece: int = PIECE_BYTES) -> None:
        self._piece = piece
        self._tails: list[tuple[FileDatabase, list[FileTail]]] = [(one, []) for one in databases]
        # Several threads look for new segments: each is to have one tail.
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[FileTail]:
        for database, tails in self._tails:
            with self._lock:
                for at in range(len(tails), len(database.paths)):
                    tails.append(FileTail(partial(_path, database, at), self._piece))
            yield from tails


def _path(database: FileDatabase, segment: int) -> Path:
    return database.paths[segment]


class FileTail:
    """The part of a trace file that was not shipped yet.

    Parameters
    ----------
    path
        Returns the file's path, which is final when the file is created.
    piece
        Bytes that one read takes, at most; more where a frame is longer.
    """

    def __init__(self, path: Callable[[], Path], piece: int = PIECE_BYTES) -> None:
        self._path = path
        self._piece = piece
        #: Stands for this file among those of all workers; a new one where it was made anew.
        self.id = uuid.uuid4().hex
        #: Bytes of it that were sent; fewer where not all of them arrived.
        self.offset = 0
        self._inode = 0

    @property
    def path(self) -> Path:
        """The file; it may be missing yet."""
        return self._path()

    def read(self, length: int | None = None) -> bytes:
        """Return what follows the offset, up to the end of a whole frame; empty if there is none.

        Parameters
        ----------
        length
            The length of what an earlier call returned, to get the same; None: what is there now.

        Raises
        ------
        OSError
            If the file cannot be read.
        """
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return b""
        with file:
            facts = os.fstat(file.fileno())
            if self._inode and facts.st_ino != self._inode:
                # It was removed under the writer's hands, which began a new one.
                self.id, self.offset = uuid.uuid4().hex, 0
            self._inode = facts.st_ino
            left, length = facts.st_size - self.offset, length or self._piece
            while left > 0:
                data = os.pread(file.fileno(), min(length, left), self.offset)
                end = frames.whole_frames(data)
                if end or length >= min(left, _LONGEST):
                    return data[:end]
                length *= 2
        return b""


# --- `Shipper` ------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

#: Seconds to wait for the scheduler's answer, and for all that is left at the end.
_LIMIT = 5.0
#: The same for a worker that closes, and the most that its event loop waits for it.
_LAST_LIMIT = 1.0
#: Seconds between two tries while the scheduler does not take anything, at most.
_LONGEST_PAUSE = 30.0
#: The longest flush interval that is kept to.
_LONGEST_INTERVAL = 86400.0
#: Tries without an answer after which the run has ended there.
_MOST_FAILURES = 12


class OverError(Exception):
    """The scheduler does not record this run any more, or refuses what this worker sends."""


class Shipper:
    """Ships the files of one worker from a thread of its own.

    Parameters
    ----------
    settings
        The run.
    worker
        The worker, on whose event loop this is made.
    databases
        Its files. When the first one was written, all are shipped.
    """

    def __init__(
        self, settings: RunSettings, worker: Any, databases: Sequence[FileDatabase]
    ) -> None:
        self._worker = worker
        self._operation = operation(settings.uuid)
        self._loop = asyncio.get_running_loop()
        self._tails = FileTails(databases)
        self._pause = self._shortest_pause = min(settings.flush_interval, _LONGEST_INTERVAL)
        self._failures = 0
        self._told = False
        #: The scheduler's address is gone once the worker is closed.
        self._address = str(worker.scheduler.address)
        self._written = threading.Event()
        self._ending = threading.Event()
        self._turn = threading.Lock()
        self._call: Future[Any] | None = None
        #: Whether the worker's connections are not to be used any more.
        self._apart = False
        databases[0].writer.after_drain = self._written.set
        self._thread = threading.Thread(
            target=self._run, name=f"dasfprof-shipper {worker.name}", daemon=True
        )
        self._thread.start()

    def commit(self) -> None:
        """Return when what is in the files has arrived, or it cannot be sent now."""
        self._ship(self._over_worker, _LIMIT / 2, wait=True)

    def unshipped(self) -> list[str]:
        """Return the names of files that the scheduler lacks, or their ends."""
        paths = [(tail.path, tail.offset) for tail in self._tails if tail.path.exists()]
        lacking = [path for path, offset in paths if path.stat().st_size > offset]
        for path, _ in paths:
            lacking += path.parent.glob(f"{escape(path.stem)}.*.pstats")
        return [path.name for path in lacking]

    async def end(self) -> None:
        """Ship what is left. The files are closed by now."""
        if self._worker.status.name != "closing":
            await in_thread(self._finish)
            return
        # The connections of a worker that closes may be closed, and its event loop end at any
        # await. The thread is no daemon: an interpreter that exits waits for it.
        thread = threading.Thread(target=self._finish_apart, name="dasfprof-last-blocks")
        thread.start()
        thread.join(_LAST_LIMIT)

    def _finish(self) -> None:
        self._ending.set()
        self._written.set()
        self.commit()

    def _finish_apart(self) -> None:
        self._apart = True
        self._ending.set()
        self._written.set()
        if self._call is not None:
            self._call.cancel()
        self._ship(self._over_own_connection, _LAST_LIMIT, wait=True)

    def _run(self) -> None:
        while not self._ending.is_set() and self._ship(self._over_worker, _LIMIT):
            self._ending.wait(self._pause - self._shortest_pause / 2)
            # The others are written as often; where no tasks run, they are shipped alone.
            self._written.wait(0.75 * self._shortest_pause)
            self._written.clear()

    def _ship(
        self, send: Callable[[dict[str, Any], float], Any], limit: float, wait: bool = False
    ) -> bool:
        """Ship what is in the files; return whether the scheduler still records the run.

        With `wait`, return when it is on the scheduler's disk.
        """
        deadline = monotonic() + limit
        if not self._turn.acquire(timeout=limit):
            return True
        try:
            while (left := deadline - monotonic()) > 0 and self._ship_once(send, left, wait):
                pass
        except OverError:
            return False
        except (Exception, CancelledError) as error:
            return self._failed(error)
        finally:
            self._turn.release()
        return True

    def _ship_once(
        self, send: Callable[[dict[str, Any], float], Any], limit: float, wait: bool
    ) -> bool:
        """Send one message; return whether there may be more to send."""
        parts = [(tail, data) for tail in self._tails if (data := tail.read())]
        if not parts and not wait:
            return False
        files = [
            {"id": tail.id, "name": tail.path.name, "position": tail.offset, "data": data}
            for tail, data in parts
        ]
        # Also what was sent before is on disk then, or known not to be.
        files += [
            {"id": tail.id, "name": tail.path.name, "position": tail.offset, "data": b""}
            for tail in self._tails
            if wait and all(tail is not one for one, _ in parts)
        ]
        facts = {"worker": self._worker.address, "wait": wait, "last": self._ending.is_set()}
        reply = send({**facts, "files": files}, limit)
        if not isinstance(reply, dict):  # there is no such handler
            raise OverError
        self._failures = 0
        for tail, data in parts:
            tail.offset += len(data)
        for tail in self._tails:
            tail.offset = reply["have"].get(tail.id, tail.offset)
        if reply["over"]:
            self._tell(reply["trouble"])
            raise OverError
        if reply["trouble"]:
            self._rest_longer()
            self._tell(reply["trouble"])
        else:
            self._pause = max(self._shortest_pause, reply["pause"])
        return bool(parts) and not reply["trouble"]

    def _failed(self, error: BaseException) -> bool:
        """Note that a call failed; return whether to try again."""
        if self._ending.is_set():
            return False
        self._failures += 1
        self._rest_longer()
        if self._failures > 1:  # a scheduler may be busy for a while
            self._tell(f"{type(error).__name__}: {error}")
        return self._failures < _MOST_FAILURES

    def _rest_longer(self) -> None:
        self._pause = min(2 * self._pause, max(_LONGEST_PAUSE, self._shortest_pause))

    def _tell(self, trouble: str) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                "the trace of this worker does not reach the scheduler now (%s). Its own files "
                "in %s have everything; run.collect(destination) copies them while it is there.",
                trouble,
                next(iter(self._tails)).path.parent,
            )

    def _over_worker(self, message: dict[str, Any], limit: float) -> Any:
        """Send a message over the worker's connections; in any thread but its event loop's."""
        if self._apart:
            raise ConnectionError("the worker is closing")
        call = getattr(self._worker.scheduler, self._operation)(**message)
        self._call = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return self._call.result(limit)
        except FuturesTimeoutError:
            self._call.cancel()
            raise

    def _over_own_connection(self, message: dict[str, Any], limit: float) -> Any:
        """Send a message over a connection of its own."""

        async def send() -> Any:
            arguments = self._worker.connection_args
            async with rpc(self._address, timeout=limit, connection_args=arguments) as scheduler:
                return await getattr(scheduler, self._operation)(**message)

        async def send_in_time() -> Any:
            return await asyncio.wait_for(send(), limit)

        return asyncio.run(send_in_time())


def ship_files(
    settings: RunSettings, worker: Any, databases: Sequence[FileDatabase]
) -> Shipper | None:
    """Begin to ship a worker's files if that is asked for and needed; else return None."""
    if not databases or settings.ship in ("off", "storage") or is_receiving(settings.uuid):
        return None
    if settings.ship == "auto" and sees_mark(settings.directory, settings.uuid):
        return None
    return Shipper(settings, worker, databases)
