"""`WorkerProfiler`: the one worker plugin of a run, which carries what records on a worker.

Dask calls `transition` of each of its plugins at each of the six transitions of a task, be it the
empty one of the base class. So the sampler and the ranges are no plugins of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dasfprof.recording.annotation import GPUAnnotationPlugin
from dasfprof.recording.resource import ResourceMonitor
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.worker import WorkerTaskPlugin
from dasfprof.recording.worker_plugin import RecordingPlugin


class WorkerProfiler(RecordingPlugin):
    """Records task runs, samples resources and shows ranges in Nsight, on one worker.

    Parameters
    ----------
    settings
        The run that it records for.
    nvtx
        Whether tasks are shown as ranges.
    """

    def __init__(self, settings: RunSettings, nvtx: bool) -> None:
        self.settings = settings
        self.name = settings.plugin_name("WorkerProfiler")
        #: In the order in which they are set up. Each has a file of its own.
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
        return _Databases([getattr(part, "database", None) for part in self.parts])

    def setup(self, worker: Any) -> None:
        """Set all parts up, where this worker can record. None of them raises."""
        if not self.can_record(worker):
            return
        # Dask finds the recorder's method here, with no call in between.
        self.transition: Callable[..., None] = self.recorder.transition
        for part in self.parts:
            part.setup(worker)

    async def teardown(self, worker: Any) -> None:
        """End all parts; when it returns, everything recorded is on disk."""
        for part in self.parts:
            await part.teardown(worker)


class _Databases:
    """Several databases, written at a time."""

    def __init__(self, databases: list[Any]) -> None:
        self._databases = databases

    def commit(self) -> None:
        """Write everything that was recorded before the call."""
        for database in self._databases:
            if database is not None:
                database.commit()
