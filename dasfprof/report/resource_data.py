"""Samples of resources as the columns of a page: `ResourceData`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.gpu_samples import GpuSamples
from dasfprof.analysis.named_workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.packing import PackedColumn, seconds, whole_numbers

#: Points of all series of a metric together, and of one series.
_MAX_POINTS = 200_000
_SERIES_POINTS = 100, 1500
#: Values are stored as parts of their metric's highest.
_STEPS = 0xFFFF

_ABSENT = {
    "gpu": "no reading of a GPU was recorded",
    "gpu_memory": "no reading of a GPU was recorded",
}


@dataclass(frozen=True)
class _Series:
    label: str
    #: Seconds from the trace's begin, and what was read then.
    times: Array
    values: Array


@dataclass(frozen=True)
class ResourceData:
    """What the page's charts of resources are drawn from."""

    columns: dict[str, PackedColumn]
    #: A dict a metric: ``name, label, unit, series`` (``label, first``), ``highest``; or
    #: ``absent`` with the reason.
    metrics: list[dict[str, Any]]

    @classmethod
    def of(cls, trace: Trace) -> ResourceData:
        """Make the columns; long series are averaged over parts of the run."""
        named = NamedWorkers(trace)
        columns: dict[str, PackedColumn] = {}
        metrics = []
        for name, label, unit, series in _metrics(trace, named):
            metric: dict[str, Any] = {"name": name, "label": label, "unit": unit}
            known = [one for one in series if len(one.times)]
            if known:
                metric |= _pack(name, known, columns)
            else:
                metric["absent"] = _ABSENT.get(name, "no sample of it was recorded")
            metrics.append(metric)
        return cls(columns, metrics)


def _metrics(trace: Trace, named: NamedWorkers) -> Iterable[tuple[str, str, str, list[_Series]]]:
    samples, held = trace.samples, trace.managed_memory
    yield "cpu", "CPU of workers", "%", _of_workers(trace, samples, "cpu", named)
    yield "memory", "Memory of workers", "B", _of_workers(trace, samples, "memory", named)
    yield "results", "Results held", "B", _of_workers(trace, held, "size", named)
    yield "tasks", "Tasks in memory", "", _of_workers(trace, held, "tasks", named)
    for kind, label in (("net", "Network of hosts"), ("disk", "Disk of hosts")):
        directions = ("in", "out") if kind == "net" else ("read", "write")
        series = []
        for direction, way in zip(("read", "write"), directions, strict=True):
            series += _of_hosts(trace, f"host_{kind}_io.{direction}_bps", way, named)
        yield {"net": "network"}.get(kind, kind), label, "B/s", series
    devices = GpuSamples(trace, named).devices()
    for name, label, unit, reading in (
        ("gpu", "GPU utilisation", "%", "gpu_utilization"),
        ("gpu_memory", "GPU memory", "B", "gpu_memory_used"),
    ):
        of_devices = [
            _series(
                trace,
                f"{device.host} GPU {'?' if np.isnan(device.index) else int(device.index)}",
                device.samples,
                reading,
            )
            for device in devices
        ]
        yield name, label, unit, of_devices


def _of_workers(
    trace: Trace, table: pd.DataFrame, column: str, named: NamedWorkers
) -> list[_Series]:
    numbers, titles = named.numbers(table), named.titles()
    return [
        _series(trace, titles[number], table[numbers == number], column)
        for number in np.argsort(named.ranks()).tolist()
    ]


def _of_hosts(trace: Trace, column: str, way: str, named: NamedWorkers) -> list[_Series]:
    table = trace.samples
    hosts = named.hosts[named.numbers(table)]
    return [
        _series(trace, f"{host} {way}", table[hosts == host], column)
        for host in sorted(set(hosts.tolist()))
    ]


def _series(trace: Trace, label: str, table: pd.DataFrame, column: str) -> _Series:
    if column not in table:
        return _Series(label, np.empty(0), np.empty(0))
    times = table["time"].to_numpy(dtype=float) - trace.begin
    values = table[column].to_numpy(dtype=float)
    known = np.isfinite(times) & np.isfinite(values) & (times >= 0)
    order = np.argsort(times[known], kind="stable")
    return _Series(label, times[known][order], np.maximum(values[known][order], 0.0))


def _pack(name: str, series: list[_Series], columns: dict[str, PackedColumn]) -> dict[str, Any]:
    least, most = _SERIES_POINTS
    points = int(np.clip(_MAX_POINTS // len(series), least, most))
    short = [_averaged(one, points) for one in series]
    lengths = [len(one.times) for one in short]
    firsts = np.r_[0, np.cumsum(lengths)][:-1].tolist()
    values = np.concatenate([one.values for one in short])
    highest = float(values.max())
    steps = np.rint(values / (highest or 1.0) * _STEPS)
    columns[f"times:{name}"] = seconds(np.concatenate([one.times for one in short]), delta=True)
    columns[f"values:{name}"] = whole_numbers(steps)
    listed = [{"label": one.label, "first": at} for one, at in zip(short, firsts, strict=True)]
    return {"series": listed, "highest": highest, "steps": _STEPS}


def _averaged(series: _Series, points: int) -> _Series:
    """Average a series over parts of equal length where it has more points than that."""
    times, values = series.times, series.values
    if len(times) <= points:
        return series
    places = ((times - times[0]) / (times[-1] - times[0] or 1.0) * points).astype(np.int64)
    counts = np.bincount(places)
    found = np.flatnonzero(counts)

    def mean(numbers: Array) -> Array:
        averages: Array = np.bincount(places, weights=numbers)[found] / counts[found]
        return averages

    return _Series(series.label, mean(times), mean(values))
