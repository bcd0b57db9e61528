"""What workers had in the memory of their GPUs, and what dask-cuda moved out of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import text, whole
from dasfprof.analysis.tables.questions import question

#: Seconds within which a sample of what a worker holds tells of a reading of its device.
_NEAR = 2.0
_HELD = ("device_size", "host_size", "disk_tasks")
_MOVED = ("device_to_host_size", "host_to_device_size", "host_to_disk_size")


def _has_devices(run: Run) -> bool:
    return len(run.gpu_usage) + len(run.device_memory) > 0


@question(
    "Memory of GPUs by worker", "balance", expendable=("Results on Disk",), needs=_has_devices
)
def gpu_memory(run: Run) -> pd.DataFrame:
    """Say what each worker had in its GPU's memory when that was fullest.

    Returns
    -------
    DataFrame
        A row a worker whose GPU was read, or that dask-cuda gives its results a place on one:

        - ``Worker``, ``GPU``: its NVML index
        - ``Time (s)`` from begin: when most of the device was in use; NA: it was not read
        - ``In Use (MB)``: then, by all processes; ``Of (MB)`` that the device has
        - ``Own Process (MB)``: the most that the worker's process had there at any time; NA: the
          driver did not tell
        - ``Results There (MB)``: of the worker on the device, ``Results in Host Memory (MB)`` and
          ``Results on Disk`` (their number): by dask-cuda, in the sample nearest to that time, or,
          where the device was not read, when most were there; NA: its worker is none of dask-cuda's
        - ``Moved Out (MB)`` from the device to the host's memory, ``Moved Back (MB)``, ``To Disk
          (MB)``: while recorded

        What is in use beyond results are other processes, the libraries' own, pools (RMM takes
        memory before anybody needs it) and what tasks take while they run: which of these, nothing
        recorded tells.
    """
    workers, devices = run.named, gpu_samples(run)
    held = run.device_memory.sort_values("time", kind="stable")
    of_held, of_sample = workers.numbers(held), workers.numbers(run.samples)
    indices, titles = devices.indices(), workers.titles()
    rows = []
    for number in range(len(workers)):
        read, own = devices.of(number), held.take(np.flatnonzero(of_held == number))
        used = read["gpu_memory_used"].to_numpy(dtype=float)
        if not (np.isfinite(used).any() or len(own)):
            continue
        at = float("nan")
        row = {"Worker": titles[number], "GPU": indices[number]}
        if np.isfinite(used).any():
            fullest = read.iloc[int(np.nanargmax(used))]
            at = float(fullest["time"])
            row |= {"In Use (MB)": float(used[np.nanargmax(used)])}
            row |= {"Of (MB)": float(fullest.get("memory_total", np.nan))}
        process = run.samples.reindex(columns=["gpu_process_memory"]).to_numpy(dtype=float)
        row["Own Process (MB)"] = np.fmax.reduce(process[of_sample == number, 0], initial=np.nan)
        rows.append({**row, "Time (s)": run.seconds_at(at), **_results(own, at)})
    table = pd.DataFrame(rows, columns=_COLUMNS)
    for name in table.columns[table.columns.str.endswith("(MB)")]:
        table[name] = table[name].to_numpy(dtype=float) / 1e6
    for name in ("GPU", "Results on Disk"):
        table[name] = whole(pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float))
    table["Worker"] = text(table["Worker"].to_numpy(dtype=object))
    table["Time (s)"] = table["Time (s)"].astype(float)
    return table


_COLUMNS = [
    *("Worker", "GPU", "Time (s)", "In Use (MB)", "Of (MB)", "Own Process (MB)"),
    *("Results There (MB)", "Results in Host Memory (MB)", "Results on Disk"),
    *("Moved Out (MB)", "Moved Back (MB)", "To Disk (MB)"),
]


def _results(held: pd.DataFrame, at: float) -> dict[str, float]:
    """Return what a worker of dask-cuda held at a time, or at most, and what it moved."""
    if not len(held):
        return {}
    sizes = held["device_size"].to_numpy(dtype=float)
    distance = np.abs(held["time"].to_numpy(dtype=float) - at)
    if np.isnan(at) and np.isfinite(sizes).any():
        row = int(np.nanargmax(sizes))
    else:
        row = int(np.argmin(np.nan_to_num(distance, nan=np.inf)))
    near = np.isnan(at) or distance[row] <= _NEAR
    values = held.iloc[row][list(_HELD)].to_numpy(dtype=float) if near else np.full(3, np.nan)
    names = ("Results There (MB)", "Results in Host Memory (MB)", "Results on Disk")
    moved = ("Moved Out (MB)", "Moved Back (MB)", "To Disk (MB)")
    return {
        **dict(zip(names, values.tolist(), strict=True)),
        **{n: float(held[column].max()) for n, column in zip(moved, _MOVED, strict=True)},
    }
