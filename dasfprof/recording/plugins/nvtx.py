"""`GPUAnnotationPlugin`: each task run as a named range in NVIDIA Nsight Systems, through NVTX.

The ranges are in the domain `DOMAIN`: the message is the task's prefix, the payload its run_id, and
each prefix has one colour. `dasfprof.recording.task_runs.nvtx_ranges` places them around the tasks.

``dask.annotate(nvtx_category=3)`` around the building of tasks puts their ranges in a category, a
positive integer: one for each step of a pipeline, for example. Integers, because NVTX numbers
named categories in the order of their first use, which differs between workers.
"""

from __future__ import annotations

import os
import time
from enum import Enum
from typing import Any

from dasfprof.recording.dask_internals.task_functions import observe
from dasfprof.recording.plugins.worker_plugin import RecordingPart
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.task_runs.nvtx_ranges import TaskRanges
from dasfprof.schema.events import InstantEvent

DOMAIN = "dasfprof"


class NvtxAvailability(str, Enum):
    """Whether the tasks of a worker are shown as ranges, or the reason why not."""

    AVAILABLE = "available"
    """A tool listens, and the tasks are annotated."""
    NO_TOOL = "no tool"
    """The process does not run under a tool such as ``nsys profile``: no ranges are placed."""
    NO_BINDING = "no nvtx"
    """The package nvtx is not installed: ``pip install "dasfprof[gpu]"``."""
    TURNED_OFF = "turned off"
    """The variable NVTX_DISABLE is set."""
    NO_HOOK = "no hook"
    """This version of Dask runs its tasks in another way."""


class GPUAnnotationPlugin(RecordingPart):
    """Shows each task run of a worker as a range in NVIDIA Nsight Systems.

    Without a tool that listens it places no ranges and costs nothing.

    Parameters
    ----------
    name
        The plugin's name on the cluster.
    settings
        The run whose trace gets an event "NVTX" with the `NvtxAvailability`; None: no trace.
    """

    plugin = "GPUAnnotationPlugin"

    def __init__(self, name: str = plugin, settings: RunSettings | None = None) -> None:
        super().__init__(settings, name)

    def _start(self, worker: Any) -> None:
        """Place the ranges, and record whether that was possible."""
        opened = self._open_database(self.settings, worker) if self.settings else None
        args = {"availability": self._place(worker).value, "domain": DOMAIN}
        if opened:
            database, constants = opened
            database.record(InstantEvent("NVTX", time.time(), args=args, **constants))

    def _place(self, worker: Any) -> NvtxAvailability:
        if os.environ.get("NVTX_DISABLE"):
            return NvtxAvailability.TURNED_OFF
        try:
            import nvtx
        except ImportError:
            return NvtxAvailability.NO_BINDING
        domain = nvtx.get_domain(DOMAIN)
        # NVTX looks for a tool at its first use in a process and then never again.
        if domain.get_event_attributes() is None:
            return NvtxAvailability.NO_TOOL
        ranges = TaskRanges(worker, domain, self._guard)
        leave = observe(worker, ranges.wrap, ranges.wrap_coroutine)
        if leave is None:
            return NvtxAvailability.NO_HOOK
        self._undo.append(leave)
        return NvtxAvailability.AVAILABLE
