"""The chain of waits and work that made the run as long as it was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dasfprof.analysis.model.constraints import (
    CLIENT,
    NOTHING,
    find_constraints,
)
from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.slots import task_slots, unseen_runs
from dasfprof.analysis.model.times import to_ticks
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


class SegmentKind(IntEnum):
    """What a segment of the critical path was spent on."""

    CLIENT = 0
    SCHEDULER = 1
    TRANSFER = 2
    WORKER = 3
    UNSPILL = 4
    TASK_OVERHEAD = 5
    COMPUTE = 6
    UNKNOWN = 7


#: The segments of one run, from the finish that bound it to its own: the stage in which each ends.
_STEPS = (
    ("arrival", SegmentKind.CLIENT),
    ("received", SegmentKind.SCHEDULER),
    ("ready", SegmentKind.TRANSFER),
    ("executing", SegmentKind.WORKER),
    ("unspilled", SegmentKind.UNSPILL),
    ("start", SegmentKind.TASK_OVERHEAD),
    ("stop", SegmentKind.COMPUTE),
    ("done", SegmentKind.TASK_OVERHEAD),
    ("known", SegmentKind.SCHEDULER),
)


@dataclass(frozen=True)
class CriticalPath:
    """The path, from its first task run to its last: rows of `TaskSlots`."""

    rows: Array
    #: For each run when the finish that bound it was, and when the path goes on to the next.
    begin: Array
    end: Array
    #: When each of its segments ended, of shape (`_STEPS`, runs).
    edges: Array


@dataclass(frozen=True)
class PathSegments:
    """The segments of the critical path that take any time, in their order."""

    #: Rows of `TaskSlots`, and of each segment its `SegmentKind`.
    rows: Array
    kind: Array
    #: Seconds from the trace's begin, and seconds.
    begin: Array
    length: Array


@once_per_trace
def path_segments(trace: Trace) -> PathSegments:
    """Cut the critical path into segments."""
    path = find_path(trace)
    begins = np.vstack([path.begin, path.edges[:-1]])
    with np.errstate(invalid="ignore"):  # of times beyond any clock
        lengths = path.edges - begins
    run, step = np.nonzero(lengths.T > 0)
    kinds = np.array([kind for _, kind in _STEPS], dtype=np.int64)
    if "sent" not in trace.tasks:
        kinds[:2] = SegmentKind.UNKNOWN
    return PathSegments(path.rows[run], kinds[step], begins[step, run], lengths[step, run])


@once_per_trace
def find_path(trace: Trace) -> CriticalPath:
    """Walk from the last finish back to the first submission, through what bound each run."""
    slots, constraints = task_slots(trace), find_constraints(trace)
    times = slots.times
    rows, enters = [], []
    row = int(np.argmax(times.known)) if len(times) else -1
    enter = times.known[row] if len(times) else 0.0
    bound, at = constraints.row, constraints.time
    while row >= 0:
        rows.append(row)
        enters.append(enter)
        row, enter = int(bound[row]), at[row]
    path, end = np.array(rows[::-1], dtype=np.int64), np.array(enters[::-1])
    begin = np.append(times.arrival.min(initial=np.inf), end[:-1])[: len(path)]
    edges = np.empty((len(_STEPS), len(path)))
    disk = np.zeros(len(slots.worker))
    if "disk_read" in trace.tasks:
        disk[: len(trace.tasks)] = np.nan_to_num(trace.tasks["disk_read"].to_numpy(dtype=float))
    unspilled = to_ticks(np.minimum(times.executing + np.maximum(disk, 0.0), times.start))
    by_client = np.isin(constraints.kind[path], (CLIENT, NOTHING))
    stages = {"unspilled": unspilled, **vars(times)}
    for step, (stage, _) in enumerate(_STEPS):
        edges[step] = stages[stage][path]
    edges[0] = np.where(by_client, edges[0], begin)
    return CriticalPath(path, begin, end, np.clip(edges, begin, end))


def run_columns(trace: Trace, name: str) -> Array:
    """Return a column of the rows of `TaskSlots`."""
    unseen = unseen_runs(trace)
    return np.concatenate([trace.tasks[name].to_numpy(), unseen[name].to_numpy()])
