"""`WorkerProfiler`: the worker plugin of a run. It contains all parts that record on a worker.

The parts are not separate plugins, because Dask calls `transition` of each plugin for each of the
six transitions of a task, even if the method is the empty method of the base class.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from dasfprof.database import FileDatabase
from dasfprof.recording.cluster.calls import check_process
from dasfprof.recording.dask_internals.undocumented import forget_handlers, use_dask_logging
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.nvtx import GPUAnnotationPlugin
from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.plugins.worker_plugin import load_plugin
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.sender import Sender
from dasfprof.recording.shipping.targets import send_files_of_worker


class WorkerProfiler(WorkerPlugin):
    """Records task runs and samples resources on one worker, and shows task runs in Nsight."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.name = settings.plugin_name("WorkerProfiler")
        #: The parts in the order of their setup. Each part has a separate file.
        self.parts: list[WorkerTaskPlugin | ResourceMonitor | GPUAnnotationPlugin] = [
            WorkerTaskPlugin(settings),
            ResourceMonitor(settings),
        ]
        if settings.enable_nvtx:
            self.parts.append(GPUAnnotationPlugin(settings))
        for part in self.parts:
            part.plugins = [each.plugin for each in self.parts]
        self._guard = HookGuard()
        self.sender: Sender | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return load_plugin.reduce_call(self.name, pickle.dumps((type(self), self.__dict__)))

    @property
    def recorder(self) -> WorkerTaskPlugin:
        """The part of this plugin that records task runs."""
        return next(part for part in self.parts if isinstance(part, WorkerTaskPlugin))

    @property
    def _databases(self) -> list[FileDatabase]:
        return [part.database for part in self.parts if part.database is not None]

    def setup(self, worker: Any) -> None:
        """Set up all parts, or log the reason if the worker cannot record."""
        use_dask_logging()
        reason = check_process(self.settings.directory, self.settings.storage)
        if reason is not None:
            load_plugin(self.name, None, reason).setup(worker)
            return
        for part in self.parts:
            part.setup(worker)
        # Let Dask call the recorder's method directly.
        self.transition: Callable[..., None] = self.recorder.transition
        with self._guard.catching("shipping"):
            databases = self._databases
            for part in self.parts:
                if isinstance(part, ResourceMonitor):
                    part.writers = [database.writer for database in databases]
            self.sender = send_files_of_worker(self.settings, worker, databases)

    def end_with(self, ending: dict[str, Any]) -> None:
        """Set the entries to add to the frame that closes each file.

        Called if the client does not end the run itself.
        """
        for database in self._databases:
            database.writer.ending = ending

    def commit(self) -> None:
        """Write everything that was recorded before the call, and send it if files are sent."""
        for part in (self.recorder.call_profiles, *self._databases, self.sender):
            if part is not None:
                part.commit()

    async def teardown(self, worker: Any) -> None:
        """End all parts, and return when everything that they recorded is on disk."""
        for part in self.parts:
            await part.teardown(worker)
        with self._guard.catching("shipping"):
            if self.sender is not None:
                await self.sender.end()
        with self._guard.catching("teardown"):
            forget_handlers()
