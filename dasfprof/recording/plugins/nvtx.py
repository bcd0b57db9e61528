"""`GPUAnnotationPlugin`: shows task runs as named ranges in NVIDIA Nsight Systems, through NVTX.

The ranges are in the domain `DOMAIN`. The message of a range is the task's prefix, and its payload
is the task run's run_id. All ranges of a prefix have the same colour. Coroutine tasks have no
ranges.
"""

from __future__ import annotations

import colorsys
import functools
import os
import threading
import time
import zlib
from collections.abc import Callable
from enum import Enum
from typing import Any

from dasfprof.recording.dask_internals.task_functions import RUN_TASK, observe
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.worker_plugin import RecordingPart
from dasfprof.schema.events import InstantEvent

# Nsight assigns a kernel to the range that is open on the thread which launches the kernel. So the
# thread that runs the task pushes and pops the range.

_MAX_LENGTH = 200


class TaskRanges:
    """Opens and closes ranges around the tasks of a worker.

    Parameters
    ----------
    domain
        An enabled `nvtx.Domain`.
    """

    def __init__(self, worker: Any, domain: Any, guard: HookGuard) -> None:
        self._worker, self._domain, self._guard = worker, domain, guard
        # Each range reuses the attributes with another payload, so they are stored per thread.
        self._attributes = threading.local()

    def wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that runs a task, so that each call is shown as a range.

        The first argument of `run` is the task.
        """
        push, pop = self._domain.push_range, self._domain.pop_range

        @functools.wraps(run)
        def run_in_range(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            attributes = self._next(task)
            is_open = attributes is not None and self._call(push, attributes)
            try:
                return run(task, *args, **kwargs)
            finally:
                if is_open:
                    self._call(pop)

        return run_in_range

    def _next(self, task: Any) -> Any:
        """Return the attributes of a task's range, or None if creating them failed."""
        try:
            state = self._worker.state.tasks[task.key]
            attributes = self._of_prefix(state.prefix)
            attributes.payload = state.run_id
        except Exception:
            self._guard.caught(RUN_TASK)
            return None
        return attributes

    def _of_prefix(self, prefix: str) -> Any:
        known: dict[str, Any] = self._attributes.__dict__
        attributes = known.get(prefix)
        if attributes is None:
            message = prefix[:_MAX_LENGTH].encode(errors="replace").decode()
            attributes = self._domain.get_event_attributes(message=message, color=color_of(prefix))
            known[prefix] = attributes
        return attributes

    def _call(self, function: Callable[..., Any], *args: Any) -> bool:
        try:
            function(*args)
        except Exception:
            self._guard.caught(RUN_TASK)
            return False
        return True


def color_of(prefix: str) -> int:
    """Return the colour of a prefix as 0xAARRGGBB, which is the same in every process and run."""
    hue = zlib.crc32(prefix.encode(errors="replace")) / 2**32
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.6, 0.9))
    return 0xFF << 24 | red << 16 | green << 8 | blue


DOMAIN = "dasfprof"


class NvtxAvailability(str, Enum):
    """Whether the tasks of a worker are shown as ranges. If not, the value gives the reason."""

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

    If no tool receives ranges, the plugin creates none and has no cost. It records the
    `NvtxAvailability` in an event "NVTX" of the trace.
    """

    plugin = "GPUAnnotationPlugin"

    def _start(self, worker: Any) -> None:
        """Start showing task runs as ranges, and record whether this is possible."""
        database, constants = self._open_database(worker)
        args = {"availability": self._place(worker).value, "domain": DOMAIN}
        database.record(InstantEvent("NVTX", time.time(), args=args, **constants))

    def _place(self, worker: Any) -> NvtxAvailability:
        if os.environ.get("NVTX_DISABLE"):
            return NvtxAvailability.TURNED_OFF
        try:
            import nvtx
        except ImportError:
            return NvtxAvailability.NO_BINDING
        domain = nvtx.get_domain(DOMAIN)
        # NVTX looks for a tool only at its first use in a process.
        if domain.get_event_attributes() is None:
            return NvtxAvailability.NO_TOOL
        ranges = TaskRanges(worker, domain, self._guard)
        leave = observe(worker, ranges.wrap)
        if leave is None:
            return NvtxAvailability.NO_HOOK
        self._undo.append(leave)
        return NvtxAvailability.AVAILABLE
