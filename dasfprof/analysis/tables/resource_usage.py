"""Resources of hosts, disks, GPUs and processes, including processes of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import GpuDevice, gpu_utilisation
from dasfprof.analysis.model.processes import host_programs
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import INTERVAL, integers, of_workers, text, utc
from dasfprof.analysis.tables.questions import NO_PARTS, question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.events import Column
from dasfprof.schema.resources import DISK_USAGE, HOST_COUNTERS, RESOURCE_USAGE

#: Sampled quantity and factor of its unit, by label of the column.
Columns = dict[str, tuple[str, float]]


def _titled(columns: Iterable[Column]) -> Columns:
    """Return the name and the divisor of each declared column that has a title, by title.

    The titles contain the unit. The divisor is 1e6 for bytes, and 1 for other values.
    """
    return {
        f"{column.title} (MB)" if column.kind == "bytes" else column.title: (
            column.name,
            1e6 if column.kind == "bytes" else 1,
        )
        for column in columns
        if column.title
    }


_OF_NODES = _titled(HOST_COUNTERS)
_OF_PROCESSES = _titled(
    column for column in RESOURCE_USAGE.columns if not column.name.startswith("host_")
)
_OF_DISKS = _titled(DISK_USAGE.columns)


@question("Resource usage by node", "reports", in_parts=NO_PARTS)
def node_resource_usage(run: Run) -> pd.DataFrame:
    """List the resource samples of each host.

    Returns
    -------
    DataFrame
        One row per sample, sorted by host and time. Values that the host does not report are NA:

        - ``Node``, ``Utc Time``
        - ``Cpu Percent`` of all cores
        - ``Memory Total (MB)``, ``Memory Available (MB)`` (without swapping), ``Memory Used (MB)``,
          ``Memory Used Percent`` (memory that is not available)
        - since the host's boot: ``Disk Io Read Count``, ``Disk Io Write Count``, ``Disk Io Read
          (MB)``, ``Disk Io Write (MB)``, ``Network Sent (MB)``, ``Network Recv (MB)``
        - ``# of TCP Connections``, ``# of UDP Connections``
        - the other counters that have a title in `dasfprof.schema.resources`
    """
    _, table = _sampled(run, run.samples[(run.samples["host_read"] == 1).to_numpy()], _OF_NODES)
    total = table["Memory Total (MB)"]
    percent = (total - table["Memory Available (MB)"]) / total.where(total > 0) * 100
    table.insert(6, "Memory Used Percent", percent)
    return _sorted(table, "Node")


@question("Resource usage by process", "reports", in_parts=NO_PARTS)
def processes_resource_usage(run: Run) -> pd.DataFrame:
    """List the resource samples of each worker process.

    Returns
    -------
    DataFrame
        One row per sample, sorted by host, worker and time:

        - ``Node``, ``Process``, ``Utc Time``
        - ``Cpu Percent`` of one core
        - ``Memory Used (MB)`` (resident), ``Memory Used Percent`` of the host's memory
        - since the process started: ``Process Seconds`` (CPU), ``Disk Io Read (MB)``, ``Disk Io
          Write (MB)``
        - ``# of Threads``, ``# of File Descriptors``
    """
    samples, table = _sampled(run, run.samples, _OF_PROCESSES)
    # On each host, one worker samples the host's memory for all workers.
    read = run.samples.reindex(columns=["worker_id", "host_memory_total"]).dropna()
    hosts = of_workers(run, read["worker_id"], "host")
    totals = dict(zip(hosts, _numbers(read["host_memory_total"]), strict=True))
    total = table["Node"].map(totals).astype(float)
    percent = table["Memory Used (MB)"] * 1e6 / total.where(total > 0) * 100
    table.insert(4, "Memory Used Percent", percent)
    table.insert(1, "Process", of_workers(run, samples["worker_id"]))
    return _sorted(table, "Node", "Process")


@question("Disk usage by node", "reports", in_parts=NO_PARTS)
def node_disk_usage(run: Run) -> pd.DataFrame:
    """List the samples of each disk of each host.

    Returns
    -------
    DataFrame
        One row per sample, sorted by host, device and time:

        - ``Node``, ``Device``, ``Mountpoint``, ``File System``
        - ``Local Directory``: whether workers spill to this disk
        - ``Utc Time``
        - ``Disk Total (MB)``, ``Disk Used (MB)``, ``Disk Free (MB)``, ``Disk Used Percent`` (of the
          space available to users). NA for a device that is not mounted
        - since the host's boot: ``Disk Io Read Count``, ``Disk Io Write Count``, ``Disk Io Read
          (MB)``, ``Disk Io Write (MB)``, ``Disk Io Read Seconds``, ``Disk Io Write Seconds``
    """
    samples, table = _sampled(run, run.disk_usage, _OF_DISKS)
    available = table["Disk Used (MB)"] + table["Disk Free (MB)"]
    # As in df, the percentage refers to the space for users, without space that root reserves.
    percent = table["Disk Used (MB)"] / available.where(available > 0) * 100
    table.insert(5, "Disk Used Percent", percent)
    table.insert(1, "Local Directory", samples["local_directory"].to_numpy() == 1)
    for label in ("File System", "Mountpoint", "Device"):
        column = samples[label.lower().replace(" ", "_")]
        table.insert(1, label, text(column.astype(object).to_numpy()))
    return _sorted(table, "Node", "Device")


def _sampled(
    run: Run, samples: pd.DataFrame, columns: Columns
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the samples with a time and a value of any of `columns`, and a table of the values."""
    wanted = samples.reindex(columns=[name for name, _ in columns.values()])
    known = wanted.notna().to_numpy().any(axis=1) & np.isfinite(samples["time"].to_numpy())
    samples, wanted = samples[known], wanted[known]
    table = {
        "Node": of_workers(run, samples["worker_id"], "host"),
        "Utc Time": utc(samples["time"].to_numpy()),
    }
    for label, (name, unit) in columns.items():
        table[label] = pd.Series(_numbers(wanted[name]) / unit)
    return samples, pd.DataFrame(table)


def _numbers(column: pd.Series) -> Array:
    """Return sampled values as floats."""
    # Traces of other programs may contain values of any type.
    if column.dtype.kind not in "iuf":
        column = pd.to_numeric(column.astype(object), errors="coerce")
    return column.to_numpy(dtype=float)


def _sorted(table: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Sort rows by text columns and then by time. Make counts nullable integers."""
    for label in table:
        if str(label).endswith("Count") or str(label).startswith("#"):
            table[label] = integers(table[label].to_numpy())
    time = table["Utc Time"].to_numpy()
    texts = [table[label].to_numpy().astype(str) for label in reversed(by)]
    ranks = [pd.factorize(column, sort=True)[0] for column in texts]
    return table.take(np.lexsort([time, *ranks])).reset_index(drop=True)


@question("GPU utilization", "time")
def per_gpu_utilisation(run: Run, interval: float | None = None) -> pd.DataFrame:
    """Show how busy each GPU was, and whether it idled while tasks ran on its workers.

    Parameters
    ----------
    interval
        Seconds per row. None returns one row for the full run.

    Returns
    -------
    DataFrame
        One row per device (and interval), sorted by host and index:

        - ``Host``, ``GPU`` (NVML index), ``Name``
        - ``Workers``: the workers to which the device belongs, or empty if all workers of the host
          may use it
        - ``Time Interval (seconds from begin)``, with an interval
        - ``Time (s)``: time that is covered by samples of the device. All other columns refer to
          it, and are NA without samples
        - ``Mean GPU Utilization (%)``, ``Max GPU Utilization (%)``, ``Mean GPU Memory Used (GB)``,
          ``Max GPU Memory Used (GB)``, ``GPU Memory (GB)``, ``Mean Power (W)``, ``Mean SM Clock
          (MHz)``, ``Mean Memory Clock (MHz)``, ``Mean PCIe Sent (MB/s)``, ``Mean PCIe Received
          (MB/s)``, ``Max Temperature (C)``
        - ``GPU to Host (GB)``, ``Host to GPU (GB)``, ``Host to Disk (GB)``, ``Disk to Host (GB)``,
          ``Moving Results (s)``: results that its workers moved. NA without dask-cuda
        - ``Tasks Ran (%)``: percentage of the time in which a task ran on one of its workers
        - ``Idle While Tasks Ran (%)``, ``Idle While No Task Ran (%)``: percentages of ``Time (s)``
          in which no kernel ran on the device, by whether a task ran on one of its workers. With
          the mean utilization, they sum to 100
        - ``Samples``, ``UUID``
    """
    if interval is not None and not interval > 0:
        raise InvalidArgumentError(
            f"interval={interval!r}: expected seconds above 0. Pass None for the full run."
        )
    titles = run.named.titles()
    devices, utilisation = gpu_utilisation(run, interval)
    of_row = utilisation.pop("device").to_numpy(dtype=np.int64)

    def of_each(of: Callable[[GpuDevice], object]) -> Array:
        return np.array([of(device) for device in devices], dtype=object)[of_row]

    table = pd.DataFrame(
        {
            "Host": text(of_each(lambda device: device.host)),
            "GPU": integers(of_each(lambda device: device.index).astype(float)),
            "Name": text(of_each(lambda device: device.name)),
            "Workers": text(
                of_each(lambda device: ", ".join(titles[number] for number in device.workers))
            ),
            INTERVAL: utilisation.pop("begin"),
            **dict(utilisation.items()),
            "UUID": text(of_each(lambda device: device.uuid)),
        }
    )
    return table if interval is not None else table.drop(columns=INTERVAL)


@question("Programs on hosts", "reports", needs="host_processes")
def host_processes(run: Run) -> pd.DataFrame:
    """List the programs that used much of a host, including those of other users.

    The processes of a host are sampled every 5 s while its cores are at least half busy. Otherwise,
    only their memory is sampled, every 30 s. One worker per host samples the processes that it can
    see. The name of a process in the kernel (15 characters) and its owner are recorded, but not its
    command line.

    Returns
    -------
    DataFrame
        One row per program and host, sorted by CPU time in descending order:

        - ``Node``, ``Process`` (its name), ``Owner``
        - ``Whose``: ``run`` for processes of the run and their children, otherwise ``other``
        - ``Processes``: their number
        - ``Cpu Seconds``: CPU time between samples of the busy host
        - ``Cores``: mean number of cores in that time, or NA if the host was never busy
        - ``Memory Used (MB)``: peak of the resident memory
        - ``Looks``: number of samples of the busy host
    """
    seen = host_programs(run)
    table = seen.programs
    looks = np.array([seen.looks.get(host, 0) for host in table["host"]], dtype=float)
    whose = np.where(table["ours"].to_numpy(dtype=bool), "run", "other").astype(object)
    return pd.DataFrame(
        {
            "Node": text(table["host"].to_numpy(dtype=object)),
            "Process": text(table["name"].to_numpy(dtype=object)),
            "Owner": text(table["owner"].to_numpy(dtype=object)),
            "Whose": text(whose),
            "Processes": table["processes"].to_numpy(dtype=np.int64),
            "Cpu Seconds": table["seconds"].to_numpy(dtype=float),
            "Cores": table["cores"].to_numpy(dtype=float),
            "Memory Used (MB)": table["memory"].to_numpy(dtype=float) / 1e6,
            "Looks": integers(looks),
        }
    )
