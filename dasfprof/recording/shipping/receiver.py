"""`Receiver`: stores the blocks that workers send to the scheduler, one file per worker's file."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from distributed.protocol.pickle import dumps

from dasfprof.database import frames, values
from dasfprof.database.multi import received_path
from dasfprof.database.output import create_exclusively
from dasfprof.recording.cluster.calls import stop_on_worker
from dasfprof.recording.cluster.link import ask_workers
from dasfprof.recording.dask_internals.undocumented import add_handler
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.file_tails import digest_of

logger = logging.getLogger(__name__)

#: Pause (seconds) per worker that sends: a message takes 0.3 to 0.6 ms of this process's CPU.
PAUSE_A_WORKER = 0.005
#: Interval (seconds) between two writes, each of which wakes a thread.
WRITE_EVERY = 0.2
#: Maximum bytes of messages that wait for the disk.
MOST_WAITING = 1 << 26
#: Time limit (seconds) for the last blocks of a worker that has left, or of all workers when the
#: scheduler closes; and the interval (seconds) between two checks.
_LAST_LIMIT, _CHECK_INTERVAL = 2.0, 0.02
#: Seconds without a message after which a worker no longer counts as one that sends.
_SILENT = 60.0

#: Ids of the runs whose blocks this process receives. Workers in this process share its disk.
_receiving: set[str] = set()


class RefusedError(ValueError):
    """Raised if the data that a worker sent is not part of a trace of this run."""


def operation(run_uuid: str) -> str:
    """Return the name of the call that ships blocks of a run."""
    return f"dasfprof_{run_uuid}"


def is_receiving(run_uuid: str) -> bool:
    """Return whether this process is the one that receives a run's blocks."""
    return run_uuid in _receiving


class ReceivedFile:
    """The copy of a worker's file up to the last block that arrived.

    Parameters
    ----------
    path
        The path of the copy; if the name is taken, a number is added.
    run_uuid
        The id of the run that the file must belong to.
    """

    def __init__(self, path: Path, run_uuid: str) -> None:
        self.path = path
        #: Length in bytes.
        self.size = 0
        #: Reason why the last data was not accepted, or empty if it was.
        self.trouble = ""
        #: Whether data was not part of this run. Then no more is accepted.
        self.is_refused = False
        self._run_uuid = run_uuid
        self._created = False

    def add(self, position: int, data: bytes) -> None:
        """Append bytes from a position of the worker's file. Bytes that the copy has are skipped.

        Raises
        ------
        RefusedError
            If the bytes are not frames, or not of this run.
        OSError
            If the bytes cannot be written. The copy is unchanged then.
        """
        if self._created and not self.path.exists():
            self.size, self._created = 0, False  # The copy was removed. The worker sends it again.
        self.trouble = "" if position <= self.size else "what comes before is missing"
        new = data[self.size - position :]
        if self.trouble or not new:
            return
        if not self.size:
            self._check_header(new)
        if frames.end_of_frames(new) != len(new):
            raise RefusedError("it sent bytes that are not blocks of a trace")
        if not self._created:
            self.path = create_exclusively(self.path)
            self._created = True
        with self.path.open("r+b", buffering=0) as file:
            try:
                file.seek(self.size)
                view = memoryview(new)
                while view:
                    view = view[file.write(view) :]
            except OSError:
                file.truncate(self.size)
                raise
        self.size += len(new)

    def _check_header(self, data: bytes) -> None:
        header = None
        with suppress(*values.DAMAGE_ERRORS):
            for _, payload in frames.scan_frames(data, frames.Damage()):
                header = values.unpack(bytes(payload))
                break
        if not isinstance(header, dict) or header.get("run_uuid") != self._run_uuid:
            raise RefusedError("it does not begin as a file of this run does")


class Receiver:
    """Receives the blocks of one run on a scheduler.

    Parameters
    ----------
    settings
        The run.
    scheduler
        The scheduler.
    """

    def __init__(self, settings: RunSettings, scheduler: Any) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._files: dict[str, ReceivedFile] = {}
        #: When each worker last sent something, and when workers left that have not sent their last
        #: blocks, on the monotonic clock.
        self._last_messages: dict[str, float] = {}
        self._left: dict[str, float] = {}
        #: Messages that are not on disk yet, and their bytes.
        self._waiting: deque[list[dict[str, Any]]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        #: Whether the waiting messages are about to be written.
        self._due = False
        self._has_warned = False
        self._thread = ThreadPoolExecutor(1, "dasfprof-receiver")
        self._remove = add_handler(scheduler, operation(settings.uuid), self.receive)
        _receiving.add(settings.uuid)

    def stop(self) -> None:
        """Stop receiving, and write all waiting messages. Called in any thread."""
        _receiving.discard(self._settings.uuid)
        self._remove()
        self._due = True
        self._thread.shutdown()
        self._write()

    async def receive(
        self, worker: str, files: list[dict[str, Any]], wait: bool = False, last: bool = False
    ) -> dict[str, Any]:
        """Store the blocks that a worker sends, and answer which of them must be sent again.

        Parameters
        ----------
        worker
            Its address.
        files
            For each file ``id``, ``name``, ``position`` and ``data``.
        wait
            Whether to answer only when the blocks are on disk.
        last
            Whether the worker has closed its files.

        Returns
        -------
        dict
            ``have``, the number of bytes that the scheduler has of each file that was not accepted,
            or of which it has more than was sent, by id. ``pause``, seconds until the next message.
            ``trouble``, the reason why blocks were not accepted, or empty if there is none so far.
            ``over``, whether no more blocks will be accepted. ``digests``, those of the copies by
            id, if the worker has closed its files and sent all of them.
        """
        self._last_messages[worker] = monotonic()
        size = sum(len(file["data"]) for file in files)
        if self._bytes + size > MOST_WAITING:
            have = {file["id"]: file["position"] for file in files}
            return self._answer(have, trouble="the scheduler's disk does not keep up")
        with self._lock:
            self._waiting.append(files)
            self._bytes += size
        loop = asyncio.get_running_loop()
        digests: dict[str, str] = {}
        if wait:
            complete = [file["id"] for file in files] if last and not size else []
            write = partial(self._write_and_digest, complete)
            try:
                digests = await loop.run_in_executor(self._thread, write)
            except RuntimeError:  # The interpreter is exiting.
                digests = write()
            if last:
                self._left.pop(worker, None)
                self._last_messages.pop(worker, None)
        elif not self._due:
            self._due = True
            loop.call_later(WRITE_EVERY, self._submit)
        have, rejected = {}, []
        for file in files:
            copy, position = self._files.get(file["id"]), file["position"]
            sent = position + len(file["data"]) if isinstance(position, int) else 0
            if copy is not None and (copy.trouble or copy.size > sent):
                have[file["id"]] = copy.size
                rejected += [copy] if copy.trouble else []
        trouble = rejected[0].trouble if rejected else ""
        is_over = any(copy.is_refused for copy in rejected)
        return {**self._answer(have, trouble, is_over), "digests": digests}

    def _submit(self) -> None:
        with suppress(RuntimeError):  # The thread has ended. `stop` writes all messages.
            self._thread.submit(self._write)

    def _answer(
        self, have: dict[str, int], trouble: str = "", over: bool = False
    ) -> dict[str, Any]:
        recent = monotonic() - _SILENT
        senders = sum(last_message > recent for last_message in self._last_messages.values())
        pause = PAUSE_A_WORKER * senders
        return {"have": have, "trouble": trouble, "over": over, "pause": pause}

    def _write_and_digest(self, identities: list[str]) -> dict[str, str]:
        """Write all waiting messages, and return the digests of some copies by id."""
        self._write()
        digests: dict[str, str] = {}
        for identity in identities:
            with suppress(OSError, KeyError):
                digests[identity] = digest_of(self._files[identity].path)
        return digests

    def _write(self) -> None:
        """Write all waiting messages. Called in the receiver's thread, or when it has ended."""
        self._due = False
        while True:
            with self._lock:
                if not self._waiting:
                    return
                files = self._waiting.popleft()
                self._bytes -= sum(len(file["data"]) for file in files)
            for file in files:
                self._add(file)

    def _add(self, file: dict[str, Any]) -> None:
        identity, name = file["id"], str(file["name"])
        if identity not in self._files:
            path = received_path(Path(self._settings.directory, Path(name).name or "_"))
            self._files[identity] = ReceivedFile(path.absolute(), self._settings.uuid)
        received = self._files[identity]
        if received.is_refused:
            return
        try:
            is_of_run = name.startswith(self._settings.name) and name.endswith(".msgpack")
            if not is_of_run or Path(name).name != name or "\0" in name:
                raise RefusedError(f"{name!r} is not a name of a file of this run")
            received.add(file["position"], file["data"])
        except OSError as error:
            received.trouble = f"the scheduler cannot write it: {error}"
        except Exception as error:  # A worker may send anything.
            received.is_refused, received.trouble = True, str(error)
        if received.trouble and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the copy of a worker's trace %s is incomplete for now: %s. Further problems are "
                "not logged. The worker's own file is complete.",
                name,
                received.trouble,
            )

    def left(self, worker: str) -> None:
        """Record that a worker left the cluster. It sends its last blocks after that."""
        if worker in self._last_messages:
            self._left[worker] = monotonic()

    async def finish(self) -> None:
        """Wait for the last blocks of workers that have just left. Killed workers send none."""
        while any(monotonic() - since < _LAST_LIMIT for since in self._left.values()):
            await asyncio.sleep(_CHECK_INTERVAL)

    async def receive_last(self) -> None:
        """Let workers close and send their files, because the scheduler is about to close."""
        if self._last_messages:
            names = [self._settings.plugin_name("WorkerProfiler")]
            function, arguments = dumps(stop_on_worker), dumps((names,))
            await ask_workers(function, arguments, _LAST_LIMIT, None, self._scheduler)
