"""The Parquet files of what was read again and again: of workers, hosts, disks and GPUs."""

from __future__ import annotations

from dasfprof.report.formats.parquet.schema import TIME, WHO, TableSchema, columns, recorded
from dasfprof.schema.declaration import EventKind
from dasfprof.schema.gpus import DEVICE_MEMORY, GPU_DEVICES, GPU_USAGE
from dasfprof.schema.resources import DISK_USAGE, HOST_PROCESS, MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import CLOCK

#: The event kind of each table.
_READ: dict[str, EventKind] = {
    "samples": RESOURCE_USAGE,
    "managed_memory": MANAGED_MEMORY,
    "clocks": CLOCK,
    "disk_usage": DISK_USAGE,
    "host_processes": HOST_PROCESS,
    "gpu_devices": GPU_DEVICES,
    "gpu_usage": GPU_USAGE,
    "device_memory": DEVICE_MEMORY,
}

#: What the tables have besides.
_MORE = {"host_processes": columns("ours flag it is the run's own; false: another program's")}

READINGS = tuple(
    TableSchema(
        name,
        event.about,
        (*WHO, *TIME, *recorded(event, without={"time"}), *_MORE.get(name, ())),
    )
    for name, event in _READ.items()
)
