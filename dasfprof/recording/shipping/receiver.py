"""`Receiver`: keeps what workers ship, in the scheduler's process, in a file for each of theirs."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from distributed.protocol.pickle import dumps

from dasfprof.database import frames, values
from dasfprof.database.multi import received_path
from dasfprof.database.output import create_exclusively
from dasfprof.recording.cluster.calls import stop_on_worker
from dasfprof.recording.cluster.link import ask_workers
from dasfprof.recording.dask_internals.handlers import add_handler
from dasfprof.recording.settings import RunSettings

logger = logging.getLogger(__name__)

#: Seconds of a pause for each worker that ships: a message takes some 0.25 to 0.5 ms of CPU here.
PAUSE_A_WORKER = 0.005
#: Bytes of messages that wait for the disk.
MOST_WAITING = 1 << 26
#: Seconds that a scheduler which closes waits for the last blocks.
_LAST_LIMIT = 2.0
#: Seconds without a message after which a worker does not count any more.
_SILENT = 60.0

#: Runs whose blocks this process receives: their workers in it share its disk.
_receiving: set[str] = set()


class RefusedError(ValueError):
    """What was sent is no part of a trace of this run."""


def operation(run_uuid: str) -> str:
    """Return the name of the call that ships blocks of a run."""
    return f"dasfprof_{run_uuid}"


def is_receiving(run_uuid: str) -> bool:
    """Return whether this process is the one that receives a run's blocks."""
    return run_uuid in _receiving


class ReceivedFile:
    """A prefix of a worker's file.

    Parameters
    ----------
    path
        Where it is to be; if the name is taken, a number is added.
    run_uuid
        The run that the file has to belong to.
    """

    def __init__(self, path: Path, run_uuid: str) -> None:
        self.path = path
        #: Bytes that it has.
        self.size = 0
        self._run_uuid = run_uuid
        self._created = False

    def add(self, position: int, data: bytes) -> None:
        """Append bytes that follow those that are there; what came before is passed over.

        Raises
        ------
        RefusedError
            If they are not frames, or not of this run.
        OSError
            If they cannot be written; the file is as it was before.
        """
        if self._created and not self.path.exists():
            self.size, self._created = 0, False  # removed: the worker sends it again
        new = data[self.size - position :] if position <= self.size else b""
        if not new:
            return
        if not self.size:
            self._check_header(new)
        if frames.whole_frames(new) != len(new):
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
        #: When each worker last sent something, on the monotonic clock.
        self._heard: dict[str, float] = {}
        self._waiting = 0
        self._told = False
        self._thread = ThreadPoolExecutor(1, "dasfprof-receiver")
        self._remove = add_handler(scheduler, operation(settings.uuid), self.receive)
        _receiving.add(settings.uuid)

    def stop(self) -> None:
        """Receive no more. Called in any thread."""
        _receiving.discard(self._settings.uuid)
        self._remove()
        self._thread.shutdown(wait=False)

    async def receive(self, worker: str, files: list[dict[str, Any]]) -> dict[str, Any]:
        """Append what a worker sends, and answer how much of each file is here.

        Parameters
        ----------
        worker
            Stands for the worker.
        files
            For each file ``id``, ``name``, ``position`` and ``data``.

        Returns
        -------
        dict
            ``have``: bytes by the file's id; ``pause``: seconds until the next message;
            ``trouble``: why something was not taken, empty where all was; ``over``: whether it
            would not be taken again.
        """
        size = sum(len(file["data"]) for file in files)
        if self._waiting + size > MOST_WAITING:
            return self._answer(trouble="the scheduler's disk does not keep up")
        self._heard[worker] = monotonic()
        self._waiting += size
        try:
            loop = asyncio.get_running_loop()
            return self._answer(**await loop.run_in_executor(self._thread, self._append, files))
        finally:
            self._waiting -= size

    def _answer(self, **facts: Any) -> dict[str, Any]:
        recent = monotonic() - _SILENT
        shipping = sum(heard > recent for heard in self._heard.values())
        pause = PAUSE_A_WORKER * shipping
        return {"have": {}, "trouble": "", "over": False, "pause": pause, **facts}

    def _append(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        have: dict[str, int] = {}
        trouble, over = "", False
        for file in files:
            try:
                kept = self._file(file["id"], file["name"])
                try:
                    kept.add(file["position"], file["data"])
                finally:
                    have[file["id"]] = kept.size
            except RefusedError as error:
                trouble, over = self._tell(file["name"], str(error)), True
            except OSError as error:
                trouble = self._tell(file["name"], f"the scheduler cannot write it: {error}")
        return {"have": have, "trouble": trouble, "over": over}

    def _file(self, identity: str, name: str) -> ReceivedFile:
        if identity not in self._files:
            ours = name.startswith(self._settings.name) and name.endswith(".msgpack")
            if not ours or Path(name).name != name or "\0" in name:
                raise RefusedError(f"{name!r} is no name of a file of this run")
            path = received_path(Path(self._settings.directory, name))
            self._files[identity] = ReceivedFile(path.absolute(), self._settings.uuid)
        return self._files[identity]

    def _tell(self, name: str, trouble: str) -> str:
        if not self._told:
            self._told = True
            logger.warning(
                "not all of a worker's trace %s is kept here: %s. Further ones are not logged; the "
                "worker's own file has everything.",
                name,
                trouble,
            )
        return trouble

    async def take_last(self) -> None:
        """Let workers close and ship their files, as the scheduler is about to close."""
        if self._heard:
            names = [self._settings.plugin_name("WorkerProfiler")]
            function, arguments = dumps(stop_on_worker), dumps((names,))
            await ask_workers(function, arguments, _LAST_LIMIT, None, self._scheduler)
