"""Senders for the two targets of trace files: the scheduler and a storage.

A worker sends its files to the scheduler if the worker and the scheduler do not share a disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FuturesTimeoutError  # another one on Python 3.10
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from dasfprof.database import FileDatabase
from dasfprof.database.runs import file_directory, piece_name
from dasfprof.database.storage import Storage, shown
from dasfprof.recording.dask_internals.inspection.looks import request, within
from dasfprof.recording.settings import RunSettings, sees_mark
from dasfprof.recording.shipping.file_tails import FileTail, abandoned_files, digest_of, profiles_of
from dasfprof.recording.shipping.receiver import OPERATION, receivers
from dasfprof.recording.shipping.sender import NotTakenError, OverError, Sender


class SchedulerSender(Sender):
    """Sends a worker's files to the scheduler, which appends the data to its copies of the files.

    Parameters
    ----------
    worker
        The worker. The sender must be created on the worker's event loop.
    """

    thread, where = "shipper", "the scheduler"

    def __init__(
        self, settings: RunSettings, worker: Any, databases: Sequence[FileDatabase]
    ) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        #: The scheduler's address, which a closed worker no longer knows.
        self._address = str(worker.scheduler.address)
        #: Files whose copies on the scheduler are complete and identical.
        self._identical: list[Path] = []
        self._interval = min(settings.flush_interval, threading.TIMEOUT_MAX)
        self.pause, self.write_wait = 0.5 * self._interval, 0.75 * self._interval
        self._call: Future[Any] | None = None
        #: Whether to use a separate connection instead of the worker's connections.
        self._is_separate = False
        owner = f"worker {worker.name}"
        files = abandoned_files(Path(settings.directory), settings.uuid)
        super().__init__(settings, owner, databases, lambda: worker.status.name == "closing", files)

    def _leave_loop(self) -> None:
        """Use a separate connection, because a closing worker closes its own connections."""
        self._is_separate = True
        if self._call is not None:
            self._call.cancel()

    def _send(self, limit: float, *, wait: bool, last: bool) -> None:
        deadline, has_more = monotonic() + limit, True
        while has_more and (seconds := deadline - monotonic()) > 0:
            has_more = self._send_once(seconds, wait=wait, last=last)

    def _send_once(self, limit: float, *, wait: bool, last: bool) -> bool:
        """Send one message (see `_send`), and return whether more data may have to be sent."""
        parts = [(tail, tail.read()) for tail in self._tails]
        has_data = any(data for _, data in parts)
        if not (has_data or wait):
            return False
        # With `wait`, files without new data are included, because the answer shows whether their
        # earlier data is on disk.
        files = [
            {"id": tail.id, "name": tail.path.name, "position": tail.offset, "data": data}
            for tail, data in parts
            if data or wait
        ]
        message = {"worker": self._worker.address, "files": files, "wait": wait, "last": last}
        message["run"] = self.run_uuid
        if self._is_separate:
            call = request(self._address, self._worker.connection_args, OPERATION, **message)
            reply = asyncio.run(within(limit, call))
        else:
            reply = self._over_worker(message, limit)
        if not isinstance(reply, dict):  # The run has ended, or the scheduler has no such handler.
            raise OverError
        for tail, data in parts:
            tail.offset = reply["have"].get(tail.id, tail.offset + len(data))
        if reply["trouble"]:
            raise (OverError if reply["over"] else NotTakenError)(reply["trouble"])
        self.pause = max(self._interval, reply["pause"]) - 0.5 * self._interval
        if last and not has_data:
            for tail in self._tails:
                with suppress(OSError):
                    if reply["digests"].get(tail.id) == digest_of(tail.path):
                        self._identical.append(tail.path)
        return has_data

    def _arrived(self) -> Iterable[Path]:
        return self._identical

    def _over_worker(self, message: dict[str, Any], limit: float) -> Any:
        """Send a message over the worker's connections.

        This must not be called in the thread of the worker's event loop.
        """
        call = getattr(self._worker.scheduler, OPERATION)(**message)
        self._call = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return self._call.result(limit)
        except FuturesTimeoutError:
            self._call.cancel()
            raise


#: New data is uploaded as a piece when it has this many bytes, or this many seconds after the last
#: upload.
PIECE_BYTES, PIECE_SECONDS = 8_000_000, 30.0


class StorageSender(Sender):
    """Uploads files to the run's storage, piece by piece."""

    thread, moves, piece_bytes = "uploader", True, PIECE_BYTES
    end_limit, exit_limit = 300.0, 10.0

    def __init__(self, settings: RunSettings, *about: Any) -> None:
        self.where = shown(settings.storage)
        self._storage: Storage | None = None
        #: Length of the piece whose upload failed, by id of the file. The storage may nevertheless
        #: have received the piece.
        self._failed_pieces: dict[str, int] = {}
        #: Modification times (ns) of the call profiles that were uploaded.
        self._profiles: dict[Path, int] = {}
        #: Time when the last complete upload started, on the monotonic clock.
        self._last = float("-inf")
        super().__init__(settings, *about)

    def _is_due(self) -> bool:
        is_old = monotonic() - self._last >= PIECE_SECONDS
        return is_old or any(tail.unsent() >= PIECE_BYTES for tail in self._tails)

    def _send(self, limit: float, *, wait: bool, last: bool) -> None:
        start = monotonic()
        if self._storage is None:
            self._storage = Storage(self._settings.storage)
        for tail in self._tails:
            self._upload(self._storage, tail)
        if any(tail.offset for tail in self._tails):
            self._last = start

    def _upload(self, storage: Storage, tail: FileTail) -> None:
        while data := tail.read(self._failed_pieces.get(tail.id)):
            directory = self._directory(tail)
            self._failed_pieces[tail.id] = len(data)
            storage.put(f"{directory}/{piece_name(tail.offset)}", data)
            del self._failed_pieces[tail.id]
            tail.offset += len(data)
        for path in profiles_of(tail.path):
            modified = path.stat().st_mtime_ns
            if self._profiles.get(path) != modified:
                storage.put(f"{self._directory(tail)}/{path.name}", path.read_bytes())
                self._profiles[path] = modified

    def _arrived(self) -> Iterable[Path]:
        return [path for tail in self._tails for path in (*profiles_of(tail.path), tail.path)]

    def _directory(self, tail: FileTail) -> str:
        """Return a file's directory in the storage. The file must have been read before."""
        # The directory depends on the file's id, which the first read determines.
        run = self._settings.stored_directory
        return f"{run}/{file_directory(tail.path.stem, tail.id)}"


def upload_files(
    settings: RunSettings,
    owner: str,
    databases: Sequence[FileDatabase],
    is_closing: Callable[[], bool] = lambda: False,
) -> Sender | None:
    """Start uploading a process's files to the run's storage, and return the sender.

    Return None if the run has no storage, or if `databases` is empty.
    """
    if not settings.storage or not databases:
        return None
    return StorageSender(settings, owner, databases, is_closing)


def send_files_of_worker(
    settings: RunSettings, worker: Any, databases: Sequence[FileDatabase]
) -> Sender | None:
    """Start sending a worker's files, and return the sender, or None if they need not be sent."""
    if settings.storage:
        owner = f"worker {worker.name}"
        return upload_files(settings, owner, databases, lambda: worker.status.name == "closing")
    is_here = settings.ship == "auto" and sees_mark(settings.directory, settings.uuid)
    if not databases or settings.ship == "off" or is_here or settings.uuid in receivers:
        return None
    return SchedulerSender(settings, worker, databases)
