"""`Receiver`: stores the blocks that workers send to the scheduler, in a copy of each file."""

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

#: Seconds by which each sending worker lengthens the pause between two messages of a worker. A
#: message takes 0.3 to 0.6 ms of this process's CPU.
PAUSE_A_WORKER = 0.005
#: Interval (seconds) between two writes. Each write wakes a thread.
WRITE_EVERY = 0.2
#: Maximum total bytes of messages that wait for the disk.
MOST_WAITING = 1 << 26
#: Time limit (seconds) for the last blocks of a worker that has left, or of all workers if the
#: scheduler closes. The second value is the interval (seconds) between two checks.
_LAST_LIMIT, _CHECK_INTERVAL = 2.0, 0.02
#: Seconds without a message after which a worker no longer counts as a sending worker.
_SILENT = 60.0

#: Name of the scheduler's handler that receives the blocks of all runs. It does not contain a run's
#: id, because Dask counts requests by name and never forgets a name.
OPERATION = "dasfprof_receive"
#: Receivers of this process, by id of the run. Workers in this process need not send their files,
#: because they use the same disk.
receivers: dict[str, Receiver] = {}
#: Held while `receivers` is changed.
_changing = threading.Lock()


class RefusedError(ValueError):
    """Raised if the data that a worker sent is not part of a trace of this run."""


async def _receive(run: str, **message: Any) -> dict[str, Any] | None:
    """Store the blocks of a run (see `Receiver.receive`), or return None if the run has ended."""
    receiver = receivers.get(run)
    return None if receiver is None else await receiver.receive(**message)


class ReceivedFile:
    """The scheduler's copy of a worker's file, which grows with each block that arrives.

    Parameters
    ----------
    path
        The path of the copy. If another file has this name, a number is added.
    run_uuid
        The id of the run that the file must belong to.
    """

    def __init__(self, path: Path, run_uuid: str) -> None:
        self.path = path
        #: Length of the copy in bytes.
        self.size = 0
        #: Reason why the last data was not accepted, or empty if the data was accepted.
        self.trouble = ""
        #: Whether the worker sent data that is not part of this run. No more data is accepted then.
        self.is_refused = False
        self._run_uuid = run_uuid
        self._created = False

    def add(self, position: int, data: bytes) -> None:
        """Append bytes of the worker's file that the copy does not have.

        `position` is the position of `data` in the worker's file.

        Raises
        ------
        RefusedError
            If the bytes are not frames, or do not belong to this run.
        OSError
            If the bytes cannot be written. The copy is unchanged then.
        """
        if self._created and not self.path.exists():
            # The copy was removed. The worker sends the file again.
            self.size, self._created = 0, False
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
    """Receives the blocks of one run on a scheduler."""

    def __init__(self, settings: RunSettings, scheduler: Any) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._files: dict[str, ReceivedFile] = {}
        #: Time of the last message of each worker, on the monotonic clock.
        self._last_messages: dict[str, float] = {}
        #: Workers that left and have not sent their last blocks, with the time when they left.
        self._left: dict[str, float] = {}
        #: Messages that are not on disk yet, and their total bytes.
        self._waiting: deque[list[dict[str, Any]]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        #: Whether a write of the waiting messages is already scheduled.
        self._due = False
        self._has_warned = False
        self._thread = ThreadPoolExecutor(1, "dasfprof-receiver")
        with _changing:
            self._remove = add_handler(scheduler, OPERATION, _receive)
            receivers[settings.uuid] = self

    def stop(self) -> None:
        """Stop receiving, and write all waiting messages. This can be called in any thread."""
        with _changing:
            del receivers[self._settings.uuid]
            if all(each._scheduler is not self._scheduler for each in receivers.values()):
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
            The address of the worker.
        files
            One entry per file, with ``id``, ``name``, ``position`` (of the data in the file) and
            ``data``.
        wait
            Whether to answer only after the blocks are on disk.
        last
            Whether the worker has closed its files.

        Returns
        -------
        dict
            ``have``: offset from which the worker must continue, by id of the file. It lists only
            files whose blocks were not accepted, or whose copies extend beyond the sent block.
            ``pause``: seconds until the worker's next message. ``trouble``: the reason why blocks
            were not accepted, or empty if no blocks were refused so far. ``over``: whether the
            scheduler will accept no more blocks. ``digests``: digests of the copies by id, if the
            worker has closed its files and sent them completely.
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
        """Write all waiting messages, and return the digests of the copies with the given ids."""
        self._write()
        digests: dict[str, str] = {}
        for identity in identities:
            with suppress(OSError, KeyError):
                digests[identity] = digest_of(self._files[identity].path)
        return digests

    def _write(self) -> None:
        """Write all waiting messages. Called in the receiver's thread, or after its end."""
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
        """Record that a worker left the cluster. The worker may still send its last blocks."""
        if worker in self._last_messages:
            self._left[worker] = monotonic()

    async def finish(self) -> None:
        """Wait for the last blocks of workers that have just left, up to a time limit."""
        # Killed workers send no last blocks.
        while any(monotonic() - since < _LAST_LIMIT for since in self._left.values()):
            await asyncio.sleep(_CHECK_INTERVAL)

    async def receive_last(self) -> None:
        """Ask workers to close and send their files, because the scheduler is about to close."""
        if self._last_messages:
            names = [self._settings.plugin_name("WorkerProfiler")]
            function, arguments = dumps(stop_on_worker), dumps((names,))
            await ask_workers(function, arguments, _LAST_LIMIT, None, self._scheduler)
