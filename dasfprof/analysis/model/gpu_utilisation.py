"""How busy each GPU was, over time and in total, and whether it idled while tasks ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpu_samples import GpuDevice, gpu_samples
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.numeric.sample_means import held_until
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: Columns of "GPU Usage" whose means are told.
READINGS = ("power", "sm_clock", "memory_clock", "pcie_tx", "pcie_rx")
#: Columns of "Device Memory" that count from the begin of recording.
MOVES = tuple(
    f"{way}{what}"
    for way in ("device_to_host", "host_to_device", "host_to_disk", "disk_to_host")
    for what in ("", "_size")
)


@dataclass(frozen=True)
class GpuUtilisation:
    """How busy a device was, by window of time; NaN where no sample tells."""

    device: GpuDevice
    #: Seconds for which samples are known: what the rest is about.
    seconds: Array
    #: Percent, as NVML has it.
    mean_utilization: Array
    max_utilization: Array
    #: Bytes.
    mean_memory: Array
    max_memory: Array
    memory_total: Array
    #: By the names of further columns of "GPU Usage", in their units.
    means: dict[str, Array]
    max_temperature: Array
    #: By the names of columns of "Device Memory", what its workers moved: bytes and seconds.
    moved: dict[str, Array]
    #: Percent of the time in which a task ran on one of its workers; in which no kernel ran though
    #: one did; and in which neither did.
    tasks_ran: Array
    idle_while_tasks_ran: Array
    idle_while_no_task_ran: Array
    samples: Array


def gpu_utilisation(
    trace: Trace, workers: NamedWorkers, interval: float | None = None
) -> tuple[Array, list[GpuUtilisation]]:
    """Find how busy each GPU was, in windows of equal length or in the whole run.

    Returns
    -------
    begins, devices
        When the windows begin, in seconds from the trace's begin; and the devices, by host and
        index.
    """
    devices = gpu_samples(trace).devices() if trace.begin < trace.end else []
    edges = np.array([trace.begin, trace.end])
    if interval is not None and devices:
        count = max(int(np.ceil((trace.end - trace.begin) / interval)), 1)
        edges = trace.begin + interval * np.arange(count + 1)
    tasks = trace.tasks
    of_task, starts = workers.numbers(tasks), tasks["start"].to_numpy()
    stops = starts + tasks["duration"].to_numpy()
    moved = _Moves(trace.device_memory, workers, edges)
    found = []
    for device in devices:
        own = np.isin(of_task, device.workers)
        running = union(starts[own], stops[own])
        facts = _integrate(device.samples, edges, running)
        found.append(GpuUtilisation(device, moved=moved.of(device.workers), **facts))
    return edges[:-1] - trace.begin, found


class _Moves:
    """What workers of dask-cuda moved between GPU, memory and disk, by window of time."""

    def __init__(self, samples: pd.DataFrame, workers: NamedWorkers, edges: Array) -> None:
        self._samples = samples.sort_values("time", kind="stable")
        self._numbers = workers.numbers(self._samples)
        self._edges = edges

    def of(self, numbers: tuple[int, ...]) -> dict[str, Array]:
        """Return the sums of workers; NaN where none of them tells."""
        own = self._samples[np.isin(self._numbers, numbers)]
        sums = {name: np.full(len(self._edges) - 1, np.nan if own.empty else 0.0) for name in MOVES}
        for _, life in own.groupby("worker_id"):
            # Each sample has the totals of its life since recording began.
            last = np.searchsorted(life["time"].to_numpy(), self._edges, side="right")
            for name in MOVES:
                sums[name] += np.diff(np.r_[0.0, life[name].to_numpy(dtype=float)][last])
        return sums


def _integrate(samples: pd.DataFrame, edges: Array, running: tuple[Array, Array]) -> dict[str, Any]:
    """Integrate a device's readings over the windows between edges.

    Time is cut wherever a sample, a window or the running of tasks begins or ends; between two
    cuts all of them are constant.
    """
    times = samples["time"].to_numpy(dtype=float)
    ends = held_until(times)
    cuts = np.unique(np.concatenate([edges, times, ends, *running]))
    cuts = cuts[(cuts >= edges[0]) & (cuts <= edges[-1])]
    begins, seconds = cuts[:-1], np.diff(cuts)
    window = np.searchsorted(edges, begins, side="right") - 1
    sample = np.searchsorted(times, begins, side="right") - 1
    sampled = sample >= 0
    sampled[sampled] = begins[sampled] < ends[sample[sampled]]
    busy = _inside(begins, *running)

    def reading(name: str) -> Array:
        values = np.full(len(begins), np.nan)
        if name in samples:
            values[sampled] = samples[name].to_numpy(dtype=float)[sample[sampled]]
        return values

    def total(weights: Array) -> Array:
        sums = np.bincount(window, weights=weights, minlength=len(edges) - 1)
        return np.asarray(sums, dtype=float)

    def mean(values: Array) -> Array:
        known = ~np.isnan(values)
        return ratio(total(np.where(known, values, 0.0) * seconds), total(known * seconds))

    def highest(values: Array) -> Array:
        found = np.full(len(edges) - 1, np.nan)
        np.fmax.at(found, window, values)
        return found

    utilization, memory = reading("gpu_utilization"), reading("gpu_memory_used")
    # Of a second with a utilisation of 30 %, the device idled 0.7.
    idle = 100.0 - utilization
    inside = (times >= edges[0]) & (times <= edges[-1])
    places = np.minimum(np.searchsorted(edges, times[inside], side="right"), len(edges) - 1) - 1
    return {
        "seconds": total(sampled * seconds),
        "mean_utilization": mean(utilization),
        "max_utilization": highest(utilization),
        "mean_memory": mean(memory),
        "max_memory": highest(memory),
        "memory_total": highest(reading("memory_total")),
        "means": {name: mean(reading(name)) for name in READINGS},
        "max_temperature": highest(reading("temperature")),
        "tasks_ran": mean(np.where(sampled, 100.0 * busy, np.nan)),
        "idle_while_tasks_ran": mean(idle * busy),
        "idle_while_no_task_ran": mean(idle * ~busy),
        "samples": np.bincount(places, minlength=len(edges) - 1),
    }


def _inside(times: Array, starts: Array, stops: Array) -> Array:
    """Return which times are within intervals that are apart and in order."""
    place = np.searchsorted(starts, times, side="right") - 1
    found = place >= 0
    found[found] = times[found] < stops[place[found]]
    return found
