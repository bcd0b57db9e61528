"""The chain of waits and work that made the run as long as it was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dasfprof.analysis.model.busy_time import RunningSeconds, running_seconds
from dasfprof.analysis.model.predecessors import (
    CLIENT,
    NOTHING,
    find_predecessors,
)
from dasfprof.analysis.model.run import AnyRun, Run, once_per_run, run_of
from dasfprof.analysis.model.times import to_ticks
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.database.columns import Array


class SegmentKind(IntEnum):
    """What a segment of the critical path was spent on."""

    CLIENT = 0
    SCHEDULER = 1
    ON_ITS_WAY = 2
    TRANSFER = 3
    WORKER = 4
    UNSPILL = 5
    TASK_OVERHEAD = 6
    COMPUTE = 7
    UNKNOWN = 8


#: The segments of one run, from the finish that bound it to its own: the stage in which each ends.
_STEPS = (
    ("arrival", SegmentKind.CLIENT),
    ("sent", SegmentKind.SCHEDULER),
    ("received", SegmentKind.ON_ITS_WAY),
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


@once_per_run
def path_segments(run: Run) -> PathSegments:
    """Cut the critical path into segments."""
    path = find_path(run)
    begins = np.vstack([path.begin, path.edges[:-1]])
    with np.errstate(invalid="ignore"):  # of times beyond any clock
        lengths = path.edges - begins
    place, step = np.nonzero(lengths.T > 0)
    kinds = np.array([kind for _, kind in _STEPS], dtype=np.int64)
    if not run.ended.at_scheduler:
        kinds[:3] = SegmentKind.UNKNOWN
    rows = path.rows[place]
    unknown = run.ended.slots.reception_unknown[rows]
    kind = np.where(
        unknown & (kinds[step] == SegmentKind.ON_ITS_WAY), SegmentKind.UNKNOWN, kinds[step]
    )
    return PathSegments(rows, kind, begins[step, place], lengths[step, place])


@once_per_run
def find_path(run: Run) -> CriticalPath:
    """Walk from the last finish back to the first submission, through what bound each run."""
    slots, predecessors = run.ended.slots, find_predecessors(run)
    times = slots.times
    rows, enters = [], []
    row = int(np.argmax(times.known)) if len(times) else -1
    enter = times.known[row] if len(times) else 0.0
    bound, at = predecessors.row, predecessors.time
    while row >= 0:
        rows.append(row)
        enters.append(enter)
        row, enter = int(bound[row]), at[row]
    path, end = np.array(rows[::-1], dtype=np.int64), np.array(enters[::-1])
    # By clocks that differ, a run may have ended before the one that it waited for: the path never
    # goes back in time, so that its segments sum to the wall time.
    end = np.minimum.accumulate(end[::-1])[::-1]
    begin = np.append(times.arrival.min(initial=np.inf), end[:-1])[: len(path)]
    edges = np.empty((len(_STEPS), len(path)))
    disk = np.zeros(len(slots.worker))
    tasks = run.ended.tasks
    if "disk_read" in tasks:
        disk[: len(tasks)] = np.nan_to_num(tasks["disk_read"].to_numpy(dtype=float))
    unspilled = to_ticks(np.minimum(times.executing + np.maximum(disk, 0.0), times.start))
    by_client = np.isin(predecessors.kind[path], (CLIENT, NOTHING))
    stages = {**vars(times), "unspilled": unspilled, "sent": slots.sent}
    for step, (stage, _) in enumerate(_STEPS):
        edges[step] = stages[stage][path]
    edges[0] = np.where(by_client, edges[0], begin)
    return CriticalPath(path, begin, end, np.clip(edges, begin, end))


def path_seconds(run: AnyRun) -> float:
    """Return the wall time from the first submission to the last known finish; NaN without any."""
    path = find_path(run)
    return float(path.end[-1] - path.begin[0]) if len(path.rows) else float("nan")


def running_on_path(source: AnyRun) -> RunningSeconds:
    """Split the segments in which functions ran; NaN for the others, and where nothing tells.

    A segment that is a part of its run only has its share of each.
    """
    run = run_of(source)
    found, tasks = path_segments(run), run.ended.tasks
    rows, whole = found.rows, tasks["duration"].to_numpy(dtype=float)
    told = np.flatnonzero((found.kind == SegmentKind.COMPUTE) & (rows < len(whole)))
    share = ratio(found.length[told], whole[rows[told]])
    split = running_seconds(tasks).of(rows[told], share)
    parts = []
    for seconds in (split.cpu, split.core_wait, split.blocked):
        part = np.full(len(rows), np.nan)
        part[told] = seconds
        parts.append(part)
    return RunningSeconds(*parts)
