"""Readings of each worker's GPU, whoever read them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.named_workers import NamedWorkers
from dasfprof.analysis.progress import track
from dasfprof.analysis.sample_means import integrate
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.workers import HOST_WIDE
from dasfprof.database.columns import Array

_READINGS = ["gpu_index", "gpu_utilization", "gpu_memory_used"]
_USAGE_NAMES = {
    "index": "gpu_index",
    "utilization": "gpu_utilization",
    "memory_used": "gpu_memory_used",
}


class GpuSamples:
    """The samples of the GPUs of a trace's workers.

    A device is read by one worker of its host, whoever computes on it. Where the trace tells a
    worker's device, by UUID, its samples are those of that device on that host. Else they are
    the readings in the worker's own resource samples; else, as in DASF's files, those in the
    samples of its host that belong to no worker.

    Parameters
    ----------
    trace
        The trace.
    workers
        Its workers.
    """

    def __init__(self, trace: Trace, workers: NamedWorkers) -> None:
        self._workers = workers
        devices = trace.gpu_devices[trace.gpu_devices["uuid"].notna()]
        numbers = workers.numbers(devices)
        last = devices.assign(number=numbers).drop_duplicates("number", keep="last")
        self._devices: dict[int, tuple[str, str]] = {}
        self._indices: dict[int, float] = {}
        for number, uuid, index in zip(last["number"], last["uuid"], last["index"], strict=True):
            self._devices[number] = workers.hosts[number], uuid
            self._indices[number] = index
        self._of_device = _by_device(trace.gpu_usage, workers)
        self._of_worker = _by_worker(trace.samples, workers)
        self._none = pd.DataFrame(columns=["time", *_READINGS], dtype=float)

    def of(self, number: int) -> pd.DataFrame:
        """Give a worker's samples in the order of time.

        Returns
        -------
        DataFrame
            ``time, gpu_index, gpu_utilization`` (percent), ``gpu_memory_used`` (bytes).
        """
        if number in self._devices:
            return self._of_device.get(self._devices[number], self._none)
        samples = self._of_worker.get(number)
        if samples is None:
            samples = self._of_host(number)
        index = samples["gpu_index"]
        return samples if index.isna().all() else samples[index == index.min()]

    def indices(self) -> pd.arrays.IntegerArray:
        """Give the NVML index of each worker's GPU, NA where nothing tells."""
        numbers = range(len(self._workers))
        found = [self._indices.get(at, self.of(at)["gpu_index"].min()) for at in numbers]
        indices = np.array(found, dtype=float)
        missing = np.isnan(indices)
        return pd.arrays.IntegerArray(np.where(missing, 0, indices).astype(np.int64), missing)

    def integrals(
        self, tasks: pd.DataFrame, *, progress: bool = False
    ) -> dict[str, tuple[Array, Array]]:
        """Integrate the readings of its worker's GPU over each task run.

        Returns
        -------
        dict
            For ``gpu_utilization`` and ``gpu_memory_used`` the integrals (reading times
            seconds), and the seconds that samples cover: see `integrate`.
        """
        starts = tasks["start"].to_numpy()
        stops = starts + tasks["duration"].to_numpy()
        found = {reading: (np.zeros(len(tasks)), np.zeros(len(tasks))) for reading in _READINGS[1:]}
        numbers = self._workers.numbers(tasks)
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(len(self._workers) + 1))
        bar = track(
            range(len(self._workers)),
            "[function_bottleneck] Analysing traces",
            shown=progress,
            total=len(self._workers),
            unit="worker",
        )
        for number in bar:
            rows, samples = order[bounds[number] : bounds[number + 1]], self.of(number)
            for reading, (integral, covered) in found.items():
                known = samples[samples[reading].notna()]
                if len(known):
                    integral[rows], covered[rows] = integrate(
                        known["time"].to_numpy(),
                        known[reading].to_numpy(),
                        starts[rows],
                        stops[rows],
                    )
        return found

    def _of_host(self, number: int) -> pd.DataFrame:
        hosts, labels = self._workers.hosts, self._workers.labels
        for place in np.flatnonzero(hosts == hosts[number]).tolist():
            if labels[place] in HOST_WIDE and place in self._of_worker:
                return self._of_worker[place]
        return self._none


def _by_device(usage: pd.DataFrame, workers: NamedWorkers) -> dict[tuple[str, str], pd.DataFrame]:
    samples = usage.rename(columns=_USAGE_NAMES)
    groups = samples.sort_values("time", kind="stable").groupby(
        [workers.hosts[workers.numbers(samples)], samples["uuid"].astype(object)]
    )
    return {(str(host), str(uuid)): group for (host, uuid), group in groups}


def _by_worker(samples: pd.DataFrame, workers: NamedWorkers) -> dict[int, pd.DataFrame]:
    known = samples.reindex(columns=["worker_id", "time", *_READINGS])
    known = known[known[_READINGS].notna().any(axis=1)]
    known = known.astype(dict.fromkeys(_READINGS, float)).sort_values("time", kind="stable")
    return {int(str(number)): group for number, group in known.groupby(workers.numbers(known))}
