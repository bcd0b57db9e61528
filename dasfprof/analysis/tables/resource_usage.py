"""What hosts, disks, GPUs and processes used, those of other programs too."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import GpuDevice, GpuUtilisation, gpu_utilisation
from dasfprof.analysis.model.processes import host_programs
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import INTERVAL, of_workers, text, utc, whole
from dasfprof.analysis.tables.questions import NO_PARTS, question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.events import Column
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
    samples = _told(run.samples[(run.samples["host_read"] == 1).to_numpy()], _OF_NODES)
    nodes = of_workers(run, samples["worker_id"], "host")
    table = _table(samples, _OF_NODES)
    total = table["Memory Total (MB)"]
    percent = (total - table["Memory Available (MB)"]) / total.where(total > 0) * 100
    table.insert(5, "Memory Used Percent", percent)
    table.insert(0, "Node", nodes)
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
    samples = _told(run.samples, _OF_PROCESSES)
    nodes = of_workers(run, samples["worker_id"], "host")
    labels = of_workers(run, samples["worker_id"])
    table = _table(samples, _OF_PROCESSES)
    # One worker of each host reads its memory, for all of them.
    read = run.samples.reindex(columns=["worker_id", "host_memory_total"]).dropna()
    totals = dict(
        zip(
            of_workers(run, read["worker_id"], "host"),
            _numbers(read["host_memory_total"]),
            strict=True,
        )
    )
    total = nodes.map(totals).astype(float)
    percent = table["Memory Used (MB)"] * 1e6 / total.where(total > 0) * 100
    table.insert(3, "Memory Used Percent", percent)
    table.insert(0, "Process", labels)
    table.insert(0, "Node", nodes)
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
    readings = _told(run.disk_usage, _OF_DISKS)
    nodes = of_workers(run, readings["worker_id"], "host")
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
        ("Node", nodes),
    ]
    for label, column in described:
        table.insert(0, label, column)
    return _sorted(table, nodes, devices)


def _told(samples: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Return the samples that tell their time and something of what is asked for."""
    wanted = samples.reindex(columns=[name for name, _ in columns.values()])
    told = wanted.notna().to_numpy().any(axis=1) & np.isfinite(samples["time"].to_numpy())
    return samples.take(np.flatnonzero(told))


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
    return column.to_numpy(dtype=float)


def _sorted(table: pd.DataFrame, *by: pd.Series | Array) -> pd.DataFrame:
    """Sort rows by these texts, then by time; counts become whole numbers."""
    for label in table:
        if str(label).endswith("Count") or str(label).startswith("#"):
            table[label] = whole(table[label].to_numpy())
    time = table["Utc Time"].to_numpy()
    ranks = [pd.factorize(np.asarray(texts).astype(str), sort=True)[0] for texts in reversed(by)]
    return table.take(np.lexsort([time, *ranks])).reset_index(drop=True)


#: Where dask-cuda moves results.
_WAYS = ("device_to_host", "host_to_device", "host_to_disk", "disk_to_host")
#: The figures of a device, by the labels of their columns.
_OF_GPUS: dict[str, Callable[[GpuUtilisation], Array]] = {
    "Time (s)": lambda gpu: gpu.seconds,
    "Mean GPU Utilization (%)": lambda gpu: gpu.mean_utilization,
    "Max GPU Utilization (%)": lambda gpu: gpu.max_utilization,
    "Mean GPU Memory Used (GB)": lambda gpu: gpu.mean_memory / 1e9,
    "Max GPU Memory Used (GB)": lambda gpu: gpu.max_memory / 1e9,
    "GPU Memory (GB)": lambda gpu: gpu.memory_total / 1e9,
    "Mean Power (W)": lambda gpu: gpu.means["power"],
    "Mean SM Clock (MHz)": lambda gpu: gpu.means["sm_clock"],
    "Mean Memory Clock (MHz)": lambda gpu: gpu.means["memory_clock"],
    "Mean PCIe Sent (MB/s)": lambda gpu: gpu.means["pcie_tx"] / 1e6,
    "Mean PCIe Received (MB/s)": lambda gpu: gpu.means["pcie_rx"] / 1e6,
    "Max Temperature (C)": lambda gpu: gpu.max_temperature,
    "Tasks Ran (%)": lambda gpu: gpu.tasks_ran,
    "Idle While Tasks Ran (%)": lambda gpu: gpu.idle_while_tasks_ran,
    "Idle While No Task Ran (%)": lambda gpu: gpu.idle_while_no_task_ran,
    "GPU to Host (GB)": lambda gpu: gpu.moved["device_to_host_size"] / 1e9,
    "Host to GPU (GB)": lambda gpu: gpu.moved["host_to_device_size"] / 1e9,
    "Host to Disk (GB)": lambda gpu: gpu.moved["host_to_disk_size"] / 1e9,
    "Disk to Host (GB)": lambda gpu: gpu.moved["disk_to_host_size"] / 1e9,
    "Moving Results (s)": lambda gpu: np.sum([gpu.moved[way] for way in _WAYS], axis=0),
    "Samples": lambda gpu: gpu.samples,
}


@question("How busy each GPU was", "time")
def per_gpu_utilisation(run: Run, interval: float | None = None) -> pd.DataFrame:
    """Show how busy each GPU was, and whether it idled while tasks ran on its workers.

    Parameters
    ----------
    interval
        Seconds for a row over time; None gives the whole run in one row.

    Returns
    -------
    DataFrame
        A row a device (and interval), by host and index:

        - ``Host``, ``GPU`` (NVML index), ``Name``, ``Workers`` (those whose own device it
          is; empty: nobody's, but there to be used)
        - ``Time Interval (seconds from begin)``, if an interval was given
        - ``Time (s)``: for which samples of the device are known; all other columns are
          about this time, NA where it is none
        - ``Mean GPU Utilization (%)``, ``Max GPU Utilization (%)``, ``Mean GPU Memory Used
          (GB)``, ``Max GPU Memory Used (GB)``, ``GPU Memory (GB)``, ``Mean Power (W)``, ``Mean
          SM Clock (MHz)``, ``Mean Memory Clock (MHz)``, ``Mean PCIe Sent (MB/s)``,
          ``Mean PCIe Received (MB/s)``, ``Max Temperature (C)``
        - ``Tasks Ran (%)``: the share in which a task ran on one of its workers
        - ``Idle While Tasks Ran (%)``, ``Idle While No Task Ran (%)``: the shares in which
          no kernel ran on the device; with the mean utilisation they make 100
        - ``GPU to Host (GB)``, ``Host to GPU (GB)``, ``Host to Disk (GB)``, ``Disk to Host
          (GB)``, ``Moving Results (s)``: what its workers moved, NA where they are not
          dask-cuda's
        - ``Samples``, ``UUID``
    """
    if interval is not None and not interval > 0:
        raise InvalidArgumentError(
            f"interval={interval!r}: give seconds, more than 0, or None for the whole run."
        )
    titles = run.named.titles()
    begins, gpus = gpu_utilisation(run, run.named, interval)

    def of_each(of: Callable[[GpuDevice], object]) -> Array:
        values = np.array([of(gpu.device) for gpu in gpus], dtype=object)
        return np.repeat(values, len(begins))

    table = pd.DataFrame(
        {
            "Host": text(of_each(lambda device: device.host)),
            "GPU": whole(of_each(lambda device: device.index).astype(float)),
            "Name": text(of_each(lambda device: device.name)),
            "Workers": text(
                of_each(lambda device: ", ".join(titles[number] for number in device.workers))
            ),
            INTERVAL: np.tile(begins, len(gpus)),
            **{
                label: np.concatenate([np.empty(0), *(of(gpu) for gpu in gpus)])
                for label, of in _OF_GPUS.items()
            },
            "UUID": text(of_each(lambda device: device.uuid)),
        }
    ).astype({"Samples": "int64"})
    return table if interval is not None else table.drop(columns=INTERVAL)


@question("Programs on hosts", "reports", needs="host_processes")
def host_processes(run: Run) -> pd.DataFrame:
    """List the programs that used much of a host, the run's own and others'.

    A host's processes are looked at every 5 s while its cores are busy for half of the time or
    more, and every 30 s for their memory alone: those that one worker of the host can see. Of each
    the kernel's name (15 characters) and its owner are recorded, no command line.

    Returns
    -------
    DataFrame
        A row a program of a host, the most CPU first: ``Node``, ``Process`` (its name), ``Owner``,
        ``Whose`` (``run``: a process of the run, or what it started; ``other``), ``Processes``
        (how many), ``Cpu Seconds`` (in the time between looks while the host was busy), ``Cores``
        (on average over it; NA where it never was), ``Memory Used (MB)`` (resident; the most at a
        look), ``Looks`` (at the busy host).
    """
    found = host_programs(run)
    table = found.programs
    looks = np.array([found.looks.get(host, 0) for host in table["host"]], dtype=float)
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
            "Looks": whole(looks),
        }
    )
