"""Readings of resources as series over time: of workers, hosts and GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpus import gpu_samples
from dasfprof.analysis.model.run_memory import memory_of_others
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.database.columns import Array
from dasfprof.schema.resources import HOST_COUNTERS

# --- The tracks of the timelines: one for each thread of each worker ------------------------------


class ThreadTracks:
    """One track for each thread, the threads of a worker in the order of their first task.

    Parameters
    ----------
    trace
        The trace.
    placed, starts
        The rows of `Trace.tasks` that have a time, and when they start.
    threads
        How many threads each named worker has: those that ran nothing have tracks too. Default:
        only threads that ran something have.
    """

    def __init__(
        self, run: Run, placed: Array, starts: Array, threads: Array | None = None
    ) -> None:
        named = run.named
        tasks = run.tasks
        names = named.titles()
        by_name = sorted(range(len(names)), key=lambda number: natural_order(names[number]))
        workers = np.argsort(np.array(by_name, dtype=np.int64))[named.numbers(tasks)[placed]]
        codes = tasks["thread"].cat.codes.to_numpy()[placed].astype(np.int64)
        most = int(codes.max(initial=0)) + 2
        if threads is not None:
            most += int(threads.max(initial=0))
        codes, pairs = pd.factorize(workers * most + codes + 1)
        if threads is not None:
            pairs = np.append(pairs, _unused(pairs, most, threads[by_name]))
        first_start = np.full(len(pairs), np.inf)
        np.minimum.at(first_start, codes, starts)
        of_pair, thread_of_pair = np.divmod(pairs, most)
        # A worker's coroutines, which run in its event loop, come last.
        in_order = np.lexsort((first_start, thread_of_pair == 0, of_pair))
        place = np.argsort(in_order)
        track = place[codes]
        #: Rows of `placed` by track and start.
        self.order = np.lexsort((starts, track))
        #: Where the rows of each track begin, and the end.
        self.offsets = np.r_[0, np.cumsum(np.bincount(track, minlength=len(pairs)))]
        #: Names of the workers that have tracks, and their hosts.
        self.workers: list[str] = []
        self.hosts: list[str] = []
        #: For each track ``worker`` (place in `workers`), ``thread`` (from 0; None: the worker's
        #: coroutines) and ``first`` (its first row).
        self.facts: list[dict[str, Any]] = []
        last, thread = -1, 0
        for number, pair in enumerate(in_order.tolist()):
            if of_pair[pair] != last:
                last, thread = int(of_pair[pair]), 0
                self.workers.append(str(names[by_name[last]]))
                self.hosts.append(str(named.hosts[by_name[last]]))
            coroutines = thread_of_pair[pair] == 0
            self.facts.append(
                {
                    "worker": len(self.workers) - 1,
                    "thread": None if coroutines else thread,
                    "first": int(self.offsets[number]),
                }
            )
            thread += 1

    def busy_shares(self, starts: Array, durations: Array, span: float, bins: int) -> list[str]:
        """Return for each track the busy share of each part of the run, a digit from 0 to 9."""
        edges = np.linspace(0.0, span, bins + 1)
        shares = []
        for begin, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            busy = busy_until(edges, starts[begin:end], durations[begin:end])
            share = np.clip(np.diff(busy) / (span / bins or 1.0), 0.0, 1.0)
            tenths = np.ceil(share * 9).astype(np.uint8) + ord("0")
            shares.append(tenths.tobytes().decode("ascii"))
        return shares


def _unused(pairs: Array, most: int, threads: Array) -> Array:
    """Number the threads that each worker has beyond those of some pairs."""
    workers, codes = np.divmod(pairs, most)
    used = np.bincount(workers[codes > 0], minlength=len(threads))
    unused = np.maximum(threads - used, 0)
    worker = np.repeat(np.arange(len(threads)), unused)
    within = np.arange(len(worker)) - np.repeat(np.cumsum(unused) - unused, unused)
    numbers: Array = worker * most + most - 1 - within
    return numbers


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key that puts numbers in names in their order: 2 before 10."""
    parts = re.split(r"([0-9]{1,15})", str(name))
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def busy_until(times: Array, starts: Array, durations: Array) -> Array:
    """Sum the seconds that tasks, ordered by start, had run until each of some times."""
    ends = np.sort(starts + durations)
    order_sums = np.r_[0.0, np.cumsum(starts)]
    end_sums = np.r_[0.0, np.cumsum(ends)]
    begun = np.searchsorted(starts, times)
    ended = np.searchsorted(ends, times)
    # The sum of min(time, end) - start over the tasks that have begun.
    busy: Array = (begun - ended) * times + end_sums[ended] - order_sums[begun]
    return busy


# --- Readings of resources as series over time: of workers, hosts and GPUs ------------------------

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
