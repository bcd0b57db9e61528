"""Samples of each worker's GPU, and the utilization of each GPU over time and in total."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.intervals import SampledIntervals, held_until, union
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.progress import track
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.trace.workers import HOST_WIDE
from dasfprof.database.columns import Array, repeated

_READINGS = ["gpu_index", "gpu_utilization", "gpu_memory_used"]
_USAGE_NAMES = {
    "index": "gpu_index",
    "utilization": "gpu_utilization",
    "memory_used": "gpu_memory_used",
}


@dataclass(frozen=True)
class GpuDevice:
    """A GPU of a host and its samples."""

    host: str
    #: None if the trace does not name devices.
    uuid: str | None
    #: NVML index, or NaN if unknown.
    index: float
    name: str | None
    #: Numbers in `NamedWorkers` of the workers that use the device. Empty if no worker uses it.
    workers: tuple[int, ...]
    #: Samples by time: ``time, gpu_index, gpu_utilization`` (percent), ``gpu_memory_used`` (bytes).
    #: If the trace names devices, the samples have all columns of `Trace.gpu_usage`.
    samples: pd.DataFrame


class GpuSamples:
    """The GPU samples of a trace's workers."""

    def __init__(self, run: Run) -> None:
        self._workers = workers = run.named
        self._kinds = np.full(len(workers), "worker", dtype=object)
        self._kinds[workers.of_lives] = run.workers["kind"].to_numpy()
        devices = run.gpu_devices[run.gpu_devices["uuid"].notna()]
        numbers = workers.numbers(devices)
        last = devices.assign(number=numbers).drop_duplicates("number", keep="last")
        self._devices: dict[int, tuple[str, str]] = {}
        self._indices: dict[int, float] = {}
        for number, uuid, index in zip(last["number"], last["uuid"], last["index"], strict=True):
            self._devices[number] = workers.hosts[number], uuid
            self._indices[number] = index
        usage = run.gpu_usage.rename(columns=_USAGE_NAMES).sort_values("time", kind="stable")
        hosts, uuids = workers.hosts[workers.numbers(usage)], usage["uuid"].astype(object)
        self._of_device = {
            (str(host), str(uuid)): group for (host, uuid), group in usage.groupby([hosts, uuids])
        }
        known = run.samples.reindex(columns=["worker_id", "time", *_READINGS])
        known = known[known[_READINGS].notna().any(axis=1)]
        known = known.astype(dict.fromkeys(_READINGS, float)).sort_values("time", kind="stable")
        groups = known.groupby(workers.numbers(known))
        self._of_worker = {int(str(number)): group for number, group in groups}
        self._none = pd.DataFrame(columns=["time", *_READINGS], dtype=float)

    def of_worker(self, number: int) -> pd.DataFrame:
        """Return the samples of a worker's GPU, sorted by time.

        The columns are ``time, gpu_index, gpu_utilization`` (percent) and ``gpu_memory_used``
        (bytes).
        """
        # One worker samples all devices of its host, so the samples of this worker's device may be
        # another worker's.
        if number in self._devices:
            return self._of_device.get(self._devices[number], self._none)
        # In DASF's files, samples of the host may belong to no worker.
        hosts, labels = self._workers.hosts, self._workers.labels
        places = [number, *np.flatnonzero((hosts == hosts[number]) & np.isin(labels, HOST_WIDE))]
        sampled = (self._of_worker[place] for place in places if place in self._of_worker)
        samples = next(sampled, self._none)
        index = samples["gpu_index"]
        return samples if index.isna().all() else samples[index == index.min()]

    def indices(self) -> pd.arrays.IntegerArray:
        """Return the NVML index of each worker's GPU, or NA if unknown."""
        numbers = range(len(self._workers))
        known = [self._indices.get(at, self.of_worker(at)["gpu_index"].min()) for at in numbers]
        indices = np.array(known, dtype=float)
        missing = np.isnan(indices)
        return pd.arrays.IntegerArray(np.where(missing, 0, indices).astype(np.int64), missing)

    def devices(self) -> list[GpuDevice]:
        """Return the devices that workers use or that were sampled, by host and NVML index."""
        owners: dict[tuple[str, Any], list[int]] = {}
        for number in np.flatnonzero(self._kinds == "worker").tolist():
            if number in self._devices:
                owners.setdefault(self._devices[number], []).append(number)
            elif len(samples := self.of_worker(number)):
                host, index = str(self._workers.hosts[number]), samples["gpu_index"].min()
                owners.setdefault((host, None if np.isnan(index) else index), []).append(number)
        for identity in self._of_device:
            owners.setdefault(identity, [])
        devices = [self._device(*identity, numbers) for identity, numbers in owners.items()]
        return sorted(
            devices,
            key=lambda device: (device.host, np.nan_to_num(device.index), device.uuid or ""),
        )

    def _device(self, host: str, identity: Any, numbers: list[int]) -> GpuDevice:
        if not isinstance(identity, str):
            index = np.nan if identity is None else float(identity)
            return GpuDevice(host, None, index, None, tuple(numbers), self.of_worker(numbers[0]))
        samples = self._of_device.get((host, identity), self._none)
        known = samples["gpu_index"].to_numpy()
        return GpuDevice(
            host,
            identity,
            float(self._indices[numbers[0]] if numbers else known[0]),
            str(samples["name"].iloc[0]) if len(samples) else None,
            tuple(numbers),
            samples,
        )

    def integrals(
        self, tasks: pd.DataFrame, *, progress: bool = False
    ) -> dict[str, tuple[Array, Array]]:
        """Integrate the samples of each task run's GPU over the time of the task run.

        For ``gpu_utilization`` and ``gpu_memory_used``, the result has each task run's integral
        (value times seconds), and the seconds that samples cover.
        """
        if not self._sampled:
            nothing = repeated(0.0, len(tasks))
            return dict.fromkeys(_READINGS[1:], (nothing, nothing))
        sums = {reading: (np.zeros(len(tasks)), np.zeros(len(tasks))) for reading in _READINGS[1:]}
        bar = track(
            self._runs(tasks),
            "[function_bottleneck] Analysing traces",
            shown=progress,
            total=len(self._workers),
            unit="worker",
        )
        for samples, rows, starts, stops in bar:
            times = samples["time"].to_numpy(dtype=float)
            for reading, (integral, covered) in sums.items():
                values = samples[reading].to_numpy(dtype=float)
                known = ~np.isnan(values)
                if known.any():
                    intervals = SampledIntervals(times[known], starts, stops)
                    integral[rows] = intervals.integrals(values[known])
                    covered[rows] = intervals.covered
        return sums

    def counts(self, tasks: pd.DataFrame) -> Array:
        """Return the number of GPU samples during each task run.

        It is NaN if the GPU of the task run's worker was not sampled.
        """
        if not self._sampled:
            return repeated(np.nan, len(tasks))
        counts = np.full(len(tasks), np.nan)
        for samples, rows, starts, stops in self._runs(tasks):
            times = samples["time"].to_numpy(dtype=float)
            counts[rows] = np.diff(np.searchsorted(times, [starts, stops]), axis=0)[0]
        return counts

    @cached_property
    def _sampled(self) -> list[int]:
        """The codes of the workers that have GPU samples, as in `NamedWorkers`."""
        return [number for number in range(len(self._workers)) if len(self.of_worker(number))]

    def _runs(self, tasks: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, Array, Array, Array]]:
        """Yield the GPU samples of each worker, and the rows, starts and ends of its task runs."""
        starts = tasks["start"].to_numpy()
        stops = starts + tasks["duration"].to_numpy()
        workers = Groups(self._workers.numbers(tasks), len(self._workers))
        for number in self._sampled:
            rows = workers.rows(number)
            yield self.of_worker(number), rows, starts[rows], stops[rows]


#: GPU samples by trace.
gpu_samples = once_per_trace(GpuSamples)


#: Directions in which dask-cuda moves results, with labels. In "Device Memory", the column of a
#: direction counts seconds since the start of recording, and the column with the suffix "_size"
#: counts bytes.
_MOVES = {
    "device_to_host": "GPU to Host (GB)",
    "host_to_device": "Host to GPU (GB)",
    "host_to_disk": "Host to Disk (GB)",
    "disk_to_host": "Disk to Host (GB)",
}


def gpu_utilisation(
    run: Run, interval: float | None = None
) -> tuple[list[GpuDevice], pd.DataFrame]:
    """Return the devices by host and index, and a table of figures per device and time window.

    Windows have the length `interval`, or that of the full run. In the table, ``device`` is an
    index in the list, and ``begin`` is in seconds since the start of the run. The other columns are
    those of `per_gpu_utilisation`, with NaN if there are no samples.
    """
    devices = gpu_samples(run).devices() if run.begin < run.end else []
    edges = np.array([run.begin, run.end])
    if interval is not None and devices:
        count = max(int(np.ceil(run.wall / interval)), 1)
        edges = run.begin + interval * np.arange(count + 1)
    tasks = run.tasks
    of_task, starts = run.named.numbers(tasks), tasks["start"].to_numpy()
    stops = starts + tasks["duration"].to_numpy()
    memory = run.device_memory.sort_values("time", kind="stable")
    of_memory = run.named.numbers(memory)

    def of_device(samples: pd.DataFrame, users: Sequence[int]) -> pd.DataFrame:
        of_users = np.isin(of_task, users)
        figures = {"begin": run.since_begin(edges[:-1])}
        figures |= _integrate(samples, edges, union(starts[of_users], stops[of_users]))
        figures |= _moved(memory[np.isin(of_memory, users)], edges)
        figures["Samples"] = np.histogram(samples["time"].to_numpy(dtype=float), edges)[0]
        return pd.DataFrame(figures)

    nothing = of_device(pd.DataFrame({"time": np.empty(0)}), ())[:0]
    each = [nothing, *(of_device(device.samples, device.workers) for device in devices)]
    utilisation = pd.concat(each, keys=range(-1, len(devices)), names=["device"])
    return devices, utilisation.droplevel(1).reset_index()


def _moved(samples: pd.DataFrame, edges: Array) -> dict[str, Array]:
    """Return the GB of results that dask-cuda moved per time window, and the seconds this took.

    The samples must be sorted by time. If there are none, all values are NaN.
    """
    names = [f"{way}{what}" for way in _MOVES for what in ("_size", "")]
    sums = {name: np.full(len(edges) - 1, np.nan if samples.empty else 0.0) for name in names}
    for _, life in samples.groupby("worker_id"):
        # Each sample contains the totals of its worker instance since recording began.
        last = np.searchsorted(life["time"].to_numpy(), edges, side="right")
        for name in names:
            sums[name] += np.diff(np.r_[0.0, life[name].to_numpy(dtype=float)][last])
    moved = {label: sums[f"{way}_size"] / 1e9 for way, label in _MOVES.items()}
    return moved | {"Moving Results (s)": np.sum([sums[way] for way in _MOVES], axis=0)}


def _integrate(
    samples: pd.DataFrame, edges: Array, running: tuple[Array, Array]
) -> dict[str, Array]:
    """Return figures about a device, by column name, for each time window between two of `edges`.

    `running` has the starts and ends of time ranges in which the device's workers ran tasks.
    """
    times = samples["time"].to_numpy(dtype=float)
    ends = held_until(times)
    # Between two cuts, all quantities are constant.
    cuts = np.unique(np.concatenate([edges, times, ends, *running]))
    cuts = cuts[(cuts >= edges[0]) & (cuts <= edges[-1])]
    begins, seconds = cuts[:-1], np.diff(cuts)
    windows = Groups(np.searchsorted(edges, begins, side="right") - 1, len(edges) - 1)
    sample = np.searchsorted(times, begins, side="right") - 1
    sampled = sample >= 0
    sampled[sampled] = begins[sampled] < ends[sample[sampled]]
    begun, ended = (np.searchsorted(bounds, begins, side="right") for bounds in running)
    busy = begun > ended

    def reading(name: str) -> Array:
        values = np.full(len(begins), np.nan)
        if name in samples:
            values[sampled] = samples[name].to_numpy(dtype=float)[sample[sampled]]
        return values

    def mean(values: Array) -> Array:
        return ratio(windows.sum(values * seconds), windows.sum(~np.isnan(values) * seconds))

    utilization, memory = reading("gpu_utilization"), reading("gpu_memory_used")
    # In a second with a utilization of 30 %, the device was idle for 0.7 s.
    idle = 100.0 - utilization
    return {
        "Time (s)": windows.sum(sampled * seconds),
        "Mean GPU Utilization (%)": mean(utilization),
        "Max GPU Utilization (%)": windows.max(utilization),
        "Mean GPU Memory Used (GB)": mean(memory) / 1e9,
        "Max GPU Memory Used (GB)": windows.max(memory) / 1e9,
        "GPU Memory (GB)": windows.max(reading("memory_total")) / 1e9,
        "Mean Power (W)": mean(reading("power")),
        "Mean SM Clock (MHz)": mean(reading("sm_clock")),
        "Mean Memory Clock (MHz)": mean(reading("memory_clock")),
        "Mean PCIe Sent (MB/s)": mean(reading("pcie_tx")) / 1e6,
        "Mean PCIe Received (MB/s)": mean(reading("pcie_rx")) / 1e6,
        "Max Temperature (C)": windows.max(reading("temperature")),
        "Tasks Ran (%)": mean(np.where(sampled, 100.0 * busy, np.nan)),
        "Idle While Tasks Ran (%)": mean(idle * busy),
        "Idle While No Task Ran (%)": mean(idle * ~busy),
    }
