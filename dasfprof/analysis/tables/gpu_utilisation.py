"""How busy each GPU was, over time and in total."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpu_utilisation import gpu_utilisation
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import INTERVAL
from dasfprof.analysis.trace import Trace
from dasfprof.errors import InvalidArgumentError

#: Means of readings by their labels, and by what they are divided.
_MEANS = {
    "Mean Power (W)": ("power", 1.0),
    "Mean SM Clock (MHz)": ("sm_clock", 1.0),
    "Mean Memory Clock (MHz)": ("memory_clock", 1.0),
    "Mean PCIe Sent (MB/s)": ("pcie_tx", 1e6),
    "Mean PCIe Received (MB/s)": ("pcie_rx", 1e6),
}
#: Where dask-cuda moved results, by the columns' labels.
_MOVED = {
    "GPU to Host": "device_to_host",
    "Host to GPU": "host_to_device",
    "Host to Disk": "host_to_disk",
    "Disk to Host": "disk_to_host",
}

#: The columns.
_DTYPES = {
    "Host": "object",
    "GPU": "Int64",
    "Name": "object",
    "Workers": "object",
    INTERVAL: "float64",
    "Time (s)": "float64",
    "Mean GPU Utilization (%)": "float64",
    "Max GPU Utilization (%)": "float64",
    "Mean GPU Memory Used (GB)": "float64",
    "Max GPU Memory Used (GB)": "float64",
    "GPU Memory (GB)": "float64",
    **dict.fromkeys(_MEANS, "float64"),
    "Max Temperature (C)": "float64",
    "Tasks Ran (%)": "float64",
    "Idle While Tasks Ran (%)": "float64",
    "Idle While No Task Ran (%)": "float64",
    **{f"{label} (GB)": "float64" for label in _MOVED},
    "Moving Results (s)": "float64",
    "Samples": "int64",
    "UUID": "object",
}


@question("How busy each GPU was", "time")
def per_gpu_utilisation(trace: Trace, interval: float | None = None) -> pd.DataFrame:
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
    workers = NamedWorkers(trace)
    titles = workers.titles()
    begins, devices = gpu_utilisation(trace, workers, interval)
    tables = [pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in _DTYPES.items()})]
    for found in devices:
        device = found.device
        columns = {
            "Host": device.host,
            "GPU": pd.NA if np.isnan(device.index) else int(device.index),
            "Name": device.name,
            "Workers": ", ".join(titles[number] for number in device.workers),
            INTERVAL: begins,
            "Time (s)": found.seconds,
            "Mean GPU Utilization (%)": found.mean_utilization,
            "Max GPU Utilization (%)": found.max_utilization,
            "Mean GPU Memory Used (GB)": found.mean_memory / 1e9,
            "Max GPU Memory Used (GB)": found.max_memory / 1e9,
            "GPU Memory (GB)": found.memory_total / 1e9,
            **{label: found.means[name] / unit for label, (name, unit) in _MEANS.items()},
            "Max Temperature (C)": found.max_temperature,
            "Tasks Ran (%)": found.tasks_ran,
            "Idle While Tasks Ran (%)": found.idle_while_tasks_ran,
            "Idle While No Task Ran (%)": found.idle_while_no_task_ran,
            **{f"{label} (GB)": found.moved[f"{way}_size"] / 1e9 for label, way in _MOVED.items()},
            "Moving Results (s)": sum(found.moved[way] for way in _MOVED.values()),
            "Samples": found.samples,
            "UUID": device.uuid,
        }
        tables.append(pd.DataFrame(columns).astype(_DTYPES))
    table = pd.concat(tables[1:] or tables, ignore_index=True)
    return table if interval is not None else table.drop(columns=INTERVAL)
