"""Resource samples as time series, and as columns of the page for its charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.model.held_results import ResultsOverTime, results_over_time
from dasfprof.analysis.model.run_memory import memory_of_others
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.database.columns import Array
from dasfprof.report.formats.tracks import natural_order
from dasfprof.report.page.document import PackedColumn, in_group, scaled, seconds
from dasfprof.schema.resources import HOST_COUNTERS

_UNITS = {"bytes": "B", "seconds": "s"}


@dataclass(frozen=True)
class Series:
    """The samples of one metric of a worker, host or device, such as the memory of a worker."""

    #: Name of the worker, host or device. For reads and writes, it includes the direction.
    label: str
    host: str
    #: Sorted times in seconds since the start of the run, and the values.
    times: Array
    values: Array


@dataclass(frozen=True)
class Metric:
    """A metric that is sampled, with its time series."""

    name: str
    label: str
    #: ``%``, ``B``, ``B/s``, or empty for numbers.
    unit: str
    #: Time series sorted by name, where 2 precedes 10. A series without samples is empty.
    series: Sequence[Series]


def metrics_of(run: Run) -> Iterator[Metric]:
    """Yield the metrics of a trace, including metrics without samples."""
    named = run.named
    samples, held = run.samples, run.managed_memory
    for name, label, unit, table, column in (
        ("cpu", "CPU of workers", "%", samples, "cpu"),
        ("memory", "Memory of workers", "B", samples, "memory"),
        ("results", "Results held", "B", held, "size"),
        ("tasks", "Tasks in memory", "", held, "tasks"),
    ):
        yield Metric(name, label, unit, list(_of_workers(run, table, column, named)))
    others = memory_of_others(run).items()
    of_others = [Series(name, each.host, each.time, each.memory) for name, each in others]
    of_gpus = list(_of_workers(run, run.device_memory, "device_size", named))
    for name, label, series in (
        ("other_memory", "Memory of the scheduler and the client", of_others),
        ("device_results", "Results on GPUs", of_gpus),
    ):
        if any(len(each.times) for each in series):
            yield Metric(name, label, "B", series)
    for name, label, readings in (
        ("network", "Network of hosts", {"in": "net_io.read", "out": "net_io.write"}),
        ("disk", "Disk of hosts", {"read": "disk_io.read", "write": "disk_io.write"}),
    ):
        series = []
        for way, reading in readings.items():
            series += _of_hosts(run, f"host_{reading}_bps", way, named)
        yield Metric(name, label, "B/s", series)
    for counter in HOST_COUNTERS:
        drawn = counter.chart and counter.name in samples
        if drawn and (samples[counter.name] > 0).any():  # Otherwise it is a line at zero.
            series = list(_of_hosts(run, counter.name, "", named))
            yield Metric(counter.name, counter.chart, _UNITS.get(counter.kind, ""), series)
    devices = gpu_samples(run).devices()
    for name, label, unit, reading in (
        ("gpu", "GPU utilisation", "%", "gpu_utilization"),
        ("gpu_memory", "GPU memory", "B", "gpu_memory_used"),
    ):
        of_devices = []
        for device in devices:
            index = "?" if np.isnan(device.index) else int(device.index)
            title = f"{device.host} GPU {index}"
            of_devices.append(_series(run, title, device.host, device.samples, reading))
        yield Metric(name, label, unit, of_devices)


def _of_workers(
    run: Run, table: pd.DataFrame, column: str, named: NamedWorkers
) -> Iterable[Series]:
    rows = _rows_of(named.numbers(table), len(named))
    titles = named.titles()
    for number in sorted(range(len(named)), key=lambda place: natural_order(titles[place])):
        of_worker = table.take(rows[number])
        yield _series(run, titles[number], named.hosts[number], of_worker, column)


def _of_hosts(run: Run, column: str, way: str, named: NamedWorkers) -> Iterable[Series]:
    table = run.samples[(run.samples["host_read"] == 1).to_numpy()]
    hosts, codes = np.unique(named.hosts.astype(str), return_inverse=True)
    rows = _rows_of(codes[named.numbers(table)], len(hosts))
    for host, of_host in zip(hosts.tolist(), rows, strict=True):
        if len(of_host):
            yield _series(run, f"{host} {way}".strip(), host, table.take(of_host), column)


def _rows_of(numbers: Array, count: int) -> list[Array]:
    """Return the rows with number 0, the rows with number 1, and so on, up to ``count - 1``."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    return [order[begin:end] for begin, end in pairwise(bounds)]


def _series(run: Run, label: str, host: str, table: pd.DataFrame, column: str) -> Series:
    if column not in table:
        return Series(label, host, np.empty(0), np.empty(0))
    times = run.since_begin(table["time"])
    values = table[column].to_numpy(dtype=float)
    known = np.isfinite(times) & np.isfinite(values) & (times >= 0)
    order = np.argsort(times[known], kind="stable")
    return Series(label, host, times[known][order], np.maximum(values[known][order], 0.0))


#: Maximum number of points in all series of a metric. Bounds of this number for a single series.
_MAX_POINTS = 200_000
_SERIES_POINTS = 100, 1500
#: Limits that charts show, by metric: column of `Trace.workers`, kind of limit, and label.
_LIMITS = {
    "memory": (
        ("memory_limit", "limit", "a worker's limit"),
        ("memory_pause", "pause", "a worker pauses"),
        ("memory_spill", "spill", "a worker spills to disk"),
    ),
    "results": (("memory_target", "spill", "a worker spills to disk"),),
}
#: Maximum number of different limits of one kind in a chart.
_MOST_LIMITS = 3
#: Number of steps between 0 and a metric's maximum. Values are stored as multiples of a step.
_STEPS = 0xFFFF

_ABSENT = {
    "gpu": "no reading of a GPU was recorded",
    "gpu_memory": "no reading of a GPU was recorded",
}


def resource_columns(run: Run) -> tuple[dict[str, PackedColumn], list[dict[str, Any]]]:
    """Pack the data of the page's resource charts.

    Long series are averaged over time windows.

    Returns
    -------
    columns, metrics
        The columns, and a dict per metric with ``name``, ``label`` and ``unit``. Further entries
        depend on the metric:

        - with samples: ``series`` (the ``label`` of each, and the index ``first`` of its first
          sample), ``highest`` (the maximum), and ``limits`` (``value``, ``kind`` and ``name`` of
          each)
        - with stacked series: also ``stacked``, ``peak`` (the time of the peak), and ``anatomy``
          (whether a table explains the peak)
        - without samples: ``absent`` (the reason)
    """
    columns: dict[str, PackedColumn] = {}
    metrics: list[dict[str, Any]] = []
    for metric in metrics_of(run):
        facts: dict[str, Any] = {"name": metric.name, "label": metric.label, "unit": metric.unit}
        known = [series for series in metric.series if len(series.times)]
        if known:
            facts |= _pack(metric.name, known, columns)
            facts["limits"] = _limits(metric.name, run)
        else:
            facts["absent"] = _ABSENT.get(metric.name, "no sample of it was recorded")
        metrics.append(facts)
        if metric.name == "results" and (held := results_over_time(run)) is not None:
            anatomy = bool(len(run.samples))  # Whether the page has the table `memory_peak`.
            metrics.append(_by_function(held, columns) | {"anatomy": anatomy})
    return columns, metrics


def _by_function(held: ResultsOverTime, columns: dict[str, PackedColumn]) -> dict[str, Any]:
    """Add the bytes of held results by function to `columns`, and return the metric's facts."""
    count, name = len(held.times), "held"
    highest = float(held.held.sum(axis=0).max())
    # The series of all functions have the same times.
    packed = {
        "times": seconds(np.tile(held.times, len(held.functions)), delta=True),
        "values": scaled(held.held.ravel(), step=(highest or 1.0) / _STEPS),
    }
    columns |= in_group(f"metric-{name}", packed)
    return {
        **{"name": name, "label": "Results by function", "unit": "B", "highest": highest},
        "series": [{"label": f, "first": at * count} for at, f in enumerate(held.functions)],
        **{"limits": [], "stacked": True, "peak": held.peak},
    }


def _limits(name: str, run: Run) -> list[dict[str, Any]]:
    """Return the limits to show in the chart of a metric, with ``value``, ``kind`` and ``name``."""
    if name == "cpu":
        return [{"value": 100.0, "kind": "limit", "name": "one core"}]
    if name == "gpu":
        return [{"value": 100.0, "kind": "limit", "name": "all of it"}]
    lines = []
    for column, kind, label in _LIMITS.get(name, ()):
        workers = run.workers[run.workers["kind"] == "worker"]
        values = sorted(set(workers[column].dropna())) if column in workers else []
        about = {"kind": kind, "name": label}
        lines += [{"value": float(value), **about} for value in values[:_MOST_LIMITS]]
    return lines


def _pack(name: str, series: list[Series], columns: dict[str, PackedColumn]) -> dict[str, Any]:
    least, most = _SERIES_POINTS
    points = int(np.clip(_MAX_POINTS // len(series), least, most))
    short = [_averaged(each, points) for each in series]
    lengths = [len(each.times) for each in short]
    firsts = np.r_[0, np.cumsum(lengths)][:-1].tolist()
    times = np.concatenate([each.times for each in short])
    values = np.concatenate([each.values for each in short])
    highest = float(values.max())
    step = (highest or 1.0) / _STEPS
    packed = {"times": seconds(times, delta=True), "values": scaled(values, step=step)}
    columns |= in_group(f"metric-{name}", packed)
    listed = [{"label": each.label, "first": at} for each, at in zip(short, firsts, strict=True)]
    return {"series": listed, "highest": highest}


def _averaged(series: Series, points: int) -> Series:
    """Average a series over time windows of equal length, if it has more points than `points`."""
    times, values = series.times, series.values
    if len(times) <= points:
        return series
    places = ((times - times[0]) / (times[-1] - times[0] or 1.0) * points).astype(np.int64)
    counts = np.bincount(places)
    filled = np.flatnonzero(counts)

    def mean(numbers: Array) -> Array:
        return np.bincount(places, weights=numbers)[filled] / counts[filled]

    return Series(series.label, series.host, mean(times), mean(values))
