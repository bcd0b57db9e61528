"""`WorkerProfiler`: the worker plugin of a run, which combines all that records on a worker.

Dask calls `transition` of each plugin for each of the six transitions of a task, even the empty
method of the base class. So the resource monitor and the ranges are not plugins of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dasfprof.recording.plugins.nvtx import GPUAnnotationPlugin
from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.plugins.worker_plugin import RecordingPlugin
from dasfprof.recording.settings import RunSettings


class WorkerProfiler(RecordingPlugin):
    """Records task runs, samples resources and shows ranges in Nsight, on one worker.

    Parameters
    ----------
    settings
        The run.
    nvtx
        Whether tasks are shown as ranges.
    """

    def __init__(self, settings: RunSettings, nvtx: bool) -> None:
        self.settings = settings
        self.name = settings.plugin_name("WorkerProfiler")
        #: The parts in the order of their setup. Each has a file of its own.
        self.parts: list[WorkerTaskPlugin | ResourceMonitor | GPUAnnotationPlugin] = [
            WorkerTaskPlugin(settings),
            ResourceMonitor(settings),
        ]
        if nvtx:
            name = settings.plugin_name("GPUAnnotationPlugin")
            self.parts.append(GPUAnnotationPlugin(name, settings))

    @property
    def recorder(self) -> WorkerTaskPlugin:
        """The part that records task runs."""
        return next(part for part in self.parts if isinstance(part, WorkerTaskPlugin))

    @property
    def database(self) -> _Databases:
        """The files of all parts."""
        databases = [getattr(part, "database", None) for part in self.parts]
        return _Databases([self.recorder.call_profiles, *databases])

    def setup(self, worker: Any) -> None:
        """Set up all parts if this worker can record. None of them raises."""
        if not self.can_record(worker):
            return
        # Dask calls the recorder's method directly.
        self.transition: Callable[..., None] = self.recorder.transition
        for part in self.parts:
            part.setup(worker)

    async def teardown(self, worker: Any) -> None:
        """End all parts; return when everything recorded is on disk."""
        for part in self.parts:
            await part.teardown(worker)


class _Databases:
    """Several databases, and what goes into them, that are committed together."""

    def __init__(self, databases: list[Any]) -> None:
        self._databases = databases

    def commit(self) -> None:
        """Write everything that was recorded before the call."""
        for database in self._databases:
            if database is not None:
                database.commit()
