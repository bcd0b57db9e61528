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
_LAST_LIMIT, _LOOK = 2.0, 0.02
#: Seconds without a message after which a worker no longer counts as one that sends.
_SILENT = 60.0

#: Ids of the runs whose blocks this process receives. Workers in this process share its disk.
_receiving: set[str] = set()


class RefusedError(ValueError):
    """The data that a worker sent is not part of a trace of this run."""


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
        #: Why the last data was not accepted; empty if it was.
        self.trouble = ""
        #: Whether the data was not part of this run: no more is accepted.
        self.is_refused = False
        self._run_uuid = run_uuid
        self._created = False

    def add(self, position: int, data: bytes) -> None:
        """Append bytes from a position of the worker's file; bytes that the copy has are skipped.

        Raises
        ------
        RefusedError
            If the bytes are not frames, or not of this run.
        OSError
            If the bytes cannot be written; the copy is unchanged.
        """
        if self._created and not self.path.exists():
            self.size, self._created = 0, False  # removed: the worker sends it again
        self.trouble = "" if position <= self.size else "what comes before is missing"
        new = data[self.size - position :]
        if self.trouble or not new:
            return
        if not self.size:
            self._check_header(new)
        if frames.end_of_frames(new) != len(new):
            raise RefusedError("it sent bytes that are no blocks of a trace")
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
        #: When each worker last sent something, on the monotonic clock, and when those left that
        #: have not sent their last blocks.
        self._heard: dict[str, float] = {}
        self._left: dict[str, float] = {}
        #: Messages that are not on disk yet, and their bytes.
        self._waiting: deque[list[dict[str, Any]]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        #: Whether what waits is about to be written.
        self._due = False
        self._told = False
        self._thread = ThreadPoolExecutor(1, "dasfprof-receiver")
        self._remove = add_handler(scheduler, operation(settings.uuid), self.receive)
        _receiving.add(settings.uuid)

    def stop(self) -> None:
        """Receive no more, and write what waits. Called in any thread."""
        _receiving.discard(self._settings.uuid)
        self._remove()
        self._due = True
        self._thread.shutdown()
        self._write()

    async def receive(
        self, worker: str, files: list[dict[str, Any]], wait: bool = False, last: bool = False
    ) -> dict[str, Any]:
        """Take what a worker sends, and answer what is to be sent again.

        Parameters
        ----------
        worker
            Its address.
        files
            For each file ``id``, ``name``, ``position`` and ``data``.
        wait
            Whether to answer when it is on disk.
        last
            Whether the worker has closed its files.

        Returns
        -------
        dict
            ``have``: for files of which something was not taken, or more is here than was sent, by
            id, how many bytes are here; ``digests``: of files without news of a worker that has
            closed them, by id;
            ``pause``: seconds until the next message; ``trouble``: why not, empty where all was
            taken as far as is known yet; ``over``: whether nothing will be taken any more.
        """
        self._heard[worker] = monotonic()
        size = sum(len(file["data"]) for file in files)
        if self._bytes + size > MOST_WAITING:
            have = {file["id"]: file["position"] for file in files}
            return self._answer(have=have, trouble="the scheduler's disk does not keep up")
        with self._lock:
            self._waiting.append(files)
            self._bytes += size
        loop = asyncio.get_running_loop()
        digests: dict[str, str] = {}
        if wait:
            known = [file["id"] for file in files] if last and not size else []
            written = partial(self._write_and_compare, known)
            try:
                digests = await loop.run_in_executor(self._thread, written)
            except RuntimeError:  # the interpreter is exiting
                digests = written()
            if last:
                self._left.pop(worker, None)
                self._heard.pop(worker, None)
        elif not self._due:
            self._due = True
            loop.call_later(WRITE_EVERY, self._submit)
        return self._answer(**self._troubles(files), digests=digests)

    def _submit(self) -> None:
        with suppress(RuntimeError):  # `stop` has written all, or will
            self._thread.submit(self._write)

    def _answer(self, **facts: Any) -> dict[str, Any]:
        recent = monotonic() - _SILENT
        shipping = sum(heard > recent for heard in self._heard.values())
        pause = PAUSE_A_WORKER * shipping
        return {"have": {}, "trouble": "", "over": False, "pause": pause, **facts}

    def _troubles(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        known = {file["id"]: self._files[file["id"]] for file in files if file["id"] in self._files}
        short = {identity: file for identity, file in known.items() if file.trouble}
        have = {identity: file.size for identity, file in known.items()}
        sent = {
            file["id"]: file["position"] + len(file["data"])
            for file in files
            if isinstance(file["position"], int)
        }
        return {
            "have": {
                one: have[one] for one in have if one in short or have[one] > sent.get(one, 0)
            },
            "trouble": next((file.trouble for file in short.values()), ""),
            "over": any(file.is_refused for file in short.values()),
        }

    def _write_and_compare(self, identities: list[str]) -> dict[str, str]:
        """Append what waits; return the digests of some files."""
        self._write()
        digests: dict[str, str] = {}
        for identity in identities:
            with suppress(OSError, KeyError):
                digests[identity] = digest_of(self._files[identity].path)
        return digests

    def _write(self) -> None:
        """Append what waits; in the receiver's thread, or when that has ended."""
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
            is_ours = name.startswith(self._settings.name) and name.endswith(".msgpack")
            if not is_ours or Path(name).name != name or "\0" in name:
                raise RefusedError(f"{name!r} is no name of a file of this run")
            received.add(file["position"], file["data"])
        except OSError as error:
            received.trouble = f"the scheduler cannot write it: {error}"
        except Exception as error:  # a worker may send anything
            received.is_refused, received.trouble = True, str(error)
        if received.trouble and not self._told:
            self._told = True
            logger.warning(
                "not all of a worker's trace %s is kept here now: %s. Further ones are not "
                "logged; the worker's own file has everything.",
                name,
                received.trouble,
            )

    def left(self, worker: str) -> None:
        """Note that a worker left the cluster: its last blocks come after that."""
        if worker in self._heard:
            self._left[worker] = monotonic()

    async def finish(self) -> None:
        """Wait for the last blocks of workers that have just left; others were killed."""
        while any(monotonic() - since < _LAST_LIMIT for since in self._left.values()):
            await asyncio.sleep(_LOOK)

    async def take_last(self) -> None:
        """Let workers close and ship their files, as the scheduler is about to close."""
        if self._heard:
            names = [self._settings.plugin_name("WorkerProfiler")]
            function, arguments = dumps(stop_on_worker), dumps((names,))
            await ask_workers(function, arguments, _LAST_LIMIT, None, self._scheduler)
