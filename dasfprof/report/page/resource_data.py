"""Samples of resources as the columns of a page: `ResourceData`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.analysis.model.held_results import ResultsOverTime, results_over_time
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array
from dasfprof.report.page.packing import PackedColumn, in_group, scaled, seconds
from dasfprof.report.resource_series import Series, metrics_of

#: Points of all series of a metric together, and of one series.
_MAX_POINTS = 200_000
_SERIES_POINTS = 100, 1500
#: What the readings of a metric are compared with: the column of `Trace.workers`, its kind, and its
#: name where all workers have the same, else of some of them.
_LIMITS = {
    "memory": (
        ("memory_limit", "limit", "a worker's limit", "limit of some workers"),
        ("memory_pause", "pause", "a worker pauses", "some workers pause"),
        ("memory_spill", "spill", "a worker spills to disk", "some workers spill to disk"),
    ),
    "results": (
        ("memory_target", "spill", "a worker spills to disk", "some workers spill to disk"),
    ),
}
#: Lines that a chart has of one kind.
_MOST_LIMITS = 3
#: Values are stored as parts of their metric's highest.
_STEPS = 0xFFFF

_ABSENT = {
    "gpu": "no reading of a GPU was recorded",
    "gpu_memory": "no reading of a GPU was recorded",
}


@dataclass(frozen=True)
class ResourceData:
    """What the page's charts of resources are drawn from."""

    columns: dict[str, PackedColumn]
    #: A dict a metric: ``name, label, unit, series`` (``label, first``), ``highest``, ``limits``
    #: (``value, kind, name`` of each), of one whose series stand on each other ``stacked``,
    #: ``peak`` (its time) and ``anatomy`` (whether a table tells of that); or ``absent`` with the
    #: reason.
    metrics: list[dict[str, Any]]

    @classmethod
    def of(cls, run: Run) -> ResourceData:
        """Make the columns; long series are averaged over parts of the run."""
        columns: dict[str, PackedColumn] = {}
        metrics: list[dict[str, Any]] = []
        for metric in metrics_of(run):
            facts: dict[str, Any] = {
                "name": metric.name,
                "label": metric.label,
                "unit": metric.unit,
            }
            known = [series for series in metric.series if len(series.times)]
            if known:
                facts |= _pack(metric.name, known, columns)
                facts["limits"] = _limits(metric.name, run)
            else:
                facts["absent"] = _ABSENT.get(metric.name, "no sample of it was recorded")
            metrics.append(facts)
            if metric.name == "results" and (held := results_over_time(run)) is not None:
                anatomy = bool(len(run.samples))  # for the table `memory_peak`
                metrics.append(_by_function(held, columns) | {"anatomy": anatomy})
        return cls(columns, metrics)


def _by_function(held: ResultsOverTime, columns: dict[str, PackedColumn]) -> dict[str, Any]:
    """Pack the results held, by function: each series has the times of all."""
    count, name = len(held.times), "held"
    highest = float(held.held.sum(axis=0).max())
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
    """Return what readings of a metric are to be compared with."""
    if name == "cpu":
        return [{"value": 100.0, "kind": "limit", "name": "one core"}]
    if name == "gpu":
        return [{"value": 100.0, "kind": "limit", "name": "all of it"}]
    lines = []
    for column, kind, of_all, of_some in _LIMITS.get(name, ()):
        workers = run.workers[run.workers["kind"] == "worker"]
        values = sorted(set(workers[column].dropna())) if column in workers else []
        same = len(values) == 1 and workers[column].notna().all()
        about = {"kind": kind, "name": of_all if same else of_some}
        lines += [{"value": float(value), **about} for value in values[:_MOST_LIMITS]]
    return lines


def _pack(name: str, series: list[Series], columns: dict[str, PackedColumn]) -> dict[str, Any]:
    least, most = _SERIES_POINTS
    points = int(np.clip(_MAX_POINTS // len(series), least, most))
    short = [_averaged(one, points) for one in series]
    lengths = [len(one.times) for one in short]
    firsts = np.r_[0, np.cumsum(lengths)][:-1].tolist()
    times = np.concatenate([one.times for one in short])
    values = np.concatenate([one.values for one in short])
    highest = float(values.max())
    step = (highest or 1.0) / _STEPS
    packed = {"times": seconds(times, delta=True), "values": scaled(values, step=step)}
    columns |= in_group(f"metric-{name}", packed)
    listed = [{"label": one.label, "first": at} for one, at in zip(short, firsts, strict=True)]
    return {"series": listed, "highest": highest}


def _averaged(series: Series, points: int) -> Series:
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

    return Series(series.label, series.host, mean(times), mean(values))
