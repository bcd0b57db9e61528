"""Where files are sent: to the scheduler, by workers whose disks nobody else sees; to a storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FuturesTimeoutError  # another one on Python 3.10
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from distributed import rpc

from dasfprof.database import FileDatabase
from dasfprof.database.runs import file_directory, piece_name
from dasfprof.database.storage import Storage, shown
from dasfprof.recording.settings import RunSettings, sees_mark
from dasfprof.recording.shipping.file_tails import (
    FileTail,
    digest_of,
    files_left_behind,
    profiles_of,
)
from dasfprof.recording.shipping.receiver import is_receiving, operation
from dasfprof.recording.shipping.sender import NotTakenError, OverError, Sender

#: The longest flush interval that is kept to.
_LONGEST_INTERVAL = 86400.0


class SchedulerSender(Sender):
    """Sends to the scheduler's process, which appends what it receives to files of its own.

    Parameters
    ----------
    settings
        The run.
    worker
        The worker, on whose event loop this is made.
    databases
        Its files.
    """

    thread, where = "shipper", "the scheduler"

    def __init__(
        self, settings: RunSettings, worker: Any, databases: Sequence[FileDatabase]
    ) -> None:
        self._worker = worker
        self._operation = operation(settings.uuid)
        self._loop = asyncio.get_running_loop()
        #: The scheduler's address is gone once the worker is closed.
        self._address = str(worker.scheduler.address)
        #: Files that the scheduler has in full, by their digests.
        self._complete: list[Path] = []
        self._interval = min(settings.flush_interval, _LONGEST_INTERVAL)
        self.pause, self.write_wait = 0.5 * self._interval, 0.75 * self._interval
        self._call: Future[Any] | None = None
        #: Whether the worker's connections are not to be used any more.
        self._apart = False
        owner = f"worker {worker.name}"
        left = files_left_behind(Path(settings.directory), settings.uuid)
        super().__init__(settings, owner, databases, lambda: worker.status.name == "closing", left)

    def _leave_loop(self) -> None:
        """Send over a connection of its own: those of a worker that closes may be closed."""
        self._apart = True
        if self._call is not None:
            self._call.cancel()

    def _send(self, limit: float, *, wait: bool, last: bool) -> None:
        deadline, more = monotonic() + limit, True
        while more and (left := deadline - monotonic()) > 0:
            more = self._send_once(left, wait=wait, last=last)

    def _send_once(self, limit: float, *, wait: bool, last: bool) -> bool:
        """Send one message; return whether there may be more to send."""
        parts = [(tail, tail.read()) for tail in self._tails]
        sent = any(data for _, data in parts)
        if not (sent or wait):
            return False
        # Of files without news, too: what was sent before is on disk then, or known not to be.
        files = [
            {"id": tail.id, "name": tail.path.name, "position": tail.offset, "data": data}
            for tail, data in parts
            if data or wait
        ]
        message = {"worker": self._worker.address, "files": files, "wait": wait, "last": last}
        call = self._over_own_connection if self._apart else self._over_worker
        reply = call(message, limit)
        if not isinstance(reply, dict):  # there is no such handler
            raise OverError
        for tail, data in parts:
            tail.offset = reply["have"].get(tail.id, tail.offset + len(data))
        if reply["trouble"]:
            raise (OverError if reply["over"] else NotTakenError)(reply["trouble"])
        self.pause = max(self._interval, reply["pause"]) - 0.5 * self._interval
        if last and not sent:
            self._compare(reply.get("digests", {}))
        return sent

    def _compare(self, digests: dict[str, str]) -> None:
        """Note which files the scheduler has in full."""
        for tail in self._tails:
            with suppress(OSError):
                if tail.id in digests and digest_of(tail.path) == digests[tail.id]:
                    self._complete.append(tail.path)

    def _arrived(self) -> Iterable[Path]:
        return self._complete

    def _over_worker(self, message: dict[str, Any], limit: float) -> Any:
        """Send a message over the worker's connections; in any thread but its event loop's."""
        call = getattr(self._worker.scheduler, self._operation)(**message)
        self._call = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return self._call.result(limit)
        except FuturesTimeoutError:
            self._call.cancel()
            raise

    def _over_own_connection(self, message: dict[str, Any], limit: float) -> Any:
        async def send() -> Any:
            arguments = self._worker.connection_args
            async with rpc(self._address, timeout=limit, connection_args=arguments) as scheduler:
                return await getattr(scheduler, self._operation)(**message)

        return asyncio.run(asyncio.wait_for(send(), limit))


#: A piece is put when it has so many bytes, or after so many seconds.
PIECE_BYTES, PIECE_SECONDS = 8_000_000, 30.0


class StorageSender(Sender):
    """Puts files into the run's storage, piece by piece.

    A piece that could not be put is put again, the same bytes under the same name: the storage may
    have it already, and then nothing changes.
    """

    thread, moves, piece_bytes = "uploader", True, PIECE_BYTES
    end_limit, exit_limit = 300.0, 10.0

    def __init__(self, settings: RunSettings, *about: Any) -> None:
        self.where = shown(settings.storage)
        self._storage: Storage | None = None
        #: Lengths of pieces that may be there although putting them failed, by the file's id.
        self._tried: dict[str, int] = {}
        #: When each profile of calls was written that is there.
        self._profiles: dict[Path, int] = {}
        #: When all was put, on the monotonic clock.
        self._last = float("-inf")
        super().__init__(settings, *about)

    def _is_due(self) -> bool:
        """Return whether there is a whole piece, or the last one is long ago."""
        is_old = monotonic() - self._last >= PIECE_SECONDS
        return is_old or any(tail.unsent() >= PIECE_BYTES for tail in self._tails)

    def _send(self, limit: float, *, wait: bool, last: bool) -> None:
        begin = monotonic()
        if self._storage is None:
            self._storage = Storage(self._settings.storage)
        for tail in self._tails:
            self._put_file(self._storage, tail)
        if any(tail.offset for tail in self._tails):
            self._last = begin

    def _put_file(self, storage: Storage, tail: FileTail) -> None:
        while data := tail.read(self._tried.get(tail.id)):
            where = self._directory(tail)
            self._tried[tail.id] = len(data)
            storage.put(f"{where}/{piece_name(tail.offset)}", data)
            del self._tried[tail.id]
            tail.offset += len(data)
        for path in profiles_of(tail.path):
            written = path.stat().st_mtime_ns
            if self._profiles.get(path) != written:
                storage.put(f"{self._directory(tail)}/{path.name}", path.read_bytes())
                self._profiles[path] = written

    def _arrived(self) -> Iterable[Path]:
        return [path for tail in self._tails for path in (*profiles_of(tail.path), tail.path)]

    def _directory(self, tail: FileTail) -> str:
        run = self._settings.stored_directory
        return f"{run}/{file_directory(tail.path.stem, tail.id)}"


def upload_files(
    settings: RunSettings,
    owner: str,
    databases: Sequence[FileDatabase],
    is_closing: Callable[[], bool] = lambda: False,
) -> Sender | None:
    """Begin to put a process's files into the run's storage; return None if it has none."""
    if not settings.storage or not databases:
        return None
    return StorageSender(settings, owner, databases, is_closing)


def send_files_of_worker(
    settings: RunSettings, worker: Any, databases: Sequence[FileDatabase]
) -> Sender | None:
    """Begin to send a worker's files where the run's go; None if they stay where they are."""
    if settings.storage:
        closing = lambda: worker.status.name == "closing"  # noqa: E731
        return upload_files(settings, f"worker {worker.name}", databases, closing)
    is_here = settings.ship == "auto" and sees_mark(settings.directory, settings.uuid)
    if not databases or settings.ship == "off" or is_here or is_receiving(settings.uuid):
        return None
    return SchedulerSender(settings, worker, databases)
