"""Readings of resources as series over time: of workers, hosts and GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.model.run_memory import memory_of_others
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.database.columns import Array
from dasfprof.report.thread_tracks import natural_order
from dasfprof.schema.resources import HOST_COUNTERS

_UNITS = {"bytes": "B", "seconds": "s"}


@dataclass(frozen=True)
class Series:
    """What was read of one worker, host or device."""

    #: Who or what, with the direction where there are two.
    label: str
    host: str
    #: Seconds from the trace's begin, in order, and what was read then.
    times: Array
    values: Array


@dataclass(frozen=True)
class Metric:
    """A kind of reading."""

    name: str
    label: str
    #: ``%``, ``B``, ``B/s``, or empty for numbers.
    unit: str
    #: In the order of names, 2 before 10; one without readings is empty.
    series: Sequence[Series]


def metrics_of(run: Run) -> Iterator[Metric]:
    """Yield the metrics of a trace; those without readings too."""
    named = run.named
    samples, held = run.samples, run.managed_memory
    for name, label, unit, table, column in (
        ("cpu", "CPU of workers", "%", samples, "cpu"),
        ("memory", "Memory of workers", "B", samples, "memory"),
        ("results", "Results held", "B", held, "size"),
        ("tasks", "Tasks in memory", "", held, "tasks"),
    ):
        yield Metric(name, label, unit, list(_of_workers(run, table, column, named)))
    for name, label, series in (
        ("other_memory", "Memory of the scheduler and the client", _of_others(run)),
        ("device_results", "Results on GPUs", _of_devices(run, named)),
    ):
        if any(len(one.times) for one in series):
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
        if drawn and (samples[counter.name] > 0).any():  # else a line at zero
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


def _of_others(run: Run) -> list[Series]:
    others = memory_of_others(run).items()
    return [Series(name, one.host, one.time, one.memory) for name, one in others]


def _of_devices(run: Run, named: NamedWorkers) -> list[Series]:
    return list(_of_workers(run, run.device_memory, "device_size", named))


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
    """Return the rows of each number."""
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
