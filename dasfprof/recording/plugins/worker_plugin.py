"""The base classes of a run's worker plugins: `RecordingPlugin`, and `RecordingPart` with a file.

They open and close the files, and keep every failure from Dask. A worker that cannot record gets
what `dasfprof.recording.plugins.unrecorded_workers` makes of them.
"""

from __future__ import annotations

import pickle
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from distributed.diagnostics.plugin import WorkerPlugin

from dasfprof.database import FileDatabase
from dasfprof.recording.cluster.calls import check_process
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.unrecorded_workers import load_plugin
from dasfprof.recording.probes.worker_facts import worker_facts
from dasfprof.recording.settings import RunSettings


class RecordingPlugin(WorkerPlugin):
    """A worker plugin of a run. On a worker that cannot record, it only logs the reason."""

    #: The plugin's name on the cluster.
    name: str
    #: The run; None: no trace.
    settings: RunSettings | None

    def __reduce__(self) -> tuple[Any, ...]:
        state = pickle.dumps((type(self), self.__dict__))
        return load_plugin.reduce_call(self.name, state)

    def can_record(self, worker: Any) -> bool:
        """Return whether the worker can write its files; if not, warn once for each run."""
        reason = None
        if self.settings is not None:
            reason = check_process(self.settings.directory, self.settings.storage)
        if reason is not None:
            self.__dict__["transition"] = _ignore  # or it would fill a list that is never read
            stand_in = load_plugin(self.name, None, reason)
            stand_in.setup(worker)
            #: The run that was warned of, so that its other plugins do not warn again.
            self.unrecorded = stand_in.unrecorded
        return reason is None


class RecordingPart(RecordingPlugin):
    """A part of what records on a worker, with a file of its own.

    Parameters
    ----------
    settings
        The run; None: no trace.
    name
        The plugin's name on the cluster.
    """

    #: Stands in the name and in the header of its file.
    plugin: ClassVar[str]

    def __init__(self, settings: RunSettings | None, name: str) -> None:
        self.settings = settings
        self.name = name
        #: The parts of the same worker that have files: each header names them all.
        self.plugins: list[str] = []
        self.database: FileDatabase | None = None
        self._guard = HookGuard()
        #: Steps of the teardown, called from last to first.
        self._undo: list[Callable[[], object]] = []

    def setup(self, worker: Any) -> None:
        """Begin to record; a failure is logged and does not affect the worker."""
        try:
            if self.can_record(worker):
                self._start(worker)
        except Exception:
            self._guard.caught("setup")
            self._guard.take_all("setup", self._undo)

    @abstractmethod
    def _start(self, worker: Any) -> None:
        """Place hooks or start a sampler, and add to `_undo` how each of them ends."""

    async def teardown(self, worker: Any) -> None:
        """End the recording and return when everything recorded is on disk."""
        try:
            await self._guard.end(worker, self._undo)
        except Exception:
            self._guard.caught("teardown")

    def _open_database(
        self, settings: RunSettings, worker: Any, **header: Any
    ) -> tuple[FileDatabase, dict[str, Any]]:
        """Open the part's file, and count its errors from now on in it.

        Parameters
        ----------
        settings
            The run.
        worker
            The worker.
        **header
            Further entries of the file's header.

        Returns
        -------
        database, constants
            The file, and the fields that its events have in common.
        """
        facts = worker_facts(worker)
        database = settings.open_database(
            self.plugin, str(worker.name), {"worker": facts, "plugins": self.plugins, **header}
        )
        self.database = database
        self._undo.append(database.close)
        self._guard = HookGuard(database.writer)
        return database, {"process_id": socket.gethostname(), "thread_id": facts["label"]}


def _ignore(*_: Any, **__: Any) -> None:
    """Stand in for a hook of a plugin that does not record."""
