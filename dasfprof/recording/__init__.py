"""What observes: plugins that record on workers and on the scheduler, and what they are made of.

The names are looked up at use: processes of a pool without a cluster need none of Dask's
distributed, which these import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dasfprof.recording.plugins.resources import ResourceMonitor
    from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
    from dasfprof.recording.plugins.tasks import WorkerTaskPlugin

__all__ = ["ResourceMonitor", "SchedulerTaskPlugin", "WorkerTaskPlugin"]

_MODULES = {
    "ResourceMonitor": "resources",
    "SchedulerTaskPlugin": "scheduler",
    "WorkerTaskPlugin": "tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.plugins.{_MODULES[name]}"), name)
