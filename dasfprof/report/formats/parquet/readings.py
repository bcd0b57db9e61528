"""The Parquet files of what was read again and again: of workers, hosts, disks and GPUs."""

from __future__ import annotations

from dasfprof.report.formats.parquet.schema import TIME, WHO, TableSchema, recorded
from dasfprof.schema.declaration import EventKind
from dasfprof.schema.gpus import GPU_DEVICES, GPU_USAGE
from dasfprof.schema.resources import DISK_USAGE, MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import CLOCK

#: The event kind of each table.
_READ: dict[str, EventKind] = {
    "samples": RESOURCE_USAGE,
    "managed_memory": MANAGED_MEMORY,
    "clocks": CLOCK,
    "disk_usage": DISK_USAGE,
    "gpu_devices": GPU_DEVICES,
    "gpu_usage": GPU_USAGE,
}

READINGS = tuple(
    TableSchema(name, event.about, (*WHO, *TIME, *recorded(event, without={"time"})))
    for name, event in _READ.items()
)
