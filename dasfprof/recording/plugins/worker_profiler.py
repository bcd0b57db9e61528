"""`WorkerProfiler`: the worker plugin of a run, which combines all that records on a worker.

Dask calls `transition` of each plugin for each of the six transitions of a task, even the empty
method of the base class. So the resource monitor and the ranges are not plugins of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dasfprof.recording.dask_internals.undocumented import use_dask_logging
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.nvtx import GPUAnnotationPlugin
from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.plugins.worker_plugin import RecordingPlugin
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.sender import Sender
from dasfprof.recording.shipping.targets import send_files_of_worker


class WorkerProfiler(RecordingPlugin):
    """Records task runs, samples resources and shows ranges in Nsight, on one worker.

    Sends its files to the scheduler where that is needed, or to the run's storage.

    Parameters
    ----------
    settings
        The run.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.name = settings.plugin_name("WorkerProfiler")
        #: The parts in the order of their setup. Each has a file of its own.
        self.parts: list[WorkerTaskPlugin | ResourceMonitor | GPUAnnotationPlugin] = [
            WorkerTaskPlugin(settings),
            ResourceMonitor(settings),
        ]
        if settings.enable_nvtx:
            name = settings.plugin_name("GPUAnnotationPlugin")
            self.parts.append(GPUAnnotationPlugin(name, settings))
        for part in self.parts:
            part.plugins = [each.plugin for each in self.parts]
        self._guard = HookGuard()
        self.sender: Sender | None = None

    @property
    def recorder(self) -> WorkerTaskPlugin:
        """The part that records task runs."""
        return next(part for part in self.parts if isinstance(part, WorkerTaskPlugin))

    @property
    def database(self) -> _Databases:
        """The files of all parts."""
        databases = [getattr(part, "database", None) for part in self.parts]
        return _Databases([self.recorder.call_profiles, *databases, self.sender])

    def setup(self, worker: Any) -> None:
        """Set up all parts if this worker can record. None of them raises."""
        use_dask_logging()
        if not self.can_record(worker):
            return
        for part in self.parts:
            part.setup(worker)
        # Dask calls the recorder's method directly.
        self.transition: Callable[..., None] = self.recorder.transition
        self._ship(worker)

    def end_with(self, ending: dict[str, Any]) -> None:
        """Let the files say of their end what a run's client does not, see `TraceWriter.ending`."""
        for part in self.parts:
            database = getattr(part, "database", None)
            if database is not None:
                database.writer.ending = ending

    def _ship(self, worker: Any) -> None:
        try:
            found = [getattr(part, "database", None) for part in self.parts]
            databases = [database for database in found if database is not None]
            assert self.settings is not None
            self.sender = send_files_of_worker(self.settings, worker, databases)
        except Exception:
            self._guard.caught("shipping")

    async def teardown(self, worker: Any) -> None:
        """End all parts; return when everything recorded is on disk."""
        for part in self.parts:
            await part.teardown(worker)
        try:
            if self.sender is not None:
                await self.sender.end()
        except Exception:
            self._guard.caught("shipping")


class _Databases:
    """Several databases, what goes into them and what ships them, committed in this order."""

    def __init__(self, databases: list[Any]) -> None:
        self._databases = databases

    def commit(self) -> None:
        """Write everything that was recorded before the call."""
        for database in self._databases:
            if database is not None:
                database.commit()
