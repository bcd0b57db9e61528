"""How busy each GPU was, over time and in total, and whether it idled while tasks ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.gpu_samples import GpuSamples
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.numeric.sample_means import held_until
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

_BEGIN = "Time Interval (seconds from begin)"

#: The columns, see `TraceAnalyser`.
_DTYPES = {
    "Host": "object",
    "GPU": "Int64",
    "Name": "object",
    "Workers": "object",
    _BEGIN: "float64",
    "Time (s)": "float64",
    "Mean GPU Utilization (%)": "float64",
    "Max GPU Utilization (%)": "float64",
    "Mean GPU Memory Used (GB)": "float64",
    "Max GPU Memory Used (GB)": "float64",
    "GPU Memory (GB)": "float64",
    "Mean Power (W)": "float64",
    "Tasks Ran (%)": "float64",
    "Idle While Tasks Ran (%)": "float64",
    "Idle While No Task Ran (%)": "float64",
    "Samples": "int64",
    "UUID": "object",
}


def per_gpu_utilisation(trace: Trace, interval: float | None = None) -> pd.DataFrame:
    """Tell how busy each GPU was; see `TraceAnalyser`."""
    if interval is not None and not interval > 0:
        raise InvalidArgumentError(
            f"interval={interval!r}: give seconds, more than 0, or None for the whole run."
        )
    workers = NamedWorkers(trace)
    devices = GpuSamples(trace, workers).devices() if trace.begin < trace.end else []
    edges = np.array([trace.begin, trace.end])
    if interval is not None and devices:
        count = max(int(np.ceil((trace.end - trace.begin) / interval)), 1)
        edges = trace.begin + interval * np.arange(count + 1)
    tasks = trace.tasks
    of_task, starts = workers.numbers(tasks), tasks["start"].to_numpy()
    stops = starts + tasks["duration"].to_numpy()
    titles = workers.titles()
    tables = [pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in _DTYPES.items()})]
    for device in devices:
        own = np.isin(of_task, device.workers)
        columns = {
            "Host": device.host,
            "GPU": pd.NA if np.isnan(device.index) else int(device.index),
            "Name": device.name,
            "Workers": ", ".join(titles[number] for number in device.workers),
            "UUID": device.uuid,
            _BEGIN: edges[:-1] - trace.begin,
            **_integrate(device.samples, edges, union(starts[own], stops[own])),
        }
        tables.append(pd.DataFrame(columns)[list(_DTYPES)].astype(_DTYPES))
    table = pd.concat(tables[1:] or tables, ignore_index=True)
    return table if interval is not None else table.drop(columns=_BEGIN)


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
        "Time (s)": total(sampled * seconds),
        "Mean GPU Utilization (%)": mean(utilization),
        "Max GPU Utilization (%)": highest(utilization),
        "Mean GPU Memory Used (GB)": mean(memory) / 1e9,
        "Max GPU Memory Used (GB)": highest(memory) / 1e9,
        "GPU Memory (GB)": highest(reading("memory_total")) / 1e9,
        "Mean Power (W)": mean(reading("power")),
        "Tasks Ran (%)": mean(np.where(sampled, 100.0 * busy, np.nan)),
        "Idle While Tasks Ran (%)": mean(idle * busy),
        "Idle While No Task Ran (%)": mean(idle * ~busy),
        "Samples": np.bincount(places, minlength=len(edges) - 1),
    }


def _inside(times: Array, starts: Array, stops: Array) -> Array:
    """Tell which times are within intervals that are apart and in order."""
    place = np.searchsorted(starts, times, side="right") - 1
    found = place >= 0
    found[found] = times[found] < stops[place[found]]
    return found
