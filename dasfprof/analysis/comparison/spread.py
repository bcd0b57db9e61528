"""How much the wall time of a run might be by chance, as far as the run alone can tell."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.critical_path import (
    SegmentKind,
    find_path,
    path_seconds,
    path_segments,
)
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: Of a normal spread, what its median absolute deviation is multiplied by.
_TO_DEVIATION = 1.4826
#: Runs of a function from which on its spread is known.
_ENOUGH = 4
#: Parts of a run whose speeds are compared, and runs of tasks that each must have.
_PARTS, _ENOUGH_IN_PART = 8, 4


def relative_spread(trace: Trace) -> float:
    """Estimate the standard deviation of a run's wall time, as a share of it; NaN: unknown.

    Two things vary. Tasks of the same function differ: those of the critical path sum to the wall
    time, and so do their variances. And the machine's speed changes: as much between runs, it
    is supposed, as between the eighths of this one.
    """
    tasks, wall = trace.tasks, path_seconds(trace)
    if not len(tasks) or not wall > 0:
        return float("nan")
    seconds = tasks["duration"].to_numpy(dtype=float)
    groups = Groups(tasks["function"].cat.codes.to_numpy(), len(tasks["function"].cat.categories))
    known = (groups.sizes >= _ENOUGH)[groups.codes]
    if not known.any():
        return float("nan")
    deviation = groups.deviation(seconds) * _TO_DEVIATION
    path = find_path(trace).rows
    path = path[path < len(tasks)]
    on_path = path[known[path]]
    by_tasks = float(np.sqrt((deviation[groups.codes[on_path]] ** 2).sum())) / wall
    relative = seconds[known] / groups.median(seconds)[groups.codes[known]]
    by_speed = _spread_of_speed(tasks["start"].to_numpy(dtype=float)[known], relative)
    return float(np.hypot(by_tasks, by_speed * _share_of_functions(trace)))


def _spread_of_speed(start: Array, relative: Array) -> float:
    """Return by how much parts of a run differ in the time that a usual task takes.

    Less what medians of so few tasks differ by without any change of speed: 1.25 standard errors.
    """
    edges = np.linspace(start.min(), start.max(), _PARTS + 1)[1:-1]
    parts = Groups(np.searchsorted(edges, start, side="right"), _PARTS)
    enough = parts.sizes >= _ENOUGH_IN_PART
    speeds, sizes = parts.median(relative)[enough], parts.sizes[enough]
    if np.count_nonzero(np.isfinite(speeds)) < 2:
        return 0.0
    of_tasks = _TO_DEVIATION * parts.deviation(relative)[enough]
    by_chance = float(np.mean((1.25 * of_tasks) ** 2 / sizes))
    return float(np.sqrt(max(float(speeds.var(ddof=1)) - by_chance, 0.0)))


def _share_of_functions(trace: Trace) -> float:
    """Return the share of the critical path in which functions ran."""
    found = path_segments(trace)
    ran = found.length[found.kind == SegmentKind.COMPUTE].sum()
    return float(ran / found.length.sum())
