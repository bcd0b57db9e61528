"""`recorded_settings`: settings of Dask and of the run that may explain why two runs differ."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import dask

from dasfprof.config.options import RunOptions
from dasfprof.recording.settings import RunSettings

#: Of Dask's config, as the scheduler's process has it.
_OF_DASK = (
    "array.chunk-size",
    "dataframe.shuffle.method",
    "distributed.comm.compression",
    "distributed.p2p.storage.disk",
    "distributed.scheduler.active-memory-manager.start",
    "distributed.scheduler.work-stealing",
    "distributed.scheduler.worker-saturation",
    "distributed.worker.memory.pause",
    "distributed.worker.memory.spill",
    "distributed.worker.memory.target",
    "distributed.worker.memory.terminate",
    "optimization.fuse.active",
)
#: Options that do not touch the work, or whose files show them.
_NOT_SETTINGS = {"response_timeout", "orphan_timeout", "ship", "enable_nvtx"}


def recorded_settings(settings: RunSettings) -> dict[str, str]:
    """Return the settings, by their names in Dask's config, as texts."""
    found: dict[str, Any] = {name: dask.config.get(name, None) for name in _OF_DASK}
    for field in fields(RunOptions):
        if field.name not in _NOT_SETTINGS:
            name = field.name.replace("_", "-")
            found[f"dasfprof.{name}"] = getattr(settings, field.name)
    return {name: str(value) for name, value in found.items()}
