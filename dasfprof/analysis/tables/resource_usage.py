"""What hosts, their disks and the workers' processes used, sample by sample."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.in_parts import NO_PARTS
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, utc, whole
from dasfprof.database.columns import Array
from dasfprof.schema.declaration import Column
from dasfprof.schema.resources import HOST_COUNTERS, HOST_PRESSURE, RESOURCE_USAGE

#: Columns by their label: what was sampled, and by what it is divided.
Columns = dict[str, tuple[str, float]]


def _titled(columns: Iterable[Column]) -> Columns:
    """Label declared columns by their titles and units."""
    return {
        f"{column.title} (MB)" if column.kind == "bytes" else column.title: (
            column.name,
            1e6 if column.kind == "bytes" else 1,
        )
        for column in columns
        if column.title
    }


_OF_NODES = _titled((*HOST_COUNTERS, *HOST_PRESSURE))
_OF_PROCESSES = _titled(
    column for column in RESOURCE_USAGE.columns if not column.name.startswith("host_")
)
_OF_DISKS: Columns = {
    "Disk Total (MB)": ("total", 1e6),
    "Disk Used (MB)": ("used", 1e6),
    "Disk Free (MB)": ("free", 1e6),
    "Disk Io Read Count": ("read_count", 1),
    "Disk Io Write Count": ("write_count", 1),
    "Disk Io Read (MB)": ("read_size", 1e6),
    "Disk Io Write (MB)": ("write_size", 1e6),
    "Disk Io Read Seconds": ("read_time", 1),
    "Disk Io Write Seconds": ("write_time", 1),
}


@question("Resources that each node used", "reports", in_parts=NO_PARTS)
def node_resource_usage(run: Run) -> pd.DataFrame:
    """List what was sampled of each host.

    Returns
    -------
    DataFrame
        A row a sample, by host and time: ``Node``, ``Utc Time``, ``Cpu Percent`` (of all
        cores), ``Memory Total (MB)``, ``Memory Available (MB)`` (without swapping), ``Memory
        Used (MB)``, ``Memory Used Percent`` (what is not available), ``Disk Io Read Count``,
        ``Disk Io Write Count``, ``Disk Io Read (MB)``, ``Disk Io Write (MB)``, ``Network
        Sent (MB)``, ``Network Recv (MB)`` (these six since the host's boot), ``# of TCP
        Connections``, ``# of UDP Connections``, and since the boot ``Cpu Pressure Seconds``,
        ``Memory Pressure Seconds``, ``Io Pressure Seconds`` (some of the host's tasks waited
        for it); and the other counters with a title in `dasfprof.schema.resources`. NA is what
        the host does not tell.
    """
    samples = _told(run.trace.samples, _OF_NODES)
    nodes = _hosts(run, samples)
    table = _table(samples, _OF_NODES)
    total = table["Memory Total (MB)"]
    percent = (total - table["Memory Available (MB)"]) / total.where(total > 0) * 100
    table.insert(5, "Memory Used Percent", percent)
    table.insert(0, "Node", text(nodes))
    return _sorted(table, nodes)


@question("Resources that each process used", "reports", in_parts=NO_PARTS)
def processes_resource_usage(run: Run) -> pd.DataFrame:
    """List what was sampled of each worker's process.

    Returns
    -------
    DataFrame
        A row a sample, by host, worker and time: ``Node``, ``Process``, ``Utc Time``, ``Cpu
        Percent`` (of one core), ``Memory Used (MB)`` (resident), ``Memory Used Percent`` (of
        the host's), and since the process began ``Process Seconds`` (CPU), ``Disk Io Read
        (MB)``, ``Disk Io Write (MB)``; ``# of Threads``, ``# of File Descriptors``, ``# of
        Connections``.
    """
    samples = _told(run.trace.samples, _OF_PROCESSES)
    nodes = _hosts(run, samples)
    labels = run.trace.workers["worker"].to_numpy()[samples["worker_id"].to_numpy()]
    table = _table(samples, _OF_PROCESSES)
    # One worker of each host reads its memory, for all of them.
    read = run.trace.samples.reindex(columns=["worker_id", "host_memory_total"]).dropna()
    totals = dict(zip(_hosts(run, read), _numbers(read["host_memory_total"]), strict=True))
    total = pd.Series(nodes, dtype=object).map(totals).astype(float)
    percent = table["Memory Used (MB)"] * 1e6 / total.where(total > 0) * 100
    table.insert(3, "Memory Used Percent", percent)
    table.insert(0, "Process", text(labels))
    table.insert(0, "Node", text(nodes))
    return _sorted(table, nodes, labels)


@question("What the disks of each node read and wrote", "reports", in_parts=NO_PARTS)
def node_disk_usage(run: Run) -> pd.DataFrame:
    """List what was read of each disk of each host.

    Returns
    -------
    DataFrame
        A row a reading, by host, device and time: ``Node``, ``Device``, ``Mountpoint``,
        ``File System``, ``Local Directory`` (workers spill there), ``Utc Time``, ``Disk
        Total (MB)``, ``Disk Used (MB)``, ``Disk Free (MB)``, ``Disk Used Percent`` (of what
        users can have), and since the host's boot ``Disk Io Read Count``, ``Disk Io Write
        Count``, ``Disk Io Read (MB)``, ``Disk Io Write (MB)``, ``Disk Io Read Seconds``,
        ``Disk Io Write Seconds``. A device that is not mounted has NA for its space.
    """
    readings = _told(run.trace.disk_usage, _OF_DISKS)
    nodes = _hosts(run, readings)
    table = _table(readings, _OF_DISKS)
    taken = table["Disk Used (MB)"] + table["Disk Free (MB)"]
    # As df has it: of what users can have, without what is kept for the system.
    percent = table["Disk Used (MB)"] / taken.where(taken > 0) * 100
    table.insert(4, "Disk Used Percent", percent)
    devices = readings["device"].astype(object).to_numpy()
    spilled_to = readings["local_directory"].to_numpy() == 1
    described = [
        ("Local Directory", pd.Series(spilled_to)),
        ("File System", text(readings["file_system"].astype(object).to_numpy())),
        ("Mountpoint", text(readings["mountpoint"].astype(object).to_numpy())),
        ("Device", text(devices)),
        ("Node", text(nodes)),
    ]
    for label, column in described:
        table.insert(0, label, column)
    return _sorted(table, nodes, devices)


def _told(samples: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Return the samples that tell their time and something of what is asked for."""
    wanted = samples.reindex(columns=[name for name, _ in columns.values()])
    told = wanted.notna().to_numpy().any(axis=1) & np.isfinite(samples["time"].to_numpy())
    return samples.take(np.flatnonzero(told))


def _hosts(run: Run, samples: pd.DataFrame) -> Array:
    hosts: Array = run.trace.workers["host"].to_numpy()[samples["worker_id"].to_numpy()]
    return hosts


def _table(samples: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    wanted = samples.reindex(columns=[name for name, _ in columns.values()])
    table = {"Utc Time": utc(samples["time"].to_numpy())}
    for label, (name, unit) in columns.items():
        table[label] = pd.Series(_numbers(wanted[name]) / unit)
    return pd.DataFrame(table)


def _numbers(column: pd.Series) -> Array:
    """Return a sampled quantity as numbers: in traces of others there may be anything."""
    if column.dtype.kind not in "iuf":
        column = pd.to_numeric(column.astype(object), errors="coerce")
    numbers: Array = column.to_numpy(dtype=float)
    return numbers


def _sorted(table: pd.DataFrame, *by: Array) -> pd.DataFrame:
    """Sort rows by these texts, then by time; counts become whole numbers."""
    for label in table:
        if str(label).endswith("Count") or str(label).startswith("#"):
            table[label] = whole(table[label].to_numpy())
    time = table["Utc Time"].to_numpy()
    ranks = [pd.factorize(texts.astype(str), sort=True)[0] for texts in reversed(by)]
    ordered: pd.DataFrame = table.take(np.lexsort([time, *ranks])).reset_index(drop=True)
    return ordered
