"""Resource samples as time series, and as columns of the page for its charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    rows: dict[Any, Any] = table.groupby(named.numbers(table)).indices
    titles = named.titles()
    for number in sorted(range(len(named)), key=lambda place: natural_order(titles[place])):
        of_worker = table.take(rows.get(number, []))
        yield _series(run, titles[number], named.hosts[number], of_worker, column)


def _of_hosts(run: Run, column: str, way: str, named: NamedWorkers) -> Iterable[Series]:
    table = run.samples[(run.samples["host_read"] == 1).to_numpy()]
    for host, of_host in table.groupby(named.hosts.astype(str)[named.numbers(table)]):
        yield _series(run, f"{host} {way}".strip(), str(host), of_host, column)


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
#: Limits that charts show, by metric: value or column of `Trace.workers`, kind, and label.
_LIMITS: dict[str, tuple[tuple[str | float, str, str], ...]] = {
    "memory": (
        ("memory_limit", "limit", "a worker's limit"),
        ("memory_pause", "pause", "a worker pauses"),
        ("memory_spill", "spill", "a worker spills to disk"),
    ),
    "results": (("memory_target", "spill", "a worker spills to disk"),),
    "cpu": ((100.0, "limit", "one core"),),
    "gpu": ((100.0, "limit", "all of it"),),
}
#: Maximum number of different limits of one kind in a chart.
_MOST_LIMITS = 3
#: Number of steps between 0 and a metric's maximum. Values are stored as multiples of a step.
_STEPS = 0xFFFF

_ABSENT = dict.fromkeys(("gpu", "gpu_memory"), "no reading of a GPU was recorded")


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
    named = zip(held.functions, held.held, strict=True)
    series = [Series(name, "", held.times, values) for name, values in named]
    facts = _pack("held", series, columns, float(held.held.sum(axis=0).max()))
    about = {"name": "held", "label": "Results by function", "unit": "B"}
    return {**about, **facts, "limits": [], "stacked": True, "peak": held.peak}


def _limits(name: str, run: Run) -> list[dict[str, Any]]:
    """Return the limits to show in the chart of a metric, with ``value``, ``kind`` and ``name``."""
    lines = []
    workers = run.workers[run.workers["kind"] == "worker"]
    for limit, kind, label in _LIMITS.get(name, ()):
        values = [limit] if isinstance(limit, float) else []
        if limit in workers:
            values = sorted(set(workers[limit].dropna()))
        about = {"kind": kind, "name": label}
        lines += [{"value": float(value), **about} for value in values[:_MOST_LIMITS]]
    return lines


def _pack(
    name: str, series: list[Series], columns: dict[str, PackedColumn], highest: float | None = None
) -> dict[str, Any]:
    """Add series to `columns`, and return their facts. `highest` is the maximum of the chart."""
    least, most = _SERIES_POINTS
    points = int(np.clip(_MAX_POINTS // len(series), least, most))
    short = [_averaged(each, points) for each in series]
    lengths = [len(each.times) for each in short]
    firsts = np.r_[0, np.cumsum(lengths)][:-1].tolist()
    times = np.concatenate([each.times for each in short])
    values = np.concatenate([each.values for each in short])
    highest = float(values.max()) if highest is None else highest
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
